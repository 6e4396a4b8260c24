"""Versions of the physics: what no figure of a car tells, the same for all cars of one version.

Policies are trained in "standard". All others are for tests only: "updated", fixed by hand; "draw-1" to "draw-8", drawn
once around the standard one; "stiffer" and "softer", in which nothing but the tyres' stiffness differs.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Physics:
    """What no figure of a car tells."""

    front_stiffness: float  # of a tyre's force at small slip; less in front, as steering gives
    rear_stiffness: float
    sliding: float  # what is left of the friction at large slip
    slip_shape: float  # how round the curve is about its peak
    light_load: float  # friction factor of an unloaded tyre
    heavy_load: float  # of an overloaded one
    spring: float  # stiffness factor
    damping: float  # of critical
    front_bar: float  # anti-roll bars, as shares of the spring
    rear_bar: float
    roll_height: float  # height at which side forces lean the body, as a share of the centre of gravity's
    front_lift: float  # front axle's share of the downforce less its share of the weight
    low_torque: float  # torque of an engine at a standstill, as a share of its peak
    boost_at: float  # revs of a turbo engine's full torque, as a share of those of peak power
    top_power: float  # power at the rev limit, as a share of the peak


STANDARD = Physics(
    front_stiffness=16.0,
    rear_stiffness=20.0,
    sliding=0.85,
    slip_shape=0.70,
    light_load=2.0,
    heavy_load=0.75,
    spring=1.0,
    damping=0.60,
    front_bar=0.60,
    rear_bar=0.10,
    roll_height=0.40,
    front_lift=-0.07,
    low_torque=0.50,
    boost_at=0.32,
    top_power=0.96,
)
UPDATED = Physics(
    front_stiffness=22.0,
    rear_stiffness=24.0,
    sliding=0.75,
    slip_shape=0.50,
    light_load=1.75,
    heavy_load=0.70,
    spring=0.70,
    damping=0.40,
    front_bar=0.20,
    rear_bar=0.45,
    roll_height=0.60,
    front_lift=-0.13,
    low_torque=0.35,
    boost_at=0.45,
    top_power=0.88,
)

STIFFER = 1.3  # factor of both axles' stiffness, about that of the updated physics; the balance stays
SEED = 2508  # of all draws; the draw's own number follows
DRAWS = 8
DIGITS = 3  # significant, of every value that is drawn or scaled
# Shares that cannot exceed 1: what they lack of it is drawn.
SHARES = ("sliding", "slip_shape", "heavy_load", "low_torque", "top_power")


def draw_physics(number: int) -> Physics:
    """Return a version of the physics drawn around the standard one; the same number gives the same version.

    Each field is by itself standard · (updated / standard)^u with u uniform in [-1, 1]: log-uniform, as far to the side
    of the updated version as to the other.
    """
    rng = np.random.default_rng([SEED, number])
    drawn = {}
    for field in dataclasses.fields(Physics):
        one = 1.0 if field.name in SHARES else 0.0
        standard, updated = (getattr(version, field.name) - one for version in (STANDARD, UPDATED))
        value = one + standard * (updated / standard) ** rng.uniform(-1.0, 1.0)
        drawn[field.name] = rounded(value)
    return Physics(**drawn)


def stiffened(factor: float) -> Physics:
    """Return the standard physics with the stiffness of all tyres scaled."""
    front, rear = (rounded(factor * value) for value in (STANDARD.front_stiffness, STANDARD.rear_stiffness))
    return dataclasses.replace(STANDARD, front_stiffness=front, rear_stiffness=rear)


def rounded(value: float) -> float:
    """Return a value to DIGITS significant digits: what the documentation shows is what is simulated."""
    return float(f"{value:.{DIGITS}g}")


# The first is that of training. New ones go to the end: saved states know a version by its place.
PHYSICS = {
    "standard": STANDARD,
    "updated": UPDATED,
    "stiffer": stiffened(STIFFER),
    "softer": stiffened(1 / STIFFER),
    **{f"draw-{number}": draw_physics(number) for number in range(1, DRAWS + 1)},
}
