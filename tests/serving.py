"""What tests of `sparc live` share: tiny runs, an environment that breaks, and a server in a thread."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from sparc.contexts import ContextSpace
from sparc.envs.contextual import ContextualEnv
from sparc.envs.registry import register_env
from sparc.watch.live.server import Server
from sparc.watch.live.simulation import open_contenders

BOAT, BRITTLE = "DriftingBoat-v0", "LiveCrash-v0"


class Brittle(gym.Env[Any, Any]):
    """Draws itself, and breaks where the context is above 0.5."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (Gymnasium's attribute)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.load = render_mode, 0.0
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float64)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2), {}

    def step(self, action: Any) -> Any:
        if self.load > 0.5:
            raise ValueError("too heavy")
        return np.full(2, self.load), 1.0, False, False, {}

    def render(self) -> Any:
        return np.full((48, 64, 3), 200, np.uint8)


def apply(env: Brittle, context: Any) -> None:
    env.load = float(context[0])


LOADS = ContextSpace.box(load=("kg", (0.0, 0.4), (0.0, 1.0)))
register_env(
    BRITTLE,
    context_space=LOADS,
    make=lambda **options: ContextualEnv(Brittle(**options), LOADS, apply),
    max_episode_steps=20,
)


@contextmanager
def serving(runs: Sequence[str | Path]) -> Iterator[Server]:
    """Serve runs from a thread."""
    server, started = Server(open_contenders(runs)), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(server.run(0, lambda _: started.set())))
    thread.start()
    assert started.wait(20)
    try:
        yield server
    finally:
        server.end()
        thread.join(20)
        assert not thread.is_alive()
        assert not server.session.is_alive()
