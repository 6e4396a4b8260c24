"""Each step stored once, in lanes of rows; histories and n-step returns are cut when a batch is drawn.

The newest `capacity // num_envs` rows of a lane before its `head` may be sampled (closing rows take room, but are not
transitions). `add` stores one step of every environment, each in its own lane. `put` takes in a block from a worker: a
lane is then a shelf, on which the episodes of any stream may stand one after the other. A block that does not continue
what stands there brings the rows of its past, which no one samples but through which histories are cut:

    ... (o, a, r) (o, a, r) (o, -, -) (o, a, r) (o, a, r) (o, a, r) (o, a, r) [o, -, -]
                            closing   past, position -1   the block's rows    written ahead
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np

from sparc.acting.history import window_index
from sparc.errors import RunFailure, UserError, cannot_write
from sparc.files import beside
from sparc.methods.batch import Batch
from sparc.training.blocks import Block
from sparc.training.commits import Commits, run_of
from sparc.training.lanes import CLOSING, as_bytes, row_dtype
from sparc.training.row_sums import RowSums, sum_each
from sparc.training.shelves import Shelves


class Replay(Shelves):
    """The newest steps of several environments, in memory or in a memory-mapped file."""

    def __init__(
        self, path: Path | None, *, capacity: int, num_envs: int, obs_size: int, action_size: int, context_size: int,
        history_length: int, n_step: int, discount: float, margin: int = 0,
    ) -> None:  # fmt: skip
        """Create or open the rows under `path`; a cursor stays valid for at least `margin` further calls of `add`."""
        if min(num_envs, n_step, history_length) < 1 or margin < 0:
            raise UserError("replay: num_envs, n_step and history_length must be at least 1, and margin at least 0.")
        if capacity < 2 * num_envs:  # of a lane's newest two rows, one is a transition; the newest alone may be closing
            raise UserError(
                f"replay: capacity {capacity} is too small for {num_envs} environments, use {2 * num_envs}."
            )
        self._obs_size, self._n = obs_size, n_step
        self._powers = np.float32(discount) ** np.arange(n_step + 1, dtype=np.float32)
        self._window = capacity // num_envs
        # Beyond the window: the oldest row's history, the row written ahead, and what `margin` further steps may write,
        # which is two rows each if every episode has length 1.
        slots = self._window + history_length + 1 + 2 * margin
        row = row_dtype(obs_size, action_size, context_size)
        self.bytes_per_step = float(row.itemsize)
        self._file = None if path is None else _open_rows(Path(path) / "rows.npy", row, (num_envs, slots))
        rows = np.zeros(num_envs * slots, row) if self._file is None else np.asarray(self._file).reshape(-1)
        super().__init__(rows, num_envs, obs_size, history_length)
        self._sums = RowSums(self._rows, num_envs, self._slots)
        self._floor = np.zeros(num_envs, np.int64)
        self._margin, self._saved = margin, self._head.copy()
        self._commits = None if path is None else Commits(Path(path) / "commits", num_envs, 5)
        self._stale = self._commits is not None  # commits may be of rows that are overwritten from now on

    def add(
        self, obs: np.ndarray, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray,
        next_obs: np.ndarray, context: np.ndarray, next_context: np.ndarray,
    ) -> None:  # fmt: skip
        """Store one step of every environment; an `obs` that is not the last `next_obs` begins a new episode."""
        if self._stale:
            self._forget_commits()
        super().add(obs, action, reward, terminated, truncated, next_obs, context, next_context)

    def put(self, block: Block) -> int:
        """Take in a block and return its number of transitions, 0 if it or a later one of its stream was here."""
        if self._stale:
            self._forget_commits()
        return super().put(block)

    @property
    def most(self) -> int:
        """Return how many transitions a block may have so that the newest two cursors stay valid, see `must_save`."""
        return max(1, self._margin // 2 - self._length - 2)

    @property
    def must_save(self) -> bool:
        """Return whether another block could use up half of a lane's margin since the last cursor.

        If a run saves whenever that is so after a `put`, its newest two checkpoints can be resumed from.
        """
        return bool((self._head - self._saved).max() + self._largest > self._margin)

    def roll_forward(self) -> int:
        """Go on from the cursor sought to the last block that was taken in; return the transitions that this adds.

        Stay at the cursor if the rows are not all there, as after a power cut, or if `clear` was called in between.
        """
        found = None if self._commits is None else self._commits.read()
        if found is None:
            return 0
        newer = found[:, 0] > self._head
        now = np.stack([self._head, self._count, self._position, self._floor, np.zeros_like(self._head)], axis=1)
        head, count, position, floor, ahead = np.where(newer[:, None], found, now).T.copy()
        whole = all(self._is_chain(lane, head, count, position) for lane in np.flatnonzero(newer).tolist())
        same = (self._sum_ahead(head, position) == ahead) | ~newer
        if not whole or not same.all() or not np.array_equal(floor, self._floor):
            return 0
        added = int(count.sum()) - self.total
        self._head, self._count, self._position, self._stale = head, count, position, False
        return added

    def _commit(self, lane: int) -> None:
        if self._commits is not None:
            head, position = int(self._head[lane]), int(self._position[lane])
            ahead = zlib.crc32(self._known[lane * self._slots + head % self._slots].tobytes()) if position else 0
            self._commits.write(lane, head, int(self._count[lane]), position, int(self._floor[lane]), ahead)

    def _forget_commits(self) -> None:
        """Remove commits of rows that are about to be overwritten."""
        if self._commits is not None:
            self._commits.drop()
        self._stale = False

    def _is_chain(self, lane: int, head: np.ndarray, count: np.ndarray, position: np.ndarray) -> bool:
        """Return whether a lane has all rows that a cursor at `head` needs: each counts on from the one before."""
        at = self._at(self._lane[lane : lane + 1], np.arange(self._needed(head)[lane], head[lane]))
        counts, positions = self._rows["count"][at], self._rows["position"][at]
        after = counts + (positions != CLOSING)
        last = position[lane] - 1 if position[lane] else CLOSING
        return bool((counts[1:] == after[:-1]).all() and after[-1] == count[lane] and positions[-1] == last)

    def sample(
        self, rng: np.random.Generator, shape: tuple[int, ...], *, history: bool | int, next_history: bool
    ) -> Batch:
        """Draw transitions uniformly, with replacement, from all that may be sampled.

        Histories are cut for all of them, for none, or only for the first so many along the last axis.
        """
        return self._cut(self._draw(rng, shape), history=history, next_history=next_history)

    def sample_bands(
        self, rng: np.random.Generator, edges: tuple[int, ...], count: int, draws: int
    ) -> tuple[Batch, np.ndarray]:
        """Return transitions with histories from each band of episode positions, and these positions, (bands · count,).

        A band begins at an edge and ends at the next. Of so many draws, each gets the first `count` that are in it. The
        rows that are missing are filled up with others, of the position CLOSING.
        """
        pick = self._draw(rng, (draws,))
        position = self._rows["position"][self._at(*self._locate(pick))]
        band = np.searchsorted(edges, position, side="right") - 1
        chosen = np.concatenate([np.flatnonzero(band == number)[:count] for number in range(len(edges))])
        missing = len(edges) * count - len(chosen)
        position = np.pad(position[chosen], (0, missing), constant_values=CLOSING)
        return self._cut(np.pad(pick[chosen], (0, missing), mode="edge"), history=True, next_history=False), position

    @property
    def size(self) -> int:
        """Return the number of transitions that may be sampled."""
        oldest = self._oldest()
        before = self._rows["count"][self._at(self._lane, oldest)]
        return int(np.where(oldest < self._head, self._count - before, 0).sum())

    def cursor(self) -> dict[str, np.ndarray]:
        """Return what `seek` needs to come back to exactly this state."""
        self._saved = self._head.copy()
        now = {"head": self._head, "count": self._count, "position": self._position, "floor": self._floor}
        return {name: array.copy() for name, array in now.items()} | {
            "reach": self._reach(self._head),
            "sums": self._sums.take(self._needed(self._head), self._head),
            "ahead": self._sum_ahead(self._head, self._position),
        }

    def seek(self, cursor: Mapping[str, np.ndarray | int]) -> None:
        """Restore what may be sampled, and where the next row goes, as of an earlier `cursor`."""
        head, count, position, floor, reach = (
            np.array(cursor[name], np.int64) for name in ("head", "count", "position", "floor", "reach")
        )
        where = "memory" if self._file is None else self._file.filename
        if head.shape != self._head.shape or not np.array_equal(reach, self._reach(head)):
            raise RunFailure(f"replay: {where} does not hold (all of) this checkpoint's rows; resume from a newer one.")
        if "sums" in cursor:  # older checkpoints have none
            self._sums.forget()
            sums = self._sums.take(self._needed(head), head)
            wrong = (sums != cursor["sums"]).any(axis=1) | (self._sum_ahead(head, position) != cursor["ahead"])
            if wrong.any():
                row = np.flatnonzero(wrong)[0]
                raise RunFailure(f"replay: {where} is damaged, rows of environment {row} are not what they were.")
        self._head, self._count, self._position, self._floor = head, count, position, floor
        self._forget_streams()
        self._saved, self._stale = head.copy(), self._commits is not None

    def take_over(self, other: Replay) -> None:
        """Copy all that may be sampled from a replay with another number of lanes; this one must be empty.

        Every lane gets an equal share, which is a stretch of a lane there, or several one after the other. It costs up
        to H + 1 rows per stretch, and in a full replay as many transitions. A stretch is overwritten as a whole,
        whatever its age.
        """
        self._forget_commits()
        lanes, ends = len(self._lane), np.cumsum(other._head - other._oldest())
        self._count += (other.total - other.size) // lanes  # those that are no longer there count too
        self._count[0] += (other.total - other.size) % lanes
        share = max(1, -(-int(ends[-1]) // lanes))
        edges = sorted({*range(0, int(ends[-1]), share), *ends.tolist()} | {0})
        for begin, end in pairwise(edges):
            lane, row = other._locate(np.array([begin]))
            rows = other._stretch(lane, int(row[0]), int(row[0]) + end - begin)
            self._append(begin // share, rows)

    def _stretch(self, lane: np.ndarray, begin: int, end: int) -> np.ndarray:
        """Return a lane's transitions between two rows, with the past of the first and a closing row at the end."""
        live = np.flatnonzero(self._rows["position"][self._at(lane, np.arange(begin, end))] != CLOSING)
        if not len(live):
            return self._rows[:0]
        begin, end = begin + int(live[0]), begin + int(live[-1]) + 1
        past = min(self._length, int(self._rows["position"][self._at(lane, np.array([begin]))][0]))
        rows = self._rows[self._at(lane, np.arange(begin - past, end + 1))]
        rows["position"][:past] = rows["position"][-1] = CLOSING
        return rows

    def _append(self, lane: int, rows: np.ndarray) -> None:
        """Append episodes that are all over to a lane."""
        live = rows["position"] != CLOSING
        rows["count"] = self._count[lane] + np.cumsum(live) - live
        self._write(lane, int(self._head[lane]), as_bytes(rows))
        self._head[lane] += len(rows)
        self._count[lane] += live.sum()

    def flush(self) -> None:
        """Write what is still only in memory to disk."""
        if self._file is not None:
            self._file.flush()

    def clear(self) -> None:
        """Forget all transitions; older cursors stay valid within the margin, as rows go on behind the old ones."""
        self._floor = self._head.copy()

    def _oldest(self) -> np.ndarray:
        return np.maximum(self._floor, self._head - self._window)

    def _needed(self, head: np.ndarray) -> np.ndarray:
        """Return the oldest row that a cursor at `head` needs, with its history."""
        return np.maximum(0, head - self._window - self._length)

    def _sum_ahead(self, head: np.ndarray, position: np.ndarray) -> np.ndarray:
        """Return checksums of what the rows written ahead hold, which the next step repeats; 0 where there is none."""
        return np.where(position > 0, sum_each(self._known[self._at(self._lane, head)]), 0).astype(np.uint32)

    def _reach(self, head: np.ndarray) -> np.ndarray:
        """Return a fingerprint (2, num_envs): the counts in the oldest and newest row that a cursor at `head` needs."""
        ends = np.stack([self._needed(head), np.maximum(0, head - 1)])
        return np.where(head > 0, self._rows["count"][self._at(self._lane, ends)], 0).astype(np.int64)

    def _draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Draw numbers of rows, see `_locate`, from all that may be sampled."""
        if not self.size:
            raise RunFailure("replay: nothing to sample yet, add a step first.")
        total = (self._head - self._oldest()).sum()
        pick = rng.integers(total, size=shape)
        while (closing := self._is_closing(pick)).any():
            pick[closing] = rng.integers(total, size=closing.sum())
        return pick

    def _locate(self, pick: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Number the rows of all windows one after the other; return lane and row of these numbers."""
        ends = np.cumsum(self._head - self._oldest())
        lane = np.searchsorted(ends, pick, side="right")
        return lane, pick - ends[lane] + self._head[lane]

    def _is_closing(self, pick: np.ndarray) -> np.ndarray:
        return self._rows["position"][self._at(*self._locate(pick))] == CLOSING

    def _cut(self, pick: np.ndarray, *, history: bool | int, next_history: bool) -> Batch:
        """Build the transitions that begin at the picked rows."""
        lane, t = self._locate(pick)
        steps = np.arange(self._n)
        rows = self._rows.take(self._at(lane[..., None], t[..., None] + steps))  # (..., n)
        first, position = rows[..., 0], rows["position"][..., 0]
        # Positions count up through an episode, a closing row breaks the chain, and from head on nothing is stored yet.
        alive = (rows["position"] == position[..., None] + steps) & (t[..., None] + steps < self._head[lane][..., None])
        # After a lost block, the rows behind the closing row and the past may be in step with the chain again.
        np.logical_and.accumulate(alive, axis=-1, out=alive)
        k = alive.sum(axis=-1)
        ended = np.take_along_axis(rows["terminated"], k[..., None] - 1, axis=-1)[..., 0] != 0
        end = self._rows.take(self._at(lane, t + k))
        cut = slice(None) if history is True else slice(history)
        return Batch(
            obs=first["step"][..., : self._obs_size],
            action=first["step"][..., self._obs_size :],
            reward=np.where(alive, rows["reward"] * self._powers[:-1], 0).sum(axis=-1, dtype=np.float32),
            discount=np.where(ended, np.float32(0), self._powers[k]),
            next_obs=end["step"][..., : self._obs_size],
            context=first["context"],
            next_context=end["context"],
            history=self._windows(lane[..., cut], t[..., cut], position[..., cut]) if history else None,
            next_history=self._windows(lane, t + k, position + k) if next_history else None,
        )

    def _windows(self, lane: np.ndarray, t: np.ndarray, position: np.ndarray) -> np.ndarray:
        offsets, valid = window_index(position, self._length)
        slot = (t % self._slots)[..., None] + offsets
        slot += self._slots * (slot < 0)  # several times faster than % on all of them
        windows = self._rows["step"][(lane * self._slots)[..., None] + slot]  # (..., H, O+A)
        windows[~valid] = 0
        return windows


def _open_rows(file: Path, row: np.dtype, shape: tuple[int, int]) -> np.memmap:
    """Open the file of rows, or create it with its space on the disk reserved."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside(file) as new:
                np.lib.format.open_memmap(new, mode="w+", dtype=row, shape=shape)
                reserve(new)
        except OSError as error:
            how = f"`sparc resume {run_of(file)}`, or train anew with a smaller replay_capacity"
            raise cannot_write(file, error, how, shape[0] * shape[1] * row.itemsize) from error
    try:
        rows = np.lib.format.open_memmap(file, mode="r")  # "r+" would lengthen a file that was cut short
        intact = rows.dtype == row and rows.shape == shape and file.stat().st_size == rows.offset + rows.nbytes
    except Exception:  # NumPy reads the header as Python's source, and raises whatever that does
        intact = False
    if not intact:
        raise RunFailure(
            f"{file} is damaged or of another size than {shape[0]} x {shape[1]} rows of {row.itemsize} bytes; "
            "resume with the settings it was made with, or delete it and start a new run."
        )
    return np.lib.format.open_memmap(file, mode="r+")


def reserve(file: Path) -> None:
    """Allocate a file's space on disk: a hole in it would make a full disk a SIGBUS at some later write."""
    size = file.stat().st_size
    with file.open("r+b") as f:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(f.fileno(), 0, size)
            return
        for start in range(0, size, 1 << 20):  # macOS has no such call: write what is there
            f.seek(start)
            block = f.read(1 << 20)
            f.seek(start)
            f.write(block)
