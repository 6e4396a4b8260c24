"""Measures of continual learning against numbers worked out by hand; their table and figures."""

from pathlib import Path

import numpy as np
import pytest

from sparc.contexts import ContextSpace
from sparc.envs.measures import RETURN, Criteria, Measure
from sparc.envs.registry import get_env
from sparc.methods import all_methods
from sparc.report.continual import chains, forward_transfer, has_stages, judged_by, measure, progress, time_to
from sparc.report.figures.registry import write_all
from sparc.report.page import write_report
from sparc.report.page.continual import answers, numbers, table
from sparc.report.page.data import ReportData
from sparc.report.page.runs import head
from sparc.report.page.tables import stage_budgets
from sparc.suites.results import Curve, EnvResults, Results
from sparc.suites.stages import describe, read_stages
from sparc.suites.tables import read, write

BOAT = "DriftingBoat-v0"
STAGES = {
    "inner": {},
    "corner": {"after": "inner", "train_region": {"x": [0.6, 1.0], "y": [0.6, 1.0]}},
    "other": {"after": "corner", "train_region": {"x": [-1.0, -0.6], "y": [-1.0, -0.6]}},
    "other-anew": {"train_region": {"x": [-1.0, -0.6], "y": [-1.0, -0.6]}},
}
# R[stage, region]: inner, corner, other
RETURNS = {"inner": (90, 50, 40), "corner": (80, 95, 30), "other": (70, 85, 60), "other-anew": (10, 10, 80)}


MISSES = Criteria({"misses": Measure("misses", better=-1, unit="%", scale=100.0, digits=2)}, ("misses",))


def made(methods: tuple[str, ...] = ("sparc", "rma"), criteria: Criteria | None = None) -> Results:
    """Return results with returns as above; misses are 200 minus the return, and less is better."""
    space: ContextSpace = get_env(BOAT).context_space
    contexts = space.grid(11)
    part = EnvResults(space, contexts, space.is_train(contexts), criteria=criteria or Criteria())
    stages = describe(read_stages(STAGES), [BOAT])
    corner, other = (contexts >= 0.6 - 1e-9).all(axis=1), (contexts <= -0.6 + 1e-9).all(axis=1)
    members = []
    for method in methods:
        for name, (inner, second, third) in RETURNS.items():
            for seed in (0, 1):
                returns = np.where(space.is_train(contexts), float(inner), 0.0)
                returns[corner], returns[other] = second, third
                part.returns.setdefault(f"{method} {name}", {})[seed] = returns + seed
                part.measures.setdefault(f"{method} {name}", {})[seed] = {"misses": 200.0 - returns - seed}
                updates = np.array([0.0, 50.0, 100.0])
                columns = {f"stage_{i}_return": np.array([40.0, 79.0, 85.0]) for i in (1, 2, 3)}
                phase, values = np.array(["train"] * 3), np.array([0.0, 40.0, 80.0])
                columns |= {f"stage_{i}_misses": 200.0 - columns[f"stage_{i}_return"] for i in (1, 2, 3)}
                columns |= {"dormant_actor": np.array([np.nan, 0.2, 0.3]), "misses": 200.0 - values}
                part.curves.setdefault(f"{method} {name}", {})[seed] = Curve(updates, values, phase, columns)
                run = f"{BOAT}/{method}-{name}/seed{seed}"
                members.append({
                    "env": BOAT, "method": method, "variation": name, "seed": seed, "state": "done", "note": "",
                    "run": run, "updates": 100, "checkpoint": 100, "train_seconds": 1.0, "config": {"updates": 100},
                    "versions": {}, "machine": {},
                })  # fmt: skip
    manifest = {
        "suite": "made", "title": "Made up", "about": "", "updates": 100, "grid": 11, "episodes": 1, "variants": [],
        "made": "2026-01-01T00:00:00+00:00", "contexts": {BOAT: space.to_dict()}, "stages": stages, "reference": None,
        "commands": ["sparc suite run made"], "members": members,
        "methods": {name: all_methods()[name].describe() for name in methods},
        "criteria": {BOAT: part.criteria.to_dict()},
    }  # fmt: skip
    return Results(manifest, {BOAT: part})


def test_a_chain_is_what_a_stage_comes_from() -> None:
    found = {chain.stages: chain.anew for chain in chains(made(("sparc",)), BOAT)}
    assert found == {("inner", "corner"): None, ("inner", "corner", "other"): "other-anew"}


def test_measures_by_hand() -> None:
    results = made(("sparc",))
    last = measure(results, BOAT, chains(results, BOAT)[-1])
    assert last.seeds == [0, 1]
    for values, expected in (
        (last.zero_shot, 30), (last.learned, 60), (last.before, (80 + 95) / 2), (last.after, (70 + 85) / 2),
        (last.average, (70 + 85 + 60) / 3),
    ):  # fmt: skip
        np.testing.assert_allclose(values, [expected, expected + 1])
    np.testing.assert_allclose(last.forgetting, [((90 - 70) + (95 - 85)) / 2] * 2)
    np.testing.assert_allclose(last.backward, [((70 - 90) + (85 - 95)) / 2] * 2)
    np.testing.assert_allclose(last.dormant, [0.3, 0.3])
    np.testing.assert_allclose(last.dormant_first, [0.2, 0.2])
    assert last.updates.tolist() == [50.0, 50.0] and last.updates_anew.tolist() == [100.0, 100.0]
    # areas: 40 → 79 → 85 is 70.75 in the mean, anew 0 → 40 → 80 is 40; the best in that region has 80.5
    np.testing.assert_allclose(last.forward, [(70.75 - 40) / (80.5 - 40)] * 2, atol=0.002)


def test_of_a_measure_less_may_be_better() -> None:
    results = made(("sparc",), MISSES)
    assert list(judged_by(results, BOAT)) == ["misses"]
    chain = chains(results, BOAT)[-1]
    by_return, by_misses = measure(results, BOAT, chain), measure(results, BOAT, chain, "misses")
    for name in ("zero_shot", "learned", "before", "after", "average"):
        np.testing.assert_allclose(getattr(by_misses, name), 200.0 - getattr(by_return, name))
    for name in ("forgetting", "backward", "forward"):  # a loss is a loss, and a gain a gain
        np.testing.assert_allclose(getattr(by_misses, name), getattr(by_return, name))
    assert by_misses.forgetting[0] == 15.0 and by_misses.backward[0] == -15.0
    # goal: 2 % more than the 120 misses that training anew ends with; 122.4
    assert by_misses.updates.tolist() == [50.0, 50.0] and by_misses.updates_anew.tolist() == [100.0, 100.0]


def test_the_page_shows_what_judges_the_environment(tmp_path: Path) -> None:
    write(made(criteria=MISSES), tmp_path)
    results = read(tmp_path)
    shown = numbers(ReportData(results))
    assert shown is not None
    (only,) = shown.tables
    assert only.title == f"{BOAT}: what each stage learned, kept and lost, by misses [%], less is better"
    row = next(row for row in only.rows if row.name == "SPARC other")
    assert row.cells[0].text.startswith("16,950.00") and row.cells[5].text.startswith("+1,500.00")  # in percent
    figures = write_all(results, tmp_path / "figures")
    (stages,) = [figure for figure in figures if figure.entry.name == "stages"]
    drawn = stages.stem.with_suffix(".svg").read_text()
    write_report(results, tmp_path / "report.html", figures)
    assert "misses [%] (less is better)" in drawn and "mean return" not in drawn


def test_the_page_opens_with_what_each_stage_of_the_first_method_brought() -> None:
    data = ReportData(made())
    assert answers(data) == [
        ("SPARC corner", "return 50.5 → 95.5 in the new region, 90.5 → 80.5 in the region before."),
        ("SPARC other", "return 30.5 → 60.5 in the new region, 88.0 → 78.0 in the regions before."),
    ]
    assert head(data).summary.startswith("2 methods (SPARC and RMA), 4 stages in 1 environment")
    data.members[-1]["config"]["updates"] = 250  # RMA's second seed
    assert stage_budgets(data) == ["100 updates (inner, corner, other, other-anew; RMA 250)"]
    less = ReportData(made(("only-obs",), MISSES))
    assert answers(less)[0] == (
        "Only Obs corner",
        "misses 14,950.00 → 10,450.00 % in the new region, 10,950.00 → 11,950.00 % in the region before.",
    )


def test_a_method_of_two_phases_has_no_curve_to_compare() -> None:
    results = made(("rma",))
    found = measure(results, BOAT, chains(results, BOAT)[-1])
    assert np.isnan(found.forward).all() and np.isnan(found.updates).all() and np.isfinite(found.forgetting).all()


def test_only_what_was_trained_anew_is_compared_with_it() -> None:
    results = made(("sparc", "only-obs"))
    results.manifest["members"] = [
        member
        for member in results.manifest["members"]
        if (member["method"], member["variation"]) != ("only-obs", "other-anew")
    ]
    del results.envs[BOAT].returns["only-obs other-anew"], results.envs[BOAT].curves["only-obs other-anew"]
    found = {chain.last: chain.anew for chain in chains(results, BOAT)}
    assert found["sparc other"] == "other-anew" and found["only-obs other"] is None
    shown = table(ReportData(results), BOAT)
    cells = {row.name: [cell.text for cell in row.cells] for row in shown.rows}
    compared = slice(7, 10)  # forward transfer, updates, updates anew
    assert "–" not in cells["SPARC other"][compared]
    assert cells["Only Obs other"][compared] == ["–"] * 3 and "–" not in cells["Only Obs other"][:7]


def test_what_is_not_there_is_nan() -> None:
    curve = Curve(np.array([1.0]), np.array([1.0]), np.array(["train"]), {"stage_2_return": np.array([1.0])})
    assert progress(curve, curve, "stage_2_return", RETURN, 1) is not None
    for missing in ((None, curve, "stage_2_return", RETURN), (curve, None, "stage_2_return", RETURN),
                    (curve, curve, "stage_3_return", RETURN), (curve, curve, "stage_2_return", "ratio")):  # fmt: skip
        assert progress(*missing, 1) is None
    assert np.isnan(forward_transfer(None, 1.0)) and np.isnan(time_to(None)).all()
    results = made(("sparc",))
    del results.envs[BOAT].returns["sparc corner"]
    assert not has_stages(results, BOAT)


def test_tables_figures_and_page(tmp_path: Path) -> None:
    write(made(), tmp_path)
    results = read(tmp_path)
    assert chains(results, BOAT) == chains(made(), BOAT)
    figures = write_all(results, tmp_path / "figures")
    names = {figure.entry.name for figure in figures}
    assert {"stages", "stage-curves"} <= names and "curves" not in names
    write_report(results, tmp_path / "report.html", figures)
    page = (tmp_path / "report.html").read_text()
    assert "what each stage learned, kept and lost" in page and "forward transfer" in page
    assert "SPARC other" in page and "+15.0" in page  # the forgetting


def test_no_stages_no_figures(tmp_path: Path) -> None:
    results = made(("sparc",))
    del results.manifest["stages"]
    assert not has_stages(results, BOAT) and not chains(results, BOAT)


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        ({"a": {"after": "b"}}, "stage 'a' comes after 'b', which is no stage above it"),
        ({"a": {"kep": 1}}, "unknown field 'kep': did you mean 'keep'"),
        ({"a/b": {}}, "becomes part of a folder's name"),
        ({"a": {"train_region": {"z": [0, 1]}}}, "stage 'a': unknown context feature 'z'"),
        ({"a": {"train_region": {"x": [0, 5]}}}, "stage 'a': x=0:5 reaches outside the test region"),
        ({"a": {"train_region": {"x": 3}}}, r"stage 'a': the range of x must be two numbers, \(low, high\), not 3"),
        ({"a": {"train_region": {"x": [0, "y"]}}}, r"stage 'a': the range of x must be two numbers"),
        ({"a": {"train_region": {5: [0, 1]}}}, "stage 'a': unknown context feature '5'"),
        ([], "stages must hold"),
    ],
)
def test_stages_that_cannot_be(stages: object, says: str) -> None:
    from sparc.errors import UserError
    from sparc.suites.stages import check_regions

    with pytest.raises(UserError, match=says):
        check_regions(read_stages(stages), [BOAT])
