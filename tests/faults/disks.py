"""Disks that fill up at random moments: one line, no hang, and the same bits once there is room again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from . import kills
from .tally import Outcome

UNSHARE = ("unshare", "--map-root-user", "--mount")
PROBE = [*UNSHARE, "mount", "-t", "tmpfs", "none", "/tmp"]
SIZE = "24m"  # room for any of the works here
ROOMS = (0, 2_000, 30_000)  # bytes that a full disk has left
SCRIPT = Path(__file__).with_name("small_disk.py")


def can_mount() -> bool:
    """Return whether a file system of its own can be mounted here."""
    return shutil.which("unshare") is not None and subprocess.run(PROBE, capture_output=True).returncode == 0


class Disks(kills.Kills):
    """Fills the disk that a command works on, or the shared memory; then the same command goes on and is compared."""

    each, shared_memory = 1, False

    @classmethod
    def why_not(cls) -> str:
        return super().why_not() or ("" if can_mount() else "no file system can be mounted here")

    def __init__(self, folder: Path, seed: int):
        assert not (self.shared_memory and folder.is_relative_to("/dev/shm")), "TMPDIR must not be in what is filled up"
        self.disk = folder / f"{type(self).__name__}-disk"
        self.disk.mkdir()
        super().__init__(folder, seed)

    def prepare(self) -> None:
        super().prepare()
        self.path = self.disk / "work"
        self.begin = self.command()

    def again(self) -> list[object]:
        """Return the command that goes on where there is a run already."""
        return ["resume", self.path] if self.begin[0] == "train" else self.begin

    def attempt(self, number: int) -> Outcome:
        """Let a command meet a full disk and go on afterwards."""
        rng = np.random.default_rng([self.seed, number])
        sparc, keep = [sys.executable, "-m", "sparc"], self.folder / "kept"
        given = {
            "disk": str(self.disk), "size": SIZE, "seconds": rng.uniform(0.0, self.seconds), "keep": str(keep),
            "room": int(rng.choice(ROOMS)), "shared_memory": self.shared_memory, "limit": kills.SECONDS,
            "begin": [*sparc, *map(str, self.begin)], "again": [*sparc, *map(str, self.again())],
        }  # fmt: skip
        done = subprocess.run([*UNSHARE, sys.executable, str(SCRIPT), json.dumps(given)], env=kills.environment(),
                              capture_output=True, text=True, check=True)  # fmt: skip
        first, second = json.loads(done.stdout)
        outcome = self.judge(first, second, keep)
        shutil.rmtree(keep, ignore_errors=True)
        return outcome

    def judge(self, first: tuple[int | None, str], second: tuple[int | None, str], kept: Path) -> Outcome:
        """Return what became of a try, from exit codes, words and what was kept."""
        for code, words in (first, second):
            if code is None:
                return "hang", f"it does not end: {words[-500:]}"
            if "Traceback" in words or code < 0:
                return "crash", f"exit code {code}: {words[-2000:]}"
        if second[0] or (self.shared_memory and first[0]):
            return "crash", f"it does not go on: {(first if self.shared_memory else second)[1][-500:]}"
        if first[0] and not self.is_named(first[1]):
            return "silent", f"the disk is not named: {first[1][-500:]}"
        self.path = kept
        different = self.different()
        self.path = self.disk / "work"
        if different:
            return "silent", f"other bits: {different}"
        return ("named" if first[0] else "harmless"), ""

    def is_named(self, words: str) -> bool:
        """Return whether the full disk is said to be the reason, in one line."""
        said = [line for line in words.splitlines() if line.startswith("sparc: ")]
        return len(said) == 1 and "the disk is full" in said[0]


class TrainOnFullDisk(Disks, kills.Train):
    """Training; resuming is what follows it."""

    kind, share = "full disk, training and resume", 4


class EvaluateOnFullDisk(Disks, kills.Evaluate):
    """A test."""

    kind, share = "full disk, evaluate", 2


class SuiteOnFullDisk(Disks, kills.Suite):
    """A suite, whose members write their logs to the same disk."""

    kind, share = "full disk, suite", 1

    def is_named(self, words: str) -> bool:
        return "the disk is full" in words


class ReportOnFullDisk(Disks, kills.Report):
    """A report."""

    kind, share = "full disk, report", 1


class TrainWithoutSharedMemory(Disks, kills.Train):
    """Training needs no shared memory."""

    kind, share, shared_memory = "full /dev/shm, training", 1, True


class RaceWithoutSharedMemory(Disks, kills.Race):
    """Races do without it as well."""

    kind, share, shared_memory = "full /dev/shm, race", 1, True


KINDS: tuple[type[kills.Kills], ...] = (
    TrainOnFullDisk, EvaluateOnFullDisk, SuiteOnFullDisk, ReportOnFullDisk, TrainWithoutSharedMemory,
    RaceWithoutSharedMemory,
)  # fmt: skip
