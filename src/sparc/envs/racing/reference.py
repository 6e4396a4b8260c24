"""The built-in AI's flying lap for a car on a track, and a store of them.

A lap is kept under a key made of everything it depends on: the car as TORCS is told it, the track's own files, TORCS,
its driver and our worker. Another physics, car or track has another key; nothing has to be thrown away.
"""

from __future__ import annotations

import hashlib
import itertools
import sqlite3
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparc.envs.contextual import ProgressCall
from sparc.envs.racing.cars.description import name_in
from sparc.envs.racing.torcs.installation import DRIVER, Installation, cache_folder, find_torcs
from sparc.envs.racing.torcs.simulator import Laps, Worker, WorkerLost
from sparc.envs.racing.tracks import Track
from sparc.errors import RunFailure
from sparc.machine import usable_cores

NUMBER = 3  # of DRIVER's: the same run gives the same lap: it learns nothing on the way
LAPS = 2  # the second one is the flying lap
SLOWEST = 8.0  # m/s on average: a driver slower than this has not finished
TRIES = 3  # one heap error in thousands of laps was seen in TORCS's drivers
_crashes = itertools.count(1)


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


def race_safely(torcs: Installation, track: Track, xml: str) -> Laps:
    """Let the AI race, again where TORCS's driver crashes; a warning tells of each time."""
    where = f"in {name_in(xml)} on {track.name}"
    for attempt in range(1, TRIES + 1):
        try:
            return race_reference(torcs, track, xml)
        except WorkerLost as lost:
            if attempt == TRIES:
                raise RunFailure(f"TORCS's driver {DRIVER} crashes {where}, {TRIES} times of {TRIES}: {lost}") from None
            told = f"TORCS's driver {DRIVER} crashed {where} ({lost}); it races again"
            warnings.warn(f"{told} (crash {next(_crashes)} of this process)", stacklevel=2)
    raise AssertionError


def find_references(
    track: Track, cars: Sequence[str], progress: ProgressCall | None = None, processes: int | None = None
) -> list[Reference]:
    """Return the AI's flying lap in each of these cars, from the store where it is known."""
    torcs = find_torcs()
    keys = _keys(torcs, track, cars)
    with _opened_store() as store:
        known = _read(store, keys)
        missing = {key: xml for key, xml in zip(keys, cars, strict=True) if key not in known}
        if progress and missing:
            progress(0, len(missing))
        with ThreadPoolExecutor(processes or usable_cores()) as pool:
            try:
                laps = pool.map(lambda xml: _flying_lap(torcs, track, xml), missing.values())
                for done, (key, reference) in enumerate(zip(missing, laps, strict=True), start=1):
                    known[key] = reference
                    row = (key, track.name, reference.time, reference.off, reference.wall, reference.damage)
                    with store:
                        store.execute("INSERT OR REPLACE INTO laps VALUES (?, ?, ?, ?, ?, ?)", row)
                    if progress:
                        progress(done, len(missing))
            except BaseException:  # Ctrl-C too: no lap is begun that nobody waits for
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return [known[key] for key in keys]


def count_kept(track: Track, cars: Sequence[str]) -> int:
    """Count the cars whose lap is in the store already."""
    keys = _keys(find_torcs(), track, cars)
    with _opened_store() as store:
        known = _read(store, keys)
    return sum(key in known for key in keys)


def _flying_lap(torcs: Installation, track: Track, xml: str) -> Reference:
    laps = race_safely(torcs, track, xml)
    if len(laps.times) < LAPS:
        return Reference(float("nan"), float("nan"), float("nan"), float("nan"))
    damage = float(np.diff(laps.damage, prepend=0.0)[-1])
    return Reference(float(laps.times[-1]), float(laps.off[-1]), float(laps.wall[-1]), damage)


def store_path() -> Path:
    """Return the file that laps are kept in."""
    return cache_folder() / "laps.sqlite"


def _keys(torcs: Installation, track: Track, cars: Sequence[str]) -> list[str]:
    track.check()
    road = _road(torcs, track)
    return [hashlib.sha256((road + xml).encode()).hexdigest() for xml in cars]


def _road(torcs: Installation, track: Track) -> str:
    """Return a key for everything that laps depend on besides the car."""
    digest = hashlib.sha256(f"{torcs.version} {DRIVER} {NUMBER} {LAPS}".encode())
    for file in (*track.files(), torcs.libraries / f"drivers/{DRIVER}/{DRIVER}.so"):
        digest.update(file.read_bytes())
    return digest.hexdigest()


@contextmanager
def _opened_store() -> Iterator[sqlite3.Connection]:
    """Open the store, and explain what goes wrong with it."""
    try:
        with closing(_open_store()) as store:
            yield store
    except sqlite3.OperationalError as error:  # locked, not ours to write, no space
        raise RunFailure(f"cannot use the store of reference laps {store_path()}: {error}") from None
    except sqlite3.DatabaseError as error:
        raise RunFailure(
            f"the store of reference laps is damaged ({error}): delete {store_path()}, run again"
        ) from None


def _open_store() -> sqlite3.Connection:
    path = store_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFailure(f"cannot make {path.parent} for the store of reference laps: {error}") from None
    return sqlite3.connect(path, timeout=60.0)


def _read(store: sqlite3.Connection, keys: Sequence[str]) -> dict[str, Reference]:
    columns = "key TEXT PRIMARY KEY, track TEXT, time REAL, off REAL, wall REAL, damage REAL"
    store.execute(f"CREATE TABLE IF NOT EXISTS laps ({columns})")
    known = {}
    for first in range(0, len(keys), 500):
        part = keys[first : first + 500]
        marks = ",".join("?" * len(part))
        for key, *lap in store.execute(f"SELECT key, time, off, wall, damage FROM laps WHERE key IN ({marks})", part):
            known[key] = Reference(*(float("nan") if value is None else value for value in lap))
    return known
