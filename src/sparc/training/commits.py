"""How far the replay's rows are written, noted after each block, so that a resumed run loses none that it took in.

The file is mapped into memory: what was written survives the end of the process, however it ends. Every lane has two
notes that take turns, each with a checksum, so that one is whole even if the process is killed while it writes the
other. A block is in one lane, so its note costs the same however many lanes there are.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np

from sparc.errors import cannot_write
from sparc.files import beside, sync


class Commits:
    """A file that holds the newest note on each lane, which is so many integers. The first of them only grows."""

    def __init__(self, file: Path, lanes: int, integers: int) -> None:
        self._file, self._shape = file, (lanes, 2, 1 + integers)
        self._notes: np.ndarray | None = None  # int64: each is a checksum and the integers
        self._newest = [0] * lanes  # which of a lane's two notes

    def write(self, lane: int, *integers: int) -> None:
        """Note these integers on a lane."""
        notes = self._open() if self._notes is None else self._notes
        note = np.array([0, *integers], np.int64)
        note[0] = zlib.crc32(note[1:].data)
        self._newest[lane] = turn = 1 - self._newest[lane]
        notes[lane, turn] = note

    def read(self) -> np.ndarray | None:
        """Return (lanes, integers), the newest note that is whole of each lane; -1 where there is none.

        None if there is no such file, or one of another size.
        """
        try:
            notes = np.fromfile(self._file, np.int64)
        except OSError:
            return None
        if notes.size != np.prod(self._shape):
            return None
        notes = notes.reshape(-1, self._shape[-1])
        whole = np.array([note[0] == zlib.crc32(note[1:].data) for note in notes])
        found: np.ndarray = np.where(whole[:, None], notes[:, 1:], -1).reshape(*self._shape[:2], -1)
        newest = found[..., 0].argmax(axis=1)
        self._newest = newest.tolist()
        return found[np.arange(len(found)), newest]

    def drop(self) -> None:
        """Remove the file: its notes no longer hold."""
        self._notes = None
        if self._file.exists():
            self._file.unlink()
            sync(self._file.parent)  # after a power cut it would be back, beside rows of which it knows nothing

    def _open(self) -> np.ndarray:
        """Open the file, or make a new one if there is none of this size."""
        if self.read() is None:
            try:
                with beside(self._file) as new:  # written, not a hole that needs room on the disk later
                    new.write_bytes(bytes(8 * int(np.prod(self._shape))))
            except OSError as error:
                raise cannot_write(self._file, error, f"`sparc resume {run_of(self._file)}`") from error
        self._notes = np.asarray(np.memmap(self._file, np.int64, "r+", shape=self._shape))
        return self._notes


def run_of(file: Path) -> Path:
    """Return the run whose replay a file is part of, in whatever layout."""
    return next((folder.parent for folder in file.parents if folder.name == "replay"), file.parents[1])
