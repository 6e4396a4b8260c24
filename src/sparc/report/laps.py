"""What laps are judged by: the measures of a race, what they are called, which way is better, and their means."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparc.envs.measures import MEASURES
from sparc.report.stats import mean_sem
from sparc.suites.tables import EnvResults, Results

Array = NDArray[np.float64]


def races(results: Results) -> list[str]:
    """Return the tests that are judged by laps; one without results counts as a race if all others are."""
    needed = {*MEASURES, "reference"}
    found = {test: needed <= set(part.measured) for test, part in results.parts.items() if part.returns}
    rest = bool(found) and all(found.values())
    return [test for test in results.parts if found.get(test, rest)]


def run_means(part: EnvResults, label: str, region: str, measure: str) -> Array:
    """Return each seed's mean of a measure over a region, scaled for display; NaN without values, (n,)."""
    rows = part.matrix(label, region, measure)
    counts = np.isfinite(rows).sum(axis=1)
    means = np.nansum(rows, axis=1) / np.where(counts, counts, np.nan)
    return MEASURES[measure].scale * means


def mean_of(part: EnvResults, label: str, region: str, measure: str) -> tuple[float, float, int]:
    """Return mean and s.e.m. over the seeds that have the measure, and how many these are."""
    means = run_means(part, label, region, measure)
    finite = means[np.isfinite(means)]
    return (*(mean_sem(finite) if len(finite) else (np.nan, np.nan)), len(finite))


def over_seeds(rows: Array) -> tuple[Array, Array]:
    """Return each context's mean and s.e.m. over the seeds that have a value, of (n, M); NaN for too few, (M,)."""
    finite = np.isfinite(rows)
    counts = finite.sum(axis=0)
    means = np.where(finite, rows, 0.0).sum(axis=0) / np.where(counts, counts, np.nan)
    squares = (np.where(finite, rows - means, 0.0) ** 2).sum(axis=0)
    return means, np.sqrt(squares / np.where(counts > 1, (counts - 1) * counts, np.nan))
