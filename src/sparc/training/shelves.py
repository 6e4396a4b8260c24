"""Lanes as shelves: blocks of any stream stand one after the other, wherever there is room.

A stream is what one environment of one worker does. It holds the shelf on which its episode under way stands. Nothing
about streams is saved: after a restart all of them are new.
"""

from __future__ import annotations

import numpy as np

from sparc.errors import RunFailure
from sparc.training.blocks import Block, Stream
from sparc.training.lanes import CLOSING, Lanes, as_bytes

# How many histories a shelf may be ahead of the lowest one that its stream could have. An episode without an end would
# fill one shelf only; the past that a stream brings along when it moves costs at most one row in so many.
AHEAD = 20


class Shelves(Lanes):
    """Lanes that also take in blocks."""

    def __init__(self, rows: np.ndarray, num_envs: int, obs_size: int, history_length: int) -> None:
        super().__init__(rows, num_envs, obs_size)
        self._length = history_length
        self._step, self._shared = AHEAD * history_length, 0
        self._largest = 0  # rows that a block has taken at most
        self._forget_streams()

    def _forget_streams(self) -> None:
        self._held: dict[Stream, int] = {}
        self._holder: list[Stream | None] = [None] * len(self._lane)  # of each shelf
        self._taken = np.zeros(len(self._lane), bool)  # whether it has one
        self._newest: dict[Stream, int] = {}  # the number of each stream's last block

    @property
    def total(self) -> int:
        """Return the number of transitions ever taken in."""
        return int(self._count.sum())

    def add(
        self, obs: np.ndarray, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray,
        next_obs: np.ndarray, context: np.ndarray, next_context: np.ndarray,
    ) -> None:  # fmt: skip
        """Store one step of every environment; an `obs` that is not the last `next_obs` begins a new episode."""
        if self._held:
            self.release(())
        super().add(obs, action, reward, terminated, truncated, next_obs, context, next_context)

    def put(self, block: Block) -> int:
        """Take in a block and return its number of transitions, 0 if it or a later one of its stream was here."""
        stream, sequence, n = block.stream, block.sequence, len(block.rows) - 1
        position = self._check(block)
        before = self._newest.get(stream, -1)
        if sequence <= before:
            return 0
        lane = self._find_shelf(stream, position if sequence == before + 1 else CLOSING)
        continues, head = stream in self._held, int(self._head[lane])
        parts = [block.rows] if continues else [block.past, block.rows]
        rows = np.concatenate([as_bytes(part) for part in parts]).view(self._rows.dtype)
        past = len(rows) - n - 1
        rows["count"] = self._count[lane]
        rows["count"][past:] += np.arange(n + 1, dtype=np.int32)
        self._write(lane, head, as_bytes(rows))
        self._head[lane] += past + n + block.ended
        self._count[lane] += n
        self._position[lane] = 0 if block.ended else position + n
        self._newest[stream] = sequence
        self._hold(lane, None if block.ended else stream)
        self._largest = max(self._largest, len(rows) + 1)
        self._commit(lane)
        return n

    def _commit(self, lane: int) -> None:
        """Note that a lane's rows up to here are all there, where such notes are kept."""

    def release(self, prefix: tuple[int, ...]) -> None:
        """End the episodes of the streams whose numbers begin so, which are gone: others may have their shelves."""
        for stream, lane in list(self._held.items()):
            if stream[: len(prefix)] == prefix:
                self._free(lane)

    def _check(self, block: Block) -> int:
        """Return the position of the first row of a block that fits."""
        past, rows = block.past, block.rows
        if not rows.dtype == past.dtype == self._rows.dtype:
            wrong = f"{rows.dtype.itemsize} bytes per row instead of {self._rows.dtype.itemsize}, or other fields"
        elif rows.ndim != 1 or len(rows) < 2:
            wrong = f"rows of shape {rows.shape}, at least 2 are needed"
        else:
            position, n = int(rows["position"][0]), len(rows) - 1
            chain = np.arange(position, position + n + 1)
            chain[-1] = CLOSING
            if position >= 0 and (rows["position"] == chain).all():
                if len(past) == min(self._length, position) and (past["position"] == CLOSING).all():
                    return position
                wrong = f"{len(past)} rows of past instead of {min(self._length, position)}"
            else:
                wrong = "positions that are not those of one episode"
        raise RunFailure(
            f"replay: a block of stream {block.stream} has {wrong}; give its worker the learner's version."
        )

    def _find_shelf(self, stream: Stream, position: int) -> int:
        """Return the shelf for a block that begins at this position: the stream's own if the block continues it.

        Else it is the lowest that no stream holds, or one that many share; no episode is under way there then.
        """
        own, free = self._held.get(stream), self._lowest_free()
        if own is not None:
            level = free is None or self._head[own] - self._head[free] <= self._step
            if position == self._position[own] and level:
                return own
            self._free(own)
            free = self._lowest_free()
        lane = self._find_shared() if free is None else free
        self._free(lane)
        return lane

    def _lowest_free(self) -> int | None:
        """Return the shelf with the fewest rows of those that no stream holds."""
        if len(self._held) == len(self._lane):
            return None
        return int(np.where(self._taken, np.iinfo(np.int64).max, self._head).argmin())

    def _find_shared(self) -> int:
        """Return the shelf for streams that find none: always the same for a while, so that the others keep theirs."""
        if self._head[self._shared] - self._head.min() > self._step:
            self._shared = int(self._head.argmin())
        return self._shared

    def _free(self, lane: int) -> None:
        """End the episode under way on a shelf, whoever holds it."""
        self._hold(lane, None)
        if self._position[lane]:
            self._close(self._lane[lane : lane + 1])

    def _hold(self, lane: int, stream: Stream | None) -> None:
        holder = self._holder[lane]
        if holder is not None:
            del self._held[holder]
        if stream is not None:
            self._held[stream] = lane
        self._holder[lane], self._taken[lane] = stream, stream is not None

    def _write(self, lane: int, row: int, new: np.ndarray) -> None:
        """Copy rows to a lane, which may go on at the ring's beginning."""
        while len(new):
            slot = row % self._slots
            fits = min(len(new), self._slots - slot)
            at = lane * self._slots + slot
            self._bytes[at : at + fits] = new[:fits]
            row, new = row + fits, new[fits:]
