"""DriftingBoat-v0: hold a boat at a buoy in a current that it cannot see. Plain NumPy, for examples and quick tests.

The clock is coarse: feedback on the offset alone always lags a current that it does not know by one step.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from sparc.arrays import Array, Flags
from sparc.contexts import ContextSpace
from sparc.envs.contextual import ContextualEnv, NativeVectorEnv
from sparc.envs.registry import register_env
from sparc.errors import UserError

DT = 1.0  # s
SPEED = 2.0  # m/s per axis through the water, at full action
REACH = 3.0  # m: where an episode begins, per axis
LIMIT = 10.0  # m: the boat never gets further away than this, per axis
TOLERANCE = 1.25  # m: the distance at which the reward has fallen to 1/e
EPISODE_STEPS = 100
SHOVE = 4.0  # m, of a push
WIDTH, HEIGHT = 640, 480  # pixels of a picture
PICTURES_PER_SECOND = 10  # ten times as fast as real boats

OBSERVATION = (("x", "m"), ("y", "m"))  # the boat's offset from the buoy
ACTION = (("velocity x", f"{SPEED:g} m/s"), ("velocity y", f"{SPEED:g} m/s"))  # through the water

CURRENT = ContextSpace.box(x=("m/s", (-0.5, 0.5), (-1.0, 1.0)), y=("m/s", (-0.5, 0.5), (-1.0, 1.0)))


def draw_offset(rng: np.random.Generator) -> Array:
    """Draw where the buoy is, (2,)."""
    return rng.uniform(-REACH, REACH, 2)


def drift(offset: Array, action: NDArray[Any], current: Array) -> Array:
    """Return the offset (N, 2) after one step."""
    velocity = SPEED * np.clip(action, -1.0, 1.0).astype(np.float64) + current
    return np.clip(offset + DT * velocity, -LIMIT, LIMIT)


def reward_of(offset: Array) -> Array:
    """Return exp(-(distance / tolerance)^2), (N,)."""
    x, y = offset[:, 0] / TOLERANCE, offset[:, 1] / TOLERANCE
    return np.exp(-(x * x + y * y))


class BoatEnv(gym.Env[Array, NDArray[np.float32]]):
    """One boat in still water; ContextualEnv gives it the current."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": PICTURES_PER_SECOND}  # noqa: RUF012 (Gymnasium's attribute)

    def __init__(self, render_mode: str | None = None, width: int = WIDTH, height: int = HEIGHT) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UserError(f"the boat can be rendered as rgb_array, not as '{render_mode}'")
        self.render_mode, self.size = render_mode, (width, height)
        self.observation_space = gym.spaces.Box(-LIMIT, LIMIT, (2,), np.float64)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.current = np.zeros(2)
        self._offset = np.zeros((1, 2))
        self._track: list[Array] = []  # where it has been, for the picture
        self._heading = np.array([0.0, 1.0])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Put the buoy somewhere near the boat."""
        super().reset(seed=seed)
        self._offset = draw_offset(self.np_random)[None]
        self._track = [self._offset[0]]
        return self._offset[0].copy(), {}

    def step(self, action: NDArray[np.float32]) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Sail for a second and be rewarded for being near."""
        self._offset = drift(self._offset, action[None], self.current)
        self._track.append(self._offset[0])
        self._heading = np.asarray(action, np.float64)
        return self._offset[0].copy(), float(reward_of(self._offset)[0]), False, False, {}

    def push(self, rng: np.random.Generator) -> None:
        """Shove the boat in a random direction."""
        angle = rng.uniform(0, 2 * np.pi)
        shove = SHOVE * np.array([np.cos(angle), np.sin(angle)])
        self._offset = np.clip(self._offset + shove, -LIMIT, LIMIT)
        self._track.append(self._offset[0])

    def scene(self) -> dict[str, Any]:
        """Return what a page needs to draw the boat itself."""
        return {
            "kind": "boat",
            "boat": self._offset[0].tolist(),
            "heading": self._heading.tolist(),
            "current": self.current.tolist(),
            "ring": TOLERANCE,
            "drift": DT,
        }

    def render(self) -> Any:
        """Draw the boat from above."""
        if self.render_mode is None:
            return None
        from sparc.envs.boat.view import draw

        return draw(self.size, np.array(self._track), self._heading, self.current, TOLERANCE, SPEED, DT)


class BoatVectorEnv(NativeVectorEnv):
    """N boats at once, bit for bit as N single ones."""

    def __init__(self, num_envs: int, max_episode_steps: int | None = None, change_probability: float = 0.0) -> None:
        super().__init__(num_envs, CURRENT, BoatEnv(), max_episode_steps, change_probability)

    def _start(self, rows: NDArray[np.intp]) -> None:
        for row in rows:
            self._observations[row] = draw_offset(self._rngs[row])

    def _advance(self, actions: NDArray[Any]) -> tuple[Array, Flags]:
        self._observations[:] = drift(self._observations, actions, self.contexts)
        return reward_of(self._observations), np.zeros(self.num_envs, dtype=bool)


def set_current(env: BoatEnv, context: Array) -> None:
    """Let the water flow."""
    env.current = context.copy()


def make_boat(
    change_probability: float = 0.0, render_mode: str | None = None, width: int = WIDTH, height: int = HEIGHT
) -> ContextualEnv:
    """Make one boat in a current."""
    return ContextualEnv(BoatEnv(render_mode, width, height), CURRENT, set_current, change_probability)


def register() -> None:
    """Register the boat."""
    register_env(
        "DriftingBoat-v0",
        context_space=CURRENT,
        make="sparc.envs.boat.env:make_boat",
        make_vector="sparc.envs.boat.env:BoatVectorEnv",
        max_episode_steps=EPISODE_STEPS,
        summary="hold a boat at a buoy in an unknown current",
        observation=OBSERVATION,
        action=ACTION,
        period=DT,
    )
