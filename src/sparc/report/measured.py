"""Means of an environment's measures: over the contexts of a region, and over seeds. NaN stands for no value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sparc.report.stats import mean_sem
from sparc.suites.results import EnvResults

Array = NDArray[np.float64]


def run_means(part: EnvResults, label: str, region: str, name: str) -> Array:
    """Return a measure's mean over the contexts of a region for each seed, as shown; NaN for one without any, (n,)."""
    rows = part.matrix(label, region, name)
    counts = np.isfinite(rows).sum(axis=1)
    means = np.nansum(rows, axis=1) / np.where(counts, counts, np.nan)
    return part.criteria[name].scale * means


def mean_of(part: EnvResults, label: str, region: str, name: str) -> tuple[float, float, int]:
    """Return mean and s.e.m. over the seeds that have the measure, and how many these are."""
    means = run_means(part, label, region, name)
    there = means[np.isfinite(means)]
    return (*(mean_sem(there) if len(there) else (np.nan, np.nan)), len(there))


def changes(part: EnvResults, draws: Sequence[str], key: str, region: str, name: str) -> Array:
    """Return what each draw changes for each run: its mean over a region minus that of the same run as trained.

    (runs, draws), of the runs that have the measure in all tests, as shown.
    """
    parts = [part, *(part.variants[draw] for draw in draws)]
    runs = [dict(zip(of.returns[key], run_means(of, key, region, name), strict=True)) for of in parts]
    seeds = [seed for seed in runs[0] if all(seed in of for of in runs)]
    values = np.array([[of[seed] for of in runs] for seed in seeds]).reshape(len(seeds), len(parts))
    values = values[np.isfinite(values).all(axis=1)]
    return values[:, 1:] - values[:, :1]


def over_seeds(rows: Array) -> tuple[Array, Array]:
    """Return each context's mean and s.e.m. over the seeds with a value there, of (n, M); NaN for too few, (M,)."""
    there = np.isfinite(rows)
    counts = there.sum(axis=0)
    means = np.where(there, rows, 0.0).sum(axis=0) / np.where(counts, counts, np.nan)
    squares = (np.where(there, rows - means, 0.0) ** 2).sum(axis=0)
    return means, np.sqrt(squares / np.where(counts > 1, (counts - 1) * counts, np.nan))
