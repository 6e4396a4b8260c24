"""Tables of several draws of one change: what a new draw does to a run, how sure that is over runs and over draws."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sparc.report import stats
from sparc.report.measured import changes
from sparc.report.page.data import REGIONS, ReportData
from sparc.report.page.tables import Cell, Note, Row, Table, missing_seeds, row, spread
from sparc.suites.results import APART, env_of
from sparc.text import number

if TYPE_CHECKING:
    from sparc.report.page.measures import Layout

OVER_DRAWS = "over draws"


def draws_of(data: ReportData, test: str) -> list[str]:
    """Return the variants that a test is the mean of; none where it is no test of several draws."""
    env, _, name = test.partition(APART)
    return data.results.envs[env].draws.get(name, [])


def draw_tables(data: ReportData, test: str, layout: Layout) -> list[Table]:
    """Return what draws change in each region, and by how much methods differ in that."""
    regions = data.parts[test].regions
    return [
        table
        for region in regions
        for table in (change_table(data, test, region, layout), pair_table(data, test, region, layout))
        if table.rows
    ]


def change_table(data: ReportData, test: str, region: str, layout: Layout) -> Table:
    """Return what draws change, with the spread over runs and over draws."""
    draws = draws_of(data, test)
    title = f"What a new {layout.variant} changes, {len(draws)} draws: {env_of(test)}, {REGIONS[region]}"
    note = (
        f"Each draw minus the {layout.variant} of training, run by run: {layout.variant_note} First the mean ± s.e.m. "
        "over runs, each with its mean over the draws: that is about the method, in these draws. Below it ± s.e.m. "
        f"over draws, each with its mean over the runs, and from the lowest to the highest: that is about a new "
        f"{layout.variant}, for these runs."
    )
    rows = [change_row(data, test, region, key, layout) for key in data.names]
    return Table(f"{title} ({region.upper()})", layout.change_heads, rows, note)


def change_row(data: ReportData, test: str, region: str, key: str, layout: Layout) -> Row:
    """Return what draws change for a label."""
    if key not in data.parts[test].returns or key not in data.parts[env_of(test)].returns:
        return row(data, key, [Cell(data.gap(test, key), gap=True, span=len(layout.changed))])
    cells = []
    for name in layout.changed:
        digits = data.measure(test, name).digits
        found = changes(data.results.envs[env_of(test)], draws_of(data, test), key, region, name)
        per_draw = found.mean(axis=0)
        ends = " to ".join(number(end, digits, True) for end in (per_draw.min(), per_draw.max()))
        text = spread(*stats.mean_sem(found.mean(axis=1)), len(found), digits, signed=True)
        notes = [Note(f"{OVER_DRAWS} ± {number(stats.mean_sem(per_draw)[1], digits)}, {ends}")]
        cells.append(Cell(text, data.source(test, key), notes=[*notes, *missing_seeds(data, test, key)]))
    return row(data, key, cells)


def pair_table(data: ReportData, test: str, region: str, layout: Layout) -> Table:
    """Return by how much the change of one method differs from that of another."""
    there = {*data.parts[test].returns} & {*data.parts[env_of(test)].returns}
    rows = [pair_row(data, test, region, pair, layout) for pair in data.pairs if pair[0] in there and pair[1] in there]
    note = (
        "The first method’s change minus the second’s, with 95 % intervals: Welch’s over runs, and Student’s over "
        "draws, by which the methods are paired. Clear: neither includes zero. A description, not corrected for the "
        "number of comparisons."
    )
    title = f"Whose results change more, {len(draws_of(data, test))} draws: {env_of(test)}, {REGIONS[region]}"
    return Table(f"{title} ({region.upper()})", layout.change_heads, rows, note)


def pair_row(data: ReportData, test: str, region: str, pair: tuple[str, str], layout: Layout) -> Row:
    """Return the difference of two methods' changes, over runs and over draws."""
    part, draws, cells = data.results.envs[env_of(test)], draws_of(data, test), list[Cell]()
    for name in layout.changed:
        digits = data.measure(test, name).digits
        first, second = (changes(part, draws, key, region, name) for key in pair)
        over_runs = stats.difference(first.mean(axis=1)[:, None], second.mean(axis=1)[:, None])[0]
        over_draws = stats.mean_interval(first.mean(axis=0) - second.mean(axis=0))
        both = {"over runs": over_runs, OVER_DRAWS: over_draws}
        notes = [Note(f"{words} {interval(of, digits)}") for words, of in both.items()]
        notes += [Note("clear")] if all(map(excludes_zero, both.values())) else []
        cells.append(Cell(number(over_runs.value, digits, True), data.source(test, *pair), notes=notes))
    return Row(data.pair_name(*pair, "−"), cells, data.is_reference(pair[1]))


def interval(estimate: stats.Estimate, digits: int) -> str:
    """Return the ends of an interval as text."""
    if not math.isfinite(estimate.low):
        return "unknown"
    return f"{number(estimate.low, digits, True)} to {number(estimate.high, digits, True)}"


def excludes_zero(estimate: stats.Estimate) -> bool:
    """Return whether an interval is known and does not include zero."""
    return estimate.low > 0 or estimate.high < 0
