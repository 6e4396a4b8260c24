"""The TORCS worker process from Python: N cars on one track, stepped together, restarted where it crashes.

The worker (its source is the folder of that name) is a program of its own. It is told what to do through a pipe and
shares one file of arrays with us, in which it leaves, after each step, a snapshot of every car that fits into any other
worker with the same track.
"""

from __future__ import annotations

import mmap
import os
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from sparc.arrays import Array, Flags
from sparc.envs.racing.cars.description import name_in
from sparc.envs.racing.torcs.columns import STATE, TRACE, TRACK_COLUMNS, check_vocabulary
from sparc.envs.racing.torcs.installation import Installation
from sparc.errors import RunFailure, UserError

Figures = dict[str, list[float]]  # what the physics holds of a car, as readback.expected_figures lists it

CONTROL_STEP = 0.1  # s
PATIENCE = 60.0  # s: a worker that does not answer for so long hangs; it ends endless loops itself, much sooner
MOST_RESTARTS = 3  # in one step, besides two for every car


@dataclass(frozen=True)
class Laps:
    """The laps that one of TORCS's drivers raced; the first begins at a standstill behind the line."""

    times: Array  # s
    off: Array  # s with three or more wheels out
    wall: Array  # s in contact with a wall
    damage: Array  # points, at the end of each lap
    trace: Array  # (T, len(TRACE)) of the last lap


class WorkerLost(Exception):
    """The worker process died or does not answer."""

    def __init__(self, reason: str, slot: int):
        super().__init__(reason)
        self.slot = slot


class Worker:
    """One worker process, and the requests it understands. It is not restarted here."""

    def __init__(self, torcs: Installation, track_file: Path, slots: int, fuel: float = 0.0):
        local = Path(tempfile.mkdtemp(prefix="sparc-torcs-"))  # for what drivers write, and what TORCS prints
        self._log = local / "log"
        arguments = [f"{torcs.libraries}/", f"{torcs.data}/", f"{local}/", track_file, slots, fuel]
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [str(argument) for argument in (torcs.worker, *arguments)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    bufsize=0,
                    start_new_session=True,  # Ctrl-C is for the learner, which ends the worker when it has saved
                )
        except OSError as error:
            shutil.rmtree(local, ignore_errors=True)
            raise RunFailure(f"the TORCS worker cannot be started: {error}") from None
        self.close = weakref.finalize(self, _end, self._process, local)  # also where nobody closes it
        self.turn: NDArray[np.int64] | None = None
        assert self._process.stdout is not None
        self._answers = select.poll()
        self._answers.register(self._process.stdout, select.POLLIN)
        try:
            said = self._text()
            self.snapshot_size, self.length = struct.unpack("=id", self._read(12))
            check_vocabulary(said)
        except WorkerLost as lost:
            self.close()
            raise RunFailure(f"TORCS did not start on {track_file.stem}: {lost}") from None
        except RunFailure:
            self.close()
            raise

    def ask(self, request: bytes) -> None:
        """Send a request and wait until it is done."""
        self.send(request)
        self.wait()

    def send(self, request: bytes) -> None:
        """Send a request; wait() must follow before the next one."""
        assert self._process.stdin is not None
        with suppress(OSError):  # it is gone: waiting for its answer tells why
            self._process.stdin.write(request)

    def wait(self) -> None:
        """Wait until the request is done."""
        self._read(1)

    def numbers(self) -> Array:
        """Read a list of numbers that follows an answer."""
        (count,) = struct.unpack("i", self._read(4))
        return np.frombuffer(self._read(8 * count), np.float64).copy()

    def figures(self) -> Figures:
        """Read what the physics holds of a car, which follows the answer when it is loaded."""
        lines = (line.split() for line in self._text().splitlines())
        return {name: [float(number) for number in numbers] for name, *numbers in lines}

    def race(self, xml: str, driver: str, index: int, laps: int, own_setup: bool, limit: float) -> Laps:
        """Let one of TORCS's drivers race laps, as `torcs -r` would, for at most so many seconds of the race."""
        numbers = struct.pack("3i", index, laps, own_setup) + struct.pack("d", limit)
        self.ask(b"D" + _text(xml) + _text(driver) + numbers)
        times, off, wall, damage, trace = (self.numbers() for _ in range(5))
        return Laps(times, off, wall, damage, trace.reshape(-1, len(TRACE)))

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def _read(self, size: int) -> bytes:
        stream = self._process.stdout
        assert stream is not None
        parts, until = [], time.monotonic() + PATIENCE
        while size > 0:
            if not self._answers.poll(max(0.0, 1000 * (until - time.monotonic()))):
                raise WorkerLost(f"it did not answer for {PATIENCE:.0f} s", self._slot())
            part = os.read(stream.fileno(), size)
            if not part:
                raise WorkerLost(self._death(), self._slot())
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _text(self) -> str:
        (size,) = struct.unpack("i", self._read(4))
        return self._read(size).decode()

    def _slot(self) -> int:
        return -1 if self.turn is None else int(self.turn[0])

    def _death(self) -> str:
        code = self._process.wait()
        if code < 0:
            return f"it was ended by {signal.Signals(-code).name}"
        said = [line for line in self._log.read_text(errors="replace").splitlines() if line.startswith("error: ")]
        return said[-1].removeprefix("error: ") if said else f"it ended with exit code {code}"


def _end(process: subprocess.Popen[bytes], local: Path) -> None:
    """End a worker's process and remove what it wrote."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream:
            stream.close()
    shutil.rmtree(local, ignore_errors=True)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("i", len(data)) + data


def _reserve(size: int) -> IO[bytes]:
    """Make a file in memory, or on the disk where there is no room, with all its room: a hole in it may be a SIGBUS."""
    memory = ["/dev/shm"] if os.access("/dev/shm", os.W_OK) else []
    for folder in (*memory, None):
        with ExitStack() as failed:
            try:
                file = failed.enter_context(tempfile.NamedTemporaryFile(prefix="sparc-torcs-", dir=folder))
                os.posix_fallocate(file.fileno(), 0, size)
                failed.pop_all()
                return file
            except OSError as error:
                why = error.strerror
    raise RunFailure(
        f"no room in {' or '.join((*memory, 'the temporary folder'))} for {size / 1e6:.1f} MB of cars "
        f"({why}): make room, or set TMPDIR to a folder that has it"
    )


class Simulator:
    """N cars on one track. A worker that crashes is replaced and the step repeated; no car notices.

    A car that makes the new worker crash as well is reported broken and left out until it is reset.
    """

    def __init__(self, torcs: Installation, track_file: Path, slots: int, fuel: float = 0.0):
        self._how = (torcs, track_file, slots, fuel)
        self.slots = slots
        self.crashes: list[tuple[int, str]] = []  # the slot whose turn it was (-1: none) and what happened
        self._cars: dict[int, str] = {}  # what is loaded where
        self._busy = False  # a request is under way, or was and nobody waited for its end
        self._worker = Worker(*self._how)
        self.length = self._worker.length
        self._map()

    def _map(self) -> None:
        """Make the file of arrays that the worker shares with us; its main.cpp has the same layout."""
        size, flags = self._worker.snapshot_size, -(-self.slots // 8) * 8
        total = 16 + flags + 8 * self.slots * (2 + len(STATE)) + 2 * self.slots * size
        with _reserve(total) as file:
            memory = mmap.mmap(file.fileno(), total)
            self._turn = np.frombuffer(memory, np.int64, 2)
            self._chosen = np.frombuffer(memory, np.uint8, self.slots, 16)
            self._actions = np.frombuffer(memory, np.float64, 2 * self.slots, 16 + flags).reshape(self.slots, 2)
            start = 16 + flags + 16 * self.slots
            self.states = np.frombuffer(memory, np.float64, self.slots * len(STATE), start).reshape(self.slots, -1)
            start += 8 * self.slots * len(STATE)
            self._snapshots = np.frombuffer(memory, np.uint8, 2 * self.slots * size, start).reshape(2, self.slots, size)
            self._file = os.dup(file.fileno())  # the name goes, the file stays
        self._close_file = weakref.finalize(self, os.close, self._file)
        self._connect()

    def _connect(self) -> None:
        self._worker.turn = self._turn
        try:
            self._worker.ask(b"M" + _text(f"/proc/{os.getpid()}/fd/{self._file}"))
        except WorkerLost as lost:
            raise RunFailure(f"TORCS did not start on {self._how[1].stem}: {lost}") from None

    def load(self, slot: int, xml: str) -> Figures:
        """Put a car, described in TORCS's XML, into a slot, and give what the physics made of it."""
        return self._put(b"L", slot, xml)

    def exchange(self, slot: int, xml: str) -> Figures:
        """Put another car in the place of the one that is driving in a slot, with the same motion."""
        return self._put(b"X", slot, xml)

    def _put(self, how: bytes, slot: int, xml: str) -> Figures:
        figures: Figures = {}

        def put() -> None:
            self._worker.ask(how + struct.pack("i", slot) + _text(xml))
            figures.update(self._worker.figures())

        self._twice(put, f"load {name_in(xml)}")
        self._cars[slot] = xml
        return figures

    def reset(self, slots: Sequence[int] | NDArray[np.intp], places: Array) -> None:
        """Put cars on the road: a row of distance, offset (m), heading against the track (rad), speed (m/s) each."""
        rows = b"".join(struct.pack("<i4d", int(slot), *place) for slot, place in zip(slots, places, strict=True))
        self._twice(lambda: self._worker.ask(b"R" + struct.pack("i", len(slots)) + rows), "put {car} on the road")

    def _twice(self, request: Callable[[], None], what: str) -> None:
        """Make a request, once more with another worker where the first is lost; `{car}` is whose turn it was."""
        self._settle()
        self._busy = True
        try:
            request()
        except WorkerLost as lost:
            self._restart(lost)
            self._busy = True
            try:
                request()
            except WorkerLost as again:
                self._restart(again)
                what = what.replace("{car}", self._name(again.slot))
                raise RunFailure(f"TORCS cannot {what} on {self._how[1].stem}: {again}") from None
        self._busy = False

    def _settle(self) -> None:
        """Start anew where a request was interrupted: its answer would be taken for the next one's."""
        if self._busy:
            self._restart(WorkerLost("a request was interrupted", -1))

    def begin(self, actions: Array, chosen: Flags | None = None) -> None:
        """Begin to drive the chosen cars (all, if none are) for a tenth of a second; finish() waits for it."""
        self._settle()
        self._actions[:] = actions
        self._chosen[:] = 1 if chosen is None else chosen
        self._busy = True
        self._worker.send(b"S")

    def finish(self) -> Flags:
        """Wait until the step is done; give which cars broke the simulator, twice."""
        broken = np.zeros(self.slots, bool)
        blamed = -1
        for _ in range(2 * self.slots + MOST_RESTARTS):
            try:
                self._worker.wait()
                self._busy = False
                return broken
            except WorkerLost as lost:
                self._restart(lost)
                if lost.slot == blamed and lost.slot >= 0:
                    broken[lost.slot] = True
                    self._chosen[lost.slot] = 0
                blamed, reason = lost.slot, str(lost)
                self._busy = True
                self._worker.send(b"S")
        raise RunFailure(f"The simulator of {self._how[1].stem} cannot be kept running: {reason}.")

    def step(self, actions: Array, chosen: Flags | None = None) -> Flags:
        """LapPair for a tenth of a second; give which cars broke the simulator."""
        self.begin(actions, chosen)
        return self.finish()

    def _name(self, slot: int) -> str:
        return name_in(self._cars.get(slot, ""))

    def car_in(self, slot: int) -> str | None:
        """Return what is loaded in a slot."""
        return self._cars.get(slot)

    @property
    def snapshot_size(self) -> int:
        """Bytes per car."""
        return self._worker.snapshot_size

    def snapshots(self) -> NDArray[np.uint8]:
        """Return the cars as they are, (N, bytes)."""
        return self._snapshots[int(self._turn[1])].copy()

    def restore(self, snapshots: NDArray[np.uint8]) -> None:
        """Put the cars back as they were; the same cars must be loaded."""
        self._settle()
        now, before = self._snapshots[int(self._turn[1])], self.snapshots()
        now[:] = snapshots
        self._busy = True
        try:
            self._worker.ask(b"B")
        except WorkerLost as lost:
            try:
                self._restart(lost)  # goes back to them as well: it may not have been their fault
            except RunFailure:
                now[:] = before
                self._restart(lost)
                raise UserError(
                    "the saved cars do not fit this simulator, they are damaged: go on from another state"
                ) from None
        self._busy = False

    def describe_track(self, points: int) -> Array:
        """Return the centre line at equal distances, (points, len(TRACK_COLUMNS))."""
        table: list[float] = []

        def describe() -> None:
            self._worker.ask(b"T" + struct.pack("i", points))
            table[:] = self._worker.numbers()

        self._twice(describe, "measure the road")
        return np.array(table).reshape(points, len(TRACK_COLUMNS))

    def close(self) -> None:
        """End the worker."""
        self._worker.close()
        self._close_file()

    @property
    def pid(self) -> int:
        """The number of the worker's process."""
        return self._worker.pid

    def _restart(self, lost: WorkerLost) -> None:
        """Start another worker with the same cars where they were before the request that failed."""
        self._busy = True
        self.crashes.append((lost.slot, str(lost)))
        self._worker.close()
        self._worker = Worker(*self._how)
        self._connect()
        try:
            for slot, xml in self._cars.items():
                self._worker.ask(b"L" + struct.pack("i", slot) + _text(xml))
                self._worker.figures()
            self._worker.ask(b"B")
        except WorkerLost as again:
            cars = f" with {self._name(again.slot)}" if again.slot >= 0 else ""
            raise RunFailure(f"The simulator of {self._how[1].stem} cannot be started again{cars}: {again}") from None
        self._busy = False
