"""A polite end: signals, and the death of a process that started this one, become a request to stop."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

PARENT = "SPARC_PARENT"  # environment variable: the process that this one must not outlive


class Stop:
    """Turns Ctrl-C and SIGTERM into a polite request; a second one interrupts at once."""

    def __init__(self) -> None:
        self._signalled = False
        self._parent = os.environ.get(PARENT)

    @property
    def asked(self) -> bool:
        """Whether it is time to save and end."""
        orphaned = self._parent is not None and str(os.getppid()) != self._parent
        return self._signalled or orphaned

    def __enter__(self) -> Stop:
        self.before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self.ask)
        return self

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Note the request."""
        if self._signalled:
            raise KeyboardInterrupt
        self._signalled = True

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
