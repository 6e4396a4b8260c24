"""What the page says of evidence: the answer, contexts that measure themselves, experts, and the paper's return."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_ind
from synthetic import CARS, ENVS, make_races, make_results

from sparc.report import stats
from sparc.report.figures.suite import differences
from sparc.report.page import idle, tables, training
from sparc.report.page.data import ReportData
from sparc.report.page.primary import primary, sentences
from sparc.suites.results import EXPERT, Results

CHEETAH, HOPPER = ENVS[:2]
PAIRS = [["sparc", "rma"], ["sparc", "history-input"]]


def named(primary: list[list[str]], **given: Any) -> ReportData:
    results = make_results(**({"grid": 5, "seeds": tuple(range(5))} | given))
    results.manifest["primary"] = primary
    return ReportData(results)


# The answer


def test_the_answer_has_three_sentences_that_follow_from_the_endpoints() -> None:
    levels = {"sparc": 1.0, "rma": 0.5, "history-input": 1.5}
    better, worse, sure = sentences(named(PAIRS, methods=levels))
    assert better == "Out of distribution, SPARC is better than RMA in every test."
    assert worse == "SPARC is worse than History Input in every test."
    assert sure.startswith("Of the 6 comparisons, named before the first run, 6 are clear") and "with 5 seeds" in sure
    alone = sentences(named(PAIRS, methods={**levels, "history-input": 0.5}))
    assert alone[0] == "Out of distribution, SPARC is better than RMA and History Input in every test."
    assert alone[1] == "This holds in every test."


def test_the_answer_names_tests_where_they_differ_and_says_where_seeds_are_too_few() -> None:
    data = named(
        [["sparc", "rma"]], methods={"sparc": 1.0, "rma": 0.5}, gaps=tuple((HOPPER, "rma", s) for s in range(5))
    )
    better, rest, sure = sentences(data)
    assert better.endswith("SPARC is better than RMA in WindHalfCheetah-v5 and WindWalker2d-v5.")
    assert rest == "SPARC has no results to compare with RMA in WindHopper-v5."
    assert "Of the 3 comparisons" in sure and "2 are clear" in sure
    one = sentences(named(PAIRS, seeds=(0,)))
    assert one[0] == "Out of distribution, SPARC is not shown to be better than RMA or History Input in any test."
    assert one[1] == "SPARC has too few seeds to be told from RMA and History Input in any test."
    two = sentences(named([["sparc", "rma"], ["history-input", "rma"]], seeds=(0,)))
    assert two[0].endswith("SPARC and History Input are not shown to be better than RMA in any test.")
    assert "none is clear" in one[2] and one[2].endswith("with 1 seed per method.")


def test_the_answer_describes_how_the_first_method_does_against_one_that_knows_nothing() -> None:
    levels = {"sparc": 1.0, "rma": 0.5, "history-input": 1.5, "only-obs": 0.5, "oracle": 2.0}
    data = named(PAIRS, methods=levels)
    shown = primary(data)
    assert shown is not None and shown.baselines == "SPARC is better than Only Obs in every test"
    assert [one.second for one in data.endpoints] == ["rma"] * 3 + ["history-input"] * 3  # it is no endpoint
    mixed = named(PAIRS, methods=levels | {"only-obs": 1.5}, gaps=tuple((HOPPER, "only-obs", s) for s in range(5)))
    shown = primary(mixed)
    assert shown is not None and shown.baselines == (
        "SPARC is worse than Only Obs in WindHalfCheetah-v5 and WindWalker2d-v5; "
        "SPARC has no results to compare with Only Obs in WindHopper-v5"
    )
    endpoint = named([["sparc", "only-obs"]], methods=levels)
    shown = primary(endpoint)
    assert shown is not None and not shown.baselines  # it stands among the endpoints


def test_methods_without_results_are_called_by_their_titles() -> None:
    better, rest, _ = sentences(named([["sparc", "rma"], ["sparc", "history-input H=5"]], methods={"sparc": 1.0}))
    assert better.endswith("SPARC is not shown to be better than RMA or History Input H=5 in any test.")
    assert "RMA and History Input H=5" in rest


def test_the_answer_of_a_race_names_a_measure_only_where_the_other_says_something_else() -> None:
    results = make_races((CARS,), seeds=tuple(range(5)))
    results.manifest["primary"] = [["sparc", "only-obs"]]
    assert sentences(ReportData(results))[0] == f"Out of distribution, SPARC is better than Only Obs in {CARS}."
    for values in results.envs[CARS].measures["sparc"].values():
        values["clean"] = results.envs[CARS].measures["only-obs"][0]["clean"].copy()
    better, rest, _ = sentences(ReportData(results))
    assert better.endswith(f"SPARC is better than Only Obs in {CARS} (ratio).")
    assert rest.endswith(f"Only Obs in {CARS} (clean laps).")


# Two ways to a p-value


def test_pooled_variance_stands_beside_welch_and_both_are_scipys() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(0, 1, (4, 3)), rng.normal(1, 3, (7, 3))
    found = stats.compare(x, y)
    runs = x.mean(axis=1), y.mean(axis=1)
    assert found.p == pytest.approx(ttest_ind(*runs, equal_var=False).pvalue)
    assert found.pooled_p == pytest.approx(ttest_ind(*runs, equal_var=True).pvalue) and found.pooled_p != found.p
    assert np.isnan(stats.compare(x[:1], y).pooled_p)
    data = named(PAIRS)
    assert [e.pooled_p for e in data.endpoints] == stats.holm(
        [e.comparison.pooled_p for e in data.endpoints if e.comparison]
    )
    shown = primary(data)
    assert shown is not None and all(row.p != "–" and row.pooled_p != "–" for row in shown.rows)


def test_one_or_two_runs_have_no_percentages() -> None:
    for seeds, there in (((0, 1), False), ((0, 1, 2), True)):
        results = make_results((CHEETAH,), seeds=seeds, grid=5)
        data = ReportData(results)
        assert (tables.probabilities(data, [CHEETAH]) is not None) == there
        assert (tables.middles(data, [CHEETAH]) is not None) == there
        figure = differences(results, CHEETAH)
        titles = " ".join([panel.get_title() for panel in figure.axes] + [text.get_text() for text in figure.texts])
        assert ("%" in titles) == there and ("share of such cells" in titles) == there


# Contexts that measure themselves


def with_idle(results: Results, env: str, idle_: np.ndarray | None) -> Results:
    return Results(results.manifest, results.envs | {env: replace(results.envs[env], idle=idle_)})


def test_cells_in_which_doing_nothing_gets_much_are_reported_apart() -> None:
    results = make_results((CHEETAH, HOPPER), {"sparc": 1.0, "oracle": 1.2}, seeds=(0, 1), grid=5)
    part = results.envs[CHEETAH]
    best = max(rows.mean() for key in part.returns for rows in part.matrix(key, "ind"))
    assert idle.best_run(part) == pytest.approx(best)
    nothing = np.zeros(25)
    nothing[[0, 4]] = -0.26 * best, 0.26 * best  # corners of the grid
    nothing[12] = best  # its centre is in distribution, and no matter
    nothing[20] = 0.24 * best
    data = ReportData(with_idle(results, CHEETAH, nothing))
    carried = idle.carried_off(data.results.envs[CHEETAH])
    assert np.flatnonzero(carried).tolist() == [0, 4]
    table = idle.apart(data)
    assert table is not None and list(table.columns) == [CHEETAH]  # on the other robot nobody has measured it
    ood = int((~part.ind).sum())
    assert table.columns[CHEETAH] == [f"withstood, {ood - 2} cells", "carried off, 2 cells"]
    stood, off = (part.matrix("sparc")[:, cells].mean(axis=1) for cells in (~part.ind & ~carried, carried))
    assert [cell.text for cell in table.rows[0].cells] == [
        tables.spread(*stats.mean_sem(x), 2, 0) for x in (stood, off)
    ]
    assert table.rows[-1].name == "Doing nothing"
    assert [cell.text for cell in table.rows[-1].cells][1] == f"−{0.26 * best:,.0f} to {0.26 * best:,.0f}"
    for harmless in (None, np.zeros(25)):
        assert idle.apart(ReportData(with_idle(results, CHEETAH, harmless))) is None


def test_returns_are_split_only_where_some_contexts_carry_off_and_some_do_not() -> None:
    results = make_results((CHEETAH, HOPPER), {"sparc": 1.0}, seeds=(0, 1), grid=5)
    everywhere = with_idle(results, CHEETAH, np.full(25, 10 * idle.best_run(results.envs[CHEETAH])))
    assert idle.carried_off(everywhere.envs[CHEETAH]).sum() == (~results.envs[CHEETAH].ind).sum()
    assert idle.apart(ReportData(everywhere)) is None
    corner = np.zeros(25)
    corner[0] = idle.best_run(results.envs[HOPPER])
    table = idle.apart(ReportData(with_idle(everywhere, HOPPER, corner)))
    assert table is not None and list(table.columns) == [HOPPER]


# Evaluations during training


def test_when_each_seed_reaches_the_papers_return() -> None:
    results = make_results((CHEETAH,), {"sparc": 1.0, "rma": 1.0, "only-obs": 1.0}, seeds=(0, 1), grid=3)
    curves = results.envs[CHEETAH].curves
    for key, seed, rise in (("sparc", 0, 150_000), ("sparc", 1, 1e9), ("rma", 0, 10_000), ("rma", 1, 290_000)):
        curve = curves[key][seed]
        curves[key][seed] = replace(curve, returns=np.where(curve.updates >= rise, 5000.0, 100.0))
    for member in results.manifest["members"]:
        member["config"]["updates"] = 300_000
    results.manifest["reference"] = {
        "title": "paper",
        "updates": 1,
        "ood": {CHEETAH: {"sparc": [4000, 1], "rma": [4000, 1]}},
    }
    table = training.reached(ReportData(results))
    assert table is not None
    sparc, rma, only_obs = (row.cells[0] for row in table.rows)
    assert sparc.text == "1 of 2 (4,000)" and sparc.notes[0].text == "50 · – %"
    assert rma.notes[0].text == "77 · 97 %"  # its first phase tests the expert, which ends after 220,000 updates
    assert only_obs.gap  # the paper has no number
    results.manifest["reference"] = None
    assert training.reached(ReportData(results)) is None


def test_the_expert_stands_beside_its_policy_in_and_out_of_distribution() -> None:
    results = make_results((CHEETAH, HOPPER), {"sparc": 1.0, "rma": 1.0, "only-obs": 1.0}, seeds=(0, 1, 2), grid=5)
    part = results.envs[CHEETAH]
    gains = {0: 10.0, 2: 30.0}  # the expert of seed 1 was not tested
    for key, seeds in part.returns.items():
        for seed, returns in seeds.items():
            gain = gains.get(seed, np.nan) if key == "sparc" else np.nan  # as it is read from a table
            part.measures.setdefault(key, {})[seed] = {EXPERT: returns + np.where(part.ind, gain, 2 * gain)}
    for curve in part.curves["rma"].values():
        curve.measures[EXPERT] = curve.returns  # known from training, but nobody has tested it
    for member in results.manifest["members"]:
        member["checkpoint"] = 300_000
    table = training.experts(ReportData(results))
    assert table is not None and [row.name for row in table.rows] == ["SPARC", "RMA"]
    assert list(table.columns) == [f"{env}, {region}" for env in (CHEETAH, HOPPER) for region in ("OOD", "IND")]
    for cells, region, gain in (
        (table.rows[0].cells[:2], "ood", (20, 60)),
        (table.rows[0].cells[2:4], "ind", (10, 30)),
    ):
        policy = part.matrix("sparc", region).mean(axis=1)[[0, 2]]
        for cell, values in zip(cells, (policy, policy + gain), strict=True):
            assert cell.text == tables.spread(*stats.mean_sem(values), 2, 0)
        assert [note.text for note in cells[0].notes] == ["2 of 3 seeds ⚠"]
        lost = tables.spread(*stats.mean_sem(gain), 2, 0, signed=True)
        assert [note.text for note in cells[1].notes] == [lost, "2 of 3 seeds ⚠"]
    rest = [*table.rows[0].cells[4:], *table.rows[1].cells]
    assert all(cell.gap and cell.text == "–" for cell in rest)


def test_of_results_without_tested_experts_those_in_training_are_shown() -> None:
    results = make_results((CHEETAH,), {"sparc": 1.0, "only-obs": 1.0}, seeds=(0, 1), grid=3)
    assert training.experts(ReportData(results)) is None
    for seed, curve in results.envs[CHEETAH].curves["sparc"].items():
        curve.measures["expert_return"] = curve.returns + 100.0 * (seed + 1)
    for member in results.manifest["members"]:
        member["checkpoint"] = 200_000
    table = training.experts(ReportData(results))
    assert table is not None and [row.name for row in table.rows] == ["SPARC"]
    assert table.columns == {CHEETAH: ["policy", "expert"]}
    returns = [curve.returns[19] for curve in results.envs[CHEETAH].curves["sparc"].values()]
    expert = [value + 100.0 * (seed + 1) for seed, value in enumerate(returns)]
    assert [cell.text for cell in table.rows[0].cells] == [
        tables.spread(*stats.mean_sem(values), 2, 0) for values in (returns, expert)
    ]
