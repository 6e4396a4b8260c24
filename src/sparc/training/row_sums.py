"""Checksums of the replay's rows, segment by segment, so that a flipped bit is noticed when a run is resumed.

The rows of a lane are numbered for ever and never change once they are before the head, so a segment of SEGMENT of them
is read once, when it is full. The two that are not, at the head and at the oldest row that may still be needed, are
read at every checkpoint.
"""

from __future__ import annotations

import zlib

import numpy as np

SEGMENT = 512  # rows


class RowSums:
    """CRC-32 of the rows of every lane; `rows` is the ring, (lanes · slots,)."""

    def __init__(self, rows: np.ndarray, lanes: int, slots: int):
        self._bytes, self._size, self._lanes, self._slots = rows.view(np.uint8).data, rows.itemsize, lanes, slots
        self._full: list[dict[int, int]] = [{} for _ in range(lanes)]  # by lane: full segment → its checksum

    def take(self, oldest: np.ndarray, head: np.ndarray) -> np.ndarray:
        """Return the checksums (lanes, segments) of the rows from `oldest` to before `head`; rows of 0 fill up."""
        found = [self._of_lane(lane, int(oldest[lane]), int(head[lane])) for lane in range(self._lanes)]
        sums = np.zeros((self._lanes, max(map(len, found))), np.uint32)
        for lane, values in enumerate(found):
            sums[lane, : len(values)] = values
        return sums

    def forget(self) -> None:
        """Read every row anew the next time: those of the file may not be what this process wrote."""
        for full in self._full:
            full.clear()

    def _of_lane(self, lane: int, oldest: int, head: int) -> list[int]:
        full, sums, before = self._full[lane], [], oldest // SEGMENT
        for old in [number for number in full if number < before]:
            del full[old]
        for number in range(before, -(-head // SEGMENT)):
            begin, end = number * SEGMENT, (number + 1) * SEGMENT
            if begin < oldest or end > head:
                sums.append(self._sum(lane, max(begin, oldest), min(end, head)))
                continue
            if number not in full:
                full[number] = self._sum(lane, begin, end)
            sums.append(full[number])
        return sums

    def _sum(self, lane: int, begin: int, end: int) -> int:
        """Return the checksum of a lane's rows, which may go on at the ring's beginning."""
        value = 0
        while begin < end:
            slot = begin % self._slots
            count = min(end - begin, self._slots - slot)
            at = lane * self._slots + slot
            value = zlib.crc32(self._bytes[at * self._size : (at + count) * self._size], value)
            begin += count
        return value


def sum_each(rows: np.ndarray) -> np.ndarray:
    """Return the checksum of each row of an array."""
    return np.array([zlib.crc32(row.tobytes()) for row in rows], np.uint32)
