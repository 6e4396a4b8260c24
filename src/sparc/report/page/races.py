"""Races, which are judged by their laps: tables of them, before and after a new physics, and every single car."""

from __future__ import annotations

import math
from html import escape
from typing import Any

import numpy as np

from sparc.envs.racing.measures import JUDGED, MEASURES
from sparc.report.laps import mean_of, run_means
from sparc.report.page.book import Book
from sparc.report.page.maps import reference
from sparc.report.page.tables import STAR, budget, lacking, middles, probabilities, row, table
from sparc.report.page.text import REGIONS, attributes
from sparc.report.stats import mean_sem
from sparc.suites.tables import APART, env_of
from sparc.text import count, number, slug

SHOWN = ("completed", "clean", "ratio", "completed_ratio")
PUBLISHED = ("completed", "ratio")  # by the paper
CHANGED = ("completed", "clean", "ratio")
HEADS = {"completed": "completed %", "clean": "clean %", "ratio": "ratio", "completed_ratio": "ratio if completed"}

DEFINITIONS = """<dt>Completed and clean laps</dt>
<dd>One flying lap per context. Completed: in less than twice the time of the game’s own driver, the built-in AI, in the
same car on the same tyres. Clean: completed without ever having three or more wheels off the road, and without touching
a wall.</dd>
<dt>Ratio</dt>
<dd>Lap time divided by the built-in AI’s; less is better, below 1 is faster than the AI. A lap that was not completed
counts as 2.0, as in the paper. The ratio of completed laps leaves those out, and with them the hardest contexts of
whoever fails there: it compares like with like only where all methods complete about the same laps.</dd>
"""


def laps(book: Book) -> str:
    """Tabulate the laps of every race, each region apart, what a new physics changes, and how sure all that is."""
    if not book.races:
        return ""
    parts = [introduction(book)]
    for test in book.races:
        parts += [lap_table(book, test, region) for region in book.parts[test].regions]
        parts += [change_table(book, test, region) for region in book.parts[test].regions if APART in test]
    # no middle of the clean laps: a lap is clean or not, so that the middle half is mostly all or nothing
    return "".join([*parts, middles(book, book.races, "ratio"), probabilities(book, book.races, JUDGED)])


def published(book: Book, test: str, region: str) -> dict[str, dict[str, list[float]]]:
    """Return the paper's values: label → measure → mean and, where there is one, s.e.m."""
    found: Any = (book.manifest["reference"] or {}).get("measures", {})
    values: dict[str, dict[str, list[float]]] = found.get(test, {}).get(region, {})
    return values


def lap_table(book: Book, test: str, region: str) -> str:
    """Tabulate the measures of a region's laps ± s.e.m. over seeds, beside the paper's."""
    paper = published(book, test, region)
    part = book.parts[test]
    means = {
        name: {key: mean_of(part, key, region, name)[0] for key in book.names if key in part.returns} for name in SHOWN
    }
    stars = {name: best(book, name, values) for name, values in means.items()}
    theirs = {name: best(book, name, {k: v[name][0] for k, v in paper.items() if name in v}) for name in PUBLISHED}
    rows = []
    for key in book.names:
        if key in part.returns:
            cells = "".join(lap_cell(book, test, key, region, name, key in stars[name]) for name in SHOWN)
        else:
            cells = f"<td class='edge gap left' colspan='{len(SHOWN)}'>{escape(book.gap(test, key))}</td>"
        if paper:
            cells += "".join(paper_cell(paper.get(key, {}).get(name), name, key in theirs[name]) for name in PUBLISHED)
        rows.append(row(book, key, cells))
    heads = {"Here, in TORCS": [HEADS[name] for name in SHOWN]}
    heads |= {"Paper": [HEADS[name] for name in PUBLISHED]} if paper else {}
    title = f"{test}, {REGIONS[region]} ({region.upper()}, {book.cells(test, region)} laps per seed)"
    return table(title, heads, rows, lap_note(book, test))


def introduction(book: Book) -> str:
    """Return what the tables of laps hold, what their marks mean, and what the paper's numbers cannot tell."""
    words = (
        f"Means ± s.e.m. over seeds; {budget(book)}. Ratio: lap time / built-in AI’s, 2.0 if not completed; less is "
        f"better. {STAR}Best mean among the contenders; that alone does not say how sure it is."
    )
    reference = book.manifest["reference"] or {}
    if "measures" not in reference:
        return f"<p class='quiet'>{escape(words)}</p>"
    beside = (
        f"The paper’s numbers ({reference['title']}, {count(reference['updates'])} updates) are for orientation only."
    )
    note = f"{beside} {reference.get('note', '')}".strip()
    return f"<p class='quiet'>{escape(words)}</p><p class='notice'>{escape(note)}</p>"


def lap_note(book: Book, test: str) -> str:
    """Return what a table of laps lacks."""
    found, words = [book.seeds(test, key) for key in book.names], []
    if any(done == 1 for done, _ in found):
        words.append("n = 1: one seed only, so that no spread over seeds is known.")
    if any(0 < done < planned for done, planned in found):
        words.append("⚠ Fewer seeds than planned: the average is over those that are there.")
    return " ".join(words)


def best(book: Book, name: str, means: dict[str, float]) -> set[str]:
    """Return the contenders with the best mean as it is shown; none where all are equal."""
    read = MEASURES[name]
    shown = {
        key: round(read.better * mean, read.digits)
        for key, mean in means.items()
        if key in book.names and not book.is_reference(key) and math.isfinite(mean)
    }
    top = {key for key, value in shown.items() if value == max(shown.values())}
    return top if len(top) < len(shown) else set()


def lap_cell(book: Book, test: str, key: str, region: str, name: str, star: bool) -> str:
    """Write a mean with its spread and, where seeds are missing or have no such lap, that they are."""
    mean, sem, seeds = mean_of(book.parts[test], key, region, name)
    text = book.source(spread(mean, sem, seeds, MEASURES[name].digits), test, key)
    done = book.seeds(test, key)[0]
    without = f"<span class='sub warn'>{done - seeds} of {done} seeds: none</span>" if 0 < seeds < done else ""
    edge = "edge" if name == SHOWN[0] else ""
    return f"<td class='{edge}{' best' * star}'>{STAR * star}{text}{without}{lacking(book, test, key)}</td>"


def spread(mean: float, sem: float, seeds: int, digits: int, signed: bool = False) -> str:
    """Write a mean ± its s.e.m., or how many seeds it is of."""
    rest = f" ± {number(sem, digits)}" if math.isfinite(sem) else f" (n = {seeds})" if seeds else ""
    return number(mean, digits, signed) + rest


def paper_cell(value: list[float] | None, name: str, star: bool) -> str:
    """Write the paper's mean and s.e.m."""
    edge = " edge" if name == PUBLISHED[0] else ""
    text = " ± ".join(number(part, paper_digits(name)) for part in value or [math.nan])
    return f"<td class='paper{edge}{' best' * star}'>{STAR * star}{text}</td>"


def paper_digits(name: str) -> int:
    """Return the decimals that the paper gives."""
    return 2 if MEASURES[name].unit == "%" else 4


def change_table(book: Book, test: str, region: str) -> str:
    """Tabulate what a new physics does to each run: the mean over seeds of the change ± s.e.m., beside the paper's."""
    before, after = book.parts[env_of(test)], book.parts[test]
    paper = published(book, env_of(test), region), published(book, test, region)
    rows = []
    for key in book.names:
        if key not in after.returns or key not in before.returns:
            rows.append(row(book, key, f"<td class='edge gap left' colspan='3'>{escape(book.gap(test, key))}</td>"))
            continue
        cells = ""
        for name in CHANGED:
            old, new = (
                dict(zip(part.returns[key], run_means(part, key, region, name), strict=True))
                for part in (before, after)
            )
            changes = np.array([new[seed] - old[seed] for seed in new if seed in old])
            text = spread(*mean_sem(changes), len(changes), MEASURES[name].digits, signed=True)
            said = [found[key][name][0] for found in paper if name in found.get(key, {})]
            beside = f"paper {number(said[1] - said[0], paper_digits(name), True)}" if len(said) == 2 else ""
            sub = f"<span class='sub'>{beside}</span>" if beside else ""
            cells += f"<td class='edge'>{book.source(text, test, key)}{sub}{lacking(book, test, key)}</td>"
        rows.append(row(book, key, cells))
    heads = {HEADS[name].replace("%", "[points]"): list[str]() for name in CHANGED}
    note = (
        "After minus before, run by run, then the mean over seeds ± s.e.m.: the same policies, which never trained in "
        "the new physics, against the built-in AI in the same physics."
    )
    title = f"What the new physics changes: {test}, {REGIONS[region]} ({region.upper()})"
    return table(title, heads, rows, note)


# Every car


def cars(book: Book) -> str:
    """List every car of the races whose contexts have names and are no plane: sortable, searchable."""
    tests = [test for test in book.races if test not in book.mapped and book.parts[test].named]
    if not tests:
        return ""
    return (
        "<section id='cars' aria-labelledby='cars-title'><h2 id='cars-title'>Every car</h2>"
        "<p class='quiet'>Means over the seeds: the ratio counts a lap that was not completed as 2.0; clean is the "
        "share of seeds with a clean lap. A single car says little: look at many.</p>"
        f"{''.join(car_table(book, test) for test in tests)}</section>"
    )


def car_table(book: Book, test: str) -> str:
    """Write one race's cars; end tags that HTML does not need are left out of some thousand cells."""
    part, name = book.parts[test], f"car-table-{slug(test)}"
    found = [
        [part.matrix(key, None, measure).mean(axis=0) for measure in ("ratio", "clean")] if key in part.returns else []
        for key in book.names
    ]
    columns = ["Car", "Region", "AI’s lap <small>s</small>"]
    columns += [f"{escape(book.names[key])} <small>{of}</small>" for key in book.names for of in ("ratio", "clean %")]
    heads = "".join(
        f"<th scope='col'{' class=left' * (index < 2)}><button type='button'>{words}</button></th>"
        for index, words in enumerate(columns)
    )
    rows = []
    for car, (label, ind, lap) in enumerate(zip(part.named, part.ind, reference(part), strict=True)):
        cells = f"<td class=left>{'IND' if ind else 'OOD'}<td>{lap:.1f}"
        for values in found:
            cells += f"<td>{values[0][car]:.3f}<td>{100 * values[1][car]:.0f}" if values else "<td class=gap>" * 2
        car_name, _, tyre = label.partition(" ")
        rows.append(f"<tr><th scope=row>{escape(car_name)} <small>{escape(tyre)}</small>{cells}")
    search = attributes(type="search", data_table=name, placeholder="e.g. ood rally", aria_label="Search cars")
    return (
        f"<h3 id='cars-{slug(test)}'>{escape(test)}</h3>"
        f"<p class='only-js'><label>Search <input{search}></label> "
        f"<span id='{name}-count' role='status'>{len(rows)} cars</span></p>"
        f"<div class='box tall' tabindex='0' role='region'{attributes(aria_label=f'Cars of {test}; headings sort')}>"
        f"<table class='cars' id='{name}'><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
