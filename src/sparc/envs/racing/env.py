"""Racing as an environment: N cars from anywhere on the track for a while, or a flying lap each to be judged by.

Two actions in [-1, 1], ten times a second: steering (left is positive) and pedal (throttle above zero, brake below).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from sparc.arrays import Array, Flags
from sparc.envs.contextual import ContextualEnv, NativeVectorEnv, ProgressCall, State, check_state
from sparc.envs.racing.course import CLIP, OBSERVATION_SIZE, Course, observe, reward_of
from sparc.envs.racing.reference import Reference, find_references
from sparc.envs.racing.tasks import NOT_COMPLETED, PHYSICS, UNCLEAN, Task
from sparc.envs.racing.torcs.columns import COLUMN, OFF_COURSE
from sparc.envs.racing.torcs.field import Field
from sparc.envs.racing.torcs.simulator import CONTROL_STEP
from sparc.envs.racing.tracks import Track
from sparc.errors import UserError, unknown

EPISODE_STEPS = 1500  # 150 s
# Left is positive; throttle above zero, brake below. See `commands` for what becomes of them.
ACTION = (("steering", "lock"), ("pedal", "full throttle or brake"))
TOP_START_SPEED = 104.607 / 3.6  # m/s
BESIDE = 1.05  # of half the width: starts may be a little beside the track
FACING = 30.0  # m ahead on the centre line: where a car looks at the start
STUCK_STEPS, STUCK_PROGRESS = 30, 0.2  # so many steps in a row with less than so many metres each
OFF_STEPS = 30  # so many steps in a row off course
# A squashed Gaussian never quite reaches ±1: the last sixth of the pedal's way is full throttle, or full brake.
PEDAL_GAIN = 1.2
# m/s: from here on a full turn of the wheel steers less the faster the car is, 6 rad·m/s over the speed.
STEERING_FADES = 100 / 3
# A flying lap begins with a run-up, so that the line is crossed at speed.
RUN_UP, RUN_UP_SHARE, RUN_UP_SPEED = 1000.0, 0.5, 20.0  # m, but at most this share of the track; m/s
RUN_UP_SLOWEST = 5.0  # m/s on average: slower, and the lap is given up before the line
SETTINGS = ("race", "lap")
TRAIL_STEPS = 60  # that a picture shows


def draw_place(rng: np.random.Generator, course: Course) -> list[float]:
    """Draw where a race begins: distance, offset, heading against the track's, speed."""
    distance = rng.uniform(0.0, course.length)
    half_width = float(course.at(np.array(distance))[2])
    offset = rng.uniform(-BESIDE, BESIDE) * half_width
    heading = course.heading_to(distance, offset, course.track_heading(distance), FACING)
    return [distance, offset, heading, rng.uniform(0.0, TOP_START_SPEED)]


def commands(actions: Array, states: Array) -> Array:
    """Return what the simulator is told for actions (N, 2) in cars of these states."""
    speed = np.hypot(states[:, COLUMN["vx"]], states[:, COLUMN["vy"]])
    steering = actions[:, 0] * STEERING_FADES / np.maximum(speed, STEERING_FADES)
    return np.stack([steering, np.clip(PEDAL_GAIN * actions[:, 1], -1.0, 1.0)], axis=1)


class RaceVectorEnv(NativeVectorEnv):
    """N cars, each alone on the track.

    `setting` is "race" (from anywhere, for 150 s) or "lap" (a flying lap from a fixed start, with a time limit from the
    built-in AI's lap in the same car); `physics` is one of PHYSICS.
    """

    def __init__(
        self,
        track: Track,
        task: Task,
        num_envs: int,
        threads: int = 1,
        max_episode_steps: int | None = None,
        change_probability: float = 0.0,
        setting: str = "race",
        physics: str = "standard",
    ) -> None:
        self._task, self._physics = task, _one_of("physics", physics, PHYSICS)
        self._lap = _one_of("setting", setting, SETTINGS) == "lap"
        self._made_with = np.array([PHYSICS.index(physics), self._lap])  # what a saved state must agree with
        super().__init__(num_envs, task.space, Spaces(), None if self._lap else max_episode_steps, change_probability)
        self._track = track
        self._field = Field(track, num_envs, threads)
        self._run_up = min(RUN_UP, RUN_UP_SHARE * self._field.course.length)  # m
        self._loaded = np.full_like(self.contexts, np.nan)  # the contexts that the cars were made from
        self._actions = np.zeros((num_envs, 2))
        self._progress = np.zeros(num_envs)
        self._stuck, self._off = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        self._ended = np.zeros(num_envs, bool)  # not simulated any more
        self._limits = np.full(num_envs, np.inf)  # s of a flying lap
        self._references = np.full(num_envs, np.nan)  # s
        self._lost = np.zeros(1, np.int64)  # workers, so far
        self._notes: list[str] = []

    def _arrays(self) -> State:
        return super()._arrays() | {
            "loaded": self._loaded,
            "actions": self._actions,
            "progress": self._progress,
            "stuck": self._stuck,
            "off": self._off,
            "ended": self._ended,
            "limits": self._limits,
            "references": self._references,
            "lost": self._lost,
        }

    def get_state(self) -> State:
        """Return everything needed to go on bit for bit, the cars' snapshots included."""
        return super().get_state() | {"race": self._made_with.copy(), "cars": self._field.snapshots()}

    def set_state(self, state: State) -> None:
        """Go on exactly where get_state was called, here or in another process."""
        rest = dict(state)
        own = {name: rest.pop(name, np.zeros(0)) for name in ("race", "cars")}
        check_state(own, {"race": self._made_with.shape, "cars": (self.num_envs, self._field.snapshot_size)})
        if (own["race"] != self._made_with).any():
            raise UserError(
                f"the saved environment state is not of physics='{self._physics}', setting='{SETTINGS[self._lap]}'; "
                "make the environment with the options it was saved with"
            )
        super().set_state(rest)
        self._field.restore([self._task.describe(context, self._physics) for context in self._loaded], own["cars"])

    def _start(self, rows: NDArray[np.intp]) -> None:
        course = self._field.course
        cars = [self._task.describe(self.contexts[row], self._physics) for row in rows]
        if self._lap:
            places = np.tile([course.length - self._run_up, 0.0, 0.0, RUN_UP_SPEED], (len(rows), 1))
            self._references[rows] = reference_times(self._track, self._task, self.contexts[rows], self._physics)
            self._limits[rows] = NOT_COMPLETED * self._references[rows]
        else:
            places = np.array([draw_place(self._rngs[row], course) for row in rows])
        self._field.start(rows.tolist(), cars, places)
        self._loaded[rows] = self.contexts[rows]
        self._actions[rows] = 0.0
        self._progress[rows] = self._field.states[rows, COLUMN["progress"]]
        self._stuck[rows] = self._off[rows] = 0
        self._ended[rows] = False
        self._observations[rows] = observe(self._field.states[rows], self._actions[rows], course)
        self._note_crashes()

    def _advance(self, actions: NDArray[Any]) -> tuple[Array, Flags]:
        field, alive = self._field, ~self._ended
        for row in np.flatnonzero((self._loaded != self.contexts).any(axis=1) & alive):
            field.exchange(int(row), self._task.describe(self.contexts[row], self._physics))
            self._loaded[row] = self.contexts[row]
        before, last_steering = field.states.copy(), self._actions[:, 0].copy()
        self._actions[:] = np.clip(actions, -1.0, 1.0)
        broken = field.step(commands(self._actions, before), alive)
        broken |= ~np.isfinite(field.states).all(axis=1)
        field.states[broken] = before[broken]  # what is left of a simulation that blew up
        states = field.states
        progress = states[:, COLUMN["progress"]] - self._progress
        self._progress[:] = states[:, COLUMN["progress"]]
        self._stuck[:] = np.where(progress < STUCK_PROGRESS, self._stuck + 1, 0)
        self._off[:] = np.where(states[:, COLUMN["wheels_out"]] >= OFF_COURSE, self._off + 1, 0)
        backwards = np.cos(states[:, COLUMN["yaw"]] - states[:, COLUMN["track_heading"]]) < 0.0
        failed = broken | (self._stuck >= STUCK_STEPS) | (self._off >= OFF_STEPS) | backwards
        reward = np.where(alive, reward_of(states, progress, self._actions[:, 0] - last_steering, failed), 0.0)
        self._observations[alive] = observe(states[alive], self._actions[alive], field.course)
        self._ended |= failed
        self._note_crashes(broken)
        return reward, alive & failed

    def _step(self, actions: NDArray[Any]) -> tuple[Array, Flags, Flags]:
        alive = ~self._ended
        reward, terminated, truncated = super()._step(actions)
        if self._lap:
            states = self._field.states
            laps, now = states[:, COLUMN["laps"]], states[:, COLUMN["lap_now"]]
            over = (laps >= 2) | (now > np.where(laps >= 1, self._limits, self._run_up / RUN_UP_SLOWEST))
            truncated = alive & over & ~terminated
            self._ended |= over
        return reward, terminated, truncated

    def measures(self) -> dict[str, Array]:
        """Return what a flying lap is judged by, for every row; nothing in races."""
        if not self._lap:
            return {}
        states = self._field.states
        time = states[:, COLUMN["lap_time"]]
        completed = (states[:, COLUMN["laps"]] >= 2) & (time < self._limits)
        clean = completed & (states[:, COLUMN["lap_off"]] == 0) & (states[:, COLUMN["lap_wall"]] == 0)
        return {
            "completed": completed.astype(float),
            "clean": clean.astype(float),
            "lap_time": np.where(completed, time, np.nan),
            "reference": self._references.copy(),
            "ratio": np.where(completed, time / self._references, NOT_COMPLETED),
            "completed_ratio": np.where(completed, time / self._references, np.nan),
        }

    def most_steps(self, row: int) -> int | None:
        """Return after how many steps a row's flying lap is over at the latest; None in races, and before the reset."""
        if not np.isfinite(self._limits[row]):
            return None
        # the step in which either time runs out counts as well
        return math.ceil((self._run_up / RUN_UP_SLOWEST + self._limits[row]) / CONTROL_STEP) + 2

    def labels(self) -> list[str]:
        """Name the car of every row."""
        return [self._task.label(context) for context in self.contexts]

    def counters(self) -> dict[str, int]:
        """Return how often a worker process was lost and started again."""
        return {"simulator_restarts": int(self._lost[0])}

    def take_notes(self) -> list[str]:
        """Return the notes on lost workers and clear them."""
        notes, self._notes = self._notes, []
        return notes

    def _note_crashes(self, broken: Flags | None = None) -> None:
        """Note which workers were lost, at once: later another car may be in the row."""
        for row, what in self._field.take_crashes():
            turn = f"; it was the turn of {self._task.label(self.contexts[row])}" if row >= 0 else ""
            out = broken is not None and row >= 0 and broken[row]
            end = "this car is out of its race" if out else "nothing was missed"
            self._notes.append(
                f"The simulator of {self._track.name} was lost ({what}{turn}); it was started again and {end}."
            )
            self._lost += 1

    def close_extras(self, **_: Any) -> None:
        """End the worker processes."""
        self._field.close()

    @property
    def states(self) -> Array:
        """The simulator's rows of state, columns as in columns.STATE."""
        return self._field.states

    @property
    def course(self) -> Course:
        """The track's centre line."""
        return self._field.course


def reference_times(
    track: Track, task: Task, contexts: Array, physics: str, progress: ProgressCall | None = None
) -> Array:
    """Return the AI's lap times, s; a car in which it does not come round has none, and cannot be tested."""
    laps = find_references(track, [task.describe(context, physics) for context in contexts], progress)
    times = np.array([lap.time for lap in laps])
    if not np.isfinite(times).all():
        car = task.label(contexts[int(np.argmin(np.isfinite(times)))])
        raise UserError(f"the built-in AI does not come round {track.name} in {car}: no lap to compare with")
    return times


def weak_laps(task: Task, contexts: Array, laps: Sequence[Reference]) -> list[tuple[str, Reference]]:
    """Choose the AI's laps that left the course, touched a wall or did damage, by the names of the cars."""
    found = [(task.label(context), lap) for context, lap in zip(contexts, laps, strict=True) if np.isfinite(lap.time)]
    return [(name, lap) for name, lap in found if lap.off or lap.wall or lap.damage]


def choose_by(measures: Mapping[str, Array]) -> float:
    """Return what the best checkpoint is chosen by: minus the mean ratio, with UNCLEAN for a lap that is not clean."""
    return -float(np.where(measures["clean"] > 0, measures["ratio"], UNCLEAN).mean())


def _one_of(what: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise unknown(what, value, known)
    return value


class Spaces(gym.Env[Array, NDArray[np.float32]]):
    """What goes in and comes out, without a simulator."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-CLIP, CLIP, (OBSERVATION_SIZE,), np.float64)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)


class RaceEnv(Spaces):
    """One car, through a vector environment of one; ContextualEnv gives it its context."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / CONTROL_STEP)}  # noqa: RUF012 (Gymnasium's)
    ending = "gave up"  # what it means that an episode ended before its time

    def __init__(
        self,
        track: Track,
        task: Task,
        setting: str = "race",
        physics: str = "standard",
        render_mode: str | None = None,
        width: int = 640,
        height: int = 480,
    ) -> None:
        super().__init__()
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UserError(f"a race can be rendered as rgb_array, not as '{render_mode}'")
        self.render_mode, self._size = render_mode, (width, height)
        self._one = RaceVectorEnv(track, task, 1, setting=setting, physics=physics)
        self.context: Array = task.space.centre
        self._trail: list[Array] = []  # x, y, speed: where it has been, for the picture

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Put the car of the context on the road."""
        if options:
            raise UserError(
                f"a race is reset with no option but 'context', got '{next(iter(options))}'; "
                "sparc.envs.racing.context_of gives the context of a car"
            )
        super().reset(seed=seed)
        self._one._rngs[0] = self.np_random
        observations, _ = self._one.reset(options={"context": self.context[None]})
        self._trail = [self._where()]
        return observations[0], {}

    def step(self, action: NDArray[np.float32]) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Drive for a tenth of a second."""
        observations, reward, terminated, truncated, _ = self._one.step(action[None])
        self._trail = [*self._trail[-TRAIL_STEPS:], self._where()]
        return observations[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    @property
    def most_steps(self) -> int | None:
        """After how many steps a flying lap in this car is over at the latest; None in races, and before the reset."""
        return self._one.most_steps(0)

    def measures(self) -> dict[str, float]:
        """Return what a flying lap is judged by, as it stands; nothing in races."""
        return {name: float(values[0]) for name, values in self._one.measures().items()}

    def _where(self) -> Array:
        return self._one.states[0, [COLUMN[name] for name in ("x", "y", "vx")]].copy()

    def render(self) -> Any:
        """Draw the car from above."""
        if self.render_mode is None:
            return None
        from sparc.envs.racing.view import draw

        return draw(self._size, self._one.course, self._one.states[0], self._trail)

    def set_car(self, context: Array) -> None:
        """Take another car, from the next step or reset on."""
        self.context = context.copy()
        if self._one._started.all():
            self._one.set_contexts(context[None])

    def close(self) -> None:
        """End the worker process."""
        self._one.close()


def make_race(
    track: Track,
    task: Task,
    change_probability: float = 0.0,
    setting: str = "race",
    physics: str = "standard",
    render_mode: str | None = None,
    width: int = 640,
    height: int = 480,
) -> ContextualEnv:
    """Make one car in a context."""
    env = RaceEnv(track, task, setting, physics, render_mode, width, height)
    return ContextualEnv(env, task.space, RaceEnv.set_car, change_probability)
