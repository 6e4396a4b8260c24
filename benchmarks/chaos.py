"""Learning while things are killed: what it costs, measured with real kills (signal 9) of real processes.

python benchmarks/chaos.py workers                             boat: 4 workers, one killed every 30 s, against none
python benchmarks/chaos.py workers --env WindHalfCheetah-v5    the same; hours
python benchmarks/chaos.py workers … --synchronous RUN RUN2    against runs that there are already
python benchmarks/chaos.py everything --seconds 600            20 real-time workers: worker, raylet, GCS, pool, learner

Who is killed when is drawn from --seed. The result is one JSON object, in benchmarks/results/ by default.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent / "tests")]

from sparc.cli.evaluate import GRID  # noqa: E402
from sparc.envs.real_time import PERIOD, real_time_id  # noqa: E402
from sparc.envs.registry import get_env  # noqa: E402
from sparc.errors import UserError  # noqa: E402
from sparc.files import replace  # noqa: E402
from sparc.runs.run import Run  # noqa: E402
from sparc.runs.tests import read_summary, stem_of  # noqa: E402
from sparc.training.workers import processes  # noqa: E402
from sparc.training.workers.processes import Process  # noqa: E402

BOAT = "DriftingBoat-v0"
KINDS = ("worker", "raylet", "gcs", "pool", "learner")
NAMES = {"raylet": "raylet", "gcs": "gcs_server"}  # of Ray's daemons, as the system has them
GAPS = (20.0, 50.0)  # s between two kills of everything: a new Ray with 20 workers takes 30 s of two idle cores
POOL = "sparc.training.workers.pool"
END_SECONDS = 120.0  # that a run has to end after Ctrl-C
RANDOM_STEPS = 2_000  # of everything: ten seconds of 20 workers
POLL = 0.5  # s


class Training:
    """The real command line, training a run; it may be killed and go on."""

    def __init__(self, run: Path, *words: object):
        self.run, self.log = run, run.with_suffix(".log")
        self.start("train", *words, "--run-dir", run)

    def start(self, *words: object) -> None:
        """Start the command line."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sparc", *map(str, words)], stdout=log, stderr=log, env=environment()
            )

    def resume(self) -> None:
        """Go on after the learner was killed."""
        self.start("resume", self.run, "--allow-import")

    def table(self) -> dict[str, Any]:
        """Return what `sparc workers` shows; nothing before the first one."""
        with suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((self.run / "workers.json").read_bytes())
            return found
        return {"time": 0.0, "steps": 0, "updates": 0, "rows": []}

    def victims(self, kind: str) -> list[Process]:
        """Return the processes of a kind that live now."""
        if kind == "learner":
            return [own for own in processes.descendants() if own.pid == self.process.pid]
        below = processes.descendants(self.process.pid)
        if kind in NAMES:
            return [found for found in below if processes.name_of(found) == NAMES[kind]]
        if kind == "pool":
            return [found for found in below if POOL in command_of(found)]
        pids = {row["pid"] for row in self.table()["rows"] if row["state"] == "running" and row["delivered"]}
        return [found for found in below if found.pid in pids]

    def stop(self) -> int:
        """Press Ctrl-C and wait; return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(END_SECONDS)

    def end(self) -> None:
        """End it by force, if it is still there."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def environment() -> dict[str, str]:
    """Return the variables of the command line: this source, and one thread for each process."""
    one = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    return {**os.environ, **one, "PYTHONPATH": str(HERE.parent / "src")}


def preset(env: str) -> list[str]:
    """Return the option for what is small; else the environment's own preset is right."""
    return ["--preset", "light"] if env == BOAT else []


def command_of(process: Process) -> str:
    """Return a process's command line."""
    with suppress(OSError):
        return Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def turns(seed: int) -> Iterator[tuple[float, str]]:
    """Draw after how many seconds who is next: everybody once, in random order, then once again."""
    rng = random.Random(seed)
    while True:
        for kind in rng.sample(KINDS, len(KINDS)):
            yield rng.uniform(*GAPS), kind


def evaluated(run: Path, checkpoint: str) -> dict[str, float]:
    """Return the mean returns in and out of distribution, as `sparc evaluate` measures them."""
    opened = Run.open(run)
    stem = stem_of(opened, opened.choose(checkpoint), GRID, 1)
    if not stem.with_suffix(".json").exists():
        words = ["evaluate", str(run), "--checkpoint", checkpoint, "--allow-import"]
        subprocess.run([sys.executable, "-m", "sparc", *words], env=environment(), check=True, capture_output=True)
    found = read_summary(stem)
    return {f"{part}_return": round(found[part]["mean"], 2) for part in ("ind", "ood")}


def kill_some(training: Training, seconds: float, every: float, rng: random.Random) -> list[dict[str, Any]]:
    """Kill one worker after the other until the run has ended; return when and which."""
    began, kills, due = time.monotonic(), list[dict[str, Any]](), every
    while training.process.poll() is None:
        now = time.monotonic() - began
        if now > seconds:
            raise TimeoutError(f"{training.run} has not ended within {seconds:.0f} s: see {training.log}")
        if now >= due and (found := training.victims("worker")):
            processes.kill([rng.choice(found)])
            kills.append({"second": round(now, 1), "killed": "worker", "steps": training.table()["steps"]})
            due = now + every
        time.sleep(POLL)
    return kills


def workers(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train seeds synchronously and with workers that are killed; compare what they reach."""

    given = {(config := Run.open(path).config).seed: (path, config) for path in args.synchronous}

    def one(job: tuple[int, bool]) -> dict[str, Any]:
        seed, disturbed = job
        if given and not disturbed:
            path, config = given[seed]
            return {"seed": seed, **evaluated(path, "best"), "updates": config.updates}
        words: list[object] = ["sparc", args.env, *preset(args.env), "--seed", seed]
        words += ["--updates", args.updates] if args.updates else []
        name = folder / f"{'killed' if disturbed else 'synchronous'}-{seed}"
        began = time.monotonic()
        training = Training(name, *words, *(["--workers", args.workers] if disturbed else []))
        try:
            kills = kill_some(training, args.seconds, args.every if disturbed else 1e9, random.Random(args.seed + seed))
            if training.process.returncode:
                raise RuntimeError(f"exit code {training.process.returncode}: see {training.log}")
        finally:
            training.end()
        took, table = time.monotonic() - began, training.table()
        found = {"seed": seed, "wall_s": round(took, 1), **evaluated(name, "best"), "updates": Run.open(name).updates()}
        if disturbed and given and (made := Run.open(name).config) != given[seed][1]:
            raise RuntimeError(f"{name} has another config than {given[seed][0]}: {made}")
        if disturbed:
            found |= {"steps": table["steps"], "restarts": int(table["workers_restarts"]), "kills": kills}
        return found

    jobs = [(seed, disturbed) for seed in given or range(args.seeds) for disturbed in (False, True)]
    with ThreadPoolExecutor(args.jobs) as pool:
        found = list(pool.map(one, jobs))
    alone, disturbed = found[0::2], found[1::2]
    span = [min(of["ood_return"] for of in alone), max(of["ood_return"] for of in alone)]
    return {
        "env": args.env, "workers": args.workers, "killed_every_s": args.every, "synchronous": alone,
        "killed": disturbed, "synchronous_ood_range": span,
        "killed_ood_range": [min(of["ood_return"] for of in disturbed), max(of["ood_return"] for of in disturbed)],
        "within_or_above_range": [of["ood_return"] >= span[0] for of in disturbed],
    }  # fmt: skip


class Chaos:
    """A run whose every part is killed in turn, the learner included."""

    def __init__(self, training: Training, began: float):
        self.training, self.began = training, began
        self.kills: list[dict[str, Any]] = []

    def until(self, second: float) -> None:
        """Let time pass; what ends by itself is a failure."""
        while time.monotonic() - self.began < second:
            if self.training.process.poll() is not None:
                raise RuntimeError(f"the learner ended by itself ({self.training.process.returncode}): see the log")
            time.sleep(POLL)

    def kill(self, kind: str, rng: random.Random, last: float) -> bool:
        """Kill one of a kind as soon as there is one; return False where the time is over before."""
        while not (found := self.training.victims(kind)) or time.monotonic() - self.began > last:
            if time.monotonic() - self.began > last:
                return False
            self.until(time.monotonic() - self.began + POLL)
        before = self.training.table()
        second = round(time.monotonic() - self.began, 1)
        processes.kill([rng.choice(found)])
        kill = {"second": second, "killed": kind, "steps": before["steps"], "updates": before["updates"]}
        self.kills.append(kill)
        if kind == "learner":
            self.training.process.wait()
            self.training.resume()
            kill |= self.resumed(before, last)
        return True

    def resumed(self, before: dict[str, Any], last: float) -> dict[str, Any]:
        """Wait for the learner; return what it has lost."""
        killed = time.time()
        while (table := self.training.table())["time"] < killed:
            self.until(time.monotonic() - self.began + POLL)
            if time.monotonic() - self.began > last + END_SECONDS:
                raise TimeoutError("the learner did not come back")
        session = Run.open(self.training.run).manifest()["sessions"][-1]
        return {
            "back_after_s": round(time.time() - killed, 1),
            "steps_lost": max(before["steps"] - table["steps"], 0),
            "updates_lost": before["updates"] - session["from_updates"],
        }


def everything(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Kill a run piece by piece, beside a twin that nobody disturbs: both see the same machine."""
    from windows import check_windows

    # ended by the clock, so the learning rate must not depend on the number of updates
    env = real_time_id(args.env)
    words = ("sparc", env, *preset(args.env), "--workers", args.workers, "--updates", 10**8, "--final-lr-fraction", 1.0,
             "--random-steps", RANDOM_STEPS)  # fmt: skip
    trainings = {name: Training(folder / name, *words, "--seed", args.seed) for name in ("undisturbed", "killed")}
    rng, began = random.Random(args.seed), time.monotonic()
    chaos = Chaos(trainings["killed"], began)
    ends: dict[str, Any] = {}
    try:
        chaos.until(args.settle)
        for gap, kind in turns(args.seed):
            chaos.until(time.monotonic() - began + gap)
            if not chaos.kill(kind, rng, args.seconds - GAPS[1]):
                break
        chaos.until(args.seconds)
        for name, training in trainings.items():
            ends[name] = training.table()
            if training.stop() != 130:
                raise RuntimeError(f"exit code {training.process.returncode}: see {training.log}")
    finally:
        for training in trainings.values():
            training.end()
    result: dict[str, Any] = {
        "env": env, "workers": args.workers, "seed": args.seed, "seconds": args.seconds,
        "ticks": round(args.workers * args.seconds / PERIOD),
    }  # fmt: skip
    for name, training in trainings.items():
        run = Run.open(training.run)
        result[name] = {
            "steps": ends[name]["steps"], "updates": ends[name]["updates"], "sessions": len(run.manifest()["sessions"]),
            "pools_of_last_session": ends[name]["pools"], "late_ticks_of_last_pool": ends[name]["workers_late_ticks"],
            "history_steps_checked": check_windows(run) if args.env == BOAT else None,
            **evaluated(training.run, "last"),
        }  # fmt: skip
    learners = [kill for kill in chaos.kills if kill["killed"] == "learner"]
    return result | {
        "steps_not_collected": result["undisturbed"]["steps"] - result["killed"]["steps"],
        "delivered_steps_lost": sum(kill["steps_lost"] for kill in learners),
        "updates_lost": sum(kill["updates_lost"] for kill in learners),
        "count": {kind: sum(kill["killed"] == kind for kill in chaos.kills) for kind in KINDS},
        "kills": chaos.kills,
    }


def parse(words: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("workers", "everything"))
    parser.add_argument("--env", default=BOAT)
    parser.add_argument("--seed", type=int, default=0, help="of the kills (everything: of the runs as well)")
    parser.add_argument("--seeds", type=int, default=3, help="workers: so many pairs of runs (default 3)")
    parser.add_argument("--updates", type=int, help="workers: of each run (default as the preset has it)")
    parser.add_argument(
        "--synchronous", type=Path, nargs="+", metavar="RUN", default=[],
        help="workers: compare with these runs, each of another seed, instead of training them",
    )  # fmt: skip
    parser.add_argument("--every", type=float, default=30.0, help="workers: seconds between two kills (default 30)")
    parser.add_argument("--jobs", type=int, default=2, help="workers: so many runs at a time (default 2)")
    parser.add_argument("--workers", type=int, help="default 4; everything: 20")
    parser.add_argument("--seconds", type=float, help="everything: kill so long (default 600); workers: a run's limit")
    parser.add_argument("--settle", type=float, default=60.0, help="everything: seconds before the first kill")
    parser.add_argument("--folder", type=Path, help="where the runs are made, and stay (default: a temporary one)")
    parser.add_argument("--out", type=Path, help="the result (default benchmarks/results/chaos-….json)")
    args = parser.parse_args(words)
    args.workers = args.workers if args.workers is not None else (4 if args.what == "workers" else 20)
    args.seconds = args.seconds or (86_400.0 if args.what == "workers" else 600.0)
    if args.what == "everything" and args.seconds < args.settle + 2 * GAPS[1]:
        parser.error(f"--seconds must be more than {args.settle + 2 * GAPS[1]:.0f}: the workers start first")
    for name in ("seeds", "jobs", "workers"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, not {getattr(args, name)}")
    try:
        real_time_id(args.env) if args.what == "everything" else get_env(args.env)
        for path in args.synchronous:
            config = (run := Run.open(path)).config
            if run.updates() < config.updates:
                parser.error(f"{path} is not finished: {run.updates()} of {config.updates} updates")
            if (config.method, config.env) != ("sparc", args.env):
                parser.error(f"{path} is a run of {config.method} in {config.env}, not of sparc in {args.env}")
            if args.updates and config.updates != args.updates:
                parser.error(f"{path} has {config.updates} updates, not {args.updates}")
    except UserError as error:
        parser.error(str(error))
    args.out = args.out or HERE / "results" / f"chaos-{args.what}-{args.env}.json"
    return args


def main() -> None:
    """Measure, and write the result."""
    args, load = parse(sys.argv[1:]), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found = {"bench": f"chaos {args.what}", **(workers if args.what == "workers" else everything)(args, folder)}
    found["load"] = {"before": round(load, 1), "after": round(os.getloadavg()[0], 1), "cores": os.cpu_count()}
    replace(args.out, json.dumps(found, indent=1) + "\n")
    print(json.dumps({name: value for name, value in found.items() if name != "kills"}, indent=1))


if __name__ == "__main__":
    main()
