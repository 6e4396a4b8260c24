"""Event files for TensorBoard, written where they are made: no thread and no queue that a full disk could block."""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from sparc.errors import describe_os_error

SYNC_SECONDS = 120  # between two times that events are forced to the disk


class Board:
    """One event file. What cannot be written is dropped with one note: metrics.jsonl has the same numbers."""

    def __init__(self, folder: Path, first_step: int):
        """Open a new file; TensorBoard forgets what older files have from `first_step` on."""
        from tensorboardX.proto import event_pb2
        from tensorboardX.record_writer import RecordWriter

        self._folder, self._events = folder, event_pb2
        self._writer: Any = None
        self._synced = time.monotonic()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
            self._writer = RecordWriter(str(folder / name))
            self._write(0, file_version="brain.Event:2")
            self._write(first_step, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START))
        except OSError as error:
            self._drop(error)

    def add(self, scalars: dict[str, float], step: int) -> None:
        """Write numbers by name."""
        from tensorboardX.summary import scalar

        if self._writer is None:
            return
        try:
            for name, value in scalars.items():
                self._write(step, summary=scalar(name, value))
            if time.monotonic() - self._synced >= SYNC_SECONDS:
                self._writer.flush()
                self._synced = time.monotonic()
        except OSError as error:
            self._drop(error)

    def close(self) -> None:
        """Write what is left; a failure of this never hides the one that ended the run."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
            self._writer = None

    def _write(self, step: int, **content: Any) -> None:
        self._writer.write(self._events.Event(wall_time=time.time(), step=step, **content).SerializeToString())

    def _drop(self, error: OSError) -> None:
        what = f"no more events for TensorBoard in {self._folder}: {describe_os_error(error)}"
        print(f"note: {what}; metrics.jsonl goes on.", file=sys.stderr)
        self.close()
