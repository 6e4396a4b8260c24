"""The phases of a run. Most methods have one; RMA trains an expert, then an adapter against the frozen expert.

A method declares its phases with their shares of the updates, {"expert": 0.75, "adapter": 0.25}. Each phase but the
last has an option for its number of updates, `expert_updates`; the last one has what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparc.config import Config, multiple_of, option
from sparc.errors import UserError

Phases = Mapping[str, float]  # name → share of the run's updates, in order
ONE_PHASE: Phases = {"train": 1.0}


def option_name(phase: str) -> str:
    """Return the name of the option that holds a phase's number of updates."""
    return f"{phase}_updates"


def phase_options(phases: Phases) -> dict[str, Any]:
    """Return the options of a method with these phases."""
    return {
        option_name(name): option(0, f"updates of the {name} phase; 0 means {phases[name]:.0%} of all updates", low=0)
        for name in list(phases)[:-1]
    }


def resolve_phases(config: Config, phases: Phases) -> dict[str, int]:
    """Return the lengths of all phases but the last, in whole chunks; refuse those that leave nothing for the last."""
    *early, last = phases
    lengths = {}
    for name in early:
        given = config.options[option_name(name)]
        multiple_of(option_name(name), given, config.chunk, "chunk")
        share = int(phases[name] * config.updates) // config.chunk * config.chunk
        lengths[option_name(name)] = given or max(share, config.chunk)
    if early and sum(lengths.values()) >= config.updates:
        what = " + ".join(f"{name} ({length})" for name, length in lengths.items())
        raise UserError(f"{what} must be less than updates ({config.updates}): the {last} phase comes after them.")
    return lengths


def span_of(config: Config, phases: Phases, phase: str) -> tuple[int, int]:
    """Return the updates between which a phase lies."""
    begin = 0
    for name in phases:
        end = begin + config.options[option_name(name)] if option_name(name) in config.options else config.updates
        if name == phase:
            return begin, end
        begin = end
    raise UserError(f"{config.method} has no phase '{phase}': it has {', '.join(phases)}.")


def with_further_phases(updates: int, phases: Phases, chunk: int) -> dict[str, int]:
    """Return the config fields of a run whose first phase has so many updates and whose other phases come on top."""
    multiple_of("updates", updates, chunk, "chunk")
    (first, share), *others = phases.items()
    lengths = {first: updates} | {name: max(round(updates * own / share / chunk), 1) * chunk for name, own in others}
    early = {option_name(name): lengths[name] for name in list(phases)[:-1]}
    return early | {"updates": sum(lengths.values())}
