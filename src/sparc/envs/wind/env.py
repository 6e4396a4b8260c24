"""Gymnasium's MuJoCo robots in a constant wind: the same force (x, 0, z) on every body, unknown to the policy.

The single environment is Gymnasium's own class; the vector environment runs on mujoco.batch and gives the same bits.
Nothing here imports MuJoCo before an environment is made.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from gymnasium.envs.registration import load_env_creator
from numpy.typing import NDArray

from sparc.arrays import Array, Flags
from sparc.contexts import ContextSpace
from sparc.envs.contextual import ContextualEnv, NativeVectorEnv, State, check_count
from sparc.envs.registry import Signals, register_env
from sparc.envs.wind.view import View, choose_backend, picture, planar, release, scene, soften_colours

EPISODE_STEPS = 1000
RENDER_SIZE = 480  # pixels, Gymnasium's default
SHOVE = 3.0  # m/s, of a push
# What MuJoCo says of the compiler attribute in Gymnasium's half_cheetah.xml. The user can do nothing about it.
KNOWN_WARNING = "'settotalmass' is deprecated"


@dataclass(frozen=True)
class Robot:
    """A robot as Gymnasium's v5 class defines it, in vectorised form; tests hold the two together bit for bit."""

    base: str
    wind: ContextSpace
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


def wind_box(x: float, z: float) -> ContextSpace:
    """Return forces up to x and z newtons to train on, and twice that to test on."""
    return ContextSpace.box(x=("N", (-x, x), (-2 * x, 2 * x)), z=("N", (-z, z), (-2 * z, 2 * z)))


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
ROBOTS = {
    "WindHalfCheetah-v5": Robot(
        base="gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv",
        wind=wind_box(x=2.5, z=5.0),
        observe=lambda qpos, qvel: np.concatenate([qpos[:, 1:], qvel], axis=1),
        noise=0.1,
        velocity_noise=normal,
        control_cost=0.1,
        period=0.05,
        observation=planar_observation("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot"),
        action=torques(bthigh=120, bshin=90, bfoot=60, fthigh=120, fshin=60, ffoot=30),
        view=View(distance=3.5, middle=0.85, arrow=1.65),
    ),
    "WindHopper-v5": Robot(
        base="gymnasium.envs.mujoco.hopper_v5:HopperEnv",
        wind=wind_box(x=10.0, z=2.5),
        observe=observe_clipped,
        noise=5e-3,
        velocity_noise=uniform,
        control_cost=1e-3,
        period=0.008,
        observation=planar_observation("thigh_joint", "leg_joint", "foot_joint"),
        action=torques(thigh_joint=200, leg_joint=200, foot_joint=200),
        options={"terminate_when_unhealthy": False},  # as the paper's experiments ran
        healthy=hopper_healthy,
    ),
    "WindWalker2d-v5": Robot(
        base="gymnasium.envs.mujoco.walker2d_v5:Walker2dEnv",
        wind=wind_box(x=10.0, z=2.5),
        observe=observe_clipped,
        noise=5e-3,
        velocity_noise=uniform,
        control_cost=1e-3,
        period=0.008,
        observation=planar_observation(*WALKER_HINGES),
        action=torques(**dict.fromkeys(WALKER_HINGES, 100.0)),
        healthy=walker_healthy,
        terminates=True,
    ),
    "WindAnt-v5": Robot(
        base="gymnasium.envs.mujoco.ant_v5:AntEnv",
        wind=wind_box(x=0.1, z=0.1),
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
    ),
}


def set_wind(env: Any, context: Array) -> None:
    """Push every body but the world with the force (x, 0, z)."""
    env.data.xfrc_applied[1:, 0:3:2] = context


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


class WindEnv(ContextualEnv):
    """One robot in the wind."""

    ending = "fell"  # what it means that an episode ended before its time

    def __init__(self, robot: Robot, env: Any, change_probability: float = 0.0) -> None:
        super().__init__(env, robot.wind, set_wind, change_probability)
        self._view = robot.view
        self._strongest = float(np.hypot(*np.maximum(-robot.wind.test.low, robot.wind.test.high)))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step in the wind."""
        # MuJoCo resets a simulation that became unstable, and its forces with it: the wind must not silently stop.
        self.apply(self.env.unwrapped, self.context)
        return super().step(action)

    def push(self, rng: np.random.Generator) -> None:
        """Shove the robot forwards or backwards, and a little upwards."""
        base: Any = self.env.unwrapped
        base.data.qvel[0] += rng.choice([-SHOVE, SHOVE])
        base.data.qvel[1 if planar(base.model) else 2] += SHOVE / 3

    def scene(self) -> dict[str, Any]:
        """Return what a page needs to draw the robot itself."""
        return scene(self.env.unwrapped, self._view, self.context)

    def render(self) -> Any:
        """Picture the robot and the wind; other modes than rgb_array are Gymnasium's."""
        if self.render_mode != "rgb_array":
            return super().render()
        return picture(self.env.unwrapped, self._view, self.context, self._strongest)

    def close(self) -> None:
        """Close the simulation and the viewer."""
        release(self.env.unwrapped)
        super().close()


class WindVectorEnv(NativeVectorEnv):
    """N robots in N winds on mujoco.batch, bit for bit as N single ones."""

    def __init__(
        self,
        robot: Robot,
        num_envs: int,
        threads: int = 1,
        max_episode_steps: int | None = None,
        change_probability: float = 0.0,
    ) -> None:
        import mujoco
        from mujoco.batch import Batch

        template = load_robot(robot)
        super().__init__(num_envs, robot.wind, template, max_episode_steps, change_probability)
        self._mujoco = mujoco
        self._robot, self._model = robot, template.model
        self._dt, self._frame_skip, self._init_qpos = template.dt, template.frame_skip, template.init_qpos
        self._init_qvel = template.init_qvel
        self._scratch = mujoco.MjData(self._model)
        # The contact cost needs the contacts of every simulation after the step, which only a persistent batch keeps.
        persistent = robot.contact_cost is not None
        self._batch = Batch(self._model, num_envs, check_count("threads", threads), persistent=persistent)
        self._qpos, self._qvel, self._ctrl = self._batch.qpos, self._batch.qvel, self._batch.ctrl
        self._wind = self._batch.xfrc_applied[:, 1:, 0:3:2]  # (N, bodies, 2)
        self._position = robot.position(self._batch)  # live, (N,)
        self._before = np.zeros(num_envs)

    def _arrays(self) -> State:
        # Rows hold all that MuJoCo integrates, warm start included. The position before the next step is kept as well:
        # a robot measured on a derived quantity could not recompute it.
        return super()._arrays() | {"simulation": self._batch.state, "position": self._before}

    def _start(self, rows: NDArray[np.intp]) -> None:
        robot, none = self._robot, self._mujoco.mjtStage.mjSTAGE_NONE
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
        self._wind[:] = self.contexts[:, None]  # at every step, as in WindEnv
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


def make_wind(
    robot: Robot,
    change_probability: float = 0.0,
    render_mode: str | None = None,
    width: int = RENDER_SIZE,
    height: int = RENDER_SIZE,
) -> WindEnv:
    """Make one robot in the wind, from Gymnasium's own class, so that it can be rendered."""
    if render_mode == "rgb_array":
        choose_backend()
    env = load_robot(robot, render_mode=render_mode, width=width, height=height)
    if render_mode == "rgb_array":
        soften_colours(env.model)
    return WindEnv(robot, env, change_probability)


def register() -> None:
    """Register all robots."""
    for id, robot in ROBOTS.items():
        register_env(
            id,
            context_space=robot.wind,
            make=partial(make_wind, robot),
            make_vector=partial(WindVectorEnv, robot),
            max_episode_steps=EPISODE_STEPS,
            summary=f"{id.removeprefix('Wind')} in an unknown wind",
            preset="fast",
            observation=robot.observation,
            action=robot.action,
            period=robot.period,
        )
