"""Processes killed at random moments: the work is finished afterwards and compared with an undisturbed run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sparc.runs import checkpoint
from sparc.runs.run import Run
from sparc.training.train import train

from .damages import MEMBER, SUITE, TINY

BOAT, UPDATES, PER_RUN = "DriftingBoat-v0", 400, 3  # kills of one run before it is finished
SECONDS = 300  # after which a process that should end counts as one that hangs
ONE_THREAD = {"NPROC": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OPENBLAS_NUM_THREADS": "1"}


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start the real command line."""
    source = str(Path(train.__code__.co_filename).parents[2])
    env = {**os.environ, **ONE_THREAD, "PYTHONPATH": source}
    return subprocess.Popen([sys.executable, "-m", "sparc", *map(str, arguments)], env=env, text=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip


def contents(run: Path) -> Any:
    """Return what must be the same: the newest checkpoint's arrays and the metrics but speed."""
    folder = run / "checkpoints" / str(checkpoint.numbers(run / "checkpoints")[-1])
    arrays, _ = checkpoint.load(folder)
    records = [{k: v for k, v in record.items() if k not in ("updates_per_s", "processor_s")}
               for record in Run.open(run).records()]  # fmt: skip
    tests = {path.name: path.read_bytes() for path in sorted((run / "evaluations").glob("*.csv"))}
    return {name: array.tobytes() for name, array in arrays.items()}, records, tests


class Kills:
    """Kills processes of one kind; every try works on a copy of its own."""

    def __init__(self, kind: str, folder: Path, seed: int):
        self.kind, self.folder, self.seed = kind, folder / kind, seed
        self.folder.mkdir()
        self.config = self.folder / "tiny.yaml"
        self.config.write_text(yaml.safe_dump({**TINY, "updates": UPDATES}))
        (self.folder / "own.yaml").write_text(yaml.safe_dump({**SUITE, "updates": UPDATES}))
        began = time.monotonic()
        self.straight = self.finish(self.folder / "straight")
        self.seconds = time.monotonic() - began

    def command(self, path: Path) -> list[object]:
        """Return what begins or continues the work."""
        if self.kind == "suite":
            return ["suite", "run", self.folder / "own.yaml", "--run-dir", path, "--jobs", 1]
        if self.kind == "evaluate" and checkpoint.is_sound(path / "checkpoints" / str(UPDATES)):
            return ["evaluate", path, "--grid", 3]
        method = "rma" if self.kind == "rma" else "sparc"
        if (path / "config.yaml").exists():
            return ["resume", path]
        return ["train", method, BOAT, "--config", self.config, "--run-dir", path]

    def finish(self, path: Path) -> Any:
        """Bring the work to its end and return its contents."""
        for _ in range(2 if self.kind == "evaluate" else 1):
            process = start(*self.command(path))
            try:
                _, errors = process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                raise
            if process.returncode:
                raise RuntimeError(errors.strip().splitlines()[-1])
        return contents(path / MEMBER if self.kind == "suite" else path)

    def attempt(self, number: int) -> tuple[str, str]:
        """Kill a process; every PER_RUN kills the work is finished and compared."""
        rng = np.random.default_rng([self.seed, number])
        path = self.folder / "killed"
        process = start(*self.command(path))
        time.sleep(rng.uniform(0.0, self.seconds))
        process.kill()
        process.communicate()
        if self.kind == "suite":  # its members see that they are alone, save and end
            deadline = time.monotonic() + SECONDS
            while (path / MEMBER / "config.yaml").exists() and Run.open(path / MEMBER).is_locked():
                if time.monotonic() > deadline:
                    return "hang", "a member outlives its suite"
                time.sleep(0.1)
        if number % PER_RUN != PER_RUN - 1:
            return "harmless", ""
        try:
            same = self.finish(path) == self.straight
        except subprocess.TimeoutExpired:
            return "hang", "it does not end"
        except RuntimeError as error:
            return "crash", str(error)
        shutil.rmtree(path)
        return ("harmless", "") if same else ("silent", "other bits")
