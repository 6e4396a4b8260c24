"""Errors that are written for the person who reads them: what was wrong, where, what to do, in one line."""

import difflib
import os
import sysconfig
import traceback
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


def describe_exception(error: BaseException) -> str:
    """Return an exception in one line with the place that raised it: "ValueError: no such mass (my_env.py:17)".

    The place is the innermost line outside of Python and of installed packages, where there is one.
    """
    text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    installed = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(("<", *installed))]
    if not frames:
        return text
    place = (own or frames)[-1]
    return f"{text} ({os.path.basename(place.filename)}:{place.lineno})"
