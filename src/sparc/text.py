"""How numbers, counts and durations are written for a reader."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

FRACTIONS = {1: "all", 2: "half", 3: "a third", 4: "a quarter", 5: "a fifth", 10: "a tenth", 20: "a twentieth"}
FRACTIONS |= {30: "a thirtieth", 100: "a hundredth"}
MISSING = "–"


def number(value: float | None, decimals: int = 0, signed: bool = False) -> str:
    """Write a number with a real minus sign; what is not there is a dash."""
    if value is None or not math.isfinite(value):
        return MISSING
    text = f"{abs(value):,.{decimals}f}"
    zero = not text.strip("0.,")
    return ("" if zero else "−" if value < 0 else "+" if signed else "") + text


def percent(value: float) -> str:
    """Write a share."""
    return f"{100 * value:.0f} %"


def count(value: float) -> str:
    """Write a number of updates: 3 M rather than 3,000,000."""
    return f"{value / 1e6:g} M" if value >= 1_000_000 else f"{value:,.0f}"


def fraction(part: float, whole: float) -> str:
    """Return what part of the whole it is, in words where there are some."""
    ratio = whole / part
    return (
        FRACTIONS[round(ratio)]
        if abs(ratio - round(ratio)) < 0.01 and round(ratio) in FRACTIONS
        else percent(part / whole)
    )


def duration(seconds: float | None) -> str:
    """Write a time as hours and minutes."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def listed(value: Any) -> str:
    """Write a value of the manifest, or several."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def ranges(seeds: Iterable[int]) -> str:
    """Write seeds, neighbours as a range: 0–4, 7."""
    groups: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if groups and seed == groups[-1][1] + 1:
            groups[-1][1] = seed
        else:
            groups.append([seed, seed])
    return ", ".join(str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a}–{b}" for a, b in groups)


def slug(text: str) -> str:
    """Make the end of an id from a name."""
    return "".join(letter if letter.isalnum() else "-" for letter in text)


def joined(words: Sequence[str]) -> str:
    """Join words as a sentence does: a, b and c."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def plural(n: int, word: str) -> str:
    """Count things: 1 run, 2 runs."""
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def short(value: float) -> str:
    """Write a return with what matters of it."""
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:#.3g}"
