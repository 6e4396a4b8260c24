"""The nine tyre compounds: what each does to the friction of a car's standard tyre."""

from __future__ import annotations

from sparc.errors import unknown

LEAST, MOST = 0.70, 1.40  # friction factors: with less, TORCS's driver leaves the road
# How far each compound is from the hardest to the softest, after the performance figures of the game the paper used.
SHARES = {
    "comfort-hard": 0.0,
    "comfort-medium": 0.22,
    "comfort-soft": 0.44,
    "sports-hard": 0.54,
    "sports-medium": 0.63,
    "sports-soft": 0.73,
    "racing-hard": 0.88,
    "racing-medium": 0.94,
    "racing-soft": 1.0,
}
COMPOUNDS = {name: round(LEAST + share * (MOST - LEAST), 3) for name, share in SHARES.items()}


def friction(tyre: str) -> float:
    """Return the friction factor of a compound by its name."""
    if tyre not in COMPOUNDS:
        raise unknown("tyre", tyre, COMPOUNDS)
    return COMPOUNDS[tyre]
