"""Files: atomic writes, locks, and tables as CSV, which may be packed by gzip once they are written."""

from __future__ import annotations

import csv
import fcntl
import gzip
import os
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from sparc.arrays import Array
from sparc.errors import UserError

LOCK_ATTEMPTS, LOCK_SECONDS = 10, 0.3


# Atomic writes


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Yield a path beside this one to write to; in the end it replaces this one, or is removed on failure."""
    new = path.with_name(f".{path.name}.new")
    try:
        yield new
        new.replace(path)
    except BaseException as error:
        with suppress(OSError):  # on a disk that fails: the first error counts
            new.unlink()
        if isinstance(error, OSError) and error.filename in (None, str(new)):  # a failed write names no file
            error.filename = str(path)
        raise


@contextmanager
def rewritten(path: Path, newline: str | None = None) -> Iterator[IO[str]]:
    """Open a text file to write it anew, all or nothing, also if the power goes."""
    with beside(path) as new, new.open("w", newline=newline, encoding="utf-8") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def replace(path: Path, content: str | bytes) -> None:
    """Write a file, all or nothing, also if the power goes."""
    with beside(path) as new:
        new.write_bytes(content.encode() if isinstance(content, str) else content)
        sync(new)


def sync(path: Path) -> None:
    """Force a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Locks: held by a process, and gone with it however it ends


class Lock:
    """A lock that this process holds until it is released."""

    def __init__(self, path: Path, what: str) -> None:
        """Take it, or raise a UserError that says who has it; `what` is what it is for."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # less the umask
        for attempt in range(LOCK_ATTEMPTS):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:  # someone may only be looking, see is_held
                if attempt + 1 < LOCK_ATTEMPTS:
                    time.sleep(LOCK_SECONDS / LOCK_ATTEMPTS)
                    continue
                owner = os.read(self._descriptor, 20).decode() or "unknown"
                os.close(self._descriptor)
                raise UserError(
                    f"{what} is in use by process {owner}: stop it first, wait for it, or choose another run."
                ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Let another process take it."""
        os.close(self._descriptor)


def is_held(lock: Path) -> bool:
    """Return whether a process holds a lock, which may be on a disk that is read-only."""
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


@contextmanager
def locked(lock: Path) -> Iterator[None]:
    """Wait for a lock and hold it for a while."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# Tables


class Damaged(ValueError):
    """A table is not as it was written; the message names the file and says what is wrong with it."""


@dataclass(frozen=True)
class Table:
    """Columns of a CSV file, as text."""

    file: str  # its name
    columns: dict[str, NDArray[np.str_]]  # (R,) each

    def text(self, name: str) -> NDArray[np.str_]:
        """Return a column as it is."""
        if name not in self.columns:
            raise Damaged(f"{self.file} has no column {name}")
        return self.columns[name]

    def numbers(self, name: str) -> Array:
        """Return a column of numbers; an empty cell is NaN."""
        column = self.text(name)
        try:
            return np.where(column == "", "nan", column).astype(np.float64)
        except ValueError:
            raise Damaged(f"{self.file} has a cell in column {name} that is not a number") from None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def part(self, rows: Any, without: Iterable[str] = ()) -> Table:
        """Return some of the rows, without some of the columns."""
        return Table(self.file, {name: column[rows] for name, column in self.columns.items() if name not in without})


def read_table(path: Path) -> Table:
    """Read what `write_table` wrote, or the packed file where there is only that.

    Raise Damaged if it is not whole, FileNotFoundError if it is missing.
    """
    try:
        text = read_unpacked(path).decode()
        names, *rows = list(csv.reader(StringIO(text, newline=""))) or [[]]
    except (EOFError, ValueError, csv.Error, zlib.error, gzip.BadGzipFile) as error:
        raise Damaged(f"{path.name} cannot be read: {error}") from None
    if not text.endswith("\n"):
        raise Damaged(f"{path.name} is cut short")
    if "'" in text:
        names, *rows = ([unshield(value) for value in row] for row in (names, *rows))
    for line, row in enumerate(rows, 2):
        if len(row) != len(names):
            raise Damaged(f"line {line} of {path.name} has {len(row)} cells instead of {len(names)}")
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return Table(path.name, {name: np.array(column, np.str_) for name, column in zip(names, columns, strict=True)})


def read_unpacked(path: Path) -> bytes:
    """Return the bytes of a table, unpacked where there is only its packed file."""
    packed = packed_as(path)
    return path.read_bytes() if path.exists() or not packed.exists() else gzip.decompress(packed.read_bytes())


def write_table(path: Path, columns: Iterable[str], rows: Iterable[Iterable[Any]], line_end: str = "\n") -> None:
    """Write a CSV file, all or nothing; text that a spreadsheet would run as a formula is quoted."""
    with rewritten(path, newline="") as file:
        writer = csv.writer(file, lineterminator=line_end)
        writer.writerow(map(shield, columns))
        writer.writerows(map(shield, row) for row in rows)
    packed_as(path).unlink(missing_ok=True)  # it would be older


def cell(value: Any) -> Any:
    """Write a number with the digits that matter; NaN as nothing."""
    if isinstance(value, str):
        return str(value)
    return "" if np.isnan(value) else f"{value:.8g}"


FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the beginning of one


def shield(value: Any) -> Any:
    """Quote text that a spreadsheet would run as a formula; `unshield` undoes it."""
    if not isinstance(value, str) or not value.lstrip("'").startswith(FORMULA):
        return value
    try:
        float(value)
        return value
    except ValueError:
        return f"'{value}"


def unshield(text: str) -> str:
    """Return what `shield` was given."""
    return text[1:] if text.startswith("'") and text[1:].lstrip("'").startswith(FORMULA) else text


def packed_as(path: Path) -> Path:
    """Return a table's packed file."""
    return path.with_name(f"{path.name}.gz")
