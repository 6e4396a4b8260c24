"""The config of a child: its parent's, but for its length, its learning rates and its evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparc.config import Config, make_config, multiple_of
from sparc.errors import UserError, unknown
from sparc.methods import find_method
from sparc.methods.phases import phase_options
from sparc.runs.run import CHANGEABLE

SHARE = 10  # a stage has by default one part in so many of its parent's updates, and as many evaluations
# Of the first stage's learning rates, in all later ones. With all of it, the boat's return fell from 92 to 70 in the
# new region and from 99 to 83 in the old one before it rose again; with this share it did not.
RATE = 0.3
RATES = ("learning_rate", "adapter_learning_rate")


def child_config(
    parent: Config, first: bool, updates: int | None, only_adapter: bool, changes: Mapping[str, Any]
) -> Config:
    """Return the config of a child; `first` says whether its parent is a first stage."""
    values = parent.to_dict()
    for name in changes:
        if name not in values:
            raise unknown("config field", name, CHANGEABLE)
        if name == "updates":
            raise UserError("updates of a child are given by --updates: not as a change.")
        if name not in (*CHANGEABLE, "env_options"):
            raise UserError(f"{name} cannot be changed in a child, only {', '.join(CHANGEABLE)}.")
    chunk = parent.chunk

    def whole(number: int) -> int:
        return max(number // chunk, 1) * chunk

    length = whole(parent.updates // SHARE) if updates is None else updates
    multiple_of("--updates", length, chunk, "chunk")
    early = dict.fromkeys(phase_options(find_method(parent.method).phases), chunk if only_adapter else 0)
    every = min(parent.evaluate_every, whole(length // SHARE))
    values |= {
        "updates": length + (sum(early.values()) if only_adapter else 0),  # the phases before count as done
        "evaluate_every": every,
        "log_every": min(parent.log_every, every),
        **({name: RATE * values[name] for name in RATES} if first else {}),
        **early,
        **changes,
    }
    return make_config(values)
