"""Which checkpoints of a run are worth keeping: the Pareto front of its evaluations, and the best one on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def pareto_front(scores: Mapping[int, Sequence[float]]) -> list[int]:
    """Give the keys whose scores no other beats in one setting without losing in another; of equals, the latest."""
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


def best(scores: Mapping[int, Sequence[float]]) -> int | None:
    """Pick from the front the one with the highest mean over the settings, of equals the latest: it learned longest."""
    return max(pareto_front(scores), key=lambda key: (float(np.mean(scores[key])), key), default=None)
