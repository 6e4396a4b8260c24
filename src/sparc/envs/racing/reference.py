"""The built-in AI's flying lap for a car on a track, and a store of them.

A lap is kept under a key made of everything it depends on: the car as TORCS is told it, the track's own file, TORCS and
our worker. Another physics, car or track has another key; nothing has to be thrown away.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparc.envs.racing.install import Installation, cache_folder, find_torcs
from sparc.envs.racing.simulator import Laps, Worker, WorkerLost
from sparc.envs.racing.tracks import Track
from sparc.errors import RunFailure

DRIVER, NUMBER = "inferno", 3  # the same run gives the same lap: it learns nothing on the way
LAPS = 2  # the second one is the flying lap
SLOWEST = 8.0  # m/s on average: a driver slower than this has not finished
TRIES = 3  # one heap error in thousands of laps was seen in TORCS's drivers

ProgressCall = Callable[[int, int], None]


@dataclass(frozen=True)
class Reference:
    """A flying lap of the built-in AI."""

    time: float  # s; NaN: it did not come round
    off: float  # s with three or more wheels out
    wall: float  # s in contact with a wall
    damage: float  # points


def race_reference(torcs: Installation, track: Track, xml: str) -> Laps:
    """Let the AI race, in a process of its own."""
    worker = Worker(torcs, track.file, 1)
    try:
        return worker.race(xml, DRIVER, NUMBER, LAPS, False, LAPS * worker.length / SLOWEST)
    finally:
        worker.close()


def find_references(
    track: Track, cars: Sequence[str], progress: ProgressCall | None = None, processes: int | None = None
) -> list[Reference]:
    """Give the AI's flying lap in each of these cars, from the store where it is known."""
    from sparc.runs import usable_cores

    torcs = find_torcs()
    track.check()
    road = hashlib.sha256(track.file.read_bytes() + torcs.version.encode()).hexdigest()
    keys = [hashlib.sha256((road + xml).encode()).hexdigest() for xml in cars]
    with closing(_open_store()) as store:
        known = _read(store, keys)
        missing = {key: xml for key, xml in zip(keys, cars, strict=True) if key not in known}
        done = 0
        if progress and missing:
            progress(0, len(missing))
        with ThreadPoolExecutor(processes or usable_cores()) as pool:
            laps = pool.map(lambda xml: _race_safely(torcs, track, xml), missing.values())
            for key, reference in zip(missing, laps, strict=True):
                known[key] = reference
                row = (key, track.name, reference.time, reference.off, reference.wall, reference.damage)
                with store:
                    store.execute("INSERT OR REPLACE INTO laps VALUES (?, ?, ?, ?, ?, ?)", row)
                done += 1
                if progress:
                    progress(done, len(missing))
    return [known[key] for key in keys]


def _race_safely(torcs: Installation, track: Track, xml: str) -> Reference:
    for attempt in range(TRIES):
        try:
            laps = race_reference(torcs, track, xml)
        except WorkerLost as lost:
            if attempt == TRIES - 1:
                raise RunFailure(f"TORCS's driver {DRIVER} crashes on {track.name}: {lost}") from None
            continue
        if len(laps.times) < LAPS:
            return Reference(float("nan"), float("nan"), float("nan"), float("nan"))
        damage = float(np.diff(laps.damage, prepend=0.0)[-1])
        return Reference(float(laps.times[-1]), float(laps.off[-1]), float(laps.wall[-1]), damage)
    raise AssertionError


def store_path() -> Path:
    """Give the file that laps are kept in."""
    return cache_folder() / "laps.sqlite"


def _open_store() -> sqlite3.Connection:
    path = store_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        store = sqlite3.connect(path, timeout=60.0)
        columns = "key TEXT PRIMARY KEY, track TEXT, time REAL, off REAL, wall REAL, damage REAL"
        store.execute(f"CREATE TABLE IF NOT EXISTS laps ({columns})")
    except sqlite3.DatabaseError as error:
        raise RunFailure(f"the store of reference laps is damaged ({error}): delete {path} and run again") from None
    return store


def _read(store: sqlite3.Connection, keys: Sequence[str]) -> dict[str, Reference]:
    known = {}
    for first in range(0, len(keys), 500):
        part = keys[first : first + 500]
        marks = ",".join("?" * len(part))
        for key, *lap in store.execute(f"SELECT key, time, off, wall, damage FROM laps WHERE key IN ({marks})", part):
            known[key] = Reference(*(float("nan") if value is None else value for value in lap))
    return known
