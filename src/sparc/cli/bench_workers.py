"""`sparc bench workers`: what collecting with workers costs the learner, and what the learner can take in.

Stretches with workers take turns with stretches alone, for which the pool and everything below it are stopped by a
signal: both see the same machine, however busy it is. Time is the processor's, of the learner's process alone.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count as count_from
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, NamedTuple

from sparc.cli.benches import BenchArgs
from sparc.config import make_config
from sparc.envs.real_time import PERIOD, real_time_id
from sparc.envs.registry import get_env
from sparc.errors import RunFailure
from sparc.runs.run import Run
from sparc.training.layout import open_replay
from sparc.training.loop import Trainer
from sparc.training.workers.link import Link
from sparc.training.workers.messages import Orders
from sparc.training.workers.options import WorkerOptions
from sparc.training.workers.processes import descendants
from sparc.training.workers.source import PooledSource
from sparc.training.workers.traffic import Noise

SIMULATORS = (1, 2, 4)  # workers that step as fast as they can
TRAFFIC = (64, 256, 1024)  # real-time workers whose blocks are only made up
PAIRS = 6  # of stretches, alone and with workers, at least
STRETCH_SECONDS = 5.0  # in which workers answer five times; more pairs, where there is more time
LONGEST = {"workers": 240.0, "traffic": 60.0}  # s of such pairs; more would not tell more
FILLED = 5_000  # transitions to learn from
START_SECONDS = 300.0  # that all workers have to deliver for the first time
SETTLE_SECONDS = 3.5  # after which every worker has reported again: it answers and the pool reports once a second
PLENTY = 10**9  # steps that simulators may be ahead
BUDGETS = {"ratio": 1.02, "longest_pause_ms": 50.0, "daemons_core_share": 0.05, "worker_mb": 80.0, "late_ticks": 0}


class TrafficLink(Link):
    """A link to made-up workers."""

    module = "sparc.training.workers.traffic"


class Stretch(NamedTuple):
    """What happened during some chunks."""

    processor_s: float
    wall_s: float
    updates: int
    received: int  # transitions
    pauses: list[float]  # s between two chunks
    taking_in_s: float  # processor time between the chunks, and of the threads that read and write

    @property
    def ms(self) -> float:
        """Return the processor time of an update."""
        return 1e3 * self.processor_s / self.updates


class SavingTrainer(Trainer):
    """A trainer that counts its checkpoints: a replay that fills fast needs more of them than the config asks for."""

    saves = 0

    def save(self) -> None:
        """Save, and count."""
        self.saves += 1
        super().save()


class Bench:
    """A learner whose source of experience can be exchanged."""

    def __init__(self, folder: Path, args: BenchArgs, period: float = PERIOD):
        self.notes: list[str] = []
        self.numbers = count_from(1)  # of pools: the streams of each must be new, or the replay drops their blocks
        self.simulated = self._create(folder / "simulated", args, args.env)
        self.run = self._create(folder / "real-time", args, real_time_id(args.env, period))
        self.made = SavingTrainer(self.run, self._hear, WorkerOptions(args.workers))
        for run in (self.simulated, self.run):
            run.close()  # nothing of a bench is logged
        spec, config, entry = self.made.spec, self.run.config, get_env(self.run.config.env)
        assert entry.period is not None  # every real-time environment has one
        self.period = entry.period
        sizes = spec.obs_size, spec.action_size, len(spec.context_centre)
        noise = Noise(sizes, config.history_length, entry.max_episode_steps, (0, 0, 0, 0))
        while self.made.replay.size < FILLED:
            for block in noise.blocks(min(100, self.made.replay.most), self.made.method.phase, 0):
                self.made.replay.put(block)
        self.made.learn()  # compiles

    def _create(self, path: Path, args: BenchArgs, env: str) -> Run:
        # the learning rate must not reach its end, nor is it the workers' task to fill the replay
        values = {"method": args.method, "env": env, "random_steps": FILLED, "updates": 50_000_000}
        return Run.create(make_config(values, args.preset), path)

    def _hear(self, record: dict[str, Any]) -> None:
        if "note" in record:
            self.notes.append(record["note"])

    @contextmanager
    def collecting(self, run: Run, count: int, link_type: type[Link] = Link) -> Iterator[PooledSource]:
        """Collect with so many workers; begin when all of them deliver."""
        import numpy as np

        made, source = self.made, PooledSource(run, WorkerOptions(count))
        self.lay_out(source)
        source.link_type, source.pools = link_type, next(self.numbers)
        source.start(made.replay, made.method, made.state, np.random.SeedSequence(0))
        made.collector = source
        until = time.monotonic() + START_SECONDS
        try:
            while sum(row["delivered"] > 0 for row in source.rows()) < count:
                made.collect(random=False)
                time.sleep(0.05)
                if time.monotonic() > until:
                    missing = f"not all of {count} workers delivered within {START_SECONDS:.0f} s"
                    raise RunFailure(f"{missing}: try fewer, --workers N. {' '.join(self.notes[-1:])}".strip())
            yield source
        finally:
            source.close()
            made.replay.release(())

    def lay_out(self, source: PooledSource) -> None:
        """Replace the trainer's replay by the one that a run resumed with this source would have."""
        made = self.made
        if source.shelves != made.collector.shelves:
            before = made.replay
            made.replay = made.batches = open_replay(self.run.replay, made.config, made.spec, source.shelves)
            made.replay.take_over(before)

    def written(self) -> tuple[int, int]:
        """Return the rows and the transitions that the replay has taken in."""
        return int(self.made.replay.cursor()["head"].sum()), self.made.replay.total

    def stretch(self, seconds: float, take_in: bool) -> Stretch:
        """Learn for a while as the loop does, at least one chunk; one more before that, so that nothing has waited."""
        made, between, pauses = self.made, 0.0, list[float]()
        if take_in:
            made.collect(random=False)
        made.learn()
        received, threads = getattr(made.collector, "received", 0), threads_seconds()
        processor, wall, updates = time.process_time(), time.monotonic(), made.updates
        while made.updates == updates or time.monotonic() < wall + seconds:
            if take_in:
                began, own = time.perf_counter(), time.thread_time()
                made.collect(random=False)
                between += time.thread_time() - own
                pauses.append(time.perf_counter() - began)
            made.learn()
        return Stretch(
            time.process_time() - processor, time.monotonic() - wall, made.updates - updates,
            getattr(made.collector, "received", 0) - received, pauses, between + threads_seconds() - threads,
        )  # fmt: skip

    def alternate(self, source: PooledSource, seconds: float) -> tuple[list[Stretch], list[Stretch]]:
        """Learn alone and with workers, in turns; each comes first every other time."""
        alone, along = list[Stretch](), list[Stretch]()
        pairs = max(PAIRS, round(seconds / 2 / STRETCH_SECONDS))
        for pair in range(pairs):
            for with_workers in (False, True) if pair % 2 else (True, False):
                if with_workers:
                    along.append(self.stretch(seconds / pairs / 2, True))
                else:
                    with stopped(source):
                        alone.append(self.stretch(seconds / pairs / 2, False))
        return alone, along


@contextmanager
def stopped(source: PooledSource) -> Iterator[None]:
    """Stop a pool and everything below it for a while."""
    assert source.link is not None
    pool = source.link.process.pid
    os.kill(pool, signal.SIGSTOP)  # first: it starts no more processes then
    below = [process.pid for process in descendants(pool)]
    try:
        send(signal.SIGSTOP, below)
        yield
    finally:
        send(signal.SIGCONT, [*below, pool])


def send(number: signal.Signals, pids: list[int]) -> None:
    """Send a signal to processes, some of which may be gone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def threads_seconds() -> float:
    """Return the processor time of this process's Python threads besides the main one: those of the link."""
    others = [thread.ident for thread in threading.enumerate() if thread is not threading.main_thread()]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in others if ident is not None)


def compared(alone: list[Stretch], along: list[Stretch]) -> dict[str, Any]:
    """Return the processor time of an update alone and with workers."""
    ratios = [with_workers.ms / without.ms for without, with_workers in zip(alone, along, strict=True)]
    return {
        "processor_ms_per_update_alone": round(median(of.ms for of in alone), 4),
        "processor_ms_per_update": round(median(of.ms for of in along), 4),
        "ratio": round(median(ratios), 4),
        "ratio_range": [round(min(ratios), 4), round(max(ratios), 4)],
        "ratio_mean": round(mean(ratios), 4),
        "ratio_sem": round(stdev(ratios) / len(ratios) ** 0.5, 4),
        "pairs": len(ratios),
        **taking_in(along),
    }


def taking_in(stretches: list[Stretch]) -> dict[str, Any]:
    """Return what taking in costs, measured thread by thread, which is less noisy than a difference of two times.

    It comes by the second, not by the update: a learner that others leave half a core has twice as much of it per
    update. `ratio_on_a_free_core` is the ratio, as these costs make it, of one that has a core for itself.
    """
    seconds, wall = sum(of.taking_in_s for of in stretches), sum(of.wall_s for of in stretches)
    return {
        "learner_core_share": round(sum(of.processor_s for of in stretches) / wall, 3),
        "taking_in_core_share": round(seconds / wall, 5),
        "taking_in_us_per_step": round(1e6 * seconds / max(sum(of.received for of in stretches), 1), 2),
        "ratio_on_a_free_core": round(1 / (1 - seconds / wall), 4),
    }


def rows_per_step(before: tuple[int, int], after: tuple[int, int]) -> float:
    """Return how many rows a transition takes in the replay: more than 1 where blocks bring their past along."""
    return round((after[0] - before[0]) / max(after[1] - before[1], 1), 3)


def processor_ticks(pids: list[int]) -> dict[int, float]:
    """Return the processor time of processes, in seconds."""
    found = {}
    for pid in pids:
        with suppress(OSError):  # it has just ended
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found[pid] = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return found


def unique_mb(pid: int) -> float:
    """Return the memory that a process shares with no other, in MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1.024e-3 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def steady(bench: Bench, source: PooledSource, seconds: float) -> dict[str, Any]:
    """Learn with real-time workers without a break: pauses, late ticks, memory, and what Ray's daemons take."""
    assert source.link is not None
    bench.stretch(SETTLE_SECONDS, True)  # being stopped made ticks late: those have been reported then
    rows, pool = source.rows(), source.link.process.pid
    workers = [row["pid"] for row in rows]
    daemons = [process.pid for process in descendants(pool) if process.pid not in workers]
    late, restarts = sum(row["late"] for row in rows), sum(row["restarts"] for row in rows)
    before = processor_ticks([pool, *workers, *daemons])
    rows_before = bench.written()
    found = bench.stretch(seconds, True)
    after = processor_ticks([pool, *workers, *daemons])
    memory = [unique_mb(pid) for pid in workers if pid in after]
    bench.stretch(SETTLE_SECONDS, True)  # until the last ticks have been reported

    def share(pids: list[int]) -> float:
        return round(sum(after[pid] - before.get(pid, 0.0) for pid in pids if pid in after) / found.wall_s, 4)

    return {
        "seconds": round(found.wall_s, 1),
        "steps_per_s": round(found.received / found.wall_s, 1),
        "rows_per_step": rows_per_step(rows_before, bench.written()),
        "ticks": round(len(workers) * found.wall_s / bench.period),
        "late_ticks": sum(row["late"] for row in source.rows()) - late,
        "restarts": sum(row["restarts"] for row in source.rows()) - restarts,
        "longest_pause_ms": round(1e3 * max(found.pauses), 2),
        "median_pause_ms": round(1e3 * median(found.pauses), 2),
        "daemons_core_share": share(daemons),
        "pool_core_share": share([pool]),
        "workers_core_share": share(workers),
        "worker_mb": round(max(memory), 1),
        "worker_mb_median": round(median(memory), 1),
        "daemons_mb": round(sum(unique_mb(pid) for pid in daemons if pid in after), 1),
    }


def real_time(bench: Bench, count: int, seconds: float) -> dict[str, Any]:
    """Measure with real workers that go by the wall clock."""
    began = time.monotonic()
    with bench.collecting(bench.run, count) as source:
        started = time.monotonic() - began
        result = {"workers": count, "start_s": round(started, 1)}
        result |= compared(*bench.alternate(source, min(seconds, LONGEST["workers"])))
        result |= steady(bench, source, seconds)
    within = {name: bool(result[name] <= budget) for name, budget in BUDGETS.items()}
    return result | {"budgets": BUDGETS, "within_budget": within}


def simulators(bench: Bench, count: int, seconds: float) -> dict[str, float]:
    """Measure how many steps simulators deliver that nobody paces, while the learner only takes them in."""
    with bench.collecting(bench.simulated, count) as source:
        assert source.link is not None
        source.link.post(Orders(False, PLENTY))
        took = list[tuple[float, int]]()
        workers, used = [row["pid"] for row in source.rows()], list[float]()
        for wanted in (1.0, seconds):  # first until the grant has arrived
            until = time.monotonic() + wanted
            while time.monotonic() < until:
                source.drain(0.05)
                if source.must_save:
                    bench.made.save()
            took.append((time.monotonic(), source.received))
            used.append(sum(processor_ticks(workers).values()))
        (began, before), (end, after) = took
        return {
            "workers": count,
            "steps_per_s": round((after - before) / (end - began), 1),
            "worker_processor_us_per_step": round(1e6 * (used[1] - used[0]) / max(after - before, 1), 1),
            "workers_core_share": round((used[1] - used[0]) / (end - began), 2),
        }


def traffic(bench: Bench, count: int, seconds: float) -> dict[str, Any]:
    """Measure with the blocks of so many real-time workers, made up by one process and sent over the real link."""
    with bench.collecting(bench.run, count, TrafficLink) as source:
        before, saves = bench.written(), bench.made.saves
        alone, along = bench.alternate(source, seconds)
        rows, saves = rows_per_step(before, bench.written()), bench.made.saves - saves
        waiting = source.waiting
    result = compared(alone, along)
    wall, received = sum(of.wall_s for of in along), sum(of.received for of in along)
    return {
        "workers": count,
        **result,
        "steps_per_s": round(received / wall, 1),
        "arrived_share": round(received / wall * bench.period / count, 3),
        "waiting_blocks": waiting,
        "longest_pause_ms": round(1e3 * max(pause for of in along for pause in of.pauses), 2),
        "saves": saves,
        "rows_per_step": rows,
        "saturates_at_workers": round(1e6 * bench.period / result["taking_in_us_per_step"]),
    }


def measure(args: BenchArgs) -> dict[str, Any]:
    """Measure everything, one after the other, with the same networks and the same replay."""
    load = os.getloadavg()[0]
    longest = min(args.seconds, LONGEST["traffic"])
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), args)
        try:
            result: dict[str, Any] = {"real_time": real_time(bench, args.workers, args.seconds)}
            if not get_env(args.env).real_time:  # else there is nothing to simulate
                result["simulators"] = [simulators(bench, count, longest / 3) for count in SIMULATORS]
            result["traffic"] = [traffic(bench, count, longest) for count in TRAFFIC]
        finally:
            bench.made.close()
    # JAX was told to use one core, the machine may have more
    about = {"before": round(load, 2), "after": round(os.getloadavg()[0], 2), "cores": len(os.sched_getaffinity(0))}
    return result | {"load": about}
