"""`sparc bench device`: a robot that learns where it is, one real-time worker and the learner on one machine.

First both go on as they like: how many updates fit beside the robot's loop, what that does to the loop, and how much
memory it takes. Then the learner is stopped by a signal for some seconds, as a debugger, a full disk or a machine
that is too small would do: the loop must not notice, and nothing that it did may be lost.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from sparc.cli.bench_workers import SETTLE_SECONDS, Bench, processor_ticks, unique_mb
from sparc.cli.benches import BenchArgs
from sparc.envs.real_time import DEVICE_PERIOD
from sparc.training.workers.processes import descendants
from sparc.training.workers.source import PooledSource

STOP_SECONDS = 5.0
CATCH_UP_SECONDS = 1.0  # after a pause: the link hands over what has waited within `link.REAL_TIME_GATHER_SECONDS`


class Passed(NamedTuple):
    """What happened while the learner learned for a while."""

    wall_s: float
    updates: int
    received: int  # steps
    late: int  # ticks
    ages: list[float]  # of the weights that the worker acts with, in updates, at the end of each chunk
    longest_s: float  # between the ends of two chunks
    waiting: int  # steps that arrived in it and until the learner had caught up


def learn(bench: Bench, source: PooledSource, seconds: float) -> Passed:
    """Learn for a while, as the loop does."""
    made, ages, late = bench.made, list[float](), late_ticks(source)
    began, updates, received = time.monotonic(), made.updates, source.received
    last, before, longest, waiting, before_longest = began, received, 0.0, 0, received
    woke = began - CATCH_UP_SECONDS  # the end of the longest pause
    while last - began < seconds or last - woke < CATCH_UP_SECONDS:
        made.collect(random=False)
        made.learn()
        ages += [made.updates - row["version"] for row in source.rows() if row["version"] >= 0]
        now = time.monotonic()
        if last - woke < CATCH_UP_SECONDS:
            waiting = source.received - before_longest
        if now - last > longest:
            longest, before_longest, woke = now - last, before, now
        last, before = now, source.received
    wall = time.monotonic() - began
    ticks = late_ticks(source) - late
    return Passed(wall, made.updates - updates, source.received - received, ticks, ages, longest, waiting)


def late_ticks(source: PooledSource) -> int:
    """Return the ticks that came late so far, as far as the worker has reported them."""
    return sum(row["late"] for row in source.rows())


def beside_the_loop(bench: Bench, source: PooledSource, seconds: float) -> dict[str, Any]:
    """Measure what fits beside the robot's loop, and what it takes."""
    assert source.link is not None
    (row,) = source.rows()
    pool, own = source.link.process.pid, os.getpid()
    others = [pool, *(process.pid for process in descendants(pool) if process.pid != row["pid"])]
    before = processor_ticks([own, row["pid"], *others])
    found = learn(bench, source, seconds)
    after = processor_ticks([own, row["pid"], *others])

    def share(pids: list[int]) -> float:
        return round(sum(after[pid] - before[pid] for pid in pids if pid in after and pid in before) / found.wall_s, 3)

    rate = found.updates / found.wall_s
    return {
        "seconds": round(found.wall_s, 1),
        "ticks": round(found.wall_s / bench.period),
        "late_ticks": found.late,
        "steps_per_s": round(found.received / found.wall_s, 2),
        "updates_per_s": round(rate, 2),
        "updates_per_step": round(rate * bench.period, 3),
        "weights_age_updates": round(mean(found.ages), 1),
        "weights_age_s": round(mean(found.ages) / rate, 2),
        "learner_core_share": share([own]),
        "worker_core_share": share([row["pid"]]),
        "ray_core_share": share(others),
        "learner_mb": round(unique_mb(own), 1),
        "worker_mb": round(unique_mb(row["pid"]), 1),
        "ray_mb": round(sum(unique_mb(pid) for pid in others if pid in after), 1),
    }


def while_it_stands_still(bench: Bench, source: PooledSource) -> dict[str, Any]:
    """Stop the learner for a while; return what the loop did meanwhile, and what of that has arrived."""
    own, (before,) = os.getpid(), source.rows()
    # another process wakes it up again; the short wait is for a whole chunk to lie before it
    stop = f"sleep 0.5; kill -STOP {own}; sleep {STOP_SECONDS:g}; kill -CONT {own}"
    with subprocess.Popen(["sh", "-c", stop]):
        found = learn(bench, source, STOP_SECONDS + SETTLE_SECONDS)
    late = late_ticks(source)
    learn(bench, source, SETTLE_SECONDS)  # until the last ticks have been reported
    (row,) = source.rows()
    bench.made.collect(random=False)  # what came before that report
    return {
        "seconds": round(found.longest_s, 2),
        "ticks": round(found.longest_s / bench.period),
        "late_ticks": found.late + late_ticks(source) - late,
        "steps_waiting": found.waiting,
        "steps_taken": row["steps"] - before["steps"],
        "steps_lost": row["steps"] - min(row["delivered"], source.received),
        "restarts": row["restarts"] - before["restarts"],
    }


def measure(args: BenchArgs) -> dict[str, Any]:
    """Measure a robot and its learner."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), args._replace(workers=1), DEVICE_PERIOD)
        try:
            with bench.collecting(bench.run, 1) as source:
                learn(bench, source, SETTLE_SECONDS)
                found = {"period_s": bench.period, "beside_the_loop": beside_the_loop(bench, source, args.seconds)}
                found["learner_stopped"] = while_it_stands_still(bench, source)
        finally:
            bench.made.close()
    about = {"before": round(load, 2), "after": round(os.getloadavg()[0], 2), "cores": len(os.sched_getaffinity(0))}
    return found | {"load": about}
