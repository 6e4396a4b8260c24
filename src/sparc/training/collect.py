"""Collecting experience in the learner's own process, in step with learning: the same bits every time."""

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
from sparc.envs.registry import get_env, make_vector_env
from sparc.methods.qr_sac import QrSac, State
from sparc.runs.load import make_spec
from sparc.runs.run import Run
from sparc.training.replay import Replay
from sparc.training.sources import RECENT_EPISODES
from sparc.training.stages import Estimate, check_contexts, stage_seed, unknown_contexts, use_stage


class Collector:
    """Steps the environments with a policy, puts each step into the replay once, and resets what has ended.

    With `estimate` the true contexts stay unknown: each step is stored with what its history tells about them.
    """

    def __init__(
        self, venv: ContextualVectorEnv, policy: Policy, seeds: list[int], estimate: Estimate | None = None
    ) -> None:
        self.venv, self.policy, self.estimate = venv, policy, estimate
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
            obs, contexts = self.obs, self.contexts()
            # the key depends on the step alone: nothing random has to be remembered between two calls
            step_key = jax.random.fold_in(key, self.steps)
            if random:
                action = np.asarray(jax.random.uniform(step_key, shape, minval=-1.0, maxval=1.0))
                assert policy.history is not None
                policy.history.push(obs, action)
            else:
                action = policy.choose(obs, contexts, step_key)
            next_obs, reward, terminated, truncated = guard.step(
                venv, policy.scale(action), f"environment step {self.steps}", venv.contexts.copy()
            )
            next_obs = np.asarray(next_obs, np.float32)
            replay.add(obs, action, reward, terminated, truncated, next_obs, contexts, self.contexts())
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

    def contexts(self) -> np.ndarray:
        """Return the contexts (N, C) that the next step is stored with."""
        if self.estimate is None:
            return self.venv.contexts.copy()
        assert self.policy.history is not None
        return self.estimate(self.policy.history.array)

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
        """Go on where get_state was called; after a session with workers, in new episodes."""
        self.recent = deque(state["recent"].tolist(), maxlen=RECENT_EPISODES)
        self.steps, self.episodes = (int(count) for count in state["counts"])
        if "obs" not in state:
            return
        saved = {name.removeprefix("env."): array for name, array in state.items() if name.startswith("env.")}
        with guard.explained(self.venv, "the return to its saved state", None):
            self.venv.set_state(saved)
        # an environment that could not be restored has begun a new episode: its row begins anew here as well
        self.obs = self.reset(options={"reset_mask": np.zeros(self.venv.num_envs, bool)})
        anew = (self.obs != state["obs"]).any(axis=1)
        self.returns = np.where(anew, 0.0, state["returns"])
        self.policy.history = History.of(state["history"])
        self.policy.reset(anew)


class LocalSource:
    """Experience from environments in this process: as many steps for each chunk as the config says."""

    starting = False  # it brings each chunk's steps before the chunk
    must_save, processor_s = False, 0.0  # the replay's margin is made for this, and the time is this process's own
    shelves = 0

    def __init__(self, run: Run):
        config = self.config = run.config
        self.run = run
        self.venv = make_vector_env(config.env, config.num_envs, threads=1, **config.env_options)
        try:
            use_stage(self.venv, run)
            self.spec = make_spec(self.venv)
        except BaseException:
            self.venv.close()
            raise
        self.unseen: list[str] = []
        if get_env(config.env).real_time:
            self.unseen.append(
                f"{config.env} is a real-time environment, and waits while the learner learns: add --workers N."
            )

    def start(self, replay: Replay, method: QrSac, state: State, seeds: np.random.SeedSequence) -> None:
        """Begin episodes; what they bring goes into this replay."""
        self.replay, self.key = replay, jax.random.fold_in(jax.random.key(stage_seed(self.run)), 1)
        policy = Policy(method.policy(state), method.describe(state))
        estimate = unknown_contexts(self.run, method, state)
        self.collector = Collector(self.venv, policy, seeds.generate_state(self.venv.num_envs).tolist(), estimate)
        check_contexts(self.venv, self.run)

    @property
    def steps(self) -> int:
        """Return the environment steps so far."""
        return self.collector.steps

    @property
    def episodes(self) -> int:
        """Return the episodes that have ended so far."""
        return self.collector.episodes

    @property
    def recent(self) -> deque[float]:
        """Return the returns of the last episodes."""
        return self.collector.recent

    def collect(self, method: QrSac, state: State, updates: int, random: bool) -> None:
        """Let the rollout policy take the chunk's environment steps."""
        self.collector.policy.actor = method.rollout_policy(state)
        vector_steps = self.config.chunk * self.config.steps_per_update // self.config.num_envs
        self.collector.collect(self.replay, vector_steps, self.key, random)

    def restart(self) -> None:
        """Break off all episodes and begin new ones."""
        self.collector.restart()

    def finish(self) -> None:
        """Do nothing: what was collected is in the replay already."""

    def notes(self) -> list[str]:
        """Return what a person should read, once."""
        found, self.unseen = self.unseen, []
        return found + self.venv.take_notes()

    def counters(self) -> dict[str, int]:
        """Return the counts of the environments."""
        return self.venv.counters()

    def numbers(self) -> dict[str, float]:
        """Return nothing: there are no workers to tell of."""
        return {}

    def get_state(self) -> dict[str, np.ndarray]:
        """Return all that collecting depends on, as arrays."""
        return self.collector.get_state()

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Go on where get_state was called, here or by a source with workers."""
        self.collector.set_state(state)
        if "obs" not in state:
            self.collector.steps = self.replay.total  # of workers: what they delivered later is there as well

    def close(self) -> None:
        """Close the environments."""
        self.venv.close()
