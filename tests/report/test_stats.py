"""The statistics agree with numbers worked out by hand, with SciPy, and with rliable; the run is the unit."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from synthetic import make_results

from sparc.errors import UserError
from sparc.report.stats import (
    Array,
    aggregate,
    cell_table,
    compare,
    holm,
    interval,
    iqm,
    mean_sem,
    probability_of_improvement,
    seeds_needed,
    share_of_cells,
    summarise,
    worst_quarter,
)

RNG = np.random.default_rng
# Whole numbers: their sums are exact, and ties are frequent.
matrices = st.integers(1, 4).flatmap(
    lambda cells: st.tuples(
        *(
            st.integers(1, 5).flatmap(lambda n: arrays(np.float64, (n, cells), elements=st.integers(-9, 9).map(float)))
            for _ in range(2)
        )
    )
)


@pytest.fixture(scope="module")
def rliable() -> Iterator[SimpleNamespace]:
    """A published implementation of the same statistics; it draws from NumPy's global generator, restored here."""
    from rliable import library, metrics

    state = np.random.get_state()
    yield SimpleNamespace(library=library, metrics=metrics)
    np.random.set_state(state)


# Numbers worked out by hand


def test_mean_and_standard_error() -> None:
    assert mean_sem([2.0, 4.0, 6.0]) == (4.0, pytest.approx(2 / np.sqrt(3)))
    mean, sem = mean_sem([5.0])
    assert mean == 5.0 and np.isnan(sem)


def test_cell_table() -> None:
    mean, sem = cell_table([[1.0, 10.0], [3.0, 10.0]])
    assert mean.tolist() == [2.0, 10.0] and sem == pytest.approx([1.0, 0.0])
    mean, sem = cell_table([[1.0, 10.0]])
    assert mean.tolist() == [1.0, 10.0] and np.isnan(sem).all() and sem.shape == (2,)


def test_interquartile_mean() -> None:
    assert iqm([[100.0, 1.0, 2.0, 3.0], [4.0, -50.0, 5.0, 60.0]]) == (2 + 3 + 4 + 5) / 4
    assert iqm([1.0, 2.0, 9.0]) == 4.0  # a quarter of three, rounded down, is none


def test_share_of_cells_counts_ties_half() -> None:
    x, y = [[1.0, 5.0, 2.0, 0.0], [3.0, 5.0, 2.0, 0.0]], [[1.0, 5.0, 3.0, -1.0]]  # means of x: 2, 5, 2, 0
    assert share_of_cells(x, y) == (1 + 0.5 + 0 + 1) / 4


def test_probability_of_improvement_is_averaged_over_environments() -> None:
    first = ([1.0, 2.0, 3.0], [2.0, 0.0])  # of the six pairs, 1 > 0, 2 > 0, 3 > 2, 3 > 0 and one tie
    assert probability_of_improvement([first[0]], [first[1]]) == 4.5 / 6
    assert probability_of_improvement([first[0], [1.0]], [first[1], [2.0]]) == 4.5 / 12


def test_equal_returns_tie_whatever_the_number_of_runs() -> None:
    x, y = np.full((3, 1), 0.1), np.full((5, 1), 0.1)
    assert x.mean() != y.mean()  # by rounding only
    result = compare(x, y)
    assert result.difference == (0, 0, 0) and result.share == (0.5, 0.5, 0.5) and result.probability == (0.5, 0.5, 0.5)
    assert result.verdict == "open"


@pytest.mark.parametrize("runs", [2, 3])
def test_runs_without_spread_do_not_make_a_difference_certain(runs: int) -> None:
    x, y = np.full((runs, 4), 97.5), np.full((runs, 4), 95.0)
    result = compare(x, y)
    assert result.difference.value == 2.5 and np.isnan(result.difference[1:]).all()
    assert (result.verdict, result.lead) == ("open", "ahead") and compare(x, x).difference == (0, 0, 0)


def test_bounds_are_the_percentiles_of_all_27_ways_to_redraw_three_runs() -> None:
    # Of the means of three draws from 0, 0, 9, (2/3)³ = 30 % are 0, 44 % are 3, 22 % are 6 and 4 % are 9.
    runs = np.array([0.0, 0.0, 9.0])
    for confidence, expected in ((0.95, (0, 9)), (0.9, (0, 6)), (0.6, (0, 6)), (0.3, (3, 3))):
        assert interval([runs], lambda drawn: drawn[0].mean(), confidence) == pytest.approx(expected)


def test_rows_of_a_run_stay_together() -> None:
    seen = set()

    def statistic(drawn: list[Array]) -> float:
        seen.update(map(tuple, drawn[0].tolist()))
        assert drawn[0].shape == (3, 2) and drawn[1].shape == (4,) and set(drawn[1]) <= {7.0, 8.0, 9.0}
        return 0.0

    interval([[[1, 2], [3, 4], [5, 6]], [7, 8, 9, 9]], statistic)
    assert seen == {(1, 2), (3, 4), (5, 6)}


# Comparisons and summaries


def test_compare_by_hand() -> None:
    x, y = np.array([[4.0, 4.0], [6.0, 2.0], [8.0, 0.0], [2.0, 6.0]]), np.array([[1.0, 5.0], [1.0, 3.0], [1.0, 1.0]])
    result = compare(x, y)  # cells' means: 5, 3 against 1, 3; runs' means: all 4 against 3, 2, 1
    assert result.difference.value == 2 and result.share.value == 0.75
    assert result.probability == (1, 1, 1) and (result.x_seeds, result.y_seeds) == (4, 3)
    assert summarise(x).iqm.value == 4 and summarise(y).iqm.value == 2  # of the runs' means, three of which lose none
    # The mean of x never varies; that of y has a standard error of √⅓ with two degrees of freedom, and t is 4.3027.
    assert result.difference == pytest.approx((2, 2 - 2.48412, 2 + 2.48412), abs=1e-4) and result.verdict == "open"
    assert compare(x + 1, y).verdict == "better" and compare(y, x + 1).verdict == "worse"
    x[0] -= 100  # one run that fails
    assert compare(x, y).difference.value == -23 and compare(x, y).verdict == "open"


@pytest.mark.parametrize("n, m", [(2, 5), (5, 2), (1, 1), (1, 5)])
def test_fewer_than_three_runs_give_numbers_but_no_bootstrap_and_one_run_no_verdict(n: int, m: int) -> None:
    x, y = np.full((n, 4), 9.0) + np.arange(n)[:, None], np.full((m, 4), 1.0)
    result = compare(x, y)
    for estimate in (
        result.share,
        result.probability,
        summarise(min(x, y, key=len)).iqm,
        aggregate([x[:, 0], y[:, 0]]),
    ):
        assert np.isfinite(estimate.value) and np.isnan(estimate[1:]).all()
    assert np.isnan(result.difference.low) == np.isnan(result.difference.high) == (min(n, m) == 1)
    if min(n, m) == 1:
        assert result.verdict == "open"
    assert np.isnan(interval([np.ones(5), np.ones(2)], lambda drawn: 0.0)).all()


def test_verdicts_on_made_up_results() -> None:
    part = make_results(envs=("WindHopper-v5",), seeds=(0, 1, 2, 3, 4)).envs["WindHopper-v5"]
    sparc, rival = part.matrix("sparc", "ood"), part.matrix("only-obs", "ood")
    result = compare(sparc, rival)
    assert result.verdict == "better" and result.share.low > 0.9 and result.probability.value == 1
    assert result.difference.low < result.difference.value < result.difference.high
    assert compare(rival, sparc).verdict == "worse" and compare(sparc, sparc).verdict == "open"


def test_where_less_is_better_verdict_lead_share_and_probability_turn_round_but_not_the_difference() -> None:
    fast, slow = np.array([[1.0, 1.1], [1.01, 1.11], [0.99, 1.1]]), np.array([[1.2, 1.3], [1.21, 1.3], [1.2, 1.29]])
    for x, y, verdict, lead, share in ((fast, slow, "better", "ahead", 1.0), (slow, fast, "worse", "behind", 0.0)):
        more, less = compare(x, y), compare(x, y, better=-1)
        assert less.difference == more.difference == compare(x, y).difference
        assert (less.verdict, less.lead) == (verdict, lead)
        assert less.verdict != more.verdict and less.lead != more.lead
        assert less.share == (share, share, share) and less.probability.value == share
        assert more.share.value == 1 - share and more.probability.value == 1 - share
        mirrored = compare(-x, -y)
        assert (less.share, less.probability, less.verdict) == (mirrored.share, mirrored.probability, mirrored.verdict)
    same = compare(fast, fast, better=-1)
    assert (same.verdict, same.lead, same.share.value) == ("open", "equal", 0.5)
    assert compare(fast[:1], slow[:1], better=-1).verdict == "open"  # one run: no interval


def test_summary() -> None:
    part = make_results(envs=("WindHopper-v5",), seeds=(0, 1, 2, 3, 4)).envs["WindHopper-v5"]
    rows = part.matrix("rma", "ood")
    summary = summarise(rows)
    assert (summary.mean, summary.sem) == mean_sem(rows.mean(axis=1)) and summary.seeds == 5
    assert summary.iqm.value == iqm(rows.mean(axis=1)) and summary.iqm.low < summary.iqm.value < summary.iqm.high
    assert np.isnan(summarise([[1.0, 3.0]]).sem)


def test_same_seed_same_intervals() -> None:
    x, y = RNG(1).normal(size=(12, 8)), RNG(2).normal(size=(4, 8))
    assert compare(x, y) == compare(x, y) and summarise(x) == summarise(x) and aggregate(x) == aggregate(x)
    assert summarise(x, seed=1).iqm != summarise(x).iqm
    assert summarise(x, seed=1).iqm == pytest.approx(summarise(x).iqm, abs=0.1)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_gaps_are_refused(wrong: float) -> None:
    good = np.ones((3, 2))
    bad = good.copy()
    bad[1, 1] = wrong
    for call in (
        lambda: mean_sem(bad[:, 1]), lambda: iqm(bad), lambda: cell_table(bad), lambda: summarise(bad),
        lambda: compare(good, bad), lambda: compare(bad, good), lambda: share_of_cells(bad, good),
        lambda: probability_of_improvement([bad[:, 1]], [good[:, 1]]), lambda: aggregate([good[:, 0], bad[:, 1]]),
        lambda: interval([bad], lambda drawn: 0.0),
    ):  # fmt: skip
        with pytest.raises(UserError, match="sparc evaluate") as error:
            call()
        assert "\n" not in str(error.value)


def test_nothing_is_refused() -> None:
    empty: Any = np.empty((0, 2))
    for call in (
        lambda: mean_sem([]), lambda: iqm([]), lambda: cell_table(empty), lambda: summarise(empty),
        lambda: compare(np.ones((3, 2)), empty), lambda: compare(np.empty((3, 0)), np.empty((3, 0))),
        lambda: share_of_cells(empty, empty), lambda: probability_of_improvement([], []), lambda: aggregate([]),
        lambda: aggregate([np.ones(3), []]), lambda: interval([empty], lambda drawn: 0.0),
    ):  # fmt: skip
        with pytest.raises(UserError, match="finish"):
            call()


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="same cells"):
        compare(np.ones((3, 1)), np.ones((3, 4)))  # NumPy would stretch the one
    with pytest.raises(ValueError, match="2 axes"):
        compare(np.ones(3), np.ones(3))
    with pytest.raises(ValueError, match="shorter"):
        probability_of_improvement([np.ones(3), np.ones(3)], [np.ones(3)])


# The run is the unit


def noisy(rng: np.random.Generator, n: int, cells: int) -> Array:
    """Make returns of which each run's level varies as much as its cells do around it; the truth is 0."""
    return rng.normal(size=(n, 1)) + rng.normal(size=(n, cells))


def test_more_cells_are_not_more_runs() -> None:
    rng = RNG(0)
    x, y = noisy(rng, 5, 40), noisy(rng, 4, 40)
    once, tenfold = compare(x, y), compare(np.tile(x, 10), np.tile(y, 10))
    collapsed = compare(x.mean(axis=1, keepdims=True), y.mean(axis=1, keepdims=True))
    assert tenfold.difference == pytest.approx(once.difference) and collapsed.difference == pytest.approx(
        once.difference
    )
    assert tenfold.probability == once.probability == collapsed.probability
    assert summarise(np.tile(x, 10)).iqm == pytest.approx(summarise(x).iqm)


@pytest.mark.slow
@pytest.mark.parametrize("n, bootstrap", [(2, None), (3, 0.80), (5, 0.87)])
def test_coverage(n: int, bootstrap: float | None) -> None:
    # The difference must keep what its interval promises. A bootstrap of so few runs would not: its level is about that
    # of ±1.96 √((n−1)/n) standard errors against Student's t with 2n−2 degrees of freedom.
    rng, experiments = RNG(n), 200
    covered, redrawn, cells = 0, 0, 0
    for experiment in range(experiments):
        x, y = noisy(rng, n, 16), noisy(rng, n, 16)
        low, high = compare(x, y, seed=experiment).difference[1:]
        covered += low <= 0 <= high
        for count, strata in enumerate(([x, y], [x.ravel(), y.ravel()])):
            low, high = interval(
                strata, lambda drawn: drawn[0].mean() - drawn[1].mean(), repetitions=200, seed=experiment
            )
            redrawn, cells = (redrawn, cells + (low <= 0 <= high)) if count else (redrawn + (low <= 0 <= high), cells)
    assert covered / experiments >= 0.95 - 0.03  # two standard errors of the proportion; more with two runs
    if bootstrap is not None:
        student = 2 * scipy.stats.t.cdf(1.96 * np.sqrt((n - 1) / n), 2 * n - 2) - 1
        assert student == pytest.approx(bootstrap, abs=0.02)
        assert redrawn / experiments == pytest.approx(bootstrap, abs=0.06)
        assert cells / experiments < bootstrap - 0.2  # cells drawn on their own: far too narrow


# Against SciPy


def test_holms_correction_by_hand() -> None:
    """Four p-values: 4 × 0.005, 3 × 0.01, 2 × 0.03, and 0.04, which may not be below the one before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []
    known = holm([0.01, np.nan, 0.02])  # what is not known yet counts all the same
    assert known[0] == pytest.approx(0.03) and known[2] == pytest.approx(0.04) and np.isnan(known[1])


def test_sample_sizes_agree_with_simulated_power() -> None:
    assert [seeds_needed(effect) for effect in (3.5, 2.2, 1.6, 1.4)] == [3, 5, 8, 10]  # published tables
    assert seeds_needed(-2.2) == 5
    assert seeds_needed(0.0) is seeds_needed(0.01) is seeds_needed(np.nan) is None
    rng, n = np.random.default_rng(0), seeds_needed(1.6)
    assert n is not None
    few, enough = (scipy.stats.ttest_ind(rng.normal(1.6, 1, (k, 5000)), rng.normal(0, 1, (k, 5000))).pvalue < 0.05
                   for k in (n - 1, n))  # fmt: skip
    assert few.mean() < 0.8 <= enough.mean()


def test_the_interval_of_a_difference_is_welchs() -> None:
    """The bounds are Welch's formula, mean ± t(0.975, df) · s.e., worked out apart from SciPy's test."""
    x = np.array([[10.0, 12.0], [13.0, 15.0], [19.0, 11.0], [14.0, 16.0]])
    y = np.array([[9.0, 8.0], [7.0, 12.0], [10.0, 11.0]])
    expected = (4.25, 1.3397562001516214, 7.160243799848379)
    assert compare(x, y).difference == pytest.approx(expected, rel=1e-12)
    assert compare(x, y).p == pytest.approx(scipy.stats.ttest_ind(x.mean(1), y.mean(1), equal_var=False).pvalue)
    without_spread = (5.25, 2.237863186143851, 8.262136813856149)  # only x has a spread, and no warning is shown
    assert compare(x, y[[0, 0, 0]]).difference == pytest.approx(without_spread, rel=1e-12)


@settings(deadline=None)
@given(matrices)
def test_mean_sem_and_iqm_agree_with_their_definitions(pair: tuple[Array, Array]) -> None:
    rows = pair[0]
    runs = rows.mean(axis=1)
    ordered = np.sort(rows, axis=None)
    cut = ordered.size // 4
    assert iqm(rows) == pytest.approx(ordered[cut : ordered.size - cut].mean())
    if len(runs) > 1:
        assert mean_sem(runs) == pytest.approx((runs.mean(), scipy.stats.sem(runs)))
        np.testing.assert_allclose(cell_table(rows)[1], scipy.stats.sem(rows, axis=0))


@settings(deadline=None)
@given(matrices)
def test_probability_of_improvement_agrees_with_mann_whitney(pair: tuple[Array, Array]) -> None:
    x, y = pair[0][:, 0], pair[1][:, 0]
    # The p-value, which is not used, needs the exact method: the other divides by zero if all values tie.
    u = scipy.stats.mannwhitneyu(x, y, method="exact").statistic
    assert probability_of_improvement([x], [y]) == pytest.approx(u / (len(x) * len(y)))


def test_interval_agrees_with_scipy() -> None:
    x, y = RNG(3).normal(size=7), RNG(4).normal(1, 2, size=5)
    ours = interval([x, y], lambda drawn: drawn[0].mean() - drawn[1].mean(), repetitions=10_000)
    theirs = scipy.stats.bootstrap(
        (x, y), lambda a, b, axis: a.mean(axis) - b.mean(axis), n_resamples=10_000, method="percentile", rng=RNG(0)
    ).confidence_interval
    assert ours == pytest.approx(tuple(theirs), abs=0.08)


def test_the_worst_quarter_by_hand() -> None:
    rows = np.array([[4.0, 1.0, 3.0, 2.0, 9.0, 9.0, 9.0, 9.0], [8.0, 7.0, 6.0, 5.0, 0.0, 2.0, 9.0, 9.0]])
    assert worst_quarter(rows).tolist() == [1.5, 1.0] and summarise(rows).worst == pytest.approx((1.25, 0.25))
    assert worst_quarter(rows, -1).tolist() == [9.0, 9.0]  # less is better
    assert worst_quarter(rows[:, :3]).tolist() == [1.0, 6.0]  # at least one cell


def test_the_interval_of_an_interquartile_mean_over_runs_agrees_with_scipy() -> None:
    rows = noisy(RNG(3), 6, 9)
    theirs = scipy.stats.bootstrap(
        (np.arange(6),), lambda drawn: scipy.stats.trim_mean(rows[drawn].mean(axis=1), 0.25), n_resamples=5000,
        vectorized=False, method="percentile", rng=RNG(0),
    ).confidence_interval  # fmt: skip
    _, low, high = summarise(rows).iqm
    assert (low, high) == pytest.approx(tuple(theirs), abs=0.05 * (high - low))


# Against rliable


@pytest.mark.parametrize("n, cells", [(8, 12), (5, 12), (3, 4), (1, 8)])
def test_the_interquartile_mean_of_a_summary_agrees_with_rliable(rliable: SimpleNamespace, n: int, cells: int) -> None:
    rows = RNG(n).gamma(2, size=(n, cells))
    assert summarise(rows).iqm.value == pytest.approx(rliable.metrics.aggregate_iqm(rows.mean(axis=1)[:, None]))


def test_aggregate_agrees_with_rliable(rliable: SimpleNamespace) -> None:
    scores = RNG(5).gamma(2, size=(6, 4))  # runs × environments
    np.random.seed(0)
    points, intervals = rliable.library.get_interval_estimates(
        {"x": scores}, lambda s: np.array([rliable.metrics.aggregate_iqm(s)]), reps=4000
    )
    value, low, high = aggregate(list(scores.T))
    assert value == pytest.approx(points["x"][0])
    assert (low, high) == pytest.approx(intervals["x"][:, 0], abs=0.05 * (high - low))


def test_probability_of_improvement_agrees_with_rliable(rliable: SimpleNamespace) -> None:
    x, y = RNG(6).normal(0.5, size=(6, 3)), RNG(7).normal(size=(5, 3))
    np.random.seed(0)
    points, intervals = rliable.library.get_interval_estimates(
        {"x": [x, y]}, lambda a, b: np.array([rliable.metrics.probability_of_improvement(a, b)]), reps=1000
    )
    assert probability_of_improvement(list(x.T), list(y.T)) == pytest.approx(points["x"][0])
    low, high = interval([*x.T, *y.T], lambda drawn: probability_of_improvement(drawn[:3], drawn[3:]))
    assert (low, high) == pytest.approx(intervals["x"][:, 0], abs=0.1 * (high - low))


def test_compare_in_one_cell_agrees_with_rliable(rliable: SimpleNamespace) -> None:
    x, y = RNG(8).normal(0.3, size=(6, 1)), RNG(9).normal(size=(6, 1))
    np.random.seed(0)
    points, intervals = rliable.library.get_interval_estimates(
        {"x": [x, y]}, lambda a, b: np.array([rliable.metrics.probability_of_improvement(a, b)]), reps=2000
    )
    value, low, high = compare(x, y).probability
    assert value == pytest.approx(points["x"][0])
    assert (low, high) == pytest.approx(intervals["x"][:, 0], abs=0.1 * (high - low))


# Properties


@settings(deadline=None)
@given(matrices)
def test_what_one_wins_the_other_loses(pair: tuple[Array, Array]) -> None:
    x, y = pair
    assert share_of_cells(x, y) + share_of_cells(y, x) == pytest.approx(1)
    runs = [x.mean(axis=1)], [y.mean(axis=1)]
    assert probability_of_improvement(*runs) + probability_of_improvement(*runs[::-1]) == pytest.approx(1)
    assert share_of_cells(x, x) == 0.5


@settings(deadline=None)
@given(matrices, st.integers(-99, 99), st.sampled_from([0.5, 2.0, 64.0]))
def test_unit_and_origin_do_not_matter(pair: tuple[Array, Array], shift: int, scale: float) -> None:
    (x, y), (moved_x, moved_y) = pair, (scale * matrix + shift for matrix in pair)
    before, after = compare(x, y), compare(moved_x, moved_y)
    assert after.share == pytest.approx(before.share, nan_ok=True)
    assert after.probability == pytest.approx(before.probability, nan_ok=True)
    assert after.difference == pytest.approx([scale * v for v in before.difference], nan_ok=True)
    assert after.verdict == before.verdict
    ours, moved = summarise(x), summarise(moved_x)
    assert moved.iqm == pytest.approx([scale * v + shift for v in ours.iqm], nan_ok=True)
    assert (moved.mean, moved.sem) == pytest.approx((scale * ours.mean + shift, scale * ours.sem), nan_ok=True)


@settings(deadline=None)
@given(matrices, st.randoms(use_true_random=False))
def test_order_of_seeds_and_cells_does_not_matter(pair: tuple[Array, Array], random: Any) -> None:
    x, y = pair
    cells = random.sample(range(x.shape[1]), x.shape[1])
    other = x[random.sample(range(len(x)), len(x))][:, cells]
    assert share_of_cells(other, y[:, cells]) == pytest.approx(share_of_cells(x, y))
    assert probability_of_improvement([other.mean(axis=1)], [y.mean(axis=1)]) == pytest.approx(
        probability_of_improvement([x.mean(axis=1)], [y.mean(axis=1)])
    )
    assert iqm(other) == pytest.approx(iqm(x))  # but for rounding
    assert mean_sem(other.mean(axis=1)) == pytest.approx(mean_sem(x.mean(axis=1)), nan_ok=True)


@settings(deadline=None)
@given(matrices)
def test_swapping_the_methods_swaps_the_numbers(pair: tuple[Array, Array]) -> None:
    forth, back = compare(*pair), compare(*pair[::-1])
    assert back.difference.value == pytest.approx(-forth.difference.value)
    assert back.share.value + forth.share.value == pytest.approx(1)
    assert back.probability.value + forth.probability.value == pytest.approx(1)
    assert (back.x_seeds, back.y_seeds) == (forth.y_seeds, forth.x_seeds)
