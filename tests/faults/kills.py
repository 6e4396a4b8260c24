"""Processes killed at random moments: the work is finished afterwards and compared with an undisturbed run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sparc.envs.racing.torcs.installation import find_torcs
from sparc.errors import SparcError
from sparc.runs import checkpoint
from sparc.runs.run import Run
from sparc.suites.runner import ONE_THREAD
from sparc.training.train import train

from .damages import MEMBER, SUITE, TINY, make_files
from .tally import Outcome

BOAT, RACE = "DriftingBoat-v0", "RacePowerMass-g-track-1-v0"
SMALL: dict[str, Any] = {**TINY, "updates": 200, "evaluate_every": 50, "log_every": 10}
SECONDS = 600  # after which a process that should end counts as one that hangs
MARK = "SPARC_FAULTS"
VARYING = ("updates_per_s", "processor_s")  # measured times


def environment() -> dict[str, str]:
    """Return the variables of processes that are started here; MARK stands in those of all that they start, too."""
    source = str(Path(train.__code__.co_filename).parents[2])
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": source, MARK: str(os.getpid())}


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start the real command line."""
    return subprocess.Popen([sys.executable, "-m", "sparc", *map(str, arguments)], env=environment(), text=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip


def survivors() -> list[int]:
    """Return the live processes that `start` began, and theirs."""
    mark, found = f"{MARK}={os.getpid()}".encode(), []
    for file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in file.read_bytes().split(b"\0"):
                found.append(int(file.parent.name))
    return found


def all_bytes(folder: Path) -> dict[str, bytes]:
    """Return the content of every file of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def contents(run: Path) -> Any:
    """Return what must be the same of a run: its newest checkpoint, its metrics and its evaluations; no times."""
    folder = run / "checkpoints" / str(checkpoint.numbers(run / "checkpoints")[-1])
    arrays, meta = checkpoint.load(folder)
    arrays |= checkpoint.read_arrays(folder, checkpoint.POLICY, meta)
    known = {name: value for name, value in meta.items() if name not in ("checksums", *VARYING)}
    records = [{k: v for k, v in record.items() if k not in VARYING} for record in Run.open(run).records()]
    evaluations = {f"evaluations/{name}": content for name, content in all_bytes(run / "evaluations").items()}
    return {name: array.tobytes() for name, array in arrays.items()} | {"meta": known, "metrics": records} | evaluations


class Kills:
    """Kills processes of one kind, several of a piece of work in a row, then lets it end and compares."""

    kind, share = "", 0
    each = 5  # tries per attempt: kills of a piece of work before it is finished
    method, env = "sparc", BOAT

    @classmethod
    def why_not(cls) -> str:
        """Return why there can be no such tries here; nothing if there can."""
        return ""

    def __init__(self, folder: Path, seed: int):
        self.folder, self.seed = folder / type(self).__name__, seed
        self.folder.mkdir()
        self.config = self.folder / "small.yaml"
        self.config.write_text(yaml.safe_dump(SMALL))
        self.path = self.folder / "work"
        self.prepare()
        self.finish()  # compiles
        shutil.rmtree(self.path)
        began = time.monotonic()
        self.finish()
        self.seconds = time.monotonic() - began
        self.straight = self.contents()
        shutil.rmtree(self.path)

    def prepare(self) -> None:
        """Make what the work begins with."""

    def command(self) -> list[object]:
        """Return what begins or continues the work."""
        if (self.path / "config.yaml").exists():
            return ["resume", self.path]
        return ["train", self.method, self.env, "--config", self.config, "--run-dir", self.path]

    def contents(self) -> Any:
        """Return what the work came to."""
        return contents(self.path)

    def finish(self) -> None:
        """Bring the work to its end."""
        process = start(*self.command())
        try:
            _, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        if process.returncode:
            raise RuntimeError(errors.strip().splitlines()[-1])

    def attempt(self, number: int) -> Outcome:
        """Kill the processes of a piece of work at random moments, let it end, and compare it."""
        rng = np.random.default_rng([self.seed, number])
        shutil.rmtree(self.path, ignore_errors=True)  # of an attempt that failed
        for _ in range(self.each):
            process = start(*self.command())
            time.sleep(rng.uniform(0.0, self.seconds))
            process.kill()
            process.communicate()
            deadline = time.monotonic() + SECONDS
            while survivors():
                if time.monotonic() > deadline:
                    return "hang", "a process outlives the one that started it"
                time.sleep(0.1)
        try:
            self.finish()
        except subprocess.TimeoutExpired:
            return "hang", "it does not end"
        except RuntimeError as error:
            return "crash", str(error)
        different = self.different()
        shutil.rmtree(self.path)
        return ("silent", f"other bits: {different}") if different else ("harmless", "")

    def different(self) -> str:
        """Name what did not come out as without any fault."""
        found, wanted = self.contents(), self.straight
        return ", ".join(name for name in sorted(found.keys() | wanted.keys()) if found.get(name) != wanted.get(name))


class Train(Kills):
    """Training of SPARC."""

    kind, share = "kill -9, training", 8


class Rma(Kills):
    """Training in two phases."""

    kind, share, method = "kill -9, RMA's two phases", 5, "rma"


class Evaluate(Kills):
    """A test on the grid, with adaptation."""

    kind, share = "kill -9, evaluate", 4

    def prepare(self) -> None:
        fields = {name: value for name, value in SMALL.items() if name != "updates"}
        train("sparc", BOAT, run_dir=self.folder / "trained", updates=50, **fields)

    def command(self) -> list[object]:
        return ["evaluate", self.folder / "trained", "--grid", 3, "--adaptation", "--out", self.path]

    def contents(self) -> Any:
        return all_bytes(self.path)


class Suite(Kills):
    """The runner of a suite, whose members must notice that they are alone."""

    kind, share = "kill -9, suite", 1

    def prepare(self) -> None:
        (self.folder / "own.yaml").write_text(yaml.safe_dump({**SUITE, "updates": 200}))

    def command(self) -> list[object]:
        return ["suite", "run", self.folder / "own.yaml", "--run-dir", self.path, "--jobs", 1]

    def contents(self) -> Any:
        return contents(self.path / MEMBER)


class Report(Kills):
    """Tables, figures and page of a suite."""

    kind, share = "kill -9, report", 1

    def prepare(self) -> None:
        make_files(self.folder)

    def command(self) -> list[object]:
        return ["suite", "report", self.folder / "own.yaml", "--run-dir", self.folder / "suite", "--out", self.path]

    def contents(self) -> Any:
        files = all_bytes(self.path)
        made = json.loads(files["manifest.json"])["made"]
        for moment in (made, made[:16].replace("T", " ")):  # as the tables and as the page have it
            files = {name: content.replace(moment.encode(), b"") for name, content in files.items()}
        files["manifest.json"] = re.sub(rb'"sha256": "[0-9a-f]+"', b"", files["manifest.json"])  # its own
        return files


class Race(Kills):
    """Training in races: the simulator is a process of its own and must go with the one that started it."""

    kind, share, env = "kill -9, race", 1, RACE

    @classmethod
    def why_not(cls) -> str:
        try:
            find_torcs()
        except SparcError as error:
            return str(error)
        return ""


KINDS: tuple[type[Kills], ...] = (Train, Rma, Evaluate, Suite, Report, Race)
