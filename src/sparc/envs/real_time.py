"""Simulated environments that go on by the wall clock, for `sparc bench workers` and `sparc bench device`.

Importing this module registers two twins of each environment below: `RealTime-DriftingBoat-v0`, ten steps a second as a
console, and `Device-DriftingBoat-v0`, twenty as a robot. A worker finds them by the name
`sparc.envs.real_time:RealTime-DriftingBoat-v0`.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from sparc.envs.registry import get_env, register_env
from sparc.errors import UserError

PERIOD, DEVICE_PERIOD = 0.1, 0.05  # s
PREFIXES = {PERIOD: "RealTime-", DEVICE_PERIOD: "Device-"}
TWINS = ("DriftingBoat-v0", "WindHalfCheetah-v5", "WindHopper-v5", "WindWalker2d-v5")


def real_time_id(id: str, period: float = PERIOD) -> str:
    """Return the name of an environment's twin, or its own where it goes on by the wall clock already."""
    if get_env(id).real_time:
        return id
    if id not in TWINS:
        raise UserError(
            f"{id} has no real-time twin: choose one of {', '.join(TWINS)}, or an environment of your own that is "
            "registered with real_time=True."
        )
    return f"{__name__}:{PREFIXES[period]}{id}"


for entry in map(get_env, TWINS):
    made: Any = gym.spec(entry.id)
    for period, prefix in PREFIXES.items():
        register_env(
            prefix + entry.id, context_space=entry.space, make=made.entry_point, make_vector=made.vector_entry_point,
            max_episode_steps=entry.max_episode_steps, preset=entry.preset, period=period, real_time=True,
        )  # fmt: skip
