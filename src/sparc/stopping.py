"""A polite end: signals, and the death of a process that started this one, become a request to stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

from sparc.errors import RunFailure

PARENT = "SPARC_PARENT"  # environment variable: the process that this one must not outlive


class Stop:
    """Turns Ctrl-C and SIGTERM into a polite request; a second one interrupts at once."""

    def __init__(self) -> None:
        self._signalled = False

    @property
    def asked(self) -> bool:
        """Whether it is time to save and end."""
        return self._signalled or orphaned()

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


def orphaned() -> bool:
    """Say whether the process that this one must not outlive is gone."""
    return PARENT in os.environ and str(os.getppid()) != os.environ[PARENT]


def while_wanted(progress: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """Report progress as before, and end where nobody waits for the result any more."""

    def report(done: int, total: int) -> None:
        if orphaned():
            raise RunFailure("ended: the process that started this one is gone.")
        progress(done, total)

    return report
