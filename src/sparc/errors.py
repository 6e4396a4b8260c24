"""Errors that are written for the person who reads them: what was wrong, where, what to do, in one line."""

import difflib
from collections.abc import Iterable

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
