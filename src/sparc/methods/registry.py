"""The registry of methods. Imports no JAX: a method's class is loaded when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

from sparc.config import Config, declare_options
from sparc.errors import UserError, unknown
from sparc.methods.phases import ONE_PHASE, Phases, phase_options, resolve_phases, span_of
from sparc.plugins import import_named, load_plugins

if TYPE_CHECKING:
    from sparc.methods.qr_sac import QrSac

ENTRY_POINT_GROUP = "sparc.methods"  # each names a module that registers methods, or a function that does

Reads = Literal["observation", "history", "context"]
Dash = str | tuple[int, tuple[float, ...]]  # as Matplotlib takes it
DESCRIBED = ("title", "colour", "marker", "dash", "prominence", "reads", "phases")  # what a report needs to know


@dataclass(frozen=True)
class MethodEntry:
    """What is known of a method before its class is loaded."""

    name: str
    title: str
    method: type[QrSac] | str = ""
    reads: Reads = "observation"
    summary: str = ""
    phases: Phases = field(default_factory=lambda: ONE_PHASE)
    options: Mapping[str, Any] = field(default_factory=dict)
    cost: float = 1.0
    history_cost: float = 0.0
    colour: str | None = None
    marker: str = "P"
    dash: Dash = (0, (9, 2))
    prominence: int = 0
    registered_in: str = ""

    @property
    def privileged(self) -> bool:
        """Whether the policy observes the context at test time: a reference, not a contender."""
        return self.reads == "context"

    @property
    def last_phase(self) -> str:
        """The phase whose policy is shipped."""
        return list(self.phases)[-1]

    def load(self) -> type[QrSac]:
        """Return the class, importing it first if it is given by name."""
        if not isinstance(self.method, str):
            return self.method
        module, _, name = self.method.partition(":")
        try:
            loaded: type[QrSac] = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise UserError(f"method '{self.name}' cannot be loaded from '{self.method}': {error}.") from error
        return loaded

    def describe(self) -> dict[str, Any]:
        """Return what a report needs to know of the method, for JSON."""
        return {name: getattr(self, name) for name in DESCRIBED}


_entries: dict[str, MethodEntry] = {}
_plugins_loaded = False


def register_method(
    name: str,
    method: type[QrSac] | str,
    *,
    reads: Reads,
    title: str | None = None,
    summary: str = "",
    phases: Phases = ONE_PHASE,
    options: Mapping[str, Any] | None = None,
    cost: float = 1.0,
    history_cost: float = 0.0,
    colour: str | None = None,
    marker: str = "P",
    dash: Dash = (0, (9, 2)),
    prominence: int = 0,
) -> None:
    """Register a method, so that config, command line, suites, figures and report know it.

    Args:
        name: what commands and run directories call it, "my-method".
        method: the class, a subclass of `QrSac`, or "package.module:Class", which is imported when it is needed.
        reads: what the policy reads at test time beside the observation: "observation" (nothing else), "history" or
            "context". A policy that reads the context is privileged: reports show it as a reference.
        title: the name as readers see it; by default `name`.
        summary: one line for `sparc methods`.
        phases: the phases and their shares of the updates, in order. Every phase but the last trains an expert that
            reads the context and has an option `<phase>_updates`; the next phase starts from its best checkpoint.
        options: config fields of this method alone, by name, each made with `sparc.config.option(default, help)`.
        cost: time of an update without its history relative to Only Obs, by which suites order their runs.
        history_cost: likewise, what a history of 50 steps adds.
        colour: of its lines, "#D55E00"; without one, figures choose.
        marker: of its points, as in Matplotlib.
        dash: of its lines, as in Matplotlib.
        prominence: 2 for a method that comparisons are about (SPARC; drawn thick), 1 for its first rival (RMA).
    """
    where = sys._getframe(1).f_globals.get("__file__") or sys._getframe(1).f_globals.get("__name__", "?")
    if name in _entries and _entries[name].registered_in != where:
        raise UserError(
            f"method '{name}' is registered twice, in {_entries[name].registered_in} and in {where}: rename one of "
            "them, or uninstall its package."
        )
    if not name or ":" in name or "/" in name or " " in name:
        raise UserError(f"a method's name becomes part of a folder's name: '{name}' cannot, 'my-method' can.")
    if reads not in get_args(Reads):
        raise UserError(f"method '{name}': reads must be one of {', '.join(get_args(Reads))}, not {reads!r}.")
    if isinstance(method, str) and ":" not in method:
        raise UserError(f"method '{name}': '{method}' must be a class or have the form 'package.module:Class'.")
    own = {**phase_options(phases), **(options or {})}
    declare_options(name, own, partial(resolve_phases, phases=phases))
    _entries[name] = MethodEntry(
        name, title or name, method, reads, summary, phases, own, cost, history_cost, colour, marker, dash, prominence,
        where,
    )  # fmt: skip


def registered() -> dict[str, MethodEntry]:
    """Return the methods that are registered so far, without looking for plug-ins, which takes a moment."""
    return dict(_entries)


def all_methods() -> dict[str, MethodEntry]:
    """Return all registered methods by name, those of installed plug-ins included."""
    global _plugins_loaded
    if not _plugins_loaded:
        _plugins_loaded = True
        load_plugins(ENTRY_POINT_GROUP)
    return dict(_entries)


def find_method(name: str) -> MethodEntry:
    """Return the entry of a method; "module:name" imports the module first."""
    bare = import_named(name, "method")
    entries = _entries if bare in _entries else all_methods()
    if bare not in entries:
        raise unknown("method", bare, entries, "`sparc methods`; for one of your own, write module:name")
    return entries[bare]


def get_method(name: str) -> type[QrSac]:
    """Load a method's class."""
    return find_method(name).load()


def described_method(name: str, description: Mapping[str, Any]) -> MethodEntry:
    """Return a method's entry if it is registered here, else one from the description that its results came with."""
    if entry := all_methods().get(name):
        return entry
    values = {"title": name, **description}
    if isinstance(values.get("dash"), list):  # a tuple before it went through JSON
        values["dash"] = (values["dash"][0], tuple(values["dash"][1]))
    return MethodEntry(name, **values)


def phase_span(config: Config, phase: str) -> tuple[int, int]:
    """Return the updates between which a phase of a run lies."""
    return span_of(config, find_method(config.method).phases, phase)
