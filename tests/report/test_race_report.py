"""The report page of races, as text and in a browser: laps lead, a lower ratio is better, every car can be found."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import find, find_all, resize
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select
from synthetic import CARS, POWER_MASS, SKILL, make_races, make_results
from test_report import LAPTOP, NAMES, PHONE, cells_of, part_of, point, words, write

from sparc.envs.racing.measures import MEASURES
from sparc.report import stats
from sparc.report.measured import mean_of, over_seeds
from sparc.suites.results import Results
from sparc.text import number

UPDATED = f"{CARS}, updated"
SHOWN = ("completed", "clean", "ratio", "completed_ratio")
OOD, IND = "out of distribution", "in distribution"


def answer_of(html: str) -> str:
    return html.split('id="answer"')[1].split("</section>")[0]


# Tables


def test_tables_of_laps_hold_the_means_of_the_results_and_mark_the_best(tmp_path: Path) -> None:
    results = make_races(cars=40)
    html = write(tmp_path, results)[1]
    for env, part in results.envs.items():
        for title, region in ((OOD, "ood"), (IND, "ind")):
            means = {
                key: [np.nanmean(part.matrix(key, region, name), axis=1) * MEASURES[name].scale for name in SHOWN]
                for key in SKILL
            }
            for key, name in NAMES.items():
                cells = cells_of(html, f"{env}, {title}", name)
                for place, (measure, cell) in enumerate(zip(SHOWN, cells, strict=False)):
                    digits, better = MEASURES[measure].digits, MEASURES[measure].better
                    mean, sem = stats.mean_sem(means[key][place])
                    assert cell.removeprefix("★ ") == f"{mean:.{digits}f} ± {sem:.{digits}f}"
                    rivals = [round(better * means[k][place].mean(), digits) for k in SKILL if k != "oracle"]
                    best = key != "oracle" and round(better * mean, digits) == max(rivals)  # the lowest ratio
                    assert cell.startswith("★") == best
                paper = [f"{100 * SKILL[key]:.2f}", f"{1.5 - SKILL[key] / 2:.4f} ± 0.0100"]
                assert [cell.removeprefix("★ ") for cell in cells[4:]] == paper
    assert "★ 1.0250" in " ".join(cells_of(html, f"{CARS}, {OOD}", "SPARC"))  # the paper's lowest


def test_it_is_said_plainly_that_the_papers_numbers_cannot_be_compared(tmp_path: Path) -> None:
    text = words(write(tmp_path, make_races((CARS,), cars=10))[1])
    expected = (
        "The paper’s numbers (paper, another game, 3 seeds, 9 M updates) are for orientation only. Not comparable."
    )
    assert expected in text and "2.0 if not completed; less is better" in text
    results = make_races((CARS,), cars=10)
    results.manifest["reference"] = None
    html = write(tmp_path, results)[1]
    assert "Not comparable" not in html and len(cells_of(html, f"{CARS}, {OOD}", "RMA")) == 4


def test_a_method_that_reads_the_context_is_never_marked_as_best(tmp_path: Path) -> None:
    results = make_races((CARS,), {"sparc": 0.95, "rma": 0.8, "all-seeing": 1.0})
    results.manifest["methods"] = {"all-seeing": {"title": "All-Seeing", "reads": "context"}}
    html = write(tmp_path, results)[1]
    rows = [row.split("</tr>")[0] for row in html.split("<tr") if '<th scope="row">All-Seeing' in row]
    assert len(rows) >= 3 and "★" not in "".join(rows)
    assert cells_of(html, f"{CARS}, {OOD}", "SPARC")[0].startswith("★")


def test_all_that_are_equal_are_not_marked_and_equal_bests_all_are(tmp_path: Path) -> None:
    results = make_races((CARS,), cars=10)
    for key, seeds in results.envs[CARS].measures.items():
        for values in seeds.values():
            values["completed"][:] = 1.0
            values["clean"][:] = float(key in ("sparc", "rma", "oracle"))
    html = write(tmp_path, results)[1]
    rows = {key: cells_of(html, f"{CARS}, {IND}", name) for key, name in NAMES.items()}
    assert not any(cells[0].startswith("★") for cells in rows.values())
    assert {key for key, cells in rows.items() if cells[1].startswith("★")} == {"sparc", "rma"}  # the Oracle never


def test_seeds_without_any_completed_lap_are_told(tmp_path: Path) -> None:
    results = make_races((CARS,), cars=10)
    part = results.envs[CARS]
    part.measures["rma"][1]["completed_ratio"][:] = np.nan
    for values in part.measures["only-obs"].values():
        values["completed_ratio"][:] = np.nan
    html = write(tmp_path, results)[1]
    assert cells_of(html, f"{CARS}, {OOD}", "RMA")[3].endswith("1 of 3 seeds: none")
    assert cells_of(html, f"{CARS}, {OOD}", "Only Obs")[3] == "–"
    assert not re.search(r"\b(nan|NaN|inf|None|undefined)\b", words(html))


def test_gaps_and_single_seeds_are_marked(tmp_path: Path) -> None:
    gaps = ((CARS, "rma", 1), *((CARS, "oracle", seed) for seed in range(3)))
    html = write(tmp_path, make_races((CARS,), cars=10, gaps=gaps))[1]
    assert cells_of(html, f"{CARS}, {OOD}", "RMA")[1].endswith("2 of 3 seeds ⚠")
    assert cells_of(html, f"{CARS}, {OOD}", "Oracle")[0] == "– no results: not started"
    assert "⚠ Fewer seeds than planned" in words(html)
    single = words(write(tmp_path, make_races((CARS,), cars=10, seeds=(4,)))[1])
    assert "(n = 1)" in single and "one seed only" in single


def test_returns_come_second_and_folded(tmp_path: Path) -> None:
    html = write(tmp_path, make_races((CARS,), cars=10))[1]
    numbers = html.split('id="numbers"')[1].split("</section>")[0]
    assert numbers.index(f"<h3>{CARS}, {OOD}") < numbers.index("<details>") < numbers.index("<h3>Mean return out of")
    mixed = make_races((CARS,), cars=10)
    wind = make_results(("WindHopper-v5",), grid=3)
    manifest = mixed.manifest | {"members": mixed.manifest["members"] + wind.manifest["members"]}
    html = write(tmp_path, Results(manifest, {**mixed.envs, **wind.envs}))[1]
    numbers = html.split('id="numbers"')[1].split("</section>")[0]
    assert f"<h3>{CARS}, {OOD}" in numbers and "<details>" not in numbers  # here returns are what wind is judged by
    assert "clean laps</b>, SPARC against RMA" in html and "<b>Out of distribution</b>, SPARC against RMA" in html


def test_what_changes_with_the_physics_is_told_run_by_run(tmp_path: Path) -> None:
    results = make_races((CARS,), cars=40, variants=("updated",))
    results.manifest["reference"]["measures"][UPDATED]["ood"]["rma"] = {"ratio": [1.3], "completed": [60.0]}
    html = write(tmp_path, results)[1]
    before, after = results.envs[CARS], results.envs[CARS].variants["updated"]
    for title, region in ((OOD, "ood"), (IND, "ind")):
        for key, name in NAMES.items():
            cells = cells_of(html, f"What the new physics changes: {UPDATED}, {title}", name)
            for measure, cell in zip(("completed", "clean", "ratio"), cells, strict=True):
                scale, digits = MEASURES[measure].scale, MEASURES[measure].digits
                old, new = (scale * part.matrix(key, region, measure).mean(axis=1) for part in (before, after))
                mean, sem = stats.mean_sem(new - old)
                assert cell.startswith(f"{number(mean, digits, True)} ± {number(sem, digits)}")
    cells = cells_of(html, f"What the new physics changes: {UPDATED}, {OOD}", "RMA")
    assert cells[0].endswith("paper −20.00") and cells[2].endswith("paper +0.2000") and "paper" not in cells[1]


def test_how_sure_it_is_is_told_by_clean_laps_and_ratio(tmp_path: Path) -> None:
    results = one_sided("ratio")
    for seed, values in results.envs[CARS].measures["sparc"].items():
        values["clean"][:] = np.arange(50) % 10 < 2 + seed
    html = write(tmp_path, results)[1]
    part, title = results.envs[CARS], "Probability of improvement out of distribution, by clean laps and ratio"
    clean, ratio = cells_of(html, title, "SPARC over RMA")
    expected = stats.compare(*(part.matrix(key, "ood", "clean") for key in ("sparc", "rma"))).probability
    assert clean.startswith(f"{expected.value:.2f} {expected.low:.2f} to {expected.high:.2f} 3 × 3 pairs of runs")
    assert expected.value == 0 and ratio.startswith("1.00 1.00 to 1.00")  # less is better
    assert "has a better mean than one of the second" in words(html) and "higher mean than" not in words(html)
    cells = {key: cells_of(html, "Interquartile mean (IQM) of the ratio", name) for key, name in NAMES.items()}
    for place, region in enumerate(("ood", "ind")):
        for key, found in cells.items():
            value, low, high = stats.summarise(part.matrix(key, region, "ratio")).iqm
            assert found[place].removeprefix("★ ") == f"{value:.4f} {low:.4f} to {high:.4f}"
            assert found[place].startswith("★") == (key == "sparc")  # the lowest
    numbers = html.split('id="numbers"')[1]
    assert numbers.index(title) < numbers.index("<details>")  # not among the returns
    both = write(tmp_path, make_races(cars=10, grid=3, variants=("updated",)))[1]
    assert len(cells_of(both, title, "SPARC over RMA")) == 2 * 4 and UPDATED in part_of(both, title)


# The answer


def one_sided(better_at: str) -> Results:
    """Laps in which SPARC is clearly better than RMA at one measure and clearly worse at the other."""
    results = make_races((CARS,), cars=50)
    rng = np.random.default_rng(0)
    for key, seeds in results.envs[CARS].measures.items():
        good = (key == "sparc") == (better_at == "ratio")
        for values in seeds.values():
            values["ratio"][:] = (1.0 if good else 1.2) + rng.normal(0, 0.002, 50)
            values["clean"][:] = np.arange(50) % 10 < (3 if good else 8) + rng.integers(0, 2)
    return results


@pytest.mark.parametrize("measure", ["clean", "ratio"])
def test_verdicts_rest_on_clean_laps_and_ratio_of_which_less_is_better(tmp_path: Path, measure: str) -> None:
    results = one_sided(measure)
    html = answer_of(write(tmp_path, results)[1])
    text = words(html.split('class="comparison"')[1])
    verdict = {"clean": ("better", "worse"), "ratio": ("worse", "better")}[measure]
    symbols = {"better": "▲ better", "worse": "▼ worse"}
    for region in ("Out of distribution", "In distribution"):
        for name, kind in zip(("clean laps", "ratio"), verdict, strict=True):
            assert f"{region}, {name} , SPARC against RMA: {symbols[kind]} in {CARS}" in text
    part = results.envs[CARS]
    ratio = stats.compare(part.matrix("sparc", "ood", "ratio"), part.matrix("rma", "ood", "ratio"), better=-1)
    value, low, high = (f"{number:+.4f}".replace("-", "−") for number in ratio.difference)
    assert ratio.verdict == verdict[1] and f"Difference {value}" in text and f"{low} to {high}" in text
    clean = stats.compare(part.matrix("sparc", "ood", "clean"), part.matrix("rma", "ood", "clean")).difference
    assert f"Difference {100 * clean.value:+.1f}".replace("-", "−") in text  # in percentage points
    assert "Ratio, less is better" in text and "Clean laps [%]" in text
    assert text.count("Better in") == 1  # of clean laps most are ties
    assert f"Better in {100 * ratio.share.value:.0f} % of cells" in text and ratio.share.value == (measure == "ratio")
    assert "shares of clean laps and mean ratios, of which less is better" in words(html)


def test_every_physics_has_its_own_verdicts_and_counts_no_run_twice(tmp_path: Path) -> None:
    html = write(tmp_path, make_races((CARS,), cars=20, variants=("updated",)))[1]
    cards = re.findall(r"<h4>(.*?) <a", answer_of(html).split('data-comparison="1"')[0])
    assert cards == [CARS, UPDATED]
    assert "15 of 15 runs done" in words(html) and html.count('<tr id="run-') == 15


def test_a_seed_alone_has_no_verdict_but_a_lead_in_the_right_direction(tmp_path: Path) -> None:
    results = make_races((CARS,), cars=20, seeds=(0,))
    part = results.envs[CARS]
    part.measures["sparc"][0]["ratio"][:], part.measures["rma"][0]["ratio"][:] = 1.0, 1.1
    text = words(answer_of(write(tmp_path, results)[1]).split('class="comparison"')[1])
    assert re.search(
        rf"ratio , SPARC against RMA: \? too few seeds to tell luck from skill in {CARS} \(ahead so far\)", text
    )


def test_runs_without_spread_have_no_verdict(tmp_path: Path) -> None:
    results = make_races((CARS,), cars=20)
    for key, seeds in results.envs[CARS].measures.items():
        for values in seeds.values():
            values["clean"][:] = np.arange(20) % 10 < (9 if key == "sparc" else 8)
            values["ratio"][:] = 1.0
    text = words(answer_of(write(tmp_path, results)[1]).split('class="comparison"')[1])
    assert f"? all runs of a method are equal, so that no spread is known in {CARS} (ahead so far)" in text
    assert "? ahead, but all runs of a method are equal: no spread is known" in text
    assert f"In distribution, ratio , SPARC against RMA: ≈ no clear difference in {CARS}" in text  # equal they are
    assert "▲" not in text


def test_the_page_names_what_its_links_lead_to(tmp_path: Path) -> None:
    maps, cars = "the map of the difference", "the table of cars"
    for envs, target in (((POWER_MASS,), maps), ((CARS,), cars), ((POWER_MASS, CARS), f"{maps} or {cars}")):
        html = write(tmp_path, make_races(envs, cars=20, grid=3))[1]
        assert f"The name of an environment leads to {target}." in words(answer_of(html))


# Size and escaping


def test_515_cars_fit_into_a_page_of_modest_size(tmp_path: Path) -> None:
    path, html = write(tmp_path, make_races((CARS,), cars=515))
    assert path.stat().st_size < 400_000
    assert html.count("<tr><th scope=row>") == 515
    part = make_races((CARS,), cars=515).envs[CARS]
    row = next(line for line in html.split("<tr>") if line.startswith("<th scope=row>rally-07 "))
    values = [f"{part.measures['sparc'][0]['reference'][7]:.1f}"]
    for key in SKILL:
        values += [f"{part.matrix(key, None, 'ratio')[:, 7].mean():.3f}"]
        values += [f"{100 * part.matrix(key, None, 'clean')[:, 7].mean():.0f}"]
    assert words(row).split()[2:13] == ["OOD", *values[:10]]


def test_names_of_cars_are_escaped(tmp_path: Path) -> None:
    results = make_races((CARS,), cars=10)
    results.envs[CARS].context_labels[0] = "<script>alert(1)</script> <b>"
    html = write(tmp_path, results)[1]
    assert "<script>alert" not in html and html.count("<script") == 2


def test_races_without_any_result_still_have_a_page(tmp_path: Path) -> None:
    gaps = tuple((env, method, 0) for env in (POWER_MASS, CARS) for method in SKILL)
    html = write(tmp_path, make_races(seeds=(0,), cars=10, grid=3, gaps=gaps))[1]
    assert "10 of 10 runs without results" in html
    half = gaps[5:]  # one race is done, the other is not begun
    html = write(tmp_path, make_races(seeds=(0,), cars=10, grid=3, gaps=half))[1]
    assert cells_of(html, f"{CARS}, {OOD}", "RMA")[0] == "– no results: not started"


# In a browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Results]]:
    """A race over power and mass, one of cars, and one in two physics."""
    kinds = {
        "map": make_races((POWER_MASS,), gaps=((POWER_MASS, "history-input", 0),)),
        "cars": make_races((CARS,), cars=515),
        "both": make_races(cars=30, grid=5, variants=("updated",), seeds=(0, 1)),
    }
    names = (f"laps-{CARS}", f"laps-{POWER_MASS}", f"ratios-{POWER_MASS}", f"physics-updated-{CARS}")
    return {kind: (write(tmp_path_factory.mktemp(kind), found, *names)[0], found) for kind, found in kinds.items()}


@pytest.fixture
def visit(quiet: Any, pages: dict[str, tuple[Path, Results]]) -> Callable[..., tuple[Any, Results]]:
    """Open a page at a size."""

    def visit(kind: str, size: tuple[int, int] = LAPTOP) -> tuple[Any, Results]:
        resize(quiet, size)
        quiet.get(pages[kind][0].as_uri())
        return quiet, pages[kind][1]

    return visit


def choose(browser: Any, fieldset: str, text: str) -> None:
    (label,) = [label for label in find_all(browser, f"{fieldset} label") if label.text == text]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", label)
    label.click()


@pytest.mark.parametrize("size", [LAPTOP, PHONE])
@pytest.mark.parametrize("kind", ["map", "cars", "both"])
def test_the_page_never_scrolls_sideways(visit: Any, kind: str, size: tuple[int, int]) -> None:
    browser, _ = visit(kind, size)
    browser.execute_script("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    width, inner = browser.execute_script("return [document.scrollingElement.scrollWidth, innerWidth]")
    assert width <= inner == size[0]


def test_on_a_laptop_the_tables_of_laps_fit(visit: Any) -> None:
    browser, _ = visit("cars")
    boxes = [box for box in find_all(browser, "#numbers > .scroller > .box") if box.is_displayed()]
    assert len(boxes) == 4  # laps OOD and IND, the middle of the ratios, probabilities
    for box in boxes:
        assert box.get_property("scrollWidth") <= box.get_property("clientWidth")


def test_a_cell_gives_lap_time_ratio_and_the_ais_lap(visit: Any) -> None:
    browser, results = visit("map")
    part = results.envs[POWER_MASS]
    ratios, times = (over_seeds(part.matrix("rma", None, name)) for name in ("completed_ratio", "lap_time"))
    finished = np.isfinite(part.matrix("rma", None, "completed_ratio"))
    whole = int(np.flatnonzero(finished.all(axis=0) & ~part.ind)[0])
    partly = int(np.flatnonzero(finished.any(axis=0) & ~finished.all(axis=0))[0])
    for cell in (whole, partly):
        point(browser, f"#map-panels svg[data-label='rma'] [data-cell='{cell}']")
        head, row = (" ".join(find(browser, f"#readout {part}").text.split()) for part in ("p", "tr.here"))
        power, mass = part.contexts[cell]
        assert head.startswith(f"power = {power:g} ×, mass = {mass:g} ×")
        assert f"built-in AI's lap {part.matrix('rma', None, 'reference')[0, cell]:.3f} s" in head
        count = int(finished[:, cell].sum())
        spread = f"± {ratios[1][cell]:.3f} s.e.m." if count > 1 else f"(n = {count})"
        assert row.startswith(f"RMA {ratios[0][cell]:.3f} {spread} lap time [s]: {times[0][cell]:.1f}; return: ")
        seeds = [f"{value:.3f}" if np.isfinite(value) else "not completed"
                 for value in part.matrix("rma", None, "completed_ratio")[:, cell]]  # fmt: skip
        assert row.endswith("seed " + " · ".join(f"{seed}: {text}" for seed, text in enumerate(seeds)))
    choose(browser, "#quantity-choice", "lap time [s]")
    row = " ".join(find(browser, "#readout tr.here").text.split())  # the same cell, by what is now shown
    assert (
        row.startswith(f"RMA {times[0][partly]:.1f} ") and f"lap time / built-in AI’s: {ratios[0][partly]:.3f}" in row
    )


def test_maps_of_laps_are_bright_where_fast_and_black_where_not_completed(visit: Any) -> None:
    browser, results = visit("map")
    part = results.envs[POWER_MASS]
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb

    means = {key: over_seeds(part.matrix(key, None, "completed_ratio"))[0] for key in part.returns}
    known = np.concatenate([mean[np.isfinite(mean)] for mean in means.values()])
    low, high = np.percentile(known, [2, 98])
    fills = browser.execute_script(
        "return [...document.querySelectorAll(\"#map-panels svg[data-label='only-obs'] [data-cell]\")]"
        ".map((r) => [r.getAttribute('fill'), r.getAttribute('class')])"
    )
    black = 0
    for cell, (fill, kind) in enumerate(fills):
        value = means["only-obs"][cell]
        if np.isnan(value):
            assert (fill, kind) == (None, "unfinished")
            black += 1
            continue
        share = float(np.clip((value - low) / (high - low), 0, 1))
        np.testing.assert_allclose(to_rgb(fill), colormaps["viridis_r"](share)[:3], atol=0.02)
    finished = np.isfinite(part.matrix("only-obs", None, "completed_ratio"))
    assert black == (~finished.any(axis=0)).sum() > 0
    partly = (finished.any(axis=0) & ~finished.all(axis=0)).sum()
    assert len(find_all(browser, "#map-panels svg[data-label='only-obs'] rect.partly")) == partly > 0
    shown = find(browser, "#map-panels svg[data-label='only-obs'] rect.unfinished")
    assert shown.value_of_css_property("fill") == "rgb(0, 0, 0)" and find(browser, "#map-note").is_displayed()
    choose(browser, "#quantity-choice", "return")
    assert not find_all(browser, "#map-panels rect.unfinished") and not find(browser, "#map-note").is_displayed()
    assert find(browser, "#maps h3").text == "Mean return over seeds in each context"


def test_the_difference_is_green_where_the_first_is_faster(visit: Any) -> None:
    browser, results = visit("map")
    part = results.envs[POWER_MASS]
    Select(find(browser, "#first")).select_by_value("oracle")
    Select(find(browser, "#second")).select_by_value("only-obs")
    means = {key: over_seeds(part.matrix(key, None, "completed_ratio"))[0] for key in ("oracle", "only-obs")}
    gap = means["oracle"] - means["only-obs"]
    for cell in (int(np.nanargmin(gap)), int(np.nanargmax(gap))):
        fill = point(browser, f"#difference-panel [data-cell='{cell}']").get_attribute("fill")
        assert find(browser, "#readout-difference").text == f"{gap[cell]:+.3f}".replace("-", "−")
        red, green, blue = bytes.fromhex(fill[1:])
        assert (green > max(red, blue)) == (gap[cell] < 0)  # less is better
    black = int(np.flatnonzero(np.isnan(gap))[0])
    point(browser, f"#difference-panel [data-cell='{black}']")
    assert find(browser, "#readout-difference").text == "not completed by both"
    worst = [part.matrix(key, "ood", "ratio") for key in ("oracle", "only-obs")]
    share = stats.share_of_cells(*(-rows for rows in worst))
    text = find(browser, "#difference-text").text
    assert text.startswith(f"Oracle is better than Only Obs in {100 * share:.0f} % of 320 OOD cells")
    assert f"mean difference {worst[0].mean() - worst[1].mean():+.3f}".replace("-", "−") in text
    assert "counts as twice the AI’s" in text


def test_cars_are_found_and_sorted(visit: Any) -> None:
    browser, results = visit("cars")
    part = results.envs[CARS]
    assert not find(browser, "#maps").is_displayed() and "Maps" not in find(browser, "nav").text
    field = find(browser, "#cars input")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", field)
    field.send_keys("ood Rally")
    shown = [row for row in find_all(browser, ".cars tbody tr") if row.is_displayed()]
    rallies = [
        name for name, ind in zip(part.context_labels, part.ind, strict=True) if name.startswith("rally") and not ind
    ]
    assert [row.find_element(By.TAG_NAME, "th").text for row in shown] == rallies
    assert find(browser, "#cars [role='status']").text == f"{len(rallies)} of 515 cars"
    heading = find(browser, ".cars th:nth-child(4) button")
    assert heading.text.split() == ["SPARC", "ratio"]
    for state, sign in (("ascending", 1), ("descending", -1)):
        heading.click()
        assert find(browser, ".cars th:nth-child(4)").get_attribute("aria-sort") == state
        rows = "[...document.querySelectorAll('.cars tbody tr:not([hidden])')]"
        texts = browser.execute_script(f"return {rows}.map((row) => row.children[3].innerText)")
        values = [sign * float(text) for text in texts]
        assert len(values) == len(rallies) and values == sorted(values)
    field.clear()
    field.send_keys("x")
    assert find(browser, "#cars [role='status']").text == "0 of 515 cars"


def test_a_verdict_on_cars_leads_to_their_table(visit: Any) -> None:
    browser, _ = visit("cars", (1280, 600))
    link = next(link for link in find_all(browser, ".comparison .headline a") if link.is_displayed())
    link.click()
    assert 0 <= find(browser, "#cars h3").location["y"] - browser.execute_script("return scrollY") < 300


def test_each_physics_has_its_map_and_its_table_of_cars(visit: Any) -> None:
    browser, results = visit("both")
    choices = [label.text for label in find_all(browser, "#env-choice label")]
    assert choices == [POWER_MASS, f"{POWER_MASS}, updated"]
    assert [title.text for title in find_all(browser, "#cars h3")] == [CARS, UPDATED]
    part = results.envs[POWER_MASS].variants["updated"]
    choose(browser, "#env-choice", f"{POWER_MASS}, updated")
    cell = int(np.flatnonzero(np.isfinite(part.matrix("sparc", None, "lap_time")).all(axis=0))[0])
    point(browser, f"#map-panels svg[data-label='sparc'] [data-cell='{cell}']")
    mean = part.matrix("sparc", None, "completed_ratio")[:, cell].mean()
    assert find(browser, "#readout tr.here").text.split()[:2] == ["SPARC", f"{mean:.3f}"]
    link = next(
        a for a in find_all(browser, "#numbers a[data-from]") if UPDATED.split(",")[0] in a.get_attribute("data-from")
    )
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", link)
    link.click()
    assert len(find_all(browser, "#run-table tr.from")) == 2


def test_runs_are_told_by_their_laps_and_fit(visit: Any) -> None:
    for size in ((1280, 800), (390, 844)):
        browser, results = visit("cars", size)
        box = find(browser, "#runs .box")
        assert box.get_property("scrollWidth") <= box.get_property("clientWidth")
    heads = browser.execute_script(
        "return [...document.querySelectorAll('#run-table thead th')].map((head) => head.textContent)"
    )
    assert heads[6:10] == ["OOD clean laps [%]", "OOD ratio", "IND clean laps [%]", "IND ratio"]
    cells = browser.execute_script(
        "return [...document.querySelector('#run-table tbody tr').children].map((cell) => cell.textContent)"
    )
    part = results.envs[CARS]
    means = [f"{100 * part.matrix('sparc', r, 'clean')[0].mean():.1f}" for r in ("ood", "ind")]
    assert [cells[6], cells[8]] == means
    assert cells[7] == f"{part.matrix('sparc', 'ood', 'ratio')[0].mean():.4f}"


def test_without_javascript_laps_and_cars_are_there(visit: Any, browser: Any) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        visit("both", PHONE)
        assert all(
            part.is_displayed() for part in find_all(browser, "#numbers > .scroller table, .cars, #map-static img")
        )
        assert not find(browser, "#cars input").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_mean_of_a_map_is_that_of_completed_laps(visit: Any) -> None:
    browser, results = visit("map")
    captions = {caption.text.split("\n")[0]: caption.text for caption in find_all(browser, "#map-panels figcaption")}
    mean = mean_of(results.envs[POWER_MASS], "only-obs", "ood", "completed_ratio")[0]
    assert f"OOD {mean:.3f}" in captions["Only Obs"] and "2 of 3 seeds ⚠" in captions["History Input"]
