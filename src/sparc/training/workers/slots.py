"""One worker as the pool sees it: which call is under way, how often it died, what it has delivered. Without Ray."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from sparc.training.workers.rollout import Reply, RolloutSetup, Stats

MOST_DEATHS = 5  # in a row, without a block
LONGEST_REST = 60.0  # s
USUAL = 10  # times what an exchange usually takes, and the worker hangs
SMOOTHING = 0.2  # of the running mean
RATE_SECONDS = 10.0  # that steps per second are counted over

State = Literal["waiting", "starting", "running", "resting", "given up"]


def rest_seconds(deaths: int, first: float = 1.0) -> float:
    """Return how long to wait after so many deaths in a row: 1, 2, 4, … 60 s."""
    return min(first * 2.0 ** min(deaths - 1, 10), LONGEST_REST)


def mismatch(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Return in what a worker's versions differ from the learner's; nothing where they are the same."""
    differs = [f"{name} {theirs.get(name)} (the learner {version})" for name, version in ours.items()
               if theirs.get(name) != version]  # fmt: skip
    return f"another version of {', '.join(differs)}: install the learner's there" if differs else ""


class Slot:
    """The place of one worker, which may die and be replaced."""

    def __init__(self, number: int, envs: int, first_incarnation: int, first_rest: float = 1.0):
        self.number, self.envs, self.first_rest = number, envs, first_rest
        self.state: State = "waiting"
        self.actor: Any = None
        self.ref: Any = None  # of the call under way
        self.kind = ""
        self.since = self.retry_at = 0.0
        self.deadline: float | None = None
        self.incarnation, self.restarts, self.deaths = first_incarnation - 1, 0, 0
        self.holds: int | None = None  # which weights
        self.usual = 0.0  # s of an exchange
        self.steps, self.version = 0, -1
        self.recent: deque[tuple[float, int]] = deque()  # when how many steps came
        self.stats, self.earlier = Stats(), Stats()  # of this incarnation, and of those before
        self.host, self.pid, self.error = "", 0, ""

    def start(self, actor: Any) -> None:
        """Begin with a new incarnation."""
        self.actor, self.state, self.holds = actor, "starting", None
        self.incarnation += 1
        self.usual = 0.0

    def setup(self, common: RolloutSetup) -> RolloutSetup:
        """Return what this worker must know."""
        return replace(common, worker=self.number, incarnation=self.incarnation, num_envs=self.envs)

    def call(self, kind: str, ref: Any, deadline: float | None) -> None:
        """Note the call under way; without a deadline, that of exchanges holds."""
        self.kind, self.ref, self.since, self.deadline = kind, ref, time.monotonic(), deadline

    def answered(self) -> str:
        """Note that the call is answered, and return which one it was."""
        self.ref = None
        return self.kind

    def heard(self, reply: Reply) -> int:
        """Take note of an exchange; return how many steps it brought."""
        now = time.monotonic()
        took = now - self.since
        self.usual = took if not self.usual else (1 - SMOOTHING) * self.usual + SMOOTHING * took
        steps = sum(len(block.rows) - 1 for block in reply.blocks)
        self.recent.append((now, steps))
        while now - self.recent[0][0] > RATE_SECONDS:
            self.recent.popleft()
        self.since = now
        self.stats = reply.stats
        self.steps += steps
        if reply.blocks:
            self.version, self.deaths, self.error = reply.blocks[-1].version, 0, ""
        return steps

    def overdue(self, hang_seconds: float) -> float:
        """Return for how long a worker has not answered, once that is too long; else 0."""
        waited = time.monotonic() - self.since
        limit = max(hang_seconds, USUAL * self.usual) if self.deadline is None else self.deadline
        return waited if waited > limit else 0.0

    def died(self, why: str, final: bool) -> str:
        """Note a death; return what a person should know of it."""
        self.deaths += 1
        self.restarts += 1
        self.ref, self.state = None, "resting"
        self.recent.clear()
        self.earlier, self.stats = self.total(), Stats()
        where = f"worker {self.number}" + (f" on {self.host}" if self.host else "")
        self.error = (why if why.startswith("worker ") else f"{where}: {why}").rstrip(".")
        if final or self.deaths >= MOST_DEATHS:
            self.state = "given up"
            return f"{self.error}. It is given up{'' if final else f' after {self.deaths} deaths without a block'}."
        self.retry_at = time.monotonic() + (pause := rest_seconds(self.deaths, self.first_rest))
        return f"{self.error}. Another one in {pause:.3g} s."

    def wait_again(self) -> None:
        """Wait for room once more; that is no death."""
        self.ref, self.state = None, "waiting"

    def total(self) -> Stats:
        """Return what all incarnations have done."""
        now, then = vars(self.stats), vars(self.earlier)
        return Stats(**{name: now[name] + then[name] for name in now})

    def rate(self) -> float:
        """Return the steps per second of the last while."""
        if len(self.recent) < 2:
            return 0.0
        since = self.recent[0][0]
        return sum(steps for when, steps in self.recent if when > since) / max(time.monotonic() - since, 1.0)

    def row(self) -> dict[str, Any]:
        """Return the worker's line of the table."""
        return {
            "worker": self.number, "host": self.host, "pid": self.pid, "state": self.state, "envs": self.envs,
            "delivered": self.steps, "steps_per_s": self.rate(), "version": self.version, "restarts": self.restarts,
            "error": self.error, **vars(self.total()),
        }  # fmt: skip
