"""The five methods by name; loading one (and with it JAX) waits until it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sparc.errors import UserError, nearest

if TYPE_CHECKING:
    from sparc.methods.qr_sac import QrSac

# name: (module, class, what it reads at test time, in a sentence)
METHODS = {
    "sparc": (
        "sparc",
        "Sparc",
        "o, h",
        "one phase: the expert learns with the context, the adapter guesses it from history",
    ),
    "rma": ("rma", "Rma", "o, h", "two phases: first the expert, then the adapter against the frozen expert"),
    "only-obs": ("only_obs", "OnlyObs", "o", "no context, no history"),
    "history-input": (
        "history_input",
        "HistoryInput",
        "o, h",
        "the history as a plain input, learned by reinforcement",
    ),
    "oracle": (
        "oracle",
        "Oracle",
        "o, c",
        "the true context as input, also at test time: a reference, not a contender",
    ),
}


def check_method(name: str) -> str:
    """Give the name back if there is such a method."""
    if name not in METHODS:
        raise UserError(f"There is no method '{name}': choose one of {', '.join(METHODS)}.{nearest(name, METHODS)}")
    return name


def get_method(name: str) -> type[QrSac]:
    """Load a method's class."""
    module, class_name, *_ = METHODS[check_method(name)]
    loaded: type[QrSac] = getattr(import_module(f"sparc.methods.{module}"), class_name)
    return loaded
