"""The one loop that runs a policy through episodes without learning: evaluation, adaptation, play and demo use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from sparc.arrays import Array, Flags
from sparc.envs import guard
from sparc.envs.contextual import ContextualVectorEnv
from sparc.methods.spec import Reads


class Acting(Protocol):
    """What acts: a `Policy`, or anything else that chooses actions for observations (R, O)."""

    @property
    def reads(self) -> Reads:
        """What it needs beside the observation."""
        ...

    def reset(self) -> None:
        """Forget the episodes before."""
        ...

    def act(self, obs: np.ndarray, context: np.ndarray | None = None) -> np.ndarray:
        """Choose actions (R, A) in the environment's own range."""
        ...


class Step(NamedTuple):
    """A step of all episodes; the numbers of rows whose episode was over mean nothing."""

    venv: ContextualVectorEnv  # after the step
    running: Flags  # (R,) the rows that took it
    obs: Array  # (R, O) before it
    action: np.ndarray  # (R, A) in the environment's own range
    contexts: Array  # (R, C) in force in it
    reward: Array  # (R,)
    terminated: Flags  # (R,)


class Episodes:
    """One episode per row of a vector environment, side by side and without noise, each under its own context.

    Iterate over the steps until the last episode ends, or take them one by one with `step()`.
    """

    def __init__(
        self, policy: Acting, venv: ContextualVectorEnv, contexts: Array, seed: int | Sequence[int] = 0
    ) -> None:
        """Begin the episodes; `seed` is that of the first row, from which the others count up, or one for each."""
        self.policy, self.venv = policy, venv
        self.steps = 0
        self.running = np.ones(venv.num_envs, bool)
        self.obs = guard.reset(venv, "the reset", seed=seed, options={"context": contexts})
        policy.reset()

    def __iter__(self) -> Iterator[Step]:
        while self.running.any():
            yield self.step()

    def step(self) -> Step:
        """Take one step; rows whose episode is over are stepped on unseen, until the last one ends."""
        venv, running, obs = self.venv, self.running, self.obs
        contexts = venv.contexts.copy()
        action = self.policy.act(
            np.where(running[:, None], obs, 0.0), context=contexts if self.policy.reads == "context" else None
        )
        self.obs, reward, terminated, truncated = guard.step(venv, action, f"step {self.steps}", contexts, running)
        self.steps += 1
        self.running = running & ~(terminated | truncated)
        return Step(venv, running, obs, action, contexts, reward, terminated)

    def switch(self, contexts: Array) -> None:
        """Put other contexts (R, C) in force, from the next step on."""
        guard.switch(self.venv, contexts, f"step {self.steps}")
