"""Several draws of one change, and probes: differences within runs, over runs and over draws, from made-up numbers."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from scipy.stats import ttest_1samp, ttest_ind, ttest_rel
from synthetic import CARS, make_races
from test_report import cells_of, part_of, words, write

from sparc.envs.declared import group_draws
from sparc.report import stats
from sparc.report.figures.draws import draw_changes, has_draws
from sparc.report.figures.races import has_new_physics
from sparc.report.measured import changes
from sparc.report.page.data import ReportData
from sparc.report.page.probes import r2
from sparc.suites.results import Results
from sparc.suites.tables import read
from sparc.suites.tables import write as write_tables
from sparc.text import number

DRAWS = ("draw-1", "draw-2", "draw-3", "draw-4")
METHODS = {"sparc": 0.95, "rma": 0.8, "only-obs": 0.55}
OOD = "out of distribution"


def raced(seeds: tuple[int, ...] = (0, 1, 2), variants: tuple[str, ...] = (*DRAWS, "stiffer")) -> Results:
    return make_races((CARS,), METHODS, seeds=seeds, cars=20, variants=variants)


def shifted(shifts: dict[str, list[list[float]]]) -> Results:
    """Make each draw change every ratio of a run by a known number: shifts of a method, (runs, draws)."""
    results = raced()
    part = results.envs[CARS]
    for key, rows in shifts.items():
        for seed, row in enumerate(rows):
            for draw, shift in zip(DRAWS, row, strict=True):
                part.variants[draw].measures[key][seed]["ratio"] = part.measures[key][seed]["ratio"] + shift
    return results


KNOWN = {
    "sparc": [[0.00, 0.01, 0.02, 0.03], [0.01, 0.02, 0.03, 0.04], [0.02, 0.03, 0.04, 0.05]],
    "rma": [[0.10, 0.12, 0.13, 0.14], [0.11, 0.13, 0.14, 0.15], [0.12, 0.14, 0.15, 0.16]],
    "only-obs": [[0.00, 0.06, -0.02, 0.04], [0.02, 0.08, 0.00, 0.06], [0.01, 0.07, -0.01, 0.05]],
}


def test_variants_that_differ_in_a_number_are_draws_of_one_change() -> None:
    assert group_draws(["updated", "draw-1", "draw-2", "gust-1", "gust-12"]) == {
        "draws": ["draw-1", "draw-2"],
        "gusts": ["gust-1", "gust-12"],
    }
    assert group_draws(["draw-1", "updated", "v2"]) == {}  # one alone is a variant like any other
    assert group_draws(["draw-1", "draw-2", "draws"]) == {}  # the name is taken


def test_draws_are_one_test_with_the_mean_of_each_run_in_each_context() -> None:
    results = raced()
    part = results.envs[CARS]
    assert list(results.tests) == [CARS, f"{CARS}, draws", f"{CARS}, stiffer"]
    assert list(results.parts) == [CARS, *(f"{CARS}, {name}" for name in (*DRAWS, "stiffer"))]  # tables keep them apart
    together = results.tests[f"{CARS}, draws"]
    for name in ("clean", "ratio"):
        wanted = np.mean([part.variants[draw].measures["rma"][2][name] for draw in DRAWS], axis=0)
        np.testing.assert_allclose(together.measures["rma"][2][name], wanted)
    times = np.array([part.variants[draw].measures["rma"][2]["lap_time"] for draw in DRAWS])
    some = np.isfinite(times).any(axis=0)
    np.testing.assert_allclose(together.measures["rma"][2]["lap_time"][some], np.nanmean(times[:, some], axis=0))
    del part.variants["draw-3"].returns["rma"][1]
    assert list(results.tests[f"{CARS}, draws"].returns["rma"]) == [0, 2]  # only runs that have all draws


def test_endpoints_count_draws_once() -> None:
    results = raced()
    results.manifest["primary"] = [["sparc", "rma"]]
    found = ReportData(results).endpoints
    assert [(one.test, one.measure) for one in found] == [
        (test, name) for test in (CARS, f"{CARS}, draws", f"{CARS}, stiffer") for name in ("clean", "ratio")
    ]


def test_changes_are_within_each_run() -> None:
    results = shifted(KNOWN)
    for key, rows in KNOWN.items():
        np.testing.assert_allclose(changes(results.envs[CARS], DRAWS, key, "ood", "ratio"), rows)


def test_changes_are_told_over_runs_and_over_draws(tmp_path: Path) -> None:
    html = write(tmp_path, shifted(KNOWN))[1]
    title = f"What a new physics changes, 4 draws: {CARS}, {OOD}"
    for key, name in (("sparc", "SPARC"), ("only-obs", "Only Obs")):
        cell = cells_of(html, title, name)[2]  # completed, clean, ratio
        rows = np.array(KNOWN[key])
        over_runs, over_draws = rows.mean(axis=1), rows.mean(axis=0)
        assert cell.startswith(f"{number(rows.mean(), 4, True)} ± {number(stats.mean_sem(over_runs)[1], 4)}")
        low, high = (number(end, 4, True) for end in (over_draws.min(), over_draws.max()))
        assert f"over draws ± {number(stats.mean_sem(over_draws)[1], 4)}, {low} to {high}" in cell
    assert f"<h3>What the new physics changes: {CARS}, stiffer, {OOD}" in html
    assert f"<h3>{CARS}, draws, {OOD}" in html and f"<h3>{CARS}, draw-1" not in html
    assert "Of each run the mean over draw-1, draw-2, draw-3 and draw-4." in words(html)


def test_methods_are_compared_over_runs_and_paired_over_draws(tmp_path: Path) -> None:
    html = write(tmp_path, shifted(KNOWN))[1]
    title = f"Whose results change more, 4 draws: {CARS}, {OOD}"
    for key, name, clear in (("rma", "SPARC − RMA", True), ("only-obs", "SPARC − Only Obs", False)):
        cell = cells_of(html, title, name)[2]
        first, second = np.array(KNOWN["sparc"]), np.array(KNOWN[key])
        runs = ttest_ind(first.mean(axis=1), second.mean(axis=1), equal_var=False).confidence_interval()
        draws = ttest_rel(first.mean(axis=0), second.mean(axis=0)).confidence_interval()
        for word, found in (("over runs", runs), ("over draws", draws)):
            assert f"{word} {number(found.low, 4, True)} to {number(found.high, 4, True)}" in cell
        assert cell.startswith(number(first.mean() - second.mean(), 4, True))
        assert ("clear" in cell) == clear


def test_the_interval_of_a_mean_is_students() -> None:
    values = np.array([0.3, -0.1, 0.4, 0.2])
    wanted = ttest_1samp(values, 0.0).confidence_interval()
    assert stats.mean_interval(values) == pytest.approx((0.2, wanted.low, wanted.high))
    for too_few in (np.ones(1), np.full(3, 0.1)):
        assert np.isnan(stats.mean_interval(too_few).low)


def test_one_run_of_a_method_has_no_spread_over_runs_but_one_over_draws(tmp_path: Path) -> None:
    html = write(tmp_path, raced(seeds=(0,)))[1]
    cell = cells_of(html, f"What a new physics changes, 4 draws: {CARS}, {OOD}", "SPARC")[2]
    assert "(n = 1)" in cell and "over draws ± 0." in cell
    assert "over runs unknown" in cells_of(html, f"Whose results change more, 4 draws: {CARS}, {OOD}", "SPARC − RMA")[2]


def test_a_figure_has_a_dot_per_draw_and_their_mean_beside_them() -> None:
    results = shifted(KNOWN)
    panels = [axes for axes in draw_changes(results, CARS).axes if axes.get_ylabel() or axes.lines]
    panel = panels[4]  # completed, clean, ratio × OOD, IND
    assert panel.get_ylabel() == "change of the\nratio\n(less is better)"
    dots = {round(float(line.get_xdata()[0])): line.get_ydata() for line in panel.lines if line.get_marker() == "."}
    for place, rows in enumerate(KNOWN.values()):
        np.testing.assert_allclose(dots[place], np.mean(rows, axis=0))
    means = [box.lines[0].get_ydata()[0] for box in panel.containers if isinstance(box, ErrorbarContainer)]
    np.testing.assert_allclose(means, [np.mean(rows) for rows in KNOWN.values()])
    joined = [line for line in panel.lines if len(line.get_xdata()) == 3 and line.get_marker() == "None"]
    assert len(joined) == len(DRAWS)  # a line per draw from method to method
    assert has_draws(results, CARS) and has_new_physics(results, CARS, "stiffer")
    assert not has_new_physics(results, CARS, "draw-1")  # they are in one figure
    assert not has_draws(raced(variants=("updated",)), CARS)


# Probes


BIAS = {"as trained": 0.05, "stiffer": 0.15, "updated": 0.05}
SEEDS = (0, 1, 2, 3)


def probed(seeds: tuple[int, ...] = SEEDS) -> Results:
    """φ(h) of SPARC is off by a known bias in each physics; in the updated one, it is off up and down in turn."""
    results = raced(seeds, ("stiffer", "updated"))
    part = results.envs[CARS]
    truth = part.contexts[:, 5]  # grip
    for variant, bias in BIAS.items():
        for seed in seeds:
            off = bias + {"as trained": 0.01 * seed, "stiffer": 0.014 * seed, "updated": 0.02 * (-1) ** seed}[variant]
            readings = {"friction_true": truth, "friction_psi": truth + 0.01, "friction_phi": truth + off}
            part.variants.get(variant, part).measures["sparc"][seed] |= readings
    return results


def test_the_bias_of_a_probe_is_told_for_every_physics(tmp_path: Path) -> None:
    write_tables(probed(), tmp_path / "out")
    html = write(tmp_path, read(tmp_path / "out"))[1]  # also after the tables: other methods have no such numbers
    title = f"Friction read from ψ(c) and φ(h): {CARS}, {OOD}"
    told = {variant: cells_of(html, title, f"SPARC, {variant}<") for variant in BIAS}
    assert [cells[2].split(" ")[0] for cells in told.values()] == ["+0.065", "+0.171", "+0.050"]
    assert [cells[3].split(" ")[0] for cells in told.values()] == ["–", "+0.106", "−0.015"]
    assert all(cells[0].startswith("1.00 ± 0.00") for cells in told.values())
    assert "RMA, " not in part_of(html, title)  # has no readings
    text = words(html)
    assert "Stiffer: φ(h) of SPARC reads friction 0.106 higher than as trained (+0.106, 95 % interval +0.098" in text
    assert (
        "Updated: φ(h) of SPARC is not shown to read friction otherwise than as trained (−0.015, 95 % interval −"
        in text
    )


def test_one_run_alone_shows_no_bias_and_tests_without_readings_are_named(tmp_path: Path) -> None:
    results = probed((0,))
    expected = (
        "Stiffer: φ(h) of SPARC is not shown to read friction otherwise than as trained (+0.100, no interval, 1 run)"
    )
    assert expected in words(write(tmp_path, results)[1])
    results.envs[CARS].measures["sparc"][0]["friction_phi"] = np.full(20, np.nan)  # of a version without probes
    text = words(write(tmp_path, results)[1])
    assert "SPARC, stiffer: no reading as trained to compare with; evaluate the runs again." in text


def test_results_without_probes_have_no_table_of_them(tmp_path: Path) -> None:
    assert "ridge regression" not in write(tmp_path, raced(variants=("updated",)))[1]


def test_the_quality_of_a_reading() -> None:
    truth = np.array([1.0, 2.0, 3.0, 4.0])
    assert r2(truth, truth) == 1.0 and r2(np.full(4, 2.5), truth) == 0.0
    assert r2(truth + 0.5, truth) == pytest.approx(1 - 4 * 0.25 / 5)
    assert r2(np.array([1.0, np.nan, 3.0, 4.0]), truth) == 1.0 and np.isnan(r2(np.full(4, np.nan), truth))
    assert np.isnan(r2(truth, np.ones(4)))  # nothing to be told apart
