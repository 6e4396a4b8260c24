"""Experience from workers: what the learner does between two chunks, where it never waits for them."""

from __future__ import annotations

import dataclasses
import math
import os
import queue
import time
from collections import deque
from contextlib import suppress
from typing import Any

import numpy as np

from sparc.deploy.contract import describe_policy
from sparc.envs.registry import get_env, make_vector_env
from sparc.errors import RunFailure, UserError, describe_os_error
from sparc.methods.build import encoder_name
from sparc.methods.qr_sac import QrSac, State
from sparc.runs import checkpoint
from sparc.runs.load import POLICY_NAME, make_spec
from sparc.runs.run import Run
from sparc.runs.sessions import package_versions
from sparc.training.blocks import MOST, Block
from sparc.training.labels import relabelled
from sparc.training.layout import check_shelves
from sparc.training.replay import Replay
from sparc.training.sources import RECENT_EPISODES, SourceFailure
from sparc.training.stages import Estimate, stage_seed, unknown_contexts, use_stage
from sparc.training.workers.link import Link
from sparc.training.workers.messages import Begin, Blocks, Bye, Failed, Finish, Limits, Note, Orders
from sparc.training.workers.options import WorkerOptions
from sparc.training.workers.rollout import PACKAGES, RolloutSetup, Weights
from sparc.training.workers.slots import rest_seconds
from sparc.training.workers.table import write_table

PUBLISH_SECONDS = 1.0  # between two publications of weights, at least
TABLE_SECONDS = 2.0
AHEAD = 2  # chunks of steps that simulators may be ahead of the learner
QUIET_SECONDS = 60.0  # without experience, and a note says so
LIMITS = Limits()
SILENT_SECONDS = 30.0  # of a pool: it reports every second
POOL_START_SECONDS = 180.0
MOST_POOLS = 10  # that fail one after the other without a block
INCARNATIONS = 1_000_000  # of a worker in one pool, at most
LINGER_SECONDS = 1.0  # an answer needs that long at most to get here, see `link.REAL_TIME_GATHER_SECONDS`
NAP_SECONDS = 0.1  # while there is nothing to learn from yet
TAKE_IN_SECONDS = 0.02  # of real-time experience between two chunks, at most: a pause may last 50 ms, with the weights


class PooledSource:
    """Takes in what workers deliver, and gives them the newest weights."""

    link_type: type[Link] = Link

    def __init__(self, run: Run, options: WorkerOptions):
        self.run, self.config, self.options = run, run.config, options
        entry = get_env(run.config.env)
        if entry.module == "__main__":
            raise UserError(
                f"workers cannot import {run.config.env}, which this script has registered: put its registration into "
                f"a file of its own, such as my_env.py, and train my_env:{run.config.env}."
            )
        self.real_time = entry.real_time
        count, num_envs = options.count, run.config.num_envs
        self.envs = [1 if self.real_time else max(1, len(range(i, num_envs, count))) for i in range(count)]
        check_shelves(run.config, self.shelves)
        venv = make_vector_env(run.config.env, 1, **run.config.env_options)
        try:
            use_stage(venv, run)
            self.spec = make_spec(venv)
        finally:
            venv.close()
        self.episodes = 0
        self.recent: deque[float] = deque(maxlen=RECENT_EPISODES)
        self.link: Link | None = None
        self.pools = self.failures = 0
        self.restarts = 0  # of workers, in earlier pools and with them
        self.retry_at = 0.0
        self.received = self.demand = 0  # transitions of this session
        self.base = 0  # what was received before the present pool
        self.updates = 0
        self.began: tuple[int, int] | None = None  # updates and transitions received, when learning began
        self.weights: Weights | None = None
        self.published = self.written = self.watched = 0.0
        self.phase = ""
        self.estimate: Estimate | None = None  # of contexts that are not known
        self.untaken: deque[Block] = deque()
        self.incarnations: dict[int, int] = {}
        self.worker_counters: dict[int, dict[str, int]] = {}
        self.unseen: list[str] = []  # notes
        self.processor_before = 0.0  # s of the workers of earlier pools

    # What every source has

    @property
    def shelves(self) -> int:
        """Return the number of environments of all workers, whether or not they have joined yet."""
        return sum(self.envs)

    @property
    def steps(self) -> int:
        """Return the environment steps of the run, as the replay has counted them."""
        return self.replay.total

    @property
    def starting(self) -> bool:
        """Return whether no worker has delivered anything yet in this session."""
        return not self.received

    @property
    def must_save(self) -> bool:
        """Return whether rows of the last checkpoint would soon be overwritten."""
        return self.replay.must_save

    @property
    def processor_s(self) -> float:
        """Return the processor time of the workers in this session."""
        return self.processor_before + sum(row["processor_s"] for row in self.rows())

    def start(self, replay: Replay, method: QrSac, state: State, seeds: np.random.SeedSequence) -> None:
        """Take this replay; the workers start with the first chunk."""
        self.estimate = unknown_contexts(self.run, method, state)
        if self.estimate is not None and method.rollout_policy(state).encoder.reads == "context":
            raise UserError(
                "workers know the true contexts, and the expert would act on them: a stage without contexts collects "
                "with the adapter, or in the learner's process, --workers 0."
            )
        self.replay = replay
        self.arrived = time.monotonic()

    def collect(self, method: QrSac, state: State, updates: int, random: bool) -> None:
        """Take in what has arrived, publish newer weights, and say how much more is wanted."""
        self.updates = updates
        chunk_steps = self.config.chunk * self.config.steps_per_update
        missing = max(self.config.random_steps - self.replay.size, chunk_steps if self.starting else 0)
        changed = method.phase != self.phase
        self.phase = method.phase
        # simulators are paced: what they send is what was asked for
        most = TAKE_IN_SECONDS if self.real_time else math.inf
        self.drain(NAP_SECONDS if missing > 0 and not changed else 0.0, most)
        newer = self.weights is None or updates > self.weights.version
        if changed or (newer and time.monotonic() - self.published >= PUBLISH_SECONDS):
            self.publish(method, state)
        if missing > 0:
            self.demand = self.received + missing
        else:
            if self.began is None:
                self.began, self.demand = (updates, self.received), self.received
            self.demand += chunk_steps
        ahead = 0 if missing > 0 else AHEAD * chunk_steps
        if self.link is not None:
            self.link.post(Orders(random, self.demand + ahead - self.base))
        self.watch(self.demand + ahead > self.received or self.real_time)
        self.write_table()

    def restart(self) -> None:
        """Forget the returns of the phase before; the workers begin new episodes by themselves."""
        self.recent.clear()

    def finish(self) -> None:
        """Let the workers hand over what they have, and take in all of it; wait no longer than for a silent pool."""
        if self.link is None:
            return
        self.link.post(Finish())
        began, longest = time.monotonic(), LIMITS.finish + LINGER_SECONDS
        with suppress(SourceFailure):  # it ends anyway
            while self.link is not None and not self.drain(NAP_SECONDS):
                if self.untaken:
                    self.put(self.untaken.popleft())  # nothing comes after it: the checkpoint is written next
                elif self.link is not None and time.monotonic() - max(began, self.link.heard) > longest:
                    break  # without a link the pool has died meanwhile, with what its workers had not delivered

    def notes(self) -> list[str]:
        """Return what a person should read, once."""
        found, self.unseen = self.unseen, []
        return found

    def counters(self) -> dict[str, int]:
        """Return the counts of the workers' environments."""
        names = dict.fromkeys(name for of in self.worker_counters.values() for name in of)
        return {name: sum(of.get(name, 0) for of in self.worker_counters.values()) for name in names}

    def numbers(self) -> dict[str, float]:
        """Return how the workers do, for metrics and progress."""
        rows = self.rows()
        running = [row for row in rows if row["state"] == "running"]
        ages = [self.updates - row["version"] for row in running if row["version"] >= 0]
        return {
            "workers": float(len(running)),
            "workers_steps_per_s": float(sum(row["steps_per_s"] for row in running)),
            "workers_restarts": float(self.restarts + sum(row["restarts"] for row in rows)),
            "workers_env_restarts": float(sum(row["env_restarts"] for row in rows)),
            "workers_late_ticks": float(sum(row["late"] for row in rows)),
            "workers_blocks_waiting": float(self.waiting),
            **({"weights_age": float(np.mean(ages))} if ages else {}),
            **self.ratio(),
        }

    def ratio(self) -> dict[str, float]:
        """Return the steps per update of this session, once there is one."""
        if self.began is None or self.updates == self.began[0]:
            return {}
        return {"achieved_steps_per_update": (self.received - self.began[1]) / (self.updates - self.began[0])}

    def get_state(self) -> dict[str, np.ndarray]:
        """Return what a later session needs; environments begin new episodes then."""
        counts = np.asarray([self.steps, self.episodes], np.int64)
        return {"recent": np.asarray(self.recent, np.float64), "counts": counts}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Go on with the counts of an earlier session, with or without workers."""
        self.recent = deque(state["recent"].tolist(), maxlen=RECENT_EPISODES)
        self.episodes = int(state["counts"][1])

    def close(self) -> None:
        """End the pool, the workers and Ray, and leave a table of what they have done."""
        if self.link is not None:
            with suppress(OSError):  # somebody has removed the run: the workers must end all the same
                self.updates = max(self.updates, self.run.updates())
            self.written = -math.inf
            self.write_table()
            self.link.close(wait=True)
            self.link = None

    # The pool

    def start_pool(self) -> None:
        """Start a pool process."""
        config, run, entry = self.config, self.run, get_env(self.config.env)
        self.session = len(run.manifest()["sessions"])  # this one included
        setup = RolloutSetup(
            config.env, config.env_options, run.lineage, run.space.fingerprint(), entry.revision, stage_seed(run),
            self.session, config.history_length, min(MOST, self.replay.most), os.getcwd(),
        )  # fmt: skip
        self.pools += 1
        self.base = self.received
        first = (self.pools - 1) * INCARNATIONS
        begin = Begin(setup, self.envs, self.options.cluster, self.real_time, package_versions(PACKAGES), first, LIMITS)
        try:
            self.link = self.link_type(begin)
        except (OSError, RuntimeError, RunFailure) as error:  # no room for its folder, its process or its threads
            why = describe_os_error(error) if isinstance(error, OSError) else str(error)
            self.back_off(f"it cannot be started: {why.rstrip('.')}")
            return
        if self.weights is not None:
            self.link.post(self.weights)

    def publish(self, method: QrSac, state: State) -> None:
        """Send the workers the newest weights of the policy that collects."""
        actor = method.rollout_policy(state)
        spec = dataclasses.replace(method.spec, reads=actor.encoder.reads, encoder=encoder_name(actor.encoder))
        arrays = checkpoint.flatten(actor, POLICY_NAME)
        layout = [(name, array.shape) for name, array in arrays.items()]
        vector = np.concatenate([array.ravel() for array in arrays.values()], dtype=np.float32)  # a copy
        number = 0 if self.weights is None else self.weights.number + 1
        self.weights = Weights(number, self.updates, self.phase, describe_policy(spec), layout, vector)
        self.published = time.monotonic()
        if self.link is not None:
            self.link.post(self.weights)

    @property
    def waiting(self) -> int:
        """Return the number of blocks that have arrived and are not in the replay yet."""
        return len(self.untaken) + (0 if self.link is None else self.link.waiting)

    def drain(self, wait: float = 0.0, most: float = math.inf) -> bool:
        """Take in what has arrived, after a moment if there is nothing; return whether that was the last of it.

        Stop where the run must be saved first, and when it has taken so many seconds, but not before the first block.
        """
        until = time.monotonic() + most
        while True:
            while self.untaken:
                self.put(self.untaken.popleft())
                if self.replay.must_save or time.monotonic() >= until:
                    return False
            if self.link is None:
                time.sleep(wait)
                return False
            try:
                message = self.link.take(wait)
            except queue.Empty:
                return False
            if wait:
                wait, until = 0.0, time.monotonic() + most
            if isinstance(message, Blocks):
                self.untaken.extend(message.blocks)
                if message.phase == self.phase:
                    self.episodes += len(message.returns)
                    self.recent.extend(message.returns)
                self.worker_counters[message.worker] = message.counters
            elif isinstance(message, Note):
                self.unseen.append(message.text)
            elif isinstance(message, Bye):
                return True
            else:
                self.lose(message)

    def put(self, block: Block) -> None:
        """Put a block into the replay; one of another phase is of no use."""
        self.received += len(block.rows) - 1
        if block.phase != self.phase:
            return
        session, worker, incarnation, _ = block.stream
        if (before := self.incarnations.get(worker)) not in (None, incarnation):
            self.replay.release((session, worker, before))
        self.incarnations[worker] = incarnation
        if self.estimate is not None:
            block = relabelled(block, self.estimate, self.config.history_length)
        self.replay.put(block)
        self.arrived, self.failures = time.monotonic(), 0

    def lose(self, failed: Failed | None) -> None:
        """Note the end of a pool; the next one starts after a while, unless there is no use."""
        assert self.link is not None
        why = failed.why if failed is not None else self.link.last_words() or "it was killed"
        self.processor_before = self.processor_s
        self.restarts += sum(row["restarts"] for row in self.rows()) + self.options.count
        self.link.close(wait=False)
        self.link = None
        self.replay.release((self.session,))
        self.incarnations.clear()
        if failed is not None and failed.final:
            raise SourceFailure(f"{why.rstrip('.')}. Repair it, then go on: `{self.run.resume_command}`.")
        self.back_off(why)

    def back_off(self, why: str) -> None:
        """Count a pool that failed, and let another one start after a while; not for ever."""
        self.failures += 1
        if self.failures >= MOST_POOLS:
            raise SourceFailure(
                f"The pool of workers failed {self.failures} times in a row: {why}. Repair it, then go on: "
                f"`{self.run.resume_command}`."
            )
        self.retry_at = time.monotonic() + (rest := rest_seconds(self.failures))
        self.unseen.append(f"The pool of workers ended ({why}). Learning goes on; another pool in {rest:.0f} s.")

    def watch(self, hungry: bool) -> None:
        """Start a pool where there is none, end one that is silent, and note when nothing arrives."""
        now = time.monotonic()
        stalled = now - self.watched > SILENT_SECONDS / 2  # this process itself: the pool's messages are yet to be read
        self.watched = now
        if self.link is None:
            if now >= self.retry_at:
                self.start_pool()
        elif not stalled and not self.waiting:  # its backlog is taken in before it is declared dead
            limit = SILENT_SECONDS if self.link.status is not None else POOL_START_SECONDS
            if self.link.silent_seconds() > limit:
                self.link.process.kill()
                self.lose(Failed(f"it was silent for {limit:.0f} s", final=False))
        if not hungry or stalled:
            self.arrived = now
        if now - self.arrived >= QUIET_SECONDS:
            self.arrived = now
            running = sum(row["state"] == "running" for row in self.rows())
            self.unseen.append(
                f"No experience has arrived for {QUIET_SECONDS:.0f} s, {running} of {self.options.count} workers are "
                f"running. {'Learning goes on with what there is' if self.began else 'Learning has not begun'}; see "
                f"`sparc workers {self.run.path}`."
            )

    # The table

    def rows(self) -> list[dict[str, Any]]:
        """Return a line for each worker of the present pool."""
        return [] if self.link is None or self.link.status is None else self.link.status.rows

    def write_table(self) -> None:
        """Write what `sparc workers` shows, not too often."""
        if time.monotonic() - self.written < TABLE_SECONDS:
            return
        self.written = time.monotonic()
        table = {
            "time": time.time(), "updates": self.updates, "wanted": self.options.count, "cluster": self.options.cluster,
            "pools": self.pools, "steps": self.steps, "asked_steps_per_update": self.config.steps_per_update,
            **self.numbers(), "rows": self.rows(),
        }  # fmt: skip
        write_table(self.run.path, table)
