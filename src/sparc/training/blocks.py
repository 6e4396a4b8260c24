"""What workers send: blocks of rows, each a part of one episode. NumPy only, a worker does not load JAX.

A block brings the rows of its past along, so it can stand anywhere in the replay, whatever came before it or was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sparc.training.lanes import CLOSING, Lanes, row_dtype

__all__ = ["MOST", "RANDOM", "Block", "RowWriter", "Stream", "row_dtype"]

RANDOM = -1  # the version of random actions
MOST = 500  # transitions of a block: 58 kB of HalfCheetah, less than the 100 kB that Ray sends inline

Stream = tuple[int, int, int, int]  # session, worker, incarnation, environment: unique for ever


class Block(NamedTuple):
    """A part of one episode of one stream."""

    stream: Stream
    sequence: int  # 0, 1, 2, ... in the stream
    phase: str  # of the method, whose policy acted
    version: int  # updates when its weights were published, or RANDOM
    past: np.ndarray  # (min(H, position),) the rows before the first one; their position is CLOSING
    rows: np.ndarray  # (n + 1,) n transitions, and the row written ahead or the closing row
    ended: bool  # no more of this episode will come


class RowWriter(Lanes):
    """Collects the steps of several environments and cuts them into blocks."""

    def __init__(
        self, obs_size: int, action_size: int, context_size: int, history_length: int, streams: Sequence[Stream],
        most: int = MOST,
    ) -> None:  # fmt: skip
        """Write one stream per environment, in blocks of at most `most` transitions."""
        self._streams, self._length, self._most = list(streams), history_length, most
        num = len(self._streams)
        slots = history_length + 2 * most + 2  # two rows per step, if every episode has length 1
        super().__init__(np.zeros(num * slots, row_dtype(obs_size, action_size, context_size)), num, obs_size)
        self.steps = 0  # transitions not yet taken
        self._uncut = 0  # steps of every environment that are in no block yet
        self._past = [0] * num  # rows at the beginning of each lane that are in a block already
        self._sequence = [0] * num
        self._pending: list[Block] = []

    def add(
        self, obs: np.ndarray, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray,
        next_obs: np.ndarray, context: np.ndarray, next_context: np.ndarray,
    ) -> None:  # fmt: skip
        """Store one step of every environment; an `obs` that is not the last `next_obs` begins a new episode."""
        super().add(obs, action, reward, terminated, truncated, next_obs, context, next_context)
        self.steps += len(self._streams)
        self._uncut += 1
        if self._uncut == self._most:
            self._cut()

    def abandon(self) -> None:
        """End the episodes under way, which will not go on: the next steps begin new ones."""
        self._close(self._position > 0)

    def take(self, phase: str, version: int) -> list[Block]:
        """Return everything since the last call, which this version of the phase's policy did."""
        self._cut()
        blocks = [block._replace(phase=phase, version=version) for block in self._pending]
        self._pending, self.steps = [], 0
        return blocks

    def _cut(self) -> None:
        """Make blocks of what is in the lanes, and leave there what the next ones need of it."""
        for lane in self._lane.tolist():
            self._cut_lane(lane)
        self._uncut = 0

    def _cut_lane(self, lane: int) -> None:
        begin, head, position = self._past[lane], int(self._head[lane]), int(self._position[lane])
        raw = self._bytes[lane * self._slots : (lane + 1) * self._slots]
        rows = raw[: head + (position > 0)].copy().view(self._rows.dtype)
        for end in (begin + np.flatnonzero(rows["position"][begin:] == CLOSING)).tolist():
            if end > begin:  # else it only closes an episode whose steps are all in blocks
                past = rows[begin - min(self._length, int(rows["position"][begin])) : begin]
                past["position"] = CLOSING
                sequence, ended = self._sequence[lane], end < head
                block = Block(self._streams[lane], sequence, "", RANDOM, past, rows[begin : end + 1], ended)
                self._pending.append(block)
                self._sequence[lane] += 1
            begin = end + 1
        kept = min(self._length, position)
        raw[: kept + 1] = raw[head - kept : head + 1].copy()
        self._head[lane] = self._past[lane] = kept
