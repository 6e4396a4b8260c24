"""Environments for tests of workers: a console that runs by the wall clock, and one that goes wrong."""

import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import sparc

PERIOD = 0.02  # s
SPACE = sparc.ContextSpace.box(pull=("m/s²", (-0.5, 0.5), (-1.0, 1.0)))


class Point(gym.Env[np.ndarray, np.ndarray]):
    """A point on a line, which a context pulls away from the middle."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (2,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))
    pull = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-1.0, 1.0, 2)
        return self.state.astype(np.float32), {}

    def step(self, action: np.ndarray) -> Any:
        place, speed = self.state
        speed += 0.1 * (float(action[0]) + self.pull)
        self.state = np.clip([place + 0.1 * speed, speed], -10.0, 10.0)
        return self.state.astype(np.float32), 1.0 - abs(float(self.state[0])), False, False, {}


class Console(Point):
    """The same, by the wall clock: a step returns with the next frame, frames jitter, and now and then one stalls.

    The log has a line for each step: when it was asked for, and when the frame was there.
    """

    def __init__(self, wall_clock: bool = True, log: str = "", stall: float = 0.0) -> None:
        self.wall_clock, self.log, self.stall = wall_clock, Path(log) if log else None, stall
        self.random = np.random.default_rng()
        self.frames = 0

    def step(self, action: np.ndarray) -> Any:
        asked = time.monotonic()
        if self.wall_clock:
            self.frames += 1
            time.sleep(PERIOD * self.random.uniform(0.5, 0.9))
            if self.stall and self.frames % 50 == 0:
                time.sleep(self.stall)
        if self.wall_clock and self.log:
            with self.log.open("a") as file:
                file.write(f"{asked} {time.monotonic()}\n")
        return super().step(action)


class Faulty(Point):
    """Raises, or returns NaN, each time the process has taken so many steps."""

    steps = 0

    def __init__(self, raises: int = 0, nan: int = 0) -> None:
        self.raises, self.nan = raises, nan

    def step(self, action: np.ndarray) -> Any:
        Faulty.steps += 1
        if self.raises and Faulty.steps % self.raises == 0:
            raise ValueError("the cable came off")
        obs, *rest = super().step(action)
        if self.nan and Faulty.steps % self.nan == 0:
            obs = obs * np.nan
        return obs, *rest


def apply(env: Point, context: np.ndarray) -> None:
    env.pull = float(context[0])


def register(name: str, make: Any, **how: Any) -> None:
    sparc.register_env(name, make=make, apply=apply, context_space=SPACE, max_episode_steps=40, **how)


register("Point-v0", Point)
register("Console-v0", Console, real_time=True, period=PERIOD, test_options={"wall_clock": False})
register("Faulty-v0", Faulty, test_options={"raises": 0, "nan": 0})
