"""Gymnasium's MuJoCo robots with motors of another strength on each leg, unknown to the policy.

The torque of a motor is its strength times what Gymnasium's motor gives for the same action: 1 is Gymnasium's, 0 is
dead, a negative one is wired in reverse. The control cost counts the action, not the torque.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from sparc.arrays import Array
from sparc.contexts import ContextSpace
from sparc.envs.robots.env import RENDER_SIZE, RobotEnv, RobotVectorEnv, Rows, load_single, register_robot
from sparc.envs.robots.robots import HALF_CHEETAH, WALKER2D, Robot

TRAIN, TEST = (-1.0, 1.0), (-2.0, 2.0)  # times Gymnasium's motor
# Evaluated during training. Not the centre of the box: there all motors are dead, and every policy stands still.
SETTINGS = ((1.0, 1.0), (-0.5, 0.5), (-1.0, -1.0))
LEGS = (0, 0, 0, 1, 1, 1)  # of each actuator, in MuJoCo's order: thigh, shin and foot of one leg, then of the other


def strengths(*legs: str) -> ContextSpace:
    """Return the strength of each leg's motors, tested in a range twice as wide as in training."""
    return ContextSpace.box(settings=SETTINGS, **{leg: ("×", TRAIN, TEST) for leg in legs})


ROBOTS = {
    "MotorHalfCheetah-v5": (HALF_CHEETAH, strengths("rear", "front")),
    "MotorWalker2d-v5": (WALKER2D, strengths("right", "left")),
}


def set_motors(env: Any, context: Array) -> None:
    """Set the gain of each motor to the strength of its leg; Gymnasium's is 1."""
    env.model.actuator_gainprm[:, 0] = context[list(LEGS)]


class MotorVectorEnv(RobotVectorEnv):
    """N robots with motors of N strengths, bit for bit as N single ones."""

    def __init__(self, robot: Robot, space: ContextSpace, num_envs: int, threads: int = 1,
                 max_episode_steps: int | None = None, change_probability: float = 0.0) -> None:  # fmt: skip
        super().__init__(robot, space, num_envs, threads, max_episode_steps, change_probability)
        self._gains = self._batch.expand("actuator_gainprm")[:, :, 0]  # live, (N, actuators)

    def _apply(self, rows: Rows) -> None:
        self._gains[rows] = self.contexts[rows][:, LEGS]


def make_motor(
    robot: Robot,
    space: ContextSpace,
    change_probability: float = 0.0,
    render_mode: str | None = None,
    width: int = RENDER_SIZE,
    height: int = RENDER_SIZE,
) -> RobotEnv:
    """Make one robot with motors of unknown strength."""
    return RobotEnv(robot, space, set_motors, load_single(robot, render_mode, width, height), change_probability)


def register() -> None:
    """Register all robots."""
    for id, (robot, space) in ROBOTS.items():
        make, make_vector = partial(make_motor, robot, space), partial(MotorVectorEnv, robot, space)
        name = id.removeprefix("Motor")
        register_robot(id, robot, space, make, make_vector, f"{name} with motors of unknown strength")
