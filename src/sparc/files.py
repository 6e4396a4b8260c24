"""Files: atomic writes, locks, and small tables as CSV, which may be packed by gzip once they are written."""

from __future__ import annotations

import csv
import fcntl
import gzip
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

import numpy as np


def held(lock: Path) -> bool:
    """Return whether a process holds a lock."""
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def replace(path: Path, text: str) -> None:
    """Write a file, all or nothing, also if the power goes."""
    beside = path.with_name(f".{path.name}.new")
    with beside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def cell(value: Any) -> Any:
    """Write a number with the digits that matter; NaN as nothing."""
    if isinstance(value, str):
        return shield(str(value))
    return "" if np.isnan(value) else f"{value:.8g}"


FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the beginning of one


def shield(text: str) -> str:
    """Quote text that a spreadsheet would run as a formula; `unshield` undoes it."""
    if not text.lstrip("'").startswith(FORMULA):
        return text
    try:
        float(text)
        return text
    except ValueError:
        return f"'{text}"


def unshield(text: str) -> str:
    """Return what `shield` was given."""
    return text[1:] if text.startswith("'") and text[1:].lstrip("'").startswith(FORMULA) else text


def write_table(path: Path, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file, all or nothing."""
    beside = path.with_name(f".{path.name}")
    with beside.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    beside.replace(path)
    packed_as(path).unlink(missing_ok=True)  # it would be older


def open_table(path: Path) -> TextIO:
    """Open a CSV file, or the one packed by gzip where there is only that."""
    if not path.exists() and (packed := packed_as(path)).exists():
        return gzip.open(packed, "rt", newline="")
    return path.open(newline="")


def packed_as(path: Path) -> Path:
    """Name a table's packed file."""
    return path.with_name(f"{path.name}.gz")
