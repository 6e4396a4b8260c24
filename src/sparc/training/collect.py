"""Collecting experience: the only env.step() of training."""

from __future__ import annotations

from collections import deque
from typing import Any

import jax
import numpy as np
from jax import Array

from sparc.acting.history import History
from sparc.acting.policy import Policy
from sparc.envs.contextual import ContextualVectorEnv
from sparc.errors import RunFailure, SparcError
from sparc.training.replay import Replay

MAX_REWARD = 1e15  # the squares of returns must stay within single precision
RECENT_EPISODES = 100  # behind the running mean of training returns


class Collector:
    """Steps the environments with a policy, puts each step into the replay once, and resets what has ended."""

    def __init__(self, name: str, venv: ContextualVectorEnv, policy: Policy, seeds: list[int]):
        self.name, self.venv, self.policy = name, venv, policy
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
            obs, contexts = self.obs, self.checked_contexts()
            # the key depends on the step alone: nothing random has to be remembered between two calls
            step_key = jax.random.fold_in(key, self.steps)
            if random:
                action = np.asarray(jax.random.uniform(step_key, shape, minval=-1.0, maxval=1.0))
                assert policy.history is not None
                policy.history.push(obs, action)
            else:
                action = policy.choose(obs, contexts, step_key)
            next_obs, reward, terminated, truncated, _ = self.call("step", policy.scale(action))
            next_obs, reward = self.checked("step", next_obs, contexts), self.checked_reward(reward, contexts)
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
        """Begin episodes and give the observations of all environments."""
        return self.checked("reset", self.call("reset", **how)[0])

    def call(self, what: str, *arguments: Any, **how: Any) -> Any:
        """Call the environments; where one raises, say which and when."""
        contexts = self.venv.contexts.copy()
        try:
            return getattr(self.venv, what)(*arguments, **how)
        except SparcError:
            raise
        except Exception as error:
            raise RunFailure(self.complaint(f"raised {type(error).__name__} in {what}: {error}", contexts)) from error

    def checked(self, what: str, obs: np.ndarray, contexts: np.ndarray | None = None) -> np.ndarray:
        """Return the observations as float32, or say which environment went wrong and where."""
        expected = (self.venv.num_envs, *(self.venv.single_observation_space.shape or ()))
        contexts = self.venv.contexts if contexts is None else contexts
        if np.shape(obs) != expected:
            raise RunFailure(
                self.complaint(f"returned observations of shape {np.shape(obs)} from {what}, not {expected}", contexts)
            )
        obs = np.asarray(obs, np.float32)
        finite = np.isfinite(obs).all(axis=1)
        if not finite.all():
            raise RunFailure(
                self.complaint(f"returned NaN or infinity in an observation from {what}", contexts, finite)
            )
        return obs

    def checked_reward(self, reward: np.ndarray, contexts: np.ndarray) -> np.ndarray:
        """Return the rewards, or say which environment went wrong and where."""
        if np.shape(reward) != (self.venv.num_envs,):
            raise RunFailure(
                self.complaint(f"returned rewards of shape {np.shape(reward)}, not {(self.venv.num_envs,)}", contexts)
            )
        fine: np.ndarray = np.less_equal(np.abs(reward), MAX_REWARD)  # NaN is not
        if not fine.all():
            value = np.asarray(reward)[~fine][0]
            what = f"returned {value:g} as a reward, which nothing can be learned from (at most {MAX_REWARD:g})"
            raise RunFailure(self.complaint(what, contexts, fine))
        return reward

    def checked_contexts(self) -> np.ndarray:
        """Return a copy of the contexts, or say which environment has one that is no number."""
        contexts = self.venv.contexts.copy()
        finite: np.ndarray = np.asarray(np.isfinite(contexts).all(axis=1))
        if not finite.all():
            raise RunFailure(self.complaint("has NaN or infinity in its context", contexts, finite))
        return contexts

    def complaint(self, what: str, contexts: np.ndarray, fine: np.ndarray | None = None) -> str:
        """Name environment, step and context; the run's last checkpoint is untouched."""
        rows = contexts if fine is None else contexts[~fine]
        names = self.venv.context_space.names
        where = "; ".join(", ".join(f"{n}={v:.6g}" for n, v in zip(names, row, strict=True)) for row in rows[:3])
        at = f"at environment step {self.steps}, context {where}"
        return f"{self.name} {what} {at}. The run can be resumed from its last checkpoint."

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
        self.venv.set_state(
            {name.removeprefix("env."): array for name, array in state.items() if name.startswith("env.")}
        )
        # an environment that could not be restored has begun a new episode: its row begins anew here as well
        self.obs = self.reset(options={"reset_mask": np.zeros(self.venv.num_envs, bool)})
        anew = (self.obs != state["obs"]).any(axis=1)
        self.returns = np.where(anew, 0.0, state["returns"])
        self.recent = deque(state["recent"].tolist(), maxlen=RECENT_EPISODES)
        self.steps, self.episodes = (int(count) for count in state["counts"])
        self.policy.history = History.of(state["history"])
        self.policy.reset(anew)
