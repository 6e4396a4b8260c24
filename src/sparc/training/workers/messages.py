"""What the learner and its pool say to each other. Plain values: neither Ray nor JAX."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparc.training.blocks import Block
from sparc.training.workers.processes import Process
from sparc.training.workers.rollout import RolloutSetup


class Limits(NamedTuple):
    """How long the pool waits, in seconds."""

    hang: float = 30.0  # for the answer of a worker, or ten times as long as it usually takes
    start: float = 120.0  # for a worker to start
    finish: float = 2.0  # after the last answer, for the other workers to hand over what they have
    room: float = 10.0  # between two looks for room on a cluster
    rest: float = 1.0  # before a worker that died is replaced; twice as long after every further death


class Begin(NamedTuple):
    """To the pool, first of all."""

    setup: RolloutSetup
    envs: list[int]  # of each worker
    cluster: str | None
    real_time: bool
    versions: dict[str, str]  # the learner's
    first_incarnation: int
    limits: Limits


class Orders(NamedTuple):
    """To the pool, after every chunk; the newest counts."""

    random: bool
    wanted: int  # transitions that this pool should have delivered by now


class Finish(NamedTuple):
    """To the pool: hand over what there is, and end."""


class Blocks(NamedTuple):
    """From a worker."""

    worker: int
    phase: str
    blocks: list[Block]
    returns: list[float]
    counters: dict[str, int]


class Status(NamedTuple):
    """Of the workers, every second: a sign of life."""

    rows: list[dict[str, Any]]
    processes: list[Process]  # below the pool, to be ended where the pool cannot


class Note(NamedTuple):
    """For a person."""

    text: str


class Failed(NamedTuple):
    """Why the pool ends; final: another one would as well."""

    why: str
    final: bool


class Bye(NamedTuple):
    """All that there was has been handed over."""
