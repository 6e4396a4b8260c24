"""Errors that are written for the person who reads them: what was wrong, where, what to do, in one line."""

import difflib
import errno
import os
import resource
import shutil
import traceback
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).parent
PYTHON = Path(os.__file__).parent  # its own library
INSTALLED = {"site-packages", "dist-packages"}  # folders of installed packages, Debian's and the user's own included
LISTED = 16  # options that an error lists at most
UNITS = ("bytes", "kB", "MB", "GB", "TB")


class SparcError(Exception):
    """Any failure that sparc explains in one line instead of a traceback; the line ends like a sentence."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(message if message.endswith((".", "?", "!")) else f"{message}.")


class UserError(SparcError):
    """Invalid user input: an unknown name or a value out of range."""

    exit_code = 2


class RunFailure(SparcError):
    """Something broke on the way: an unstable simulation, a damaged file, a full disk."""

    exit_code = 1


def unknown(
    kind: str, name: object, options: Iterable[str], see: str = "", of: str = "", complete: bool = True
) -> UserError:
    """Return the error for a name that is none of the options.

    It suggests the nearest option, or else lists them where they are few and complete.
    """
    text, known = str(name), list(options)
    lowered = {option.lower(): option for option in known}
    if close := difflib.get_close_matches(text.lower(), list(lowered), n=1):
        hint = f": did you mean '{lowered[close[0]]}'?"
    elif complete and 0 < len(known) <= LISTED:
        hint = f": choose one of {', '.join(known)}."
    elif complete and not known:
        hint = ": there are none."
    else:
        hint = "."
    return UserError(f"unknown {kind} '{text}'{f' of {of}' if of else ''}{hint}{f' See {see}.' if see else ''}")


def describe_exception(error: BaseException) -> str:
    """Return an exception in one line with the place that raised it: "ValueError: no such mass (my_env.py:17)"."""
    said = " ".join(str(error).split())
    return type(error).__name__ + (f": {said}" if said else "") + line_of(error)


def line_of(error: BaseException) -> str:
    """Return " (my_env.py:17)": the innermost line of the user's code, else of the library that raised the error."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_in(frame.filename, [PACKAGE])]
    own = [
        frame
        for frame in frames
        if not is_in(frame.filename, [PYTHON]) and not INSTALLED.intersection(Path(frame.filename).parts)
    ]
    chosen = (own or frames)[-1:]
    return "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in chosen)


def is_in(file: str, folders: list[Path]) -> bool:
    """Return whether a file is in one of these folders, or in none at all, as code that Python itself made."""
    return file.startswith("<") or any(Path(file).is_relative_to(folder) for folder in folders)


def cannot_write(path: Path, error: OSError, remedy: str, needed: int | None = None) -> RunFailure:
    """Return a failure that names the file, what is wrong with it, the space it needs, and what to do."""
    return RunFailure(f"Cannot write {path}: {describe_os_error(error, path, needed)}, then {remedy}.")


def explain_os_error(error: OSError) -> str:
    """Return an OSError that nothing else explains, with its file, where it names one, and what to do."""
    path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, (str, bytes)) else None
    described = describe_os_error(error, path)
    again = ", then run the command again" if "; " in described else ""
    return f"{f'{path}: ' if path else ''}{described}{again}."


def describe_os_error(error: OSError, path: Path | None = None, needed: int | None = None) -> str:
    """Return what a failed call of the system means and what to do first, without a full stop."""
    folder = next((found for found in path.absolute().parents if found.exists()), None) if path else None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        room = f"{in_bytes(shutil.disk_usage(folder).free)} free" if folder else ""
        sizes = " and ".join(filter(None, (f"{in_bytes(needed)} needed" if needed is not None else "", room)))
        which = "the disk is full" if error.errno == errno.ENOSPC else "the quota is used up"
        return f"{which}{f', {sizes}' if sizes else ''}; make room"
    if error.errno == errno.EFBIG:
        return f"{f'{in_bytes(needed)} are' if needed else 'it is'} more than a file may have here; see `ulimit -f`"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"too many open files, this process may have {limit:,}; raise that, `ulimit -n {max(4096, 2 * limit)}`"
    if error.errno == errno.ENOMEM:
        return "the memory is used up; end other programs"
    if error.errno == errno.ENOENT and path is not None and folder != path.absolute().parent:
        return f"its folder {path.parent} was moved or deleted; put it back"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"no permission ({os.strerror(error.errno)}); change that, or choose another folder"
    return error.strerror or str(error)


def in_bytes(size: float) -> str:
    """Return a size with its unit: 512 bytes, 3.1 MB."""
    power = 0
    while size >= 1000 and power < len(UNITS) - 1:
        size, power = size / 1000, power + 1
    return f"{size:.{0 if size >= 100 or not power else 1}f} {UNITS[power]}"
