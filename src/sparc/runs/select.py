"""Which checkpoints of a run are worth keeping, and which one is the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def pareto_front(scores: Mapping[int, Sequence[float]]) -> list[int]:
    """Return the keys whose scores no other beats in one setting without losing in another; of equals, the latest."""
    front = []
    for key, score in scores.items():
        mine = np.asarray(score)
        beaten = any(
            np.all(np.asarray(other) >= mine) and (np.any(np.asarray(other) > mine) or other_key > key)
            for other_key, other in scores.items()
            if other_key != key
        )
        if not beaten:
            front.append(key)
    return front


def best(choice: Mapping[int, float], begin: int, end: int) -> int | None:
    """Return the highest of the evaluations in the last third of a phase, or of all while there is none in it.

    `choice` maps updates to what a checkpoint is chosen by; the phase goes from `begin` to `end`. Of equals it is the
    latest, which learned longest.
    """
    late = [updates for updates in choice if 3 * (updates - begin) > 2 * (end - begin)]
    return max(late or choice, key=lambda updates: (choice[updates], updates), default=None)
