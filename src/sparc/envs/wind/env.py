"""Gymnasium's MuJoCo robots in a constant wind: the same force (x, 0, z) on every body, unknown to the policy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from sparc.arrays import Array
from sparc.contexts import ContextSpace
from sparc.envs.robots.env import RENDER_SIZE, RobotEnv, RobotVectorEnv, Rows, load_single, register_robot
from sparc.envs.robots.robots import ANT, HALF_CHEETAH, HOPPER, WALKER2D, Robot
from sparc.envs.wind.view import arrow, scene


def wind_box(x: float, z: float) -> ContextSpace:
    """Return forces up to x and z newtons to train on, and twice that to test on."""
    return ContextSpace.box(x=("N", (-x, x), (-2 * x, 2 * x)), z=("N", (-z, z), (-2 * z, 2 * z)))


ROBOTS = {
    "WindHalfCheetah-v5": (HALF_CHEETAH, wind_box(x=2.5, z=5.0)),
    "WindHopper-v5": (HOPPER, wind_box(x=10.0, z=2.5)),
    "WindWalker2d-v5": (WALKER2D, wind_box(x=10.0, z=2.5)),
    "WindAnt-v5": (ANT, wind_box(x=0.1, z=0.1)),
}


def set_wind(env: Any, context: Array) -> None:
    """Push every body but the world with the force (x, 0, z)."""
    env.data.xfrc_applied[1:, 0:3:2] = context


class WindEnv(RobotEnv):
    """One robot in the wind."""

    def __init__(self, robot: Robot, wind: ContextSpace, env: Any, change_probability: float = 0.0) -> None:
        super().__init__(robot, wind, set_wind, env, change_probability)
        self._strongest = float(np.hypot(*np.maximum(-wind.test.low, wind.test.high)))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step in the wind."""
        # MuJoCo resets a simulation that became unstable, and its forces with it: the wind must not silently stop.
        self.apply(self.env.unwrapped, self.context)
        return super().step(action)

    def scene(self) -> dict[str, Any]:
        """Return what a page needs to draw the robot and the wind itself."""
        return scene(self.env.unwrapped, self._view, self.context)

    def marker(self) -> dict[str, Any] | None:
        """Describe the wind's arrow."""
        return arrow(self.env.unwrapped, self._view, self.context / self._strongest)


class WindVectorEnv(RobotVectorEnv):
    """N robots in N winds, bit for bit as N single ones."""

    def __init__(self, robot: Robot, wind: ContextSpace, num_envs: int, threads: int = 1,
                 max_episode_steps: int | None = None, change_probability: float = 0.0) -> None:  # fmt: skip
        super().__init__(robot, wind, num_envs, threads, max_episode_steps, change_probability)
        self._wind = self._batch.xfrc_applied[:, 1:, 0:3:2]  # (N, bodies, 2)

    def _apply(self, rows: Rows) -> None:
        self._wind[rows] = self.contexts[rows][:, None]


def make_wind(
    robot: Robot,
    wind: ContextSpace,
    change_probability: float = 0.0,
    render_mode: str | None = None,
    width: int = RENDER_SIZE,
    height: int = RENDER_SIZE,
) -> WindEnv:
    """Make one robot in the wind."""
    return WindEnv(robot, wind, load_single(robot, render_mode, width, height), change_probability)


def register() -> None:
    """Register all robots."""
    for id, (robot, wind) in ROBOTS.items():
        make, make_vector = partial(make_wind, robot, wind), partial(WindVectorEnv, robot, wind)
        register_robot(id, robot, wind, make, make_vector, f"{id.removeprefix('Wind')} in an unknown wind")
