"""Races, which are judged by their laps: tables of them, before and after a new physics, and every single car."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparc.arrays import Array
from sparc.envs.racing.measures import JUDGED, MEASURES
from sparc.envs.racing.tasks import NOT_COMPLETED
from sparc.report.measured import mean_of, run_means
from sparc.report.page.data import REGIONS, ReportData
from sparc.report.page.tables import (
    STAR,
    Cell,
    Note,
    Row,
    Table,
    budget,
    middles,
    missing_seeds,
    paper_cell,
    probabilities,
    row,
    spread,
)
from sparc.report.stats import mean_sem
from sparc.suites.tables import APART, EnvResults, env_of
from sparc.text import count, number, slug

SHOWN = ("completed", "clean", "ratio", "completed_ratio")
PUBLISHED = ("completed", "ratio")  # by the paper
CHANGED = ("completed", "clean", "ratio")
HEADS = {"completed": "completed %", "clean": "clean %", "ratio": "ratio", "completed_ratio": "ratio if completed"}
MEANS = {"clean": "shares of clean laps", "ratio": "mean ratios, of which less is better"}  # that verdicts rest on
MOSTLY_TIES = ("clean",)  # a lap is clean or not: in most cells two methods are equal
MAPPED = {"completed_ratio": "lap time / built-in AI’s", "lap_time": "lap time [s]"}  # before the return
MAP_RULE = "A lap that was not completed counts as twice the AI’s."


@dataclass(frozen=True)
class Numbers:
    """The tables of laps, and what a reader must know before them."""

    introduction: str
    caution: str  # about the paper's numbers; may be empty
    tables: list[Table]


def numbers(data: ReportData) -> Numbers:
    """Return the tables of every race, of what a new physics changes, and of how sure all that is."""
    tables = []
    for test in data.races:
        regions = data.parts[test].regions
        tables += [lap_table(data, test, region) for region in regions]
        tables += [change_table(data, test, region) for region in regions if APART in test]
    # no IQM of the clean laps: a lap is clean or not, so that the middle half is mostly all or nothing
    tables.append(middles(data, data.races, "ratio"))
    if chances := probabilities(data, data.races, JUDGED):
        tables.append(chances)
    introduction = (
        f"Means ± s.e.m. over seeds; {budget(data)}. Ratio: lap time / built-in AI’s, 2.0 if not completed; less is "
        f"better. {STAR} Best mean among the contenders; that alone does not say how sure it is."
    )
    return Numbers(introduction, caution(data), tables)


def caution(data: ReportData) -> str:
    """Return what the paper's numbers cannot tell, if they are shown."""
    reference = data.manifest["reference"] or {}
    if "measures" not in reference:
        return ""
    source = f"{reference['title']}, {count(reference['updates'])} updates"
    return f"The paper’s numbers ({source}) are for orientation only. {reference.get('note', '')}".strip()


def published(data: ReportData, test: str, region: str) -> dict[str, dict[str, list[float]]]:
    """Return the paper's values: label → measure → mean and, where there is one, s.e.m."""
    found: Any = (data.manifest["reference"] or {}).get("measures", {})
    values: dict[str, dict[str, list[float]]] = found.get(test, {}).get(region, {})
    return values


def lap_table(data: ReportData, test: str, region: str) -> Table:
    """Return the measures of a region's laps ± s.e.m. over seeds, next to the paper's."""
    paper = published(data, test, region)
    part = data.parts[test]
    means = {
        name: {key: mean_of(part, key, region, name)[0] for key in data.names if key in part.returns} for name in SHOWN
    }
    best = {name: best_labels(data, name, values) for name, values in means.items()}
    best_paper = {
        name: best_labels(data, name, {k: v[name][0] for k, v in paper.items() if name in v}) for name in PUBLISHED
    }
    rows = []
    for key in data.names:
        if key in part.returns:
            cells = [lap_cell(data, test, key, region, name, key in best[name]) for name in SHOWN]
        else:
            cells = [Cell(data.gap(test, key), gap=True, span=len(SHOWN))]
        for name in PUBLISHED if paper else ():
            value = paper.get(key, {}).get(name)
            cells.append(paper_cell(value, paper_digits(name), key in best_paper[name], edge=name == PUBLISHED[0]))
        rows.append(row(data, key, cells))
    columns = {"Here, in TORCS": [HEADS[name] for name in SHOWN]}
    columns |= {"Paper": [HEADS[name] for name in PUBLISHED]} if paper else {}
    title = f"{test}, {REGIONS[region]} ({region.upper()}, {data.cells(test, region)} laps per seed)"
    return Table(title, columns, rows, seed_note(data, test))


def seed_note(data: ReportData, test: str) -> str:
    """Return what a table of laps lacks."""
    found, words = [data.seeds(test, key) for key in data.names], []
    if any(done == 1 for done, _ in found):
        words.append("n = 1: one seed only, so that no spread over seeds is known.")
    if any(0 < done < planned for done, planned in found):
        words.append("⚠ Fewer seeds than planned: the average is over those that are there.")
    return " ".join(words)


def best_labels(data: ReportData, name: str, means: dict[str, float]) -> set[str]:
    """Return the contenders with the best mean after rounding; none where all are equal."""
    measure = MEASURES[name]
    shown = {
        key: round(measure.better * mean, measure.digits)
        for key, mean in means.items()
        if key in data.names and not data.is_reference(key) and math.isfinite(mean)
    }
    top = {key for key, value in shown.items() if value == max(shown.values())}
    return top if len(top) < len(shown) else set()


def lap_cell(data: ReportData, test: str, key: str, region: str, name: str, best: bool) -> Cell:
    """Return a mean with its spread, and warnings where seeds are missing or have no such lap."""
    mean, sem, seeds = mean_of(data.parts[test], key, region, name)
    done = data.seeds(test, key)[0]
    notes = [Note(f"{done - seeds} of {done} seeds: none", warn=True)] if 0 < seeds < done else []
    text = spread(mean, sem, seeds, MEASURES[name].digits)
    notes += missing_seeds(data, test, key)
    return Cell(text, data.source(test, key), best, notes, edge=name == SHOWN[0])


def paper_digits(name: str) -> int:
    """Return the decimals that the paper gives."""
    return 2 if MEASURES[name].unit == "%" else 4


def change_table(data: ReportData, test: str, region: str) -> Table:
    """Return what a new physics changes: the mean over seeds of each run's change ± s.e.m., next to the paper's."""
    title = f"What the new physics changes: {test}, {REGIONS[region]} ({region.upper()})"
    columns = {HEADS[name].replace("%", "[points]"): list[str]() for name in CHANGED}
    note = (
        "After minus before, run by run, then the mean over seeds ± s.e.m.: the same policies, which never trained in "
        "the new physics, against the built-in AI in the same physics."
    )
    return Table(title, columns, [change_row(data, test, region, key) for key in data.names], note)


def change_row(data: ReportData, test: str, region: str, key: str) -> Row:
    """Return what a new physics changes for a label."""
    before, after = data.parts[env_of(test)], data.parts[test]
    if key not in after.returns or key not in before.returns:
        return row(data, key, [Cell(data.gap(test, key), gap=True, span=len(CHANGED))])
    paper = published(data, env_of(test), region), published(data, test, region)
    cells = []
    for name in CHANGED:
        old, new = (
            dict(zip(part.returns[key], run_means(part, key, region, name), strict=True)) for part in (before, after)
        )
        changes = np.array([new[seed] - old[seed] for seed in new if seed in old])
        text = spread(*mean_sem(changes), len(changes), MEASURES[name].digits, signed=True)
        published_means = [found[key][name][0] for found in paper if name in found.get(key, {})]
        notes = []
        if len(published_means) == 2:
            change = number(published_means[1] - published_means[0], paper_digits(name), True)
            notes.append(Note(f"paper {change}"))
        cells.append(Cell(text, data.source(test, key), notes=[*notes, *missing_seeds(data, test, key)]))
    return row(data, key, cells)


# Maps


def reference_laps(part: EnvResults) -> Array:
    """Return the built-in AI's lap in each context, which is the same for all runs, (M,)."""
    return next((part.matrix(key, None, "reference")[0] for key in part.returns), np.full(len(part.contexts), np.nan))


def with_unfinished(part: EnvResults, key: str, region: str, name: str) -> Array:
    """Return a measure of completed laps, with twice the AI's for the others, (n, M)."""
    rows = part.matrix(key, region, name)
    twice = NOT_COMPLETED * (part.matrix(key, region, "reference") if name == "lap_time" else np.ones_like(rows))
    return np.where(np.isfinite(rows), rows, twice)


# Every car


@dataclass(frozen=True)
class Car:
    """A row of a table of cars."""

    name: str
    tyre: str
    region: str
    reference: str  # the built-in AI's lap
    values: list[tuple[str, str] | None]  # ratio and share of clean laps of each method


@dataclass(frozen=True)
class CarTable:
    """Every car of a race: sortable, searchable."""

    test: str
    id: str
    methods: list[str]
    cars: list[Car]


def car_tables(data: ReportData) -> list[CarTable]:
    """Return every car of the races whose contexts have names and are no plane."""
    tests = [test for test in data.races if test not in data.mapped and data.parts[test].named]
    return [CarTable(test, slug(test), list(data.names.values()), cars(data, test)) for test in tests]


def cars(data: ReportData, test: str) -> list[Car]:
    """Return one race's cars, with means over the seeds."""
    part = data.parts[test]
    means = [
        [part.matrix(key, None, measure).mean(axis=0) for measure in ("ratio", "clean")] if key in part.returns else []
        for key in data.names
    ]
    rows = []
    for index, (label, ind, lap) in enumerate(zip(part.named, part.ind, reference_laps(part), strict=True)):
        name, _, tyre = label.partition(" ")
        values = [(f"{of[0][index]:.3f}", f"{100 * of[1][index]:.0f}") if of else None for of in means]
        rows.append(Car(name, tyre, "IND" if ind else "OOD", f"{lap:.1f}", values))
    return rows
