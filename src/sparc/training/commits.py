"""How far the replay's rows are written, noted after each block, so that a resumed run loses none that it took in.

The file is mapped into memory: what was written survives the end of the process, however it ends. Two notes take turns,
each with its number and a checksum, so that one is whole even if the process is killed while it writes the other.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np

from sparc.errors import cannot_write
from sparc.files import beside, sync


class Commits:
    """A file that holds the newest note, which is so many integers."""

    def __init__(self, file: Path, integers: int) -> None:
        self._file, self._size = file, 2 + integers
        self._notes: np.ndarray | None = None  # (2, size) int64: each is a checksum, a number, the integers
        self._number = 0  # of the newest note

    def write(self, *integers: np.ndarray | list[int]) -> None:
        """Note these integers."""
        notes = self._open() if self._notes is None else self._notes
        self._number += 1
        note = np.concatenate([[0, self._number], *integers])
        note[0] = zlib.crc32(note[1:].data)
        notes[self._number % 2] = note

    def read(self) -> np.ndarray | None:
        """Return the integers of the newest note that is whole; None if there is none, or none of this size."""
        try:
            notes = np.fromfile(self._file, np.int64)
        except OSError:
            return None
        if notes.size != 2 * self._size:
            return None
        whole = [note for note in notes.reshape(2, -1) if note[1] > 0 and note[0] == zlib.crc32(note[1:].data)]
        if not whole:
            return None
        newest = max(whole, key=lambda note: int(note[1]))
        self._number = int(newest[1])
        return newest[2:]

    def drop(self) -> None:
        """Remove the file: its note no longer holds."""
        self._notes = None
        if self._file.exists():
            self._file.unlink()
            sync(self._file.parent)  # after a power cut it would be back, beside rows of which it knows nothing

    def _open(self) -> np.ndarray:
        """Open the file, or make a new one if it is not whole."""
        if self.read() is None:
            try:
                with beside(self._file) as new:
                    new.write_bytes(bytes(2 * self._size * 8))  # written, not a hole that needs room on the disk later
            except OSError as error:
                raise cannot_write(self._file, error, f"`sparc resume {self._file.parents[1]}`") from error
        self._notes = np.memmap(self._file, np.int64, "r+", shape=(2, self._size))
        return self._notes
