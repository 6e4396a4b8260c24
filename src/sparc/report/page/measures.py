"""Tables of the measures that environments are judged by: means, what a variant changes, and how sure all that is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparc.envs.measures import RETURN, Measure
from sparc.report.measured import mean_of, run_means
from sparc.report.page.data import REGIONS, ReportData
from sparc.report.page.draws import draw_tables, draws_of
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
from sparc.suites.results import APART, env_of
from sparc.text import count, joined, number


@dataclass(frozen=True)
class Layout:
    """Which measures of a test have columns, and what these and the table's parts are called."""

    heads: Mapping[str, str]  # by measure, in the order of the columns
    published: tuple[str, ...]
    changed: tuple[str, ...]  # shown of a variant
    here: str = "Here"
    cells: str = "cells"
    variant: str = "variant"
    variant_note: str = "the same policies, which never trained in this variant."

    @property
    def change_heads(self) -> dict[str, list[str]]:
        """The heads of the columns of changes: percentages change by points."""
        return {self.heads[name].replace("[%]", "%").replace("%", "[points]"): [] for name in self.changed}


@dataclass(frozen=True)
class Numbers:
    """Tables of measures, and what a reader must know before them."""

    introduction: str
    caution: str  # about the paper's numbers; may be empty
    tables: list[Table]


def numbers(data: ReportData) -> Numbers:
    """Return the tables of every test, but races, that is judged by measures."""
    tables = []
    groups: dict[tuple[tuple[str, Measure], ...], list[str]] = {}
    for test in data.own_measured:
        tables += test_tables(data, test, own_layout(data, test))
        read = tuple((name, data.measure(test, name)) for name in data.judged_by(test) if name != RETURN)
        groups.setdefault(read, []).append(test)
    for read, tests in groups.items():
        names = tuple(name for name, _ in read)
        sureness = [middles(data, tests, name) for name in names if not data.all_or_nothing(tests, name)]
        tables += [table for table in (*sureness, probabilities(data, tests, names)) if table]
    introduction = (
        f"Means ± s.e.m. over seeds; {budget(data)}. {STAR} Best mean among the contenders; that alone does not say "
        "how sure it is."
    )
    return Numbers(introduction, caution(data), tables)


def own_layout(data: ReportData, test: str) -> Layout:
    """Return a column for each measure that an environment is judged by."""
    names = [name for name in data.judged_by(test) if name != RETURN]
    heads = {name: column_head(data.measure(test, name)) for name in names}
    papers = [published(data, test, region) for region in data.parts[test].regions]
    given = {name for paper in papers for values in paper.values() for name in values}
    return Layout(heads, tuple(name for name in names if name in given), tuple(names))


def column_head(measure: Measure) -> str:
    """Return the head of a column."""
    return f"{measure.heading}{', less is better' * (measure.better < 0)}"


def definitions(data: ReportData) -> list[tuple[str, str]]:
    """Return the measures that environments, but races, are judged by, each with the names of these."""
    found: dict[str, list[str]] = {}
    for env in (env for env in data.results.envs if env in data.own_measured):
        for name in (name for name in data.judged_by(env) if name != RETURN):
            head = column_head(data.measure(env, name))
            found.setdefault(head[:1].upper() + head[1:], []).append(env)
    return [(head, joined(envs)) for head, envs in found.items()]


def test_tables(data: ReportData, test: str, layout: Layout) -> list[Table]:
    """Return the means of a test in each region and, of a variant or of several draws, what it changes."""
    regions = data.parts[test].regions
    if draws_of(data, test):
        changes = draw_tables(data, test, layout)
    else:
        changes = [change_table(data, test, region, layout) for region in regions if APART in test]
    return [*(mean_table(data, test, region, layout) for region in regions), *changes]


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


def mean_table(data: ReportData, test: str, region: str, layout: Layout) -> Table:
    """Return the measures in a region ± s.e.m. over seeds, next to the paper's."""
    paper = published(data, test, region)
    part = data.parts[test]
    means = {
        name: {key: mean_of(part, key, region, name)[0] for key in data.names if key in part.returns}
        for name in layout.heads
    }
    best = {name: best_labels(data, test, name, values) for name, values in means.items()}
    best_paper = {
        name: best_labels(data, test, name, {k: v[name][0] for k, v in paper.items() if name in v})
        for name in layout.published
    }
    first = next(iter(layout.heads))
    rows = []
    for key in data.names:
        if key in part.returns:
            cells = [
                mean_cell(data, test, key, region, name, key in best[name], name == first) for name in layout.heads
            ]
        else:
            cells = [Cell(data.gap(test, key), gap=True, span=len(layout.heads))]
        for name in layout.published if paper else ():
            decimals, value = paper_digits(data.measure(test, name)), paper.get(key, {}).get(name)
            cells.append(paper_cell(value, decimals, key in best_paper[name], edge=name == layout.published[0]))
        rows.append(row(data, key, cells))
    columns = {layout.here: list(layout.heads.values())}
    columns |= {"Paper": [layout.heads[name] for name in layout.published]} if paper else {}
    title = f"{test}, {REGIONS[region]} ({region.upper()}, {data.cells(test, region)} {layout.cells} per seed)"
    return Table(title, columns, rows, seed_note(data, test))


def seed_note(data: ReportData, test: str) -> str:
    """Return what a table of means lacks."""
    found, words = [data.seeds(test, key) for key in data.names], list[str]()
    if draws := draws_of(data, test):
        words.append(f"Of each run the mean over {joined(draws)}.")
    if any(done == 1 for done, _ in found):
        words.append("n = 1: one seed only, so that no spread over seeds is known.")
    if any(0 < done < planned for done, planned in found):
        words.append("⚠ Fewer seeds than planned: the average is over those that are there.")
    return " ".join(words)


def best_labels(data: ReportData, test: str, name: str, means: dict[str, float]) -> set[str]:
    """Return the contenders with the best mean after rounding; none where all are equal."""
    measure = data.measure(test, name)
    shown = {
        key: round(measure.better * mean, measure.digits)
        for key, mean in means.items()
        if key in data.names and not data.is_reference(key) and math.isfinite(mean)
    }
    top = {key for key, value in shown.items() if value == max(shown.values())}
    return top if len(top) < len(shown) else set()


def mean_cell(data: ReportData, test: str, key: str, region: str, name: str, best: bool, edge: bool) -> Cell:
    """Return a mean with its spread, and warnings where seeds are missing or have no value."""
    mean, sem, seeds = mean_of(data.parts[test], key, region, name)
    done = data.seeds(test, key)[0]
    notes = [Note(f"{done - seeds} of {done} seeds: none", warn=True)] if 0 < seeds < done else []
    text = spread(mean, sem, seeds, data.measure(test, name).digits)
    notes += missing_seeds(data, test, key)
    return Cell(text, data.source(test, key), best, notes, edge=edge)


def paper_digits(measure: Measure) -> int:
    """Return the decimals that the paper gives."""
    return 2 if measure.unit == "%" else measure.digits


def change_table(data: ReportData, test: str, region: str, layout: Layout) -> Table:
    """Return what a variant changes: the mean over seeds of each run's change ± s.e.m., next to the paper's."""
    title = f"What the new {layout.variant} changes: {test}, {REGIONS[region]} ({region.upper()})"
    note = f"After minus before, run by run, then the mean over seeds ± s.e.m.: {layout.variant_note}"
    rows = [change_row(data, test, region, key, layout) for key in data.names]
    return Table(title, layout.change_heads, rows, note)


def change_row(data: ReportData, test: str, region: str, key: str, layout: Layout) -> Row:
    """Return what a variant changes for a label."""
    before, after = data.parts[env_of(test)], data.parts[test]
    if key not in after.returns or key not in before.returns:
        return row(data, key, [Cell(data.gap(test, key), gap=True, span=len(layout.changed))])
    paper = published(data, env_of(test), region), published(data, test, region)
    cells = []
    for name in layout.changed:
        measure = data.measure(test, name)
        old, new = (
            dict(zip(part.returns[key], run_means(part, key, region, name), strict=True)) for part in (before, after)
        )
        changes = np.array([new[seed] - old[seed] for seed in new if seed in old])
        text = spread(*mean_sem(changes), len(changes), measure.digits, signed=True)
        published_means = [found[key][name][0] for found in paper if name in found.get(key, {})]
        notes = []
        if len(published_means) == 2:
            change = number(published_means[1] - published_means[0], paper_digits(measure), True)
            notes.append(Note(f"paper {change}"))
        cells.append(Cell(text, data.source(test, key), notes=[*notes, *missing_seeds(data, test, key)]))
    return row(data, key, cells)
