"""What tests of workers share: a run that trains here, while a story of kills is told in another thread."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparc.training.workers.source import PooledSource

PATIENCE = 90.0  # s, for what takes a few on an idle machine


def wait_for(what: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait until something is true, and return it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


class Session:
    """A run that trains in this process, while a story happens to it in another thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sources: list[PooledSource] = []
        self.records: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.error: BaseException | None = None
        self.over = False  # training
        init = PooledSource.__init__

        def note(this: PooledSource, *how: Any) -> None:
            init(this, *how)
            self.sources.append(this)

        monkeypatch.setattr(PooledSource, "__init__", note)

    @property
    def source(self) -> PooledSource:
        return self.sources[-1]

    @property
    def updates(self) -> int:
        return self.records[-1]["updates"] if self.records else 0

    def report(self, record: dict[str, Any]) -> None:
        if "note" in record:
            self.notes.append(record["note"])
        else:
            self.records.append(record)

    def rows(self) -> list[dict[str, Any]]:
        return self.source.rows() if self.sources else []

    def running(self) -> list[dict[str, Any]]:
        return [row for row in self.rows() if row["state"] == "running" and row["delivered"]]

    def arrives(self) -> None:
        """Wait until more experience has come than now."""
        now = self.source.received
        self.wait_for(lambda: self.source.received > now + 20)

    def learns(self) -> None:
        """Wait until the learner has gone on for a while."""
        now = self.updates
        self.wait_for(lambda: self.updates > now + 50)

    def wait_for(self, what: Callable[[], Any]) -> None:
        """Wait until something is true, as long as the run trains."""
        assert wait_for(lambda: self.over or what()) and not self.over, "the run has ended"

    def run(self, train: Callable[[], Path], story: Callable[[], None]) -> None:
        """Train in the main thread, where signals arrive; the story ends with Ctrl-C."""

        def tell() -> None:
            try:
                story()
            except BaseException as error:
                self.error = error
            if not self.over:
                os.kill(os.getpid(), signal.SIGINT)

        teller = threading.Thread(target=tell)
        teller.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                train()
        finally:
            self.over = True
            teller.join()
        if self.error is not None:
            raise AssertionError(f"notes: {self.notes}") from self.error
