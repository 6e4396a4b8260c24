"""What runs in a worker: environments, a policy in NumPy, a thread that steps them. No Ray and no JAX in here.

The pool calls `greet`, `begin` and then `exchange`, again and again: newest weights in, blocks of experience out. The
thread goes on stepping between two exchanges. Simulators pause when they have used up their grant, real-time
environments never do.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from sparc.deploy.runtime import Policy
from sparc.envs import guard
from sparc.envs.contextual import ContextualVectorEnv
from sparc.envs.registry import get_env, make_vector_env
from sparc.errors import RunFailure, UserError
from sparc.machine import processor_seconds
from sparc.runs.sessions import package_versions
from sparc.runs.stages import Lineage
from sparc.training.blocks import RANDOM, Block, RowWriter

PACKAGES = ("sparc-rl", "numpy", "mujoco", "gymnasium")  # whose versions the experience depends on
EXCHANGE_SECONDS = 0.5  # after which an exchange is answered with whatever there is,
REAL_TIME_EXCHANGE_SECONDS = 1.0  # in real time: as often as there are newer weights, for each answer costs the learner
ENOUGH_BYTES = 64_000  # of rows, that an exchange is answered with at once; Ray sends less than 100 kB inline
MOST_FAILURES = 3  # of the environment, without an episode that ended in between
LATE = 0.5  # of a period: a tick that much behind its time is late


class Weights(NamedTuple):
    """A policy as it travels: its description, and all of its numbers in one vector."""

    number: int  # of the publication
    version: int  # updates when it was published
    phase: str  # of the method
    contract: dict[str, Any]  # of `deploy.contract.describe_policy`
    layout: list[tuple[str, tuple[int, ...]]]  # names and shapes, in the vector's order
    vector: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by name, as views of the vector."""
        sizes = [int(np.prod(shape)) for _, shape in self.layout]
        parts = np.split(self.vector, np.cumsum(sizes)[:-1])
        return {name: part.reshape(shape) for (name, shape), part in zip(self.layout, parts, strict=True)}


class Task(NamedTuple):
    """What a worker is to do until it is told otherwise."""

    phase: str
    random: bool
    grant: int  # steps that it may have in hand, those not yet delivered included
    last: bool = False  # hand over everything at once and stop


@dataclass(frozen=True)
class RolloutSetup:
    """What a worker must know to begin."""

    env: str
    env_options: Mapping[str, Any]
    lineage: Lineage
    contexts: str  # the fingerprint of what the learner trains on
    revision: int
    seed: int
    session: int
    history_length: int
    block_rows: int  # transitions of a block, at most
    folder: str  # the learner's own, where modules of the user may be
    worker: int = 0
    incarnation: int = 0
    num_envs: int = 1


@dataclass
class Stats:
    """What a worker has done since it began."""

    steps: int = 0
    episodes: int = 0
    env_restarts: int = 0
    late: int = 0  # ticks of a real-time environment
    processor_s: float = 0.0


class Reply(NamedTuple):
    """What an exchange brings."""

    blocks: list[Block]
    stats: Stats
    returns: list[float]  # of the episodes that ended since the last one
    notes: list[str]
    counters: dict[str, int]  # of the environments
    phase: str  # of the method, that all of this is from


class Clock:
    """Keeps the period of a real-time environment and counts the ticks that come late."""

    def __init__(self, period: float):
        self.period, self.late = period, 0
        self.restart()

    def restart(self) -> None:
        """Begin anew: a reset takes as long as it takes."""
        self.next = time.monotonic() + self.period

    def wait(self) -> None:
        """Wait for the next tick; after a late one, count on from there."""
        behind = time.monotonic() - self.next
        if behind < 0:
            time.sleep(-behind)
        elif behind > LATE * self.period:
            self.late += 1
            self.restart()
            return
        self.next += self.period


class Rollout:
    """One worker. Its methods are called by the pool, one at a time."""

    def __init__(self) -> None:
        self.host, self.stats = socket.gethostname(), Stats()
        self._changed = threading.Condition()
        self._asked: tuple[Weights | None, Task, float] | None = None  # an exchange under way, and since when
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self._error = ""  # why there will be no more
        self._stepping: threading.Thread | None = None

    def greet(self) -> dict[str, Any]:
        """Return who and where this worker is, and its versions, before anything is made."""
        return {"host": self.host, "pid": os.getpid(), "versions": package_versions(PACKAGES)}

    def begin(self, setup: RolloutSetup) -> None:
        """Make the environments; refuse those that are not what the learner trains on."""
        self.setup, self.processor_began = setup, processor_seconds()
        if os.path.isdir(setup.folder) and setup.folder not in sys.path:
            sys.path.insert(0, setup.folder)  # a module beside the user, as in the learner
        entry = get_env(setup.env)
        self.space = setup.lineage.space(entry)
        if self.space.fingerprint() != setup.contexts or entry.revision != setup.revision:
            what = "other contexts to train on" if entry.revision == setup.revision else f"revision {entry.revision}"
            raise RunFailure(f"{self.host} has {setup.env} with {what}: install the learner's version there.")
        self.clock = Clock(entry.period) if entry.real_time and entry.period else None
        self.patience = EXCHANGE_SECONDS if self.clock is None else REAL_TIME_EXCHANGE_SECONDS
        number = (setup.session, setup.worker, setup.incarnation)
        self._seeds = np.random.SeedSequence([setup.seed, *number])
        self.rng = np.random.default_rng(self._seeds.spawn(1)[0])
        self.failures = 0
        self.executed: np.ndarray | None = None  # what the policy did not choose itself, but should remember
        self._make()
        obs, action = self.obs.shape[1], int(np.prod(self.venv.single_action_space.shape or ()))
        streams = [(*number, row) for row in range(setup.num_envs)]
        self.writer = RowWriter(obs, action, self.space.size, setup.history_length, streams, setup.block_rows)
        self.enough = max(setup.num_envs, ENOUGH_BYTES // (4 * (obs + action + self.space.size + 4)))
        self.policy: Policy | None = None
        self.version, self.task = RANDOM, Task("", True, 0)

    def exchange(self, weights: Weights | None, task: Task) -> Reply:
        """Take newer weights and the task; return the experience since the last exchange, after a moment if need be."""
        if self._stepping is None:
            self._stepping = threading.Thread(target=self._run, daemon=True)
            self._stepping.start()
        with self._changed:
            self._asked = weights, task, time.monotonic()
            self._changed.notify_all()
        while True:
            try:
                return self._replies.get(timeout=EXCHANGE_SECONDS)
            except queue.Empty:
                if self._error:
                    raise RunFailure(self._error) from None

    # The thread

    def _run(self) -> None:
        try:
            self._leftover: list[Block] = []
            self._ended: list[float] = []
            if self.clock is not None:
                self.clock.restart()
            while self._answer():
                try:
                    self._step()
                except guard.EnvFailure as failure:
                    self._survive(failure)
        except BaseException as error:
            named = error if isinstance(error, RunFailure | UserError) else f"{type(error).__name__}: {error}"
            self._error = f"worker {self.setup.worker} on {self.host}: {named}"
        finally:
            self.venv.close()

    def _answer(self) -> bool:
        """Look after the exchange under way; wait while there is nothing to do; return False at the end."""
        while True:
            with self._changed:
                if self._asked is not None:
                    weights, task, since = self._asked
                    if task is not self.task:
                        self._follow(weights, task)
                    in_hand, wanted = self._in_hand(), min(self.enough, max(task.grant / 2, 1))
                    if self.clock is not None:  # its steps are few: they may as well wait for company
                        wanted = self.enough
                    waited = time.monotonic() - since >= self.patience
                    if in_hand >= wanted or waited or task.last:
                        self._deliver()
                if self.task.last:
                    return False
                if self.policy is not None and self._may_step():
                    return True
                self._changed.wait(EXCHANGE_SECONDS / 10 if self._asked is not None else None)

    def _may_step(self) -> bool:
        return self.clock is not None or self._in_hand() < self.task.grant

    def _in_hand(self) -> int:
        """Return the number of steps not yet delivered."""
        return self.writer.steps + sum(len(block.rows) - 1 for block in self._leftover)

    def _follow(self, weights: Weights | None, task: Task) -> None:
        """Go on with other weights, another phase or another grant."""
        if task.phase != self.task.phase:  # what the policy of the phase before did is of no use
            self.writer.take("", RANDOM)
            self._leftover, self._ended = [], []
            if self.task.phase:
                self._begin_episodes()
        elif weights is not None or task.random != self.task.random:
            self._leftover += self.writer.take(self.task.phase, self._acting_version())
        if weights is not None:
            arrays = weights.arrays()
            if self.policy is None or self.policy.contract != weights.contract:
                self.policy = Policy(weights.contract, arrays)
                self.executed = None
            else:
                self.policy.set_weights(arrays)
            self.version = weights.version
        self.task = task

    def _acting_version(self) -> int:
        return RANDOM if self.task.random else self.version

    def _deliver(self) -> None:
        blocks = self._leftover + self.writer.take(self.task.phase, self._acting_version())
        if self.clock is not None:
            self.stats.late = self.clock.late
        self.stats.processor_s = processor_seconds() - self.processor_began  # that of simulators included
        notes, counters = self.venv.take_notes(), self.venv.counters()
        reply = Reply(blocks, replace(self.stats), self._ended, notes, counters, self.task.phase)
        self._asked, self._leftover, self._ended = None, [], []
        self._replies.put(reply)

    # The environments

    def _make(self) -> None:
        """Make the environments and begin episodes in all of them."""
        setup = self.setup
        self.venv: ContextualVectorEnv = make_vector_env(setup.env, setup.num_envs, threads=1, **setup.env_options)
        self.executed = None
        if setup.lineage.to_dict():
            self.venv.use_space(self.space)
        seeds = self._seeds.spawn(1)[0].generate_state(setup.num_envs).tolist()
        self.obs = self._reset(seed=seeds)
        if setup.lineage.to_dict():
            guard.check_region(self.venv)
        self.returns = np.zeros(setup.num_envs)

    def _begin_episodes(self) -> None:
        """Break off all episodes and begin new ones."""
        self.writer.abandon()
        self.obs = self._reset()
        self.returns[:] = 0.0
        self.executed = None
        if self.policy is not None:
            self.policy.reset()

    def _reset(self, **how: Any) -> np.ndarray:
        obs = np.asarray(guard.reset(self.venv, f"the reset at step {self.stats.steps}", **how), np.float32)
        if self.clock is not None:
            self.clock.restart()
        return obs

    def _step(self) -> None:
        """Take one step in every environment."""
        venv, policy = self.venv, self.policy
        assert policy is not None
        obs, contexts = self.obs, venv.contexts.copy()
        seen = contexts if policy.context_size else None
        if self.task.random:
            unit = self.rng.uniform(-1.0, 1.0, (venv.num_envs, policy.action_size)).astype(np.float32)
            if policy.history_length:  # it will act in the middle of an episode, and must know how that began
                policy.choose(obs, self.executed, seen)
            self.executed = policy.scale(unit)
        else:
            unit, self.executed = policy.choose(obs, self.executed, seen, self.rng), None
        at = f"step {self.stats.steps}"
        next_obs, reward, terminated, truncated = guard.step(venv, policy.scale(unit), at, contexts)
        next_obs = np.asarray(next_obs, np.float32)
        self.writer.add(obs, unit, reward, terminated, truncated, next_obs, contexts, venv.contexts)
        self.stats.steps += venv.num_envs
        self.returns += reward
        self.obs = next_obs
        if self.clock is not None:
            self.clock.wait()
        ended = terminated | truncated
        if ended.any():
            self._ended += self.returns[ended].tolist()
            self.stats.episodes += int(ended.sum())
            self.returns[ended], self.failures = 0.0, 0
            self.obs = self._reset(options={"reset_mask": ended})
            policy.reset(ended)

    def _survive(self, failure: guard.EnvFailure) -> None:
        """Make the environments anew; give up after several failures without an episode in between."""
        self.failures += 1
        self.stats.env_restarts += 1
        if self.failures >= MOST_FAILURES:
            raise RunFailure(f"{failure} It failed {self.failures} times in a row.") from failure
        self.writer.abandon()
        self.venv.close()
        try:
            self._make()
        except guard.EnvFailure as again:
            return self._survive(again)
        if self.policy is not None:
            self.policy.reset()
