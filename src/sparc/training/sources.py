"""Where a run's experience comes from: its own process, or workers. The loop knows no difference."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sparc.errors import RunFailure
from sparc.methods.qr_sac import QrSac, State
from sparc.methods.spec import Spec
from sparc.runs.run import Run
from sparc.training.workers.options import WorkerOptions

if TYPE_CHECKING:  # both import this file
    from sparc.training.replay import Replay

RECENT_EPISODES = 100  # behind the running mean of training returns


class SourceFailure(RunFailure):
    """No more experience will come. What there is can be saved."""


class Source(Protocol):
    """Brings experience into the replay."""

    @property
    def spec(self) -> Spec:
        """The environment's part of a Spec."""

    @property
    def shelves(self) -> int:
        """How many shelves the replay should have, one per stream; 0: an environment has its own lane."""

    @property
    def steps(self) -> int:
        """Environment steps so far, over all sessions."""

    @property
    def episodes(self) -> int:
        """Episodes that have ended so far."""

    @property
    def recent(self) -> deque[float]:
        """Returns of the last episodes."""

    @property
    def starting(self) -> bool:
        """Whether it has brought nothing yet in this session: the learner waits for the first of it."""

    @property
    def must_save(self) -> bool:
        """Whether rows that the last checkpoint needs would soon be overwritten."""

    @property
    def processor_s(self) -> float:
        """Processor time of this session that `machine.processor_seconds` does not see."""

    def start(self, replay: Replay, method: QrSac, state: State, seeds: np.random.SeedSequence) -> None:
        """Make ready to bring experience into this replay."""

    def collect(self, method: QrSac, state: State, updates: int, random: bool) -> None:
        """Bring the experience for another chunk, or all that there is; raise SourceFailure where no more will come."""

    def restart(self) -> None:
        """Begin new episodes: the policy of another phase acts."""

    def finish(self) -> None:
        """Bring what is still under way, before the last checkpoint."""

    def notes(self) -> list[str]:
        """Return what a person should read, once."""

    def counters(self) -> dict[str, int]:
        """Return what the environments count."""

    def numbers(self) -> dict[str, float]:
        """Return what metrics and progress should have of it."""

    def get_state(self) -> dict[str, np.ndarray]:
        """Return what a checkpoint needs."""

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a checkpoint of any source."""

    def close(self) -> None:
        """End everything that it has started."""


def open_source(run: Run, workers: WorkerOptions) -> Source:
    """Return the source of a session with so many workers."""
    if workers.count:
        from sparc.training.workers.source import PooledSource

        return PooledSource(run, workers)
    from sparc.training.collect import LocalSource

    return LocalSource(run)
