"""Errors that are written for the person who reads them: what was wrong, where, what to do, in one line."""

import difflib
from collections.abc import Iterable


class SparcError(Exception):
    """Any failure that sparc explains in one line instead of a traceback."""

    exit_code = 1


class UserError(SparcError):
    """The user asked for something that cannot be: a wrong name, a value out of range."""

    exit_code = 2


class RunFailure(SparcError):
    """Something broke on the way: an unstable simulation, a damaged file, a full disk."""

    exit_code = 1


def nearest(name: str, options: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the option closest to name, or an empty string."""
    lowered = {option.lower(): option for option in options}
    close = difflib.get_close_matches(name.lower(), list(lowered), n=1)
    return f" Did you mean '{lowered[close[0]]}'?" if close else ""
