"""Collecting experience: the only env.step() of training."""

from __future__ import annotations

from collections import deque
from typing import Any

import jax
import numpy as np
from jax import Array

from sparc.acting.history import History
from sparc.acting.policy import Policy
from sparc.envs import guard
from sparc.envs.contextual import ContextualVectorEnv
from sparc.training.replay import Replay

RECENT_EPISODES = 100  # behind the running mean of training returns


class Collector:
    """Steps the environments with a policy, puts each step into the replay once, and resets what has ended."""

    def __init__(self, venv: ContextualVectorEnv, policy: Policy, seeds: list[int]):
        self.venv, self.policy = venv, policy
        self.steps = 0  # environment steps so far, over all environments
        self.episodes = 0
        self.returns = np.zeros(venv.num_envs)  # of the episodes under way
        self.recent: deque[float] = deque(maxlen=RECENT_EPISODES)
        self.obs = self.reset(seed=seeds)
        policy.start(venv.num_envs)

    def collect(self, replay: Replay, vector_steps: int, key: Array, random: bool) -> None:
        """Take vector_steps steps in every environment, with uniformly random actions or the policy's."""
        venv, policy = self.venv, self.policy
        shape = (venv.num_envs, policy.action_size)
        for _ in range(vector_steps):
            obs, contexts = self.obs, venv.contexts.copy()
            # the key depends on the step alone: nothing random has to be remembered between two calls
            step_key = jax.random.fold_in(key, self.steps)
            if random:
                action = np.asarray(jax.random.uniform(step_key, shape, minval=-1.0, maxval=1.0))
                assert policy.history is not None
                policy.history.push(obs, action)
            else:
                action = policy.choose(obs, contexts, step_key)
            next_obs, reward, terminated, truncated = guard.step(
                venv, policy.scale(action), f"environment step {self.steps}", contexts
            )
            next_obs = np.asarray(next_obs, np.float32)
            replay.add(obs, action, reward, terminated, truncated, next_obs, contexts, venv.contexts)
            self.steps += venv.num_envs
            self.returns += reward
            self.obs = next_obs
            ended = terminated | truncated
            if ended.any():
                self.recent.extend(self.returns[ended].tolist())
                self.episodes += int(ended.sum())
                self.returns[ended] = 0.0
                self.obs = self.reset(options={"reset_mask": ended})
                policy.reset(ended)

    def restart(self) -> None:
        """Break off all episodes and begin new ones."""
        self.obs = self.reset()
        self.policy.start(self.venv.num_envs)
        self.returns[:] = 0.0
        self.recent.clear()

    def reset(self, **how: Any) -> np.ndarray:
        """Begin episodes and return the observations of all environments."""
        return np.asarray(guard.reset(self.venv, f"the reset at environment step {self.steps}", **how), np.float32)

    def get_state(self) -> dict[str, np.ndarray]:
        """Return all that collecting depends on, as arrays."""
        assert self.policy.history is not None
        own = {
            "obs": self.obs,
            "history": self.policy.history.array,
            "returns": self.returns,
            "recent": np.asarray(self.recent, np.float64),
            "counts": np.asarray([self.steps, self.episodes], np.int64),
        }
        return own | {f"env.{name}": array for name, array in self.venv.get_state().items()}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Go on where get_state was called."""
        saved = {name.removeprefix("env."): array for name, array in state.items() if name.startswith("env.")}
        with guard.explained(self.venv, "the return to its saved state", None):
            self.venv.set_state(saved)
        # an environment that could not be restored has begun a new episode: its row begins anew here as well
        self.obs = self.reset(options={"reset_mask": np.zeros(self.venv.num_envs, bool)})
        anew = (self.obs != state["obs"]).any(axis=1)
        self.returns = np.where(anew, 0.0, state["returns"])
        self.recent = deque(state["recent"].tolist(), maxlen=RECENT_EPISODES)
        self.steps, self.episodes = (int(count) for count in state["counts"])
        self.policy.history = History.of(state["history"])
        self.policy.reset(anew)
