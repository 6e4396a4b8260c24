"""A field of cars, each alone on the same track, simulated by as many worker processes as are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sparc.arrays import Array, Flags
from sparc.envs.racing.course import SPACING, Course
from sparc.envs.racing.torcs.columns import STATE
from sparc.envs.racing.torcs.installation import find_torcs
from sparc.envs.racing.torcs.simulator import Simulator
from sparc.envs.racing.tracks import Track


class Field:
    """N cars on N private copies of a track."""

    def __init__(self, track: Track, cars: int, processes: int = 1) -> None:
        torcs = find_torcs()
        track.check()
        edges = np.linspace(0, cars, min(processes, cars) + 1).astype(int).tolist()
        self._parts = [
            (slice(first, last), Simulator(torcs, track.file, last - first)) for first, last in pairwise(edges)
        ]
        self._home = [(part, row - rows.start) for rows, part in self._parts for row in range(rows.start, rows.stop)]
        self.states = np.zeros((cars, len(STATE)))
        first = self._parts[0][1]
        self.course = Course(first.length, first.describe_track(round(first.length / SPACING)))

    def start(self, rows: Sequence[int], cars: Sequence[str], places: Array) -> None:
        """Put cars, given as TORCS's XML, on the road at places as in Simulator.reset."""
        for row, xml in zip(rows, cars, strict=True):
            part, slot = self._home[row]
            if part.car_in(slot) != xml:
                part.load(slot, xml)
        for part in {id(self._home[row][0]): self._home[row][0] for row in rows}.values():
            mine = [k for k, row in enumerate(rows) if self._home[row][0] is part]
            part.reset([self._home[rows[k]][1] for k in mine], places[mine])
        self._gather()

    def exchange(self, row: int, xml: str) -> None:
        """Let a driver go on in another car."""
        part, slot = self._home[row]
        part.exchange(slot, xml)

    def step(self, actions: Array, chosen: Flags) -> Flags:
        """LapPair the chosen cars for a tenth of a second, in all processes at once; give which broke the simulator."""
        for rows, part in self._parts:
            part.begin(actions[rows], chosen[rows])
        broken = np.concatenate([part.finish() for _, part in self._parts])
        self._gather()
        return broken

    def snapshots(self) -> NDArray[np.uint8]:
        """Return the cars as they are, (N, bytes)."""
        return np.concatenate([part.snapshots() for _, part in self._parts])

    def restore(self, cars: Sequence[str], snapshots: NDArray[np.uint8]) -> None:
        """Put all cars back as they were."""
        for row, xml in enumerate(cars):
            part, slot = self._home[row]
            if part.car_in(slot) != xml:
                part.load(slot, xml)
        for rows, part in self._parts:
            part.restore(snapshots[rows])
        self._gather()

    def take_crashes(self) -> list[tuple[int, str]]:
        """Return the workers lost since the last call: the row whose turn it was (-1: none) and what happened."""
        crashes = []
        for rows, part in self._parts:
            crashes += [(rows.start + slot if slot >= 0 else -1, what) for slot, what in part.crashes]
            part.crashes.clear()
        return crashes

    @property
    def pids(self) -> list[int]:
        """The worker processes."""
        return [part.pid for _, part in self._parts]

    @property
    def snapshot_size(self) -> int:
        """Bytes per car."""
        return self._parts[0][1].snapshot_size

    def close(self) -> None:
        """End the worker processes."""
        for _, part in self._parts:
            part.close()

    def _gather(self) -> None:
        for rows, part in self._parts:
            self.states[rows] = part.states
