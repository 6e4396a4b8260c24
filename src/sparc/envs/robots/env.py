"""One robot, or many on mujoco.batch with the same bits; a family says how a context acts on them.

The single environment is Gymnasium's own class. Nothing here imports MuJoCo before an environment is made.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc.arrays import Array, Flags
from sparc.contexts import ContextSpace
from sparc.envs.contextual import Apply, ContextualEnv, NativeVectorEnv, State, check_count
from sparc.envs.registry import register_env
from sparc.envs.robots.robots import Robot, load_robot
from sparc.envs.robots.view import choose_backend, picture, planar, release, scene, soften_colours

EPISODE_STEPS = 1000
RENDER_SIZE = 480  # pixels, Gymnasium's default
SHOVE = 3.0  # m/s, of a push

Rows = NDArray[np.intp] | slice


class RobotEnv(ContextualEnv):
    """One robot."""

    ending = "fell"  # what it means that an episode ended before its time

    def __init__(
        self, robot: Robot, space: ContextSpace, apply: Apply, env: Any, change_probability: float = 0.0
    ) -> None:
        super().__init__(env, space, apply, change_probability)
        self._view = robot.view

    def push(self, rng: np.random.Generator) -> None:
        """Shove the robot forwards or backwards, and a little upwards."""
        base: Any = self.env.unwrapped
        base.data.qvel[0] += rng.choice([-SHOVE, SHOVE])
        base.data.qvel[1 if planar(base.model) else 2] += SHOVE / 3

    def scene(self) -> dict[str, Any]:
        """Return what a page needs to draw the robot itself."""
        return scene(self.env.unwrapped, self._view)

    def marker(self) -> dict[str, Any] | None:
        """Describe what a picture shows above the robot to Gymnasium's viewer; by default nothing."""
        return None

    def render(self) -> Any:
        """Picture the robot; other modes than rgb_array are Gymnasium's."""
        if self.render_mode != "rgb_array":
            return super().render()
        return picture(self.env.unwrapped, self._view, self.marker())

    def close(self) -> None:
        """Close the simulation and the viewer."""
        release(self.env.unwrapped)
        super().close()


class RobotVectorEnv(NativeVectorEnv):
    """N robots on mujoco.batch, bit for bit as N single ones."""

    def __init__(
        self,
        robot: Robot,
        space: ContextSpace,
        num_envs: int,
        threads: int = 1,
        max_episode_steps: int | None = None,
        change_probability: float = 0.0,
    ) -> None:
        import mujoco
        from mujoco.batch import Batch

        template = load_robot(robot)
        super().__init__(num_envs, space, template, max_episode_steps, change_probability)
        self._mujoco = mujoco
        self._robot, self._model = robot, template.model
        self._dt, self._frame_skip, self._init_qpos = template.dt, template.frame_skip, template.init_qpos
        self._init_qvel = template.init_qvel
        self._scratch = mujoco.MjData(self._model)
        # The contact cost needs the contacts of every simulation after the step, which only a persistent batch keeps.
        persistent = robot.contact_cost is not None
        self._batch = Batch(self._model, num_envs, check_count("threads", threads), persistent=persistent)
        self._qpos, self._qvel, self._ctrl = self._batch.qpos, self._batch.qvel, self._batch.ctrl
        self._position = robot.position(self._batch)  # live, (N,)
        self._before = np.zeros(num_envs)

    @abstractmethod
    def _apply(self, rows: Rows) -> None:
        """Let self.contexts act on these simulations, in their next step or reset."""

    def _arrays(self) -> State:
        # Rows hold all that MuJoCo integrates, warm start included. The position before the next step is kept as well:
        # a robot measured on a derived quantity could not recompute it.
        return super()._arrays() | {"simulation": self._batch.state, "position": self._before}

    def _start(self, rows: NDArray[np.intp]) -> None:
        robot, none = self._robot, self._mujoco.mjtStage.mjSTAGE_NONE
        self._apply(rows)  # before the reset, as a single environment does: what is part of the model counts in it
        self._batch.reset(rows, stage=none)
        for row in rows:
            rng = self._rngs[row]
            self._qpos[row] = self._init_qpos + rng.uniform(-robot.noise, robot.noise, self._model.nq)
            self._qvel[row] = self._init_qvel + robot.velocity_noise(rng, robot.noise, self._model.nv)
        self._batch.forward(rows)
        self._before[rows] = self._position[rows]
        self._observations[rows] = robot.observe(self._qpos[rows], self._qvel[rows])

    def _advance(self, actions: NDArray[Any]) -> tuple[Array, Flags]:
        self._ctrl[:] = actions
        self._apply(slice(None))  # at every step: contexts change on the way, and after set_state they are others
        self._batch.step(nstep=self._frame_skip)
        robot = self._robot
        reward = (self._position - self._before) / self._dt
        self._before[:] = self._position
        self._observations[:] = robot.observe(self._qpos, self._qvel)
        terminated = np.zeros(self.num_envs, dtype=bool)
        if robot.healthy is not None:
            healthy = robot.healthy(self._qpos, self._qvel)
            reward = reward + healthy
            terminated = ~healthy if robot.terminates else terminated
        cost = robot.control_cost * np.square(actions).sum(axis=1)  # in the actions' float32, as Gymnasium does
        if robot.contact_cost is not None:
            cost = cost + robot.contact_cost * self._contacts()
        return reward - cost, terminated

    def _contacts(self) -> Array:
        """Return the sum of the squared external forces, each clipped to one, as Ant counts them, (N,)."""
        # mj_rnePostConstraint has no batched form. A sensor that triggers it is no way out: under Ant's Runge-Kutta
        # integrator sensors see the first stage of the last substep, and Gymnasium calls it after the last stage.
        total = np.empty(self.num_envs)
        for row in range(self.num_envs):
            data = self._batch.get_data(row, self._scratch)
            self._mujoco.mj_rnePostConstraint(self._model, data)
            total[row] = np.square(np.clip(data.cfrc_ext, -1.0, 1.0)).sum()
        return total


def load_single(
    robot: Robot, render_mode: str | None = None, width: int = RENDER_SIZE, height: int = RENDER_SIZE
) -> Any:
    """Make Gymnasium's own environment so that it can be rendered, also without a screen."""
    if render_mode == "rgb_array":
        choose_backend()
    env = load_robot(robot, render_mode=render_mode, width=width, height=height)
    if render_mode == "rgb_array":
        soften_colours(env.model)
    return env


def register_robot(
    id: str, robot: Robot, space: ContextSpace, make: Callable[..., Any], make_vector: Callable[..., Any], summary: str
) -> None:
    """Register an environment of a family, which is trained with the preset `fast`."""
    register_env(
        id,
        context_space=space,
        make=make,
        make_vector=make_vector,
        max_episode_steps=EPISODE_STEPS,
        summary=summary,
        preset="fast",
        observation=robot.observation,
        action=robot.action,
        period=robot.period,
    )
