"""Errors that are written for the person who reads them: what was wrong, where, what to do, in one line."""

import difflib
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).parent
LIBRARIES = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
LISTED = 16  # options that an error lists at most


class SparcError(Exception):
    """Any failure that sparc explains in one line instead of a traceback."""

    exit_code = 1


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
    own = [frame for frame in frames if not is_in(frame.filename, LIBRARIES)]
    chosen = (own or frames)[-1:]
    return "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in chosen)


def is_in(file: str, folders: list[Path]) -> bool:
    """Return whether a file is in one of these folders, or in none at all, as code that Python itself made."""
    return file.startswith("<") or any(Path(file).is_relative_to(folder) for folder in folders)
