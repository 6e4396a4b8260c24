"""Statistics of a handful of runs: means, interquartile means, comparisons, and their intervals.

The unit is the run (a seed). The cells of one run share its policy, so they are never redrawn on their own: an interval
is that of a percentile bootstrap which draws whole runs with replacement, of each method and environment separately
(strata), as in Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021.
With few runs it is narrower than its name says: for two equal methods whose runs are normally distributed, the 95 %
interval of the difference would leave out zero in about 20 % of comparisons with 3 runs each, in 13 % with 5. The
difference of two means, on which verdicts rest, therefore has Welch's t interval, which keeps its 5 % from two runs on.

Of many comparisons some come out as different by chance. A suite names the few that it is about before its runs are
made (its primary endpoints); their p-values are corrected by Holm's method, so that in 95 of 100 suites of equal
methods none of them does.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparc.arrays import Array
from sparc.errors import UserError

Interval = tuple[float, float]

CONFIDENCE = 0.95
REPETITIONS = 2000
MIN_RUNS = 3  # fewer say almost nothing about how the next one would end: no interval rather than a fake one
UNKNOWN: Interval = (float("nan"), float("nan"))
POWER = 0.8  # the chance of seeing a difference that is there
MOST_SEEDS = 200  # that a sample size is given for
ROUNDING = 1e-12  # relative: 0.1 averaged over three runs and over five differs in the last digit, and is a tie


class Estimate(NamedTuple):
    """A number and its 95 % interval; the bounds are NaN with too few runs: under three, for a difference under two.

    Those of a difference also where the runs of each method are all equal, and the methods not: no spread is known.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """One method in one region of one environment."""

    mean: float  # over seeds and cells
    sem: float  # over the seeds' means, NaN for a single seed
    iqm: Estimate  # over the seeds' means
    worst: tuple[float, float]  # mean and s.e.m., over seeds, of the mean of a run's worst quarter of cells
    seeds: int


@dataclass(frozen=True)
class Comparison:
    """Method x against method y in one region of one environment."""

    difference: Estimate  # mean of x − mean of y, with Welch's t interval
    p: float  # Welch's two-sided p-value of the difference; NaN where the interval is
    share: Estimate  # of the cells in which x is better
    probability: Estimate  # that a run of x has a better mean than a run of y
    x_seeds: int
    y_seeds: int
    better: int = 1  # 1: more is better; −1: less
    pooled_p: float = math.nan  # Student's, with one variance for both: beside Welch's, never for a verdict

    @property
    def verdict(self) -> Literal["better", "worse", "open"]:
        """Return whether x is better than y: open unless the interval of the difference exists and excludes zero."""
        above, below = self.difference.low > 0, self.difference.high < 0
        return "open" if not above and not below else "better" if above == (self.better > 0) else "worse"

    @property
    def lead(self) -> Literal["ahead", "behind", "equal"]:
        """Return whether x leads, significant or not."""
        gain = self.better * self.difference.value
        return "ahead" if gain > 0 else "behind" if gain < 0 else "equal"


# Numbers of one method


def mean_sem(values: ArrayLike) -> tuple[float, float]:
    """Return the mean of runs (n,) and its standard error, NaN for a single run."""
    mean, sem = cell_table(checked(values, 1)[:, None])
    return float(mean[0]), float(sem[0])


def cell_table(matrix: ArrayLike) -> tuple[Array, Array]:
    """Return each cell's mean over the seeds and its standard error, (M,) each, from (seeds, M)."""
    rows = checked(matrix, 2)
    mean = rows.mean(axis=0)
    return mean, rows.std(axis=0, ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else np.full_like(mean, np.nan)


def iqm(values: ArrayLike) -> float:
    """Return the interquartile mean of all values: without the lowest and the highest quarter, rounded down."""
    from scipy.stats import trim_mean  # takes a while to load

    return float(trim_mean(checked(values), 0.25, axis=None))


def worst_quarter(matrix: ArrayLike, better: int = 1) -> Array:
    """Return the mean of the worst quarter of each run's cells, at least one, (seeds,), from (seeds, cells)."""
    rows = checked(matrix, 2)
    count = max(1, rows.shape[1] // 4)
    return better * np.sort(better * rows, axis=1)[:, :count].mean(axis=1)


def summarise(matrix: ArrayLike, seed: int = 0, better: int = 1) -> Summary:
    """Return the summary of the returns, or a measure, (seeds, cells) of one method; −1: less is `better`."""
    rows = checked(matrix, 2)
    runs = rows.mean(axis=1)
    middle = Estimate(iqm(runs), *interval([runs], lambda drawn: iqm(drawn[0]), seed=seed))
    return Summary(*mean_sem(runs), middle, mean_sem(worst_quarter(rows, better)), len(rows))


def aggregate(scores: Sequence[ArrayLike], seed: int = 0) -> Estimate:
    """Return the interquartile mean over the runs of all environments (strata), from normalised scores (n,) of each."""
    runs = [checked(values, 1) for values in scores]
    if not runs:
        raise UserError("There is no environment to aggregate over: finish the runs of one at least.")
    return Estimate(iqm(np.concatenate(runs)), *interval(runs, lambda drawn: iqm(np.concatenate(drawn)), seed=seed))


# Numbers of two methods; with leading axes, those of many redrawn pairs at once


def gap(x: Array, y: Array) -> Array:
    """Return x − y, with differences that are only rounding set to zero."""
    return np.where(np.abs(x - y) <= ROUNDING * np.maximum(np.abs(x), np.abs(y)), 0.0, x - y)


def wins(x: Array, y: Array) -> Array:
    """Return 1 where x is above y, ½ for ties, else 0."""
    return (1 + np.sign(gap(x, y))) / 2


def difference(x: Array, y: Array) -> tuple[Estimate, float, float]:
    """Return the difference of the means of runs (n, M) and (m, M) with Welch's t interval, and the p-value.

    The second p-value is Student's, which pools the variance of both. All need two runs of each, and runs that differ.
    """
    from scipy.stats import ttest_ind  # takes a while to load

    runs = [rows.mean(axis=1) for rows in (x, y)]
    value = float(gap(runs[0].mean(), runs[1].mean()))
    if min(map(len, runs)) < 2:
        return Estimate(value, *UNKNOWN), math.nan, math.nan
    error = sum(values.var(ddof=1) / len(values) for values in runs) ** 0.5
    if error <= ROUNDING * max(np.abs(values).max() for values in runs):  # the runs do not differ
        p = 1.0 if value == 0 else math.nan
        return Estimate(value, *((value, value) if value == 0 else UNKNOWN)), p, p
    with warnings.catch_warnings():  # SciPy warns if all runs of one method are equal, which this interval allows
        warnings.simplefilter("ignore", RuntimeWarning)
        test = ttest_ind(*runs, equal_var=False)
        bounds = test.confidence_interval(CONFIDENCE)
        pooled = ttest_ind(*runs, equal_var=True)
    return Estimate(value, float(bounds.low), float(bounds.high)), float(test.pvalue), float(pooled.pvalue)


def mean_interval(values: Array) -> Estimate:
    """Return the mean of values (n,) with Student's t interval; unknown for one value, or where all are equal."""
    from scipy.stats import t  # takes a while to load

    mean, sem = mean_sem(values)
    reach = float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * sem if len(values) > 1 else math.nan
    known = reach > ROUNDING * np.abs(values).max()
    return Estimate(mean, *((mean - reach, mean + reach) if known else UNKNOWN))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's method for their number, those that are not known yet (NaN) included."""
    corrected, largest = [math.nan] * len(p_values), 0.0
    known = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    for rank, (p, index) in enumerate(known):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p))
        corrected[index] = largest
    return corrected


def seeds_needed(effect: float) -> int | None:
    """Return how many runs of each method show a difference of so many standard deviations in four of five suites.

    By a two-sided t test at 5 % of runs with equal spread, for one comparison by itself, not corrected; None where more
    than MOST_SEEDS would be needed.
    """
    from scipy.stats import nct, t  # takes a while to load

    def power(n: int) -> float:
        freedom = 2 * n - 2
        critical, shift = t.ppf((1 + CONFIDENCE) / 2, freedom), abs(effect) * math.sqrt(n / 2)
        return float(nct.sf(critical, freedom, shift) + nct.cdf(-critical, freedom, shift))

    return next((n for n in range(2, MOST_SEEDS + 1) if power(n) >= POWER), None)


def share(x: Array, y: Array) -> Array:
    """Return the share of the M cells in which the mean over runs is higher, of (..., n, M) and (..., m, M)."""
    return wins(x.mean(axis=-2), y.mean(axis=-2)).mean(axis=-1)


def probability(x: Array, y: Array) -> Array:
    """Return the share of pairs of runs in which that of x has the higher mean, of (..., n, M) and (..., m, M)."""
    return wins(x.mean(axis=-1)[..., :, None], y.mean(axis=-1)[..., None, :]).mean(axis=(-2, -1))


def share_of_cells(x: ArrayLike, y: ArrayLike) -> float:
    """Return the share of cells in which x (n, M) has a higher mean over its seeds than y (m, M); ties count half."""
    return float(share(*checked_pair(x, y)))


def probability_of_improvement(x: Sequence[ArrayLike], y: Sequence[ArrayLike]) -> float:
    """Return P(a run of x > a run of y), ties half, averaged over environments: runs (n,) and (m,) of each."""
    pairs = [(checked(xs, 1)[:, None], checked(ys, 1)[:, None]) for xs, ys in zip(x, y, strict=True)]
    return float(checked([probability(*pair) for pair in pairs]).mean())


def compare(x: ArrayLike, y: ArrayLike, seed: int = 0, better: int = 1) -> Comparison:
    """Return the comparison of returns (n, M) and (m, M) in the same M cells; `better` is −1 where less is better."""
    x, y = checked_pair(x, y)
    enough = min(len(x), len(y)) >= MIN_RUNS
    i, j = draw([x, y], REPETITIONS, seed)
    redrawn = better * x[i], better * y[j]  # (repetitions, n, M), (repetitions, m, M)

    def both(statistic: Callable[[Array, Array], Array]) -> Estimate:
        value = float(statistic(better * x, better * y))
        return Estimate(value, *(percentiles(statistic(*redrawn)) if enough else UNKNOWN))

    gained, p, pooled_p = difference(x, y)
    return Comparison(gained, p, both(share), both(probability), len(x), len(y), better, pooled_p)


# The bootstrap


def interval(
    strata: Sequence[ArrayLike],
    statistic: Callable[[list[Array]], float],
    confidence: float = CONFIDENCE,
    repetitions: int = REPETITIONS,
    seed: int = 0,
) -> Interval:
    """Return a statistic's percentile interval, the runs (axis 0) of each stratum drawn with replacement."""
    runs = [checked(stratum) for stratum in strata]
    if min(map(len, runs)) < MIN_RUNS:
        return UNKNOWN
    # Five runs can be drawn in only 126 ways if their order does not matter: each is computed once.
    drawn, which = np.unique(np.hstack(draw(runs, repetitions, seed)), axis=0, return_inverse=True)
    parts = np.split(drawn, np.cumsum([len(stratum) for stratum in runs])[:-1], axis=1)  # (distinct, n) per stratum
    values = [statistic([s[i] for s, i in zip(runs, rows, strict=True)]) for rows in zip(*parts, strict=True)]
    return percentiles(np.array(values)[which], confidence)


def draw(strata: Sequence[Array], repetitions: int, seed: int) -> list[NDArray[np.int64]]:
    """Return bootstrap draws of each stratum's runs: row indices in ascending order, (repetitions, n)."""
    rng = np.random.default_rng(seed)
    return [np.sort(rng.integers(len(stratum), size=(repetitions, len(stratum)))) for stratum in strata]


def percentiles(values: Array, confidence: float = CONFIDENCE) -> Interval:
    """Return the bounds of the central part of the values."""
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


# Checks


def checked(values: ArrayLike, axes: int | None = None) -> Array:
    """Return the values as floats; raise if there are none, or if any is missing, which a mean would hide."""
    array = np.asarray(values, np.float64)
    if axes is not None and array.ndim != axes:
        raise ValueError(f"expected {axes} axes, got shape {array.shape}")
    if not array.size:
        raise UserError("There are no returns to sum up: finish one run at least, and evaluate it.")
    if not np.isfinite(array).all():
        raise UserError("Some returns are missing or not finite: evaluate the runs again, `sparc evaluate RUN`.")
    return array


def checked_pair(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """Return the returns of two methods as floats, (n, M) and (m, M)."""
    pair = checked(x, 2), checked(y, 2)
    if pair[0].shape[1] != pair[1].shape[1]:
        raise ValueError(f"expected the same cells, got shapes {pair[0].shape} and {pair[1].shape}")
    return pair
