"""Gymnasium's v5 robots in vectorised form: what they observe, what they are rewarded for, when they have fallen.

Nothing here imports MuJoCo before a robot is loaded.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.envs.registration import load_env_creator

from sparc.arrays import Array, Flags
from sparc.envs.declared import Signals
from sparc.envs.robots.view import View

# What MuJoCo says of the compiler attribute in Gymnasium's half_cheetah.xml. The user can do nothing about it.
KNOWN_WARNING = "'settotalmass' is deprecated"


@dataclass(frozen=True)
class Robot:
    """A robot as Gymnasium's v5 class defines it, in vectorised form; tests hold the two together bit for bit."""

    base: str
    observe: Callable[[Array, Array], Array]  # qpos (N, Q), qvel (N, V) -> (N, O)
    noise: float  # of the initial qpos, uniform
    velocity_noise: Callable[[np.random.Generator, float, int], Array]
    control_cost: float
    options: dict[str, Any] = field(default_factory=dict)  # where we differ from Gymnasium's defaults
    healthy: Callable[[Array, Array], Flags] | None = None  # one reward per step while it holds
    terminates: bool = False  # when unhealthy
    contact_cost: float | None = None
    period: float = 0.0  # s: MuJoCo's time step times the frames of a control step
    observation: Signals = ()
    action: Signals = ()
    position: Callable[[Any], Array] = lambda batch: batch.qpos[:, 0]  # what the forward velocity is measured on
    view: View = field(default_factory=View)  # of its picture


def uniform(rng: np.random.Generator, scale: float, size: int) -> Array:
    """Draw an initial velocity as Hopper and Walker2d do."""
    return rng.uniform(-scale, scale, size)


def normal(rng: np.random.Generator, scale: float, size: int) -> Array:
    """Draw an initial velocity as HalfCheetah and Ant do."""
    return scale * rng.standard_normal(size)


def planar_observation(*hinges: str) -> Signals:
    """Name what a robot in the plane sees, by MuJoCo's joints: all positions but rootx, then all velocities."""
    slides, turning = ("rootx", "rootz"), ("rooty", *hinges)
    return (
        ("rootz", "m"),
        *((joint, "rad") for joint in turning),
        *((f"{joint} velocity", "m/s") for joint in slides),
        *((f"{joint} velocity", "rad/s") for joint in turning),
    )


def ant_observation(*hinges: str) -> Signals:
    """Name what the ant sees: its torso's pose without x and y, the joints, then all velocities."""
    return (
        ("torso z", "m"),
        *((f"torso quaternion {part}", "1") for part in "wxyz"),
        *((joint, "rad") for joint in hinges),
        *((f"torso {axis} velocity", "m/s") for axis in "xyz"),
        *((f"torso rotation {axis} velocity", "rad/s") for axis in "xyz"),
        *((f"{joint} velocity", "rad/s") for joint in hinges),
    )


def torques(**gears: float) -> Signals:
    """Name the actuators by the joints that they turn, with the torque at full action."""
    return tuple((joint, f"{gear:g} N·m") for joint, gear in gears.items())


def observe_clipped(qpos: Array, qvel: Array) -> Array:
    """Return what Hopper and Walker2d see."""
    return np.concatenate([qpos[:, 1:], np.clip(qvel, -10, 10)], axis=1)


def hopper_healthy(qpos: Array, qvel: Array) -> Flags:
    """Return whether the hopper stands upright and nothing has blown up."""
    bounded = (np.abs(qpos[:, 2:]) < 100).all(axis=1) & (np.abs(qvel) < 100).all(axis=1)
    return bounded & (qpos[:, 1] > 0.7) & (np.abs(qpos[:, 2]) < 0.2)


def walker_healthy(qpos: Array, qvel: Array) -> Flags:
    """Return whether the walker is upright."""
    return (qpos[:, 1] > 0.8) & (qpos[:, 1] < 2.0) & (np.abs(qpos[:, 2]) < 1.0)


def ant_healthy(qpos: Array, qvel: Array) -> Flags:
    """Return whether the ant is neither lying nor flying."""
    finite = np.isfinite(qpos).all(axis=1) & np.isfinite(qvel).all(axis=1)
    return finite & (qpos[:, 2] >= 0.2) & (qpos[:, 2] <= 1.0)


WALKER_HINGES = ("thigh_joint", "leg_joint", "foot_joint", "thigh_left_joint", "leg_left_joint", "foot_left_joint")

HALF_CHEETAH = Robot(
    base="gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv",
    observe=lambda qpos, qvel: np.concatenate([qpos[:, 1:], qvel], axis=1),
    noise=0.1,
    velocity_noise=normal,
    control_cost=0.1,
    period=0.05,
    observation=planar_observation("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot"),
    action=torques(bthigh=120, bshin=90, bfoot=60, fthigh=120, fshin=60, ffoot=30),
    view=View(distance=3.5, middle=0.85, arrow=1.65),
)
HOPPER = Robot(
    base="gymnasium.envs.mujoco.hopper_v5:HopperEnv",
    observe=observe_clipped,
    noise=5e-3,
    velocity_noise=uniform,
    control_cost=1e-3,
    period=0.008,
    observation=planar_observation("thigh_joint", "leg_joint", "foot_joint"),
    action=torques(thigh_joint=200, leg_joint=200, foot_joint=200),
    options={"terminate_when_unhealthy": False},  # as the paper's experiments ran
    healthy=hopper_healthy,
)
WALKER2D = Robot(
    base="gymnasium.envs.mujoco.walker2d_v5:Walker2dEnv",
    observe=observe_clipped,
    noise=5e-3,
    velocity_noise=uniform,
    control_cost=1e-3,
    period=0.008,
    observation=planar_observation(*WALKER_HINGES),
    action=torques(**dict.fromkeys(WALKER_HINGES, 100.0)),
    healthy=walker_healthy,
    terminates=True,
)
ANT = Robot(
    base="gymnasium.envs.mujoco.ant_v5:AntEnv",
    observe=lambda qpos, qvel: np.concatenate([qpos[:, 2:], qvel], axis=1),
    noise=0.1,
    velocity_noise=normal,
    control_cost=0.5,
    period=0.05,
    observation=ant_observation(*(f"{joint}_{leg}" for leg in (1, 2, 3, 4) for joint in ("hip", "ankle"))),
    action=torques(**{f"{joint}_{leg}": 150.0 for leg in (4, 1, 2, 3) for joint in ("hip", "ankle")}),
    # MuJoCo's external forces include the applied ones: with them the observation would spell out the wind.
    options={"include_cfrc_ext_in_observation": False},
    healthy=ant_healthy,
    terminates=True,
    contact_cost=5e-4,
    position=lambda batch: batch.xpos[:, 1, 0],  # the torso, as mj_step leaves it: before the last substep
    view=View(distance=4.5, elevation=-20.0, middle=0.9, arrow=1.9),
)


def load_robot(robot: Robot, **options: Any) -> Any:
    """Make Gymnasium's environment; turn what MuJoCo warns of while it loads the model into Python warnings."""
    import mujoco

    messages: list[str] = []
    previous = mujoco.get_mju_user_warning()
    # Without a handler MuJoCo prints, and writes MUJOCO_LOG.TXT into the current directory.
    mujoco.set_mju_user_warning(messages.append)
    try:
        return load_env_creator(robot.base)(**robot.options, **options)
    finally:
        mujoco.set_mju_user_warning(previous)
        # Forwarded here and not in the handler: a warning that is an error must not cross MuJoCo's C code.
        for message in messages:
            if KNOWN_WARNING in message:
                continue
            if previous is not None:
                previous(message)
            else:
                warnings.warn(f"MuJoCo: {message}", stacklevel=3)
