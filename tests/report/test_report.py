"""The report page: what it says, read as text and in a real browser."""

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import find, find_all, resize
from matplotlib.image import imsave
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from synthetic import CARS, ENVS, METHODS, POWER_MASS, make_results

from sparc.contexts import ContextSpace, Finite
from sparc.report import stats
from sparc.report.figures.entry import DrawnFigure
from sparc.report.figures.registry import FIGURES
from sparc.report.page import write_report
from sparc.report.page.data import ReportData
from sparc.report.page.primary import endpoint_verdict
from sparc.suites.results import EnvResults, Results
from sparc.text import count, duration, fraction, number, ranges

LAPTOP, PHONE = (1366, 768), (360, 740)
CHEETAH, HOPPER, WALKER = ENVS
ALL_ENVS = (*ENVS, CARS, POWER_MASS)
NAMES = {"sparc": "SPARC", "rma": "RMA", "only-obs": "Only Obs", "history-input": "History Input", "oracle": "Oracle"}
GAPS = ((HOPPER, "rma", 1), *((WALKER, "rma", seed) for seed in range(3)))


def draw_figures(folder: Path, *names: str) -> list[DrawnFigure]:
    """Tiny pictures in place of the real ones, which take their time; the SVG is the smaller file."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for entry in FIGURES:
        for name in names:
            if name == entry.name or name.startswith(f"{entry.name}-"):
                (folder / f"{name}.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')
                imsave(folder / f"{name}.png", np.zeros((9, 9)))
                env = "" if entry.per == "suite" else next((env for env in ALL_ENVS if name.endswith(env)), name)
                drawn.append(DrawnFigure(entry, folder / name, env))
    assert len(drawn) == len(names)
    return drawn


def write(folder: Path, results: Results, *names: str) -> tuple[Path, str]:
    path = folder / "report.html"
    write_report(results, path, draw_figures(folder / "figures", *names))
    return path, path.read_text()


def words(html: str) -> str:
    """What a reader sees, roughly: no scripts, no tags."""
    html = re.sub(r"<(script|style).*?</\1>", " ", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", html)))


def part_of(html: str, title: str) -> str:
    """The rows of the table below a heading."""
    return html[html.index(f"<h3>{title}") :].split("</table>")[0]


def cells_of(html: str, title: str, name: str) -> list[str]:
    """The cells of a method's row."""
    (found,) = [row for row in part_of(html, title).split("<tr")[1:] if f'<th scope="row">{name}' in row]
    return [words(cell).strip() for cell in re.findall(r"<td.*?</td>", found, re.DOTALL)]


# Read as text


def test_numbers_are_written_for_readers() -> None:
    assert [number(-1234.5, 1), number(0.04, 1, True), number(7, 0, True)] == ["−1,234.5", "0.0", "+7"]
    assert [number(float("nan")), number(None), number(float("inf"))] == ["–"] * 3
    assert [fraction(300_000, 3_000_000), fraction(700_000, 3_000_000)] == ["a tenth", "23 %"]
    assert [count(3_000_000), count(1_500_000), count(300_000)] == ["3 M", "1.5 M", "300,000"]
    assert [duration(42), duration(1650), duration(7260), duration(None)] == ["42 s", "28 min", "2 h 01 min", "–"]
    assert [ranges([0, 1, 2, 5]), ranges([1, 0]), ranges([3])] == ["0–2, 5", "0, 1", "3"]


def test_the_head_says_what_was_run(tmp_path: Path) -> None:
    text = words(write(tmp_path, make_results(grid=3))[1])
    assert "300,000 updates, a tenth of the paper’s 3 M" in text
    assert "seeds 0–2: 45 of 45 runs done" in text
    assert "jax 0.10.0" in text and "processor: a processor" in text and "2026-01-01" in text
    assert "⚠" not in text.split("How to read this")[1].split("Runs")[0]


def test_a_method_that_trains_longer_is_named(tmp_path: Path) -> None:
    results = make_results(grid=3)
    for member in results.manifest["members"]:
        member["config"]["updates"] = 400_000 if member["method"] == "rma" else 300_000
    assert "300,000 updates (RMA 400,000)" in words(write(tmp_path, results)[1])


def test_a_method_that_reads_the_context_is_never_marked_as_best(tmp_path: Path) -> None:
    results = make_results(ENVS[:2], {"sparc": 1.0, "rma": 0.9, "all-seeing": 1.5})
    results.manifest["methods"] = {"all-seeing": {"title": "All-Seeing", "reads": "context"}}
    results.manifest["reference"] = None
    html = write(tmp_path, results)[1]
    rows = [row.split("</tr>")[0] for row in html.split("<tr") if '<th scope="row">All-Seeing' in row]
    assert len(rows) >= 4 and "★" not in "".join(rows)  # means IND and OOD, interquartile means, over all environments
    title = "Mean return out of distribution"
    stars = {name: cells_of(html, title, name)[0].startswith("★") for name in ("SPARC", "RMA", "All-Seeing")}
    assert stars == {"SPARC": True, "RMA": False, "All-Seeing": False}


def test_tables_hold_the_numbers_of_the_results(tmp_path: Path) -> None:
    results = make_results()
    html = write(tmp_path, results)[1]
    for title, region in (("Mean return out of distribution", "ood"), ("Mean return in distribution", "ind")):
        means = {env: {k: results.envs[env].matrix(k, region).mean() for k in METHODS if k != "oracle"} for env in ENVS}
        best = {env: max(found, key=lambda k: found[k]) for env, found in means.items()}
        for key, name in NAMES.items():
            cells = cells_of(html, title, name)
            ours = cells[::2] if region == "ood" else cells
            for env, cell in zip(ENVS, ours, strict=True):
                mean, sem = stats.mean_sem(results.envs[env].matrix(key, region).mean(axis=1))
                assert cell.removeprefix("★ ") == f"{mean:,.0f} ± {sem:,.0f}"
                assert cell.startswith("★") == (key == best[env])
            if region == "ood":
                assert [cell.removeprefix("★ ") for cell in cells[1::2]] == [f"{4000 * METHODS[key]:,.0f} ± 100"] * 3
    middle = results.envs[HOPPER].matrix("rma", "ind")
    value, low, high = stats.summarise(middle).iqm
    assert cells_of(html, "Interquartile mean (IQM) over seeds", "RMA")[3] == f"{value:,.0f} {low:,.0f} to {high:,.0f}"
    chance = stats.compare(*(results.envs[CHEETAH].matrix(key, "ood") for key in ("sparc", "rma"))).probability
    shown = cells_of(html, "Probability of improvement", "SPARC over RMA")
    assert shown[0] == f"{chance.value:.2f} {chance.low:.2f} to {chance.high:.2f} 3 × 3 pairs of runs"
    runs = [[results.envs[env].matrix(key, "ood").mean(axis=1) for env in ENVS] for key in ("sparc", "rma")]
    assert shown[3].startswith(f"{stats.probability_of_improvement(*runs):.2f} ")


ALL = "Interquartile mean (IQM) over all environments"


def scores(results: Results, key: str, envs: tuple[str, ...], unit: str = "oracle") -> list[np.ndarray]:
    """The OOD returns of each run, divided by the mean of a reference."""
    parts = [results.envs[env] for env in envs]
    return [part.matrix(key, "ood").mean(axis=1) / part.matrix(unit, "ood").mean() for part in parts]


def test_the_aggregate_over_environments_is_that_of_returns_relative_to_the_oracle(tmp_path: Path) -> None:
    results = make_results(grid=5)
    html = write(tmp_path, results)[1]
    for key, name in NAMES.items():
        value, low, high = stats.aggregate(scores(results, key, ENVS))
        (cell,) = cells_of(html, ALL, name)
        assert cell.removeprefix("★ ") == f"{value:.2f} {low:.2f} to {high:.2f} 9 runs"
        assert cell.startswith("★") == (key == "sparc")
    text = words(html)
    assert (
        "of WindHalfCheetah-v5, WindHopper-v5 and WindWalker2d-v5. Of each run its mean OOD return, divided by" in text
    )
    assert "so that 1 is as good as Oracle" in text and "⚠ Without" not in text


def test_the_aggregate_leaves_out_where_somebody_has_no_results(tmp_path: Path) -> None:
    results = make_results(gaps=GAPS, grid=5)
    html = write(tmp_path, results)[1]
    value = stats.aggregate(scores(results, "rma", (CHEETAH, HOPPER))).value  # one of three seeds is missing
    assert cells_of(html, ALL, "RMA") == [f"{value:.2f} 5 of 6 runs ⚠"]
    value, low, high = stats.aggregate(scores(results, "sparc", (CHEETAH, HOPPER)))
    assert cells_of(html, ALL, "SPARC") == [f"★ {value:.2f} {low:.2f} to {high:.2f} 6 runs"]
    assert f"⚠ Without {WALKER}, where not all methods have results" in words(html)


def test_the_aggregate_of_one_seed_has_no_interval_and_a_method_without_results_is_a_gap(tmp_path: Path) -> None:
    results = make_results(seeds=(4,), grid=5, gaps=tuple((env, "rma", 4) for env in ENVS))
    html = write(tmp_path, results)[1]
    value = stats.aggregate(scores(results, "only-obs", ENVS)).value
    assert cells_of(html, ALL, "Only Obs") == [f"{value:.2f} 3 runs"] and cells_of(html, ALL, "RMA") == ["–"]


def test_without_an_oracle_the_aggregate_is_relative_to_the_first(tmp_path: Path) -> None:
    results = make_results(envs=ENVS[:2], methods={"sparc": 1.0}, variations=("adapter", "expert"), grid=5)
    html = write(tmp_path, results)[1]
    value, low, high = stats.aggregate(scores(results, "sparc expert", ENVS[:2], "sparc adapter"))
    cell = f"{value:.2f} {low:.2f} to {high:.2f} 6 runs"
    assert [text.removeprefix("★ ") for text in cells_of(html, ALL, "SPARC expert")] == [cell]
    assert "so that 1 is as good as SPARC adapter" in words(html)


def test_what_cannot_be_divided_by_or_is_one_environment_is_not_aggregated(tmp_path: Path) -> None:
    results = make_results(grid=5)
    for values in results.envs[HOPPER].returns["oracle"].values():
        values -= 1e5
    html = write(tmp_path, results)[1]
    value, low, high = stats.aggregate(scores(results, "rma", (CHEETAH, WALKER)))
    assert cells_of(html, ALL, "RMA") == [f"{value:.2f} {low:.2f} to {high:.2f} 6 runs"]
    assert f"⚠ Without {HOPPER}, where not all methods have results or Oracle has no positive return" in words(html)
    assert ALL not in words(write(tmp_path, make_results(envs=(CHEETAH,), grid=5))[1])
    nobody = make_results(grid=5, gaps=tuple((env, "oracle", seed) for env in ENVS for seed in range(3)))
    html = write(tmp_path, nobody)[1]
    assert cells_of(html, ALL, "SPARC") == ["–"] and "all runs of no environment" in words(html)


def test_the_oracle_is_never_marked_as_best(tmp_path: Path) -> None:
    html = write(tmp_path, make_results(grid=3))[1]
    rows = re.findall(r"<tr class=\"reference\">.*?</tr>", html, re.DOTALL)
    assert len(rows) == 6 and "★" not in "".join(rows)


def test_gaps_and_uneven_seeds_are_marked(tmp_path: Path) -> None:
    html = write(tmp_path, make_results(gaps=GAPS, grid=5))[1]
    text = words(html)
    assert "4 of 45 runs without results" in text
    assert "RMA in WindHopper-v5, seed 1: missing, not started" in text
    assert "RMA in WindWalker2d-v5, seeds 0–2: missing, not started" in text
    for title in ("Mean return out of distribution", "Mean return in distribution", "Interquartile mean"):
        cells = cells_of(html, title, "RMA")
        assert any(cell.endswith("2 of 3 seeds ⚠") for cell in cells)
        assert "seeds" not in " ".join(cells_of(html, title, "SPARC"))
    assert "– no results: not started" in cells_of(html, "Mean return out of distribution", "RMA")
    assert "⚠ Fewer seeds than planned" in text
    assert cells_of(html, "Probability of improvement", "SPARC over RMA")[3].endswith("2 of 3 environments ⚠")


def test_a_single_seed_has_no_spread_and_no_verdict(tmp_path: Path) -> None:
    html = write(tmp_path, make_results(seeds=(4,), grid=5))[1]
    for cell in cells_of(html, "Mean return in distribution", "SPARC"):
        assert re.fullmatch(r"(★ )?[\d,]+ \(n = 1\)", cell)
    answer = words(html.split('id="answer"')[1].split("</section>")[0])
    assert "? too few seeds to tell luck from skill in WindHalfCheetah-v5 (ahead so far)" in answer
    assert "? ahead, too few seeds to tell Difference" in answer
    assert "Better in" not in answer and not re.search(r"\([+−]\d+ %\)", answer)  # no percentages of one run
    assert "▲ better in" not in answer and "▼ worse in" not in answer
    assert "seed 4: 15 of 15 runs done" in words(html)


def test_primary_endpoints_come_first_and_are_corrected_for_their_number(tmp_path: Path) -> None:
    results = make_results(ENVS[:2], {"sparc": 1.0, "rma": 1.0, "oracle": 1.5}, seeds=tuple(range(5)), grid=5)
    results.manifest["primary"] = [["oracle", "sparc"], ["sparc", "rma"], ["sparc", "history-input"]]
    answer = words(write(tmp_path, results)[1].split('id="answer"')[1].split("</section>")[0])
    opening = answer.split("The answer first ")[1].split(" Everything else")[0]
    assert opening == (
        "Out of distribution, Oracle is better than SPARC in every test. SPARC is not clearly different from RMA in "
        "any test; SPARC has no results to compare with History Input in any test. Of the 6 comparisons, named "
        "before the first run, 2 are clear at the 5 % level when corrected for their number (Holm), with 5 seeds per "
        "method."
    )
    data = ReportData(results)
    single = [data.comparisons[test, a, b, "ood", "return"].p for a, b in (("oracle", "sparc"), ("sparc", "rma"))
              for test in ENVS[:2]]  # fmt: skip
    corrected = [endpoint.p for endpoint in data.endpoints]
    assert corrected[:4] == pytest.approx(stats.holm([*single, np.nan, np.nan])[:4]) and np.isnan(corrected[4:]).all()
    assert min(corrected[:4]) == pytest.approx(6 * min(single))
    assert data.pairs[:2] == [("oracle", "sparc"), ("sparc", "rma")] and ("sparc", "oracle") not in data.pairs


def test_the_last_evaluations_stand_beside_the_checkpoint(tmp_path: Path) -> None:
    results = make_results(ENVS[:1], {"sparc": 1.0}, seeds=(0,), grid=3)
    runs = words(write(tmp_path, results)[1].split('id="runs"')[1])
    mean = results.envs[ENVS[0]].curves["sparc"][0].returns[-5:].mean()
    assert "Last 5 evaluations, IND return" in runs and f" {mean:,.0f} " in runs


def test_a_clear_difference_that_correction_leaves_open_is_no_verdict(tmp_path: Path) -> None:
    results = make_results(ENVS[:1], {"sparc": 1.0, "rma": 0.85}, seeds=tuple(range(4)), grid=5)
    results.manifest["primary"] = [["sparc", "rma"], *[["sparc", f"rma h{i}"] for i in range(400)]]
    data = ReportData(results)
    endpoint = data.endpoints[0]
    assert endpoint.comparison is not None and endpoint.comparison.verdict == "better" and endpoint.p > 0.05
    assert endpoint_verdict(endpoint) == "open"


@pytest.mark.parametrize("seeds", [(0,), (0, 1), (0, 1, 2)])
def test_what_is_not_a_number_is_never_printed(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    html = write(tmp_path, make_results(seeds=seeds, grid=5, gaps=((WALKER, "rma", 0),)))[1]
    assert not re.search(r"\b(nan|NaN|inf|None|null|undefined)\b", words(html))
    assert "NaN" not in html.split('id="data">')[1].split("</script>")[0]


def test_the_commands_are_those_of_the_manifest(tmp_path: Path) -> None:
    html = write(tmp_path, make_results(grid=3))[1]
    assert "<pre>sparc suite run made --updates 300000 --seeds 0 1 2\nsparc suite report made</pre>" in html


def test_several_values_of_a_version_or_a_machine_are_listed(tmp_path: Path) -> None:
    results = make_results(envs=(CHEETAH,), methods={"sparc": 1.0}, seeds=(0, 1), grid=3)
    first, second = results.manifest["members"]
    first |= {"versions": {"jax": ["0.10.0", "0.10.1"]}, "machine": {"processor": "one, other", "cores": [2, 4]}}
    second |= {"versions": {"jax": "0.10.0"}, "machine": {"processor": "one", "cores": 2}}
    text = words(write(tmp_path, results)[1])
    assert "jax 0.10.0, 0.10.1 / 0.10.0. processor: one, other / one, cores: 2, 4 / 2." in text
    assert "versions: jax: 0.10.0, 0.10.1 machine: processor: one, other cores: 2, 4" in text


def test_runs_with_and_without_workers_in_one_average_are_noted(tmp_path: Path) -> None:
    results = make_results(envs=(CHEETAH,), methods={"sparc": 1.0, "rma": 0.9}, seeds=(0, 1, 2), grid=3)
    for member in results.manifest["members"]:
        member["workers"] = 4 if member["method"] == "rma" or member["seed"] else 0
    text = words(write(tmp_path, results)[1])
    told = "Runs with and without workers are averaged together:"
    assert f"{told} SPARC in {CHEETAH} (seeds 1, 2 with, seed 0 without)." in text and "workers: 4" in text
    for member in results.manifest["members"]:
        member["workers"] = 4
    assert told not in words(write(tmp_path, results)[1])


def test_runs_of_several_commits_or_of_an_unknown_one_are_noted(tmp_path: Path) -> None:
    results = make_results(
        envs=(CHEETAH,), methods={"sparc": 1.0}, seeds=(0, 1, 2), grid=3, gaps=((CHEETAH, "sparc", 2),)
    )
    first, second, _ = results.manifest["members"]  # the third is not done
    told = "Not all runs are from one commit of the code:"
    for commits, said in (
        (("a" * 40, "a" * 40), ""),
        (("a" * 40, "b" * 40 + "+changes"), "1 run of aaaaaaaa and 1 run of bbbbbbbb+changes."),
        (("a" * 40, None), "1 run of aaaaaaaa and 1 run of an unknown one."),
        ((None, None), "2 runs of an unknown one."),
        (("a" * 40, f"{'a' * 40}, {'b' * 40}"), "1 run of aaaaaaaa and 1 run of aaaaaaaa and bbbbbbbb."),
        (("a" * 40, f"{'a' * 40}, ?"), "1 run of aaaaaaaa and 1 run of aaaaaaaa and an unknown one."),
        ((f"{'a' * 40}, ?",) * 2, "2 runs of aaaaaaaa and an unknown one."),
    ):
        first["commit"], second["commit"] = commits
        text = words(write(tmp_path, results)[1])
        assert (told in text) == bool(said) and said in text


def test_each_run_has_the_command_that_makes_it_again(tmp_path: Path) -> None:
    results = make_results(envs=(CHEETAH,), methods={"sparc": 1.0}, seeds=(0, 3), grid=3)
    own = results.manifest["members"][0]
    own["config"] = {"env": f"my_file:{CHEETAH}", "method": "sparc"}
    text = words(write(tmp_path, results)[1])
    for env, seed, rest in ((f"my_file:{CHEETAH}", 0, " --allow-import"), (CHEETAH, 3, "")):
        again = f"sparc suite run made --updates 300000 --envs {env} --methods sparc --seeds {seed}"
        assert f"again: {again} --run-dir again/made{rest} " in text


def test_the_page_says_how_many_seeds_a_difference_needs(tmp_path: Path) -> None:
    html = write(tmp_path, make_results(grid=3))[1]
    title = "To see a difference of this size, so many seeds are needed"
    needed = dict(zip(map(words, re.findall(r"<th scope=\"col\".*?</th>", part_of(html, title))), 
                      map(int, cells_of(html, title, "Seeds needed")), strict=True))  # fmt: skip
    assert {size.strip(): seeds for size, seeds in needed.items()} == {
        "0.5": 64, "0.75": 29, "1": 17, "1.25": 12, "1.5": 9, "2": 6, "2.5": 4, "3": 4,
    }  # fmt: skip


def test_captions_say_what_a_reader_must_know(tmp_path: Path) -> None:
    names = ("curves", f"adaptation-{CHEETAH}")
    told, mean = "Pale and open: RMA's first phase observes the context.", "are those of the mean over the seeds"
    text = words(write(tmp_path, make_results(envs=(CHEETAH,), grid=3), *names)[1])
    assert told in text and mean in text
    text = words(write(tmp_path, make_results((CHEETAH,), {"sparc": 1.0}, (0,), grid=3), *names)[1])
    assert told not in text and mean not in text and "Learning curves" in text and "Thin, without" not in text
    results = make_results((CHEETAH,), {"sparc": 1.0}, (0,), grid=3)
    curve = results.envs[CHEETAH].curves["sparc"][0]
    curve.measures.update({"expert_return": curve.returns, "newest_return": curve.returns})
    text = words(write(tmp_path, results, *names)[1])
    assert "Thin, without marks: the expert, told the context and the newest weights, in the place of what is" in text


def test_text_from_data_is_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>'\"&"
    results = make_results(envs=(CHEETAH,), methods={"sparc": 1.0, evil: 0.9}, gaps=((CHEETAH, evil, 1),), grid=3)
    manifest = results.manifest | {"title": evil, "about": evil, "suite": evil, "commands": [evil]}
    manifest["reference"] = {"title": evil, "ood": {evil: {"sparc": [1.0, 1.0]}}}
    manifest["members"] = [
        member | {"env": evil, "note": evil, "run": evil, "config": {evil: evil}, "versions": {evil: evil}}
        for member in manifest["members"]
    ]
    old = results.envs[CHEETAH].space
    space = ContextSpace((evil, "z"), (evil, ""), old.train, old.test)
    part = EnvResults(space, results.envs[CHEETAH].contexts, results.envs[CHEETAH].ind, results.envs[CHEETAH].returns)
    html = write(tmp_path, Results(manifest, {evil: part}), f"adaptation-{evil[:3]}")[1]
    assert "<script>alert" not in html and "alert(1)</script>" not in html
    assert html.count("<script") == 2  # the data and ours
    data = json.loads(html.split('id="data">')[1].split("</script>")[0])
    assert list(data["envs"]) == [evil] and list(data["names"]) == ["sparc", evil]
    assert evil in words(html)


def test_nothing_to_compare_is_said(tmp_path: Path) -> None:
    html = write(tmp_path, make_results(methods={"sparc": 1.0}, grid=3))[1]
    assert "nothing to compare" in html and "Probability of improvement out of distribution" not in words(html)


def test_variations_are_compared_with_each_other(tmp_path: Path) -> None:
    results = make_results(envs=(CHEETAH,), methods={"sparc": 1.0}, variations=("H=5", "H=50"), grid=3)
    assert "SPARC H=5 against SPARC H=50" in words(write(tmp_path, results)[1])


def test_a_suite_without_any_result_still_has_a_page(tmp_path: Path) -> None:
    gaps = tuple((CHEETAH, method, 0) for method in METHODS)
    html = write(tmp_path, make_results(envs=(CHEETAH,), seeds=(0,), gaps=gaps, grid=3))[1]
    assert "5 of 5 runs without results" in html and "– no results: not started" in html


def test_pictures_are_inside_and_described(tmp_path: Path) -> None:
    names = ("summary", "curves", f"latents-{HOPPER}", f"heatmaps-{HOPPER}")
    html = write(tmp_path, make_results(grid=3), *names)[1]
    images = re.findall(r"<img src=\"([^\"]*)\" alt=\"([^\"]+)\">", html)
    assert len(images) == len(names)
    assert all(source.startswith("data:image/svg+xml;base64,") and len(text) > 10 for source, text in images)
    assert any(HOPPER in text for _, text in images)


def test_of_two_files_the_smaller_is_embedded(tmp_path: Path) -> None:
    figures = draw_figures(tmp_path, "curves")
    (tmp_path / "curves.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'>" + " " * 10_000 + "</svg>")
    write_report(make_results(grid=3), tmp_path / "page" / "report.html", figures)
    assert "data:image/png;base64," in (tmp_path / "page" / "report.html").read_text()


@pytest.mark.slow
def test_75_runs_fit_into_a_page_of_modest_size(tmp_path: Path) -> None:
    path, _ = write(tmp_path, make_results(seeds=(0, 1, 2, 3, 4)))
    assert path.stat().st_size < 1_000_000  # pictures come on top
    assert [file.name for file in tmp_path.iterdir() if file.name != "figures"] == ["report.html"]


# In a browser


@pytest.fixture(scope="module")
def results() -> Results:
    return make_results()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, results: Results) -> dict[str, Path]:
    """A whole page, one with gaps, one of a single seed, and one whose contexts are no plane."""
    values = np.random.default_rng(0).uniform(size=(12, 2))
    odd = make_results(envs=(CHEETAH,), grid=3)
    space = ContextSpace(("a", "b"), ("", "kg"), Finite(values[:5]), Finite(values))
    part = EnvResults(space, values, space.is_train(values))
    for key, seeds in odd.envs[CHEETAH].returns.items():
        part.returns[key] = {seed: np.resize(returns, 12) for seed, returns in seeds.items()}
    kinds = {
        "whole": results,
        "gaps": make_results(gaps=GAPS, grid=5),
        "single": make_results(seeds=(0,), grid=5),
        "odd": Results(odd.manifest, {CHEETAH: part}),
        "long": make_results(envs=(CHEETAH,), gaps=((CHEETAH, "rma", 1),), variations=("without-end", "H=100"), grid=3),
    }
    for member in kinds["long"].manifest["members"]:
        member["note"] = "a/folder/of/many/words" * 9 if member["state"] != "done" else ""
    names = ("summary", "curves", *(f"{kind}-{env}" for kind in ("heatmaps", "adaptation") for env in ENVS))
    return {kind: write(tmp_path_factory.mktemp(kind), found, *names)[0] for kind, found in kinds.items()}


@pytest.fixture
def visit(quiet: webdriver.Chrome, pages: dict[str, Path]) -> Callable[..., webdriver.Chrome]:
    """Open a page at a size."""

    def visit(kind: str, size: tuple[int, int] = LAPTOP) -> webdriver.Chrome:
        resize(quiet, size)
        quiet.get(pages[kind].as_uri())
        return quiet

    return visit


def point(browser: webdriver.Chrome, selector: str) -> Any:
    """Move the pointer to something in the middle of the window, where nothing covers it."""
    element = find(browser, selector)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    ActionChains(browser).move_to_element(element).perform()
    return element


def choose_env(browser: webdriver.Chrome, env: str) -> None:
    (label,) = [label for label in find_all(browser, "#env-choice label") if label.text == env]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", label)
    label.click()


@pytest.mark.parametrize("size", [LAPTOP, PHONE])
@pytest.mark.parametrize("kind", ["whole", "gaps", "single", "odd"])
def test_the_page_never_scrolls_sideways(visit: Any, kind: str, size: tuple[int, int]) -> None:
    browser = visit(kind, size)
    browser.execute_script("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    width, inner = browser.execute_script("return [document.scrollingElement.scrollWidth, innerWidth]")
    assert width <= inner == size[0]


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
@pytest.mark.parametrize("kind", ["whole", "gaps", "long"])
def test_the_table_of_runs_fits(visit: Any, kind: str, size: tuple[int, int]) -> None:
    browser = visit(kind, size)
    for script in ("", "document.querySelectorAll('#runs details').forEach((part) => { part.open = true; });"):
        browser.execute_script(script)
        box = find(browser, "#runs .box")
        assert box.get_property("scrollWidth") <= box.get_property("clientWidth")
    row = find(browser, "#run-table tbody tr")
    shown = [cell.text for cell in row.find_elements(By.TAG_NAME, "td") if cell.is_displayed()]
    assert len(shown) == 11 and f"folder: {CHEETAH}/sparc" in shown[-1]
    find(browser, "#run-table th:nth-child(3) button").click()  # sorting is possible at any width
    assert find(browser, "#run-table th:nth-child(3)").get_attribute("aria-sort") == "ascending"


def test_wide_tables_and_pictures_show_where_there_is_more(visit: Any) -> None:
    browser = visit("whole", PHONE)
    for selector in ("#numbers .scroller", "#pictures .scroller"):
        scroller = find(browser, selector)
        box = scroller.find_element(By.CSS_SELECTOR, ":scope > *")

        def marks(left: int, scroller: Any = scroller, box: Any = box) -> set[str]:
            script = "arguments[0].scrollLeft = arguments[1]; requestAnimationFrame(() => setTimeout(arguments[2], 50))"
            browser.execute_async_script(script, box, left)
            return set(scroller.get_attribute("class").split()) - {"scroller"}

        assert marks(0) == {"more-right"}
        assert marks(40) == {"more-left", "more-right"}
        assert marks(10_000) == {"more-left"}
    browser = visit("whole", LAPTOP)
    assert not find_all(browser, "#pictures .more-right")  # all of them fit


def test_the_page_asks_nothing_of_the_network(visit: Any, pages: dict[str, Path]) -> None:
    html = pages["whole"].read_text()
    assert not [
        link for link in re.findall(r"(?:src|href)=[\"']([^\"']*)", html) if not link.startswith(("#", "data:"))
    ]
    browser = visit("whole")
    script = "const done = arguments[0]; fetch('data:,x').then(() => done('loaded'), () => done('refused'))"
    assert browser.execute_async_script(script) == "refused"  # by the page's own policy
    assert "Content Security Policy" in browser.get_log("browser")[0]["message"]


def test_a_cell_shows_its_context_value_and_spread(visit: Any, results: Results) -> None:
    browser, part = visit("whole"), results.envs[HOPPER]
    choose_env(browser, HOPPER)
    for cell, label in ((100, "rma"), (220, "sparc")):
        point(browser, f"#map-panels svg[data-label='{label}'] [data-cell='{cell}']")
        head, row = (" ".join(find(browser, f"#readout {part}").text.split()) for part in ("p", "tr.here"))
        context = [f"{value:g}".replace("-", "−") for value in part.contexts[cell]]
        assert head.startswith(f"x = {context[0]} N, z = {context[1]} N")
        assert ("(IND)" if part.ind[cell] else "(OOD)") in head
        values = part.matrix(label)[:, cell]
        mean, sem = stats.mean_sem(values)
        assert row.startswith(f"{NAMES[label]} {mean:,.0f} ± {sem:,.0f} s.e.m.")
        assert row.endswith("seed " + " · ".join(f"{seed}: {value:,.0f}" for seed, value in enumerate(values)))
        assert len(find_all(browser, "#maps rect.cursor")) == len(METHODS) + 1  # the same cell in every map


def test_colours_and_places_follow_the_data(visit: Any, results: Results) -> None:
    browser, part = visit("whole"), results.envs[CHEETAH]
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb

    means = {key: part.matrix(key).mean(axis=0) for key in METHODS}
    low, high = np.percentile(np.concatenate(list(means.values())), [2, 98])
    rects = browser.execute_script(
        "return [...document.querySelectorAll(\"#map-panels svg[data-label='oracle'] [data-cell]\")]"
        ".map((r) => [r.getAttribute('x'), r.getAttribute('y'), r.getAttribute('fill')])"
    )
    x, y = np.unique(part.contexts[:, 0]), np.unique(part.contexts[:, 1])
    for cell, (column, row, fill) in enumerate(rects):
        np.testing.assert_allclose(part.contexts[cell], [x[int(column)], y[len(y) - 1 - int(row)]])
        share = float(np.clip((means["oracle"][cell] - low) / (high - low), 0, 1))
        np.testing.assert_allclose(to_rgb(fill), colormaps["viridis"](share)[:3], atol=0.02)
    box = find(browser, "#map-panels svg rect.ind")
    assert [box.get_attribute(name) for name in ("x", "y", "width", "height")] == ["5", "5", "11", "11"]


def test_the_difference_of_any_two_methods(visit: Any, results: Results) -> None:
    browser, part = visit("whole"), results.envs[WALKER]
    choose_env(browser, WALKER)
    pairs = [("sparc", "rma"), ("only-obs", "rma"), ("only-obs", "oracle")]  # one of the two changes each time
    for a, b in pairs:
        Select(find(browser, "#first")).select_by_value(a)
        Select(find(browser, "#second")).select_by_value(b)
        share = {
            region: stats.share_of_cells(part.matrix(a, region), part.matrix(b, region)) for region in ("ood", "ind")
        }
        gap = {region: part.matrix(a, region).mean() - part.matrix(b, region).mean() for region in share}
        signed = {region: f"{value:+,.0f}".replace("-", "−") for region, value in gap.items()}
        text = find(browser, "#difference-text").text
        assert text.startswith(
            f"{NAMES[a]} is better than {NAMES[b]} in {100 * share['ood']:.0f} % of 320 OOD cells and "
            f"{100 * share['ind']:.0f} % of 121 IND cells; mean difference {signed['ood']} OOD and {signed['ind']} IND."
        )
        fill = point(browser, "#difference-panel [data-cell='7']").get_attribute("fill")
        value = part.matrix(a)[:, 7].mean() - part.matrix(b)[:, 7].mean()
        assert find(browser, "#readout-difference").text == f"{value:+,.0f}".replace("-", "−")
        red, green, blue = bytes.fromhex(fill[1:])
        assert (green > max(red, blue)) == (value > 0)  # green better, purple worse
    Select(find(browser, "#second")).select_by_value("only-obs")
    assert find(browser, "#difference-text").text == "Choose two different methods."


@pytest.mark.parametrize("size", [(1280, 600), (1366, 768)])
def test_what_a_cell_says_covers_no_map(visit: Any, size: tuple[int, int]) -> None:
    browser = visit("whole", size)
    boxes = (
        "return [...document.querySelectorAll('#readout, #maps .map svg')].map((part) => part.getBoundingClientRect())"
    )
    for selector in ("#map-panels svg[data-label='rma'] [data-cell='5']", "#difference-panel [data-cell='5']"):
        point(browser, selector)
        readout, *maps = sorted(browser.execute_script(boxes), key=lambda box: -box["left"])
        assert len(maps) == len(METHODS) + 1 and readout["left"] > max(box["right"] for box in maps)
        assert readout["top"] >= 0 and readout["bottom"] <= size[1]  # and it is all there


def test_a_verdict_leads_to_its_map_and_back(visit: Any) -> None:
    browser = visit("whole", (1280, 600))
    Select(find(browser, "#comparison")).select_by_visible_text("SPARC against Only Obs")
    for place in (".headline li:nth-child(1)", ".headline li:nth-child(2)", ".card h4"):
        shown = [link for link in find_all(browser, f".comparison {place} a") if link.is_displayed()]
        links = {link.get_attribute("title"): link for link in shown}
        assert set(links) == {f"Map of SPARC − Only Obs in {env}" for env in ENVS}
    for env in (WALKER, HOPPER):
        link = links[f"Map of SPARC − Only Obs in {env}"]
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", link)
        before = browser.execute_script("return scrollY")
        link.click()
        assert find(browser, "#env-choice :checked").get_attribute("value") == env
        assert find(browser, "#difference").text == f"Difference of two methods in {env}"
        assert find(browser, "#difference-text").text.startswith("SPARC is better than Only Obs in")
        box = find(browser, "#difference-panel svg").rect
        top = browser.execute_script("return scrollY")
        assert top <= box["y"] and box["y"] + box["height"] <= top + 600  # nothing to scroll
        browser.back()
        assert browser.execute_script("return scrollY") == pytest.approx(before, abs=1)


def test_what_has_no_results_leads_to_no_map(visit: Any) -> None:
    links = find_all(visit("gaps"), ".comparison[data-comparison='0'] a[data-map]")
    assert {json.loads(link.get_attribute("data-map"))["env"] for link in links} == {CHEETAH, HOPPER}


def test_the_rival_can_be_chosen(visit: Any, results: Results) -> None:
    browser = visit("whole")
    choice = Select(find(browser, "#comparison"))
    assert choice.first_selected_option.text == "SPARC against RMA"
    for key in ("rma", "only-obs", "oracle"):
        note = " (a reference)" if key == "oracle" else ""
        choice.select_by_visible_text(f"SPARC against {NAMES[key]}{note}")
        (shown,) = [part for part in find_all(browser, ".comparison") if part.is_displayed()]
        cards = shown.find_elements(By.CSS_SELECTOR, ".card")
        for env, card in zip(ENVS, cards, strict=True):
            found = stats.compare(results.envs[env].matrix("sparc", "ood"), results.envs[env].matrix(key, "ood"))
            verdict = {"better": "▲ better", "worse": "▼ worse", "open": "≈ no clear difference"}[found.verdict]
            first = [row.find_elements(By.TAG_NAME, "td") for row in card.find_elements(By.CSS_SELECTOR, "tbody tr")]
            assert card.text.startswith(env)
            assert first[0][0].text == verdict
            assert first[1][0].text.startswith(f"{found.difference.value:+,.0f}".replace("-", "−"))
            value, low, high = (f"{100 * part:.0f}" for part in found.share)
            assert first[4][0].text == f"{value} % of cells ({low}–{high} %)"
            assert first[6][0].text == "3 vs 3"


def test_cells_can_be_reached_with_the_keyboard(visit: Any, results: Results) -> None:
    browser, part = visit("whole"), results.envs[CHEETAH]
    find(browser, "#env-choice input").send_keys(Keys.TAB)
    picture = browser.switch_to.active_element
    assert picture.get_attribute("data-label") == "sparc"
    assert find(browser, "#readout p").text.startswith("x = 0 N, z = 0 N · in distribution")
    picture.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_UP, Keys.ARROW_UP)
    assert find(browser, "#readout p").text.startswith("x = 0.5 N, z = 2 N")
    cell = int(np.flatnonzero((np.abs(part.contexts - [0.5, 2]) < 1e-9).all(axis=1))[0])
    mean = part.matrix("sparc")[:, cell].mean()
    assert find(browser, "#readout tr.here").text.split()[:3] == ["SPARC", f"{mean:,.0f}", "±"]
    picture.send_keys(*[Keys.ARROW_LEFT] * 30)
    assert find(browser, "#readout p").text.startswith("x = −5 N, z = 2 N · out of distribution")


def test_a_number_leads_to_its_runs_and_back(visit: Any) -> None:
    browser = visit("gaps")
    (link,) = find_all(browser, f"#numbers .scroller:nth-of-type(1) a[data-from*='{HOPPER}'][data-from*='\"rma\"']")
    link.click()
    marked = find_all(browser, "#run-table tr.from")
    assert [row.find_elements(By.TAG_NAME, "td")[2].text for row in marked] == ["0", "1", "2"]
    assert {row.get_attribute("data-env") + row.get_attribute("data-label") for row in marked} == {HOPPER + "rma"}
    assert find(browser, "#from-text").text == f"3 runs of RMA in {HOPPER}, marked below."
    assert "✗ missing: not started" in marked[1].text and marked[0].is_displayed()
    browser.switch_to.active_element.click()
    assert find_all(browser, "#run-table tr.from") == [] and browser.switch_to.active_element == link


def test_runs_are_sorted_by_any_column(visit: Any) -> None:
    browser = visit("gaps")

    def column(index: int) -> list[str]:
        rows = "[...document.querySelectorAll('#run-table tbody tr')]"
        return browser.execute_script(f"return {rows}.map((row) => row.children[{index}].innerText)")

    heading = find(browser, "#run-table th:nth-child(7) button")
    for state, sign in (("ascending", 1), ("descending", -1)):
        heading.send_keys(Keys.ENTER)
        assert find(browser, "#run-table th:nth-child(7)").get_attribute("aria-sort") == state
        shown = column(6)
        values = [sign * float(text.replace(",", "").replace("−", "-")) for text in shown if text != "–"]
        assert values == sorted(values) and len(values) == 41 and shown[41:] == ["–"] * 4  # gaps come last
    find(browser, "#run-table th:nth-child(2) button").click()
    assert column(1) == sorted(column(1))


def test_gaps_are_marked_on_the_maps(visit: Any) -> None:
    browser = visit("gaps")
    choose_env(browser, HOPPER)
    captions = {caption.text.split("\n")[0]: caption.text for caption in find_all(browser, "#map-panels figcaption")}
    assert "2 of 3 seeds ⚠" in captions["RMA"] and "⚠" not in captions["SPARC"]
    assert "RMA: 2 of 3 seeds ⚠" in find(browser, "#difference-text").text
    choose_env(browser, WALKER)
    assert find(browser, "#map-panels .none").text == "– no results: not started"
    assert find(browser, "#difference-text").text == "No difference to show: RMA – no results: not started."
    assert "– no results: not started" in find(browser, ".comparison .card.gap").text


def test_a_single_seed_is_shown_as_such(visit: Any) -> None:
    browser = visit("single", PHONE)
    point(browser, "#map-panels svg[data-label='rma'] [data-cell='3']").click()
    assert "(n = 1)" in find(browser, "#readout tr.here").text and "±" not in find(browser, "#readout").text


def test_contexts_that_are_no_plane_fall_back_to_the_picture(visit: Any) -> None:
    browser = visit("odd")
    assert find_all(browser, "#map-panels svg") == [] and find(browser, "#map-static img").is_displayed()
    assert "SPARC is better than RMA in" in find(browser, "#difference-text").text
    assert not [image for image in find_all(visit("whole"), "#map-static img") if image.is_displayed()]


def test_without_javascript_tables_and_pictures_are_there(visit: Any, browser: webdriver.Chrome) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        visit("whole", PHONE)
        assert all(part.is_displayed() for part in find_all(browser, ".comparison, #numbers table, #map-static img"))
        assert not find(browser, "#comparison").is_displayed() and not find(browser, "#env-choice").is_displayed()
        assert {link.get_attribute("href").split("#")[1] for link in find_all(browser, "a[data-map]")} == {"maps"}
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
