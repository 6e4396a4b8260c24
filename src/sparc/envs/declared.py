"""What an environment declares of itself: what `register_env` checks of it, and how its variants are read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sparc.arrays import Array
from sparc.errors import UserError

Signals = tuple[tuple[str, str], ...]  # a name and a unit for each element of a vector
Quantities = Mapping[str, Callable[[Array], Array]]  # name → function of contexts (M, C), which returns (M,)
TRUE, PSI, PHI = "_true", "_psi", "_phi"  # endings of a quantity's columns: as it is, read from ψ(c) and from φ(h)
DEFAULT_VARIANT = "default"  # names the environment without any of its variants


def check_signals(id: str, what: str, given: Sequence[tuple[str, str]] | None) -> Signals | None:
    """Return names and units as tuples; refuse what is none, or a name that occurs twice."""
    if given is None:
        return None
    for pair in given:
        if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(part, str) for part in pair) or not pair[0]:
            raise UserError(f"{id}: {what}= needs a (name, unit) for each element, got {pair!r}")
    names = [name for name, _ in given]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{id}: {what}= has the name '{twice}' more than once")
    return tuple((name, unit) for name, unit in given)


def check_period(id: str, period: float | None, real_time: bool) -> None:
    """Refuse a control step without a length; the clock of a real-time environment needs one."""
    if period is not None and not 0.0 < period < math.inf:
        raise UserError(f"{id}: period= must be the seconds of a control step, got {period!r}")
    if real_time and period is None:
        raise UserError(f"{id}: real_time=True needs period=, the seconds of a control step")


def check_variants(id: str, variants: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the options of each variant; refuse a name that no file could have, and two that are the same."""
    found: dict[str, dict[str, Any]] = {}
    for name, options in variants.items():
        if not re.fullmatch(r"[\w.-]+", name):
            raise UserError(f"{id}: a variant's name becomes part of file names: '{name}' cannot, 'icy' can")
        if name == DEFAULT_VARIANT:
            raise UserError(f"{id}: '{name}' is the environment without any variant: give the variant another name")
        if not isinstance(options, Mapping) or not options:
            raise UserError(f"{id}: the variant '{name}' must hold options of the environment, got {options!r}")
        if dict(options) in found.values():
            raise UserError(f"{id}: the variant '{name}' has the options of another one: leave one out")
        found[name] = dict(options)
    return found


def check_probes(id: str, probes: Quantities, taken: Iterable[str]) -> dict[str, Callable[[Array], Array]]:
    """Return the functions by name; refuse a name that no column of a table could have, or that another one has."""
    for name, of in probes.items():
        if not name.isidentifier() or {f"{name}{end}" for end in (TRUE, PSI, PHI)} & {*taken}:
            raise UserError(f"{id}: a probe cannot be called '{name}': it must be an identifier, and no measure's name")
        if not callable(of):
            raise UserError(f"{id}: the probe '{name}' must be a function of contexts (M, C), got {of!r}")
    return dict(probes)


def is_reference(make: str) -> bool:
    """Return whether a string is "package.module:callable"; a Gymnasium id such as "module:Name-v0" is not."""
    module, colon, name = make.partition(":")
    return bool(module and colon) and name.isidentifier()


def group_draws(variants: Iterable[str]) -> dict[str, list[str]]:
    """Return the variants whose names differ in nothing but a number at the end, two or more, by their name's plural.

    They are taken for draws from one distribution: draw-1, draw-2 and draw-3 are the test "draws".
    """
    groups: dict[str, list[str]] = {}
    for name in variants:
        if found := re.fullmatch(r"(.+)-\d+", name):
            groups.setdefault(f"{found[1]}s", []).append(name)
    return {group: names for group, names in groups.items() if len(names) > 1 and group not in {*variants}}


def short_list(variants: Iterable[str]) -> str:
    """Return the names of variants for a person, with draws of one change as "draw-1 … draw-8"."""
    drawn = {name: names for names in group_draws([*variants]).values() for name in names}
    found = [f"{drawn[name][0]} … {drawn[name][-1]}" if name in drawn else name for name in variants]
    return ", ".join(dict.fromkeys(found))
