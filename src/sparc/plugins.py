"""Code of other people: modules in the user's own folder, and packages that offer something through an entry point."""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points

from sparc.errors import UserError

NAMED = re.compile(r"([A-Za-z_][\w.]*):[\w.-]+")
_allowed: set[str] | None = None  # modules that may be imported by name; None: all


@contextmanager
def only_imports(modules: Iterable[str] | None) -> Iterator[None]:
    """Refuse to import other modules than these by "module:name" for a while; None allows all.

    So the command line treats names that stand in a config or suite file, which may be a stranger's.
    """
    global _allowed
    before, _allowed = _allowed, None if modules is None else set(modules)
    try:
        yield
    finally:
        _allowed = before


def named_module(text: str) -> str:
    """Return the module of "module:name", or nothing if the text is no such name."""
    found = NAMED.fullmatch(text)
    return found[1] if found else ""


def import_named(reference: str, kind: str) -> str:
    """Import the module of "module:name" and return the name alone; a name without a module is returned as it is."""
    module, _, name = reference.rpartition(":")
    if module and _allowed is not None and module not in _allowed and module not in sys.modules:
        raise UserError(
            f"{kind} '{reference}' would import {module}, which runs its code: add --allow-import if you trust it."
        )
    if module:
        if os.getcwd() not in sys.path and "" not in sys.path:
            sys.path.insert(0, os.getcwd())  # a file beside the user, as `python -m` finds it
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise UserError(f"{kind} '{reference}': {error}; is {module}.py in this directory or installed?") from None
    return name


def load_plugins(group: str) -> None:
    """Load what installed packages offer in an entry-point group: a module that registers, or a function that does."""
    for plugin in entry_points(group=group):
        try:
            loaded = plugin.load()
            if callable(loaded):
                loaded()
        except Exception as error:  # someone else's package must not take the others down
            warnings.warn(f"the plug-in '{plugin.value}' of {group} was not loaded: {error}", stacklevel=3)
