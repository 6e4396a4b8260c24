"""How the wind is shown: as an arrow above the robot, of a length that tells its strength."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparc.arrays import Array
from sparc.envs.robots import view as robots
from sparc.envs.robots.view import View, focus

ARROW_COLOUR = np.array([0.05, 0.3, 0.85, 1.0])
ARROW_LENGTH = 1.0  # m, of the strongest wind there is
ARROW_RADIUS = 0.04  # m
SLIM = 0.12  # radius : length of an arrow so short that it would be all head
CALM = 1e-6  # of the strongest wind: below it there is no direction to show


def scene(env: Any, view: View, wind: Array) -> dict[str, Any]:
    """Return what a page needs to draw a robot in the wind itself."""
    return robots.scene(env, view) | {"wind": wind.tolist()}


def arrow(env: Any, view: View, wind: Array) -> dict[str, Any] | None:
    """Describe the arrow of a wind (x, z), the strongest of length 1, to a viewer; a calm has none."""
    import mujoco

    strength = float(np.hypot(*wind))
    if strength <= CALM:
        return None
    along, across = np.array([wind[0], 0.0, wind[1]]) / strength, np.array([0.0, 1.0, 0.0])
    length = ARROW_LENGTH * strength
    radius = min(ARROW_RADIUS, SLIM * length)
    middle = focus(env, view) + np.array([0.0, 0.0, view.arrow - view.middle])
    return {
        "type": mujoco.mjtGeom.mjGEOM_ARROW,
        "size": np.array([radius, radius, 2 * length]),  # MuJoCo draws half of it
        "pos": middle - along * length / 2,
        "mat": np.stack([np.cross(across, along), across, along], axis=1).ravel(),
        "rgba": ARROW_COLOUR,
    }
