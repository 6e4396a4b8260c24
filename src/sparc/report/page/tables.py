"""The tables of numbers, each linked to the runs it comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sparc.envs.measures import RETURN
from sparc.report import stats
from sparc.report.page.data import REGIONS, ReportData, Source
from sparc.text import MISSING, count, joined, number

STAR = "★"
EFFECTS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0)  # differences in standard deviations


class Note(NamedTuple):
    """A small line below a number."""

    text: str
    warn: bool = False


@dataclass(frozen=True)
class Cell:
    """A number of a table, or why there is none."""

    text: str = MISSING
    source: Source | None = None  # a number links to its runs
    best: bool = False
    notes: Sequence[Note] = ()
    gap: bool = False
    paper: bool = False  # a published number
    edge: bool = True  # has a line on its left
    span: int = 1  # columns


GAP = Cell(gap=True)


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    name: str
    cells: list[Cell]
    reference: bool = False


@dataclass(frozen=True)
class Table:
    """A table with a title above and a note below."""

    title: str
    columns: dict[str, list[str]]  # headings, with those below them
    rows: list[Row]
    note: str


def means(data: ReportData, region: str) -> Table:
    """Return the mean returns ± s.e.m. over seeds, next to the paper's where there are some."""
    reference = data.manifest.get("reference") or {}
    paper = {env: values for env, values in reference.get(region, {}).items() if env in data.results.envs}
    found = {env: summaries(data, env, region) for env in data.results.envs}
    best = {env: winner(data, {key: s.mean for key, s in values.items()}) for env, values in found.items()}
    best_paper = {env: winner(data, {k: v[0] for k, v in values.items()}) for env, values in paper.items()}
    rows = []
    for key in data.names:
        cells = []
        for env in data.results.envs:
            cells.append(mean_cell(data, env, key, found[env].get(key), key == best[env]))
            if env in paper:
                cells.append(paper_cell(paper[env].get(key), data.digits[env], key == best_paper[env]))
        rows.append(row(data, key, cells))
    note = f"Here: {budget(data)}. "
    if paper:
        updates = f", {count(reference['updates'])} updates" if reference.get("updates") else ""
        title = reference["title"][:1].upper() + reference["title"][1:]
        note += f"{title}{updates}: for orientation, with other code and library versions. "
    note += f"{STAR} Highest mean among the contenders; that alone does not say how sure it is."
    if any(s.seeds == 1 for values in found.values() for s in values.values()):
        note += " n = 1: one seed only, so that no spread over seeds is known."
    if any(data.warning(env, key) for env in data.results.envs for key in data.names):
        note += " ⚠ Fewer seeds than planned: the average is over those that are there."
    columns = {env: ["here", "paper"] if env in paper else ["here"] for env in data.results.envs}
    return Table(f"Mean return {REGIONS[region]} ({region.upper()}) ± s.e.m. over seeds", columns, rows, note)


def budget(data: ReportData) -> str:
    """Return the updates of the runs, with the methods that trained longer or shorter than the rest."""
    usual = data.manifest["updates"]
    if data.stages:
        return joined(stage_budgets(data))
    own = {data.names[key]: {m["config"].get("updates", usual) for m in data.runs_of(key)} for key in data.names}
    others = [f"{name} {count(max(updates))}" for name, updates in own.items() if updates != {usual}]
    return f"{count(usual)} updates" + (f" ({', '.join(others)})" if others else "")


def stage_budgets(data: ReportData) -> list[str]:
    """Return the updates of the stages, those of equal length together, and which methods trained longer."""
    groups: dict[int, list[str]] = {}
    longer: dict[int, dict[str, None]] = {}
    for stage in data.stages:
        own = {
            data.results.entries[method].title: max(m["config"].get("updates", 0) for m in runs)
            for key, (method, variation) in data.methods.items()
            if variation == stage and (runs := data.runs_of(key))
        }
        if own:
            least = min(own.values())
            groups.setdefault(least, []).append(stage)
            more = [f"{title} {count(updates)}" for title, updates in own.items() if updates > least]
            longer.setdefault(least, {}).update(dict.fromkeys(more))
    return [
        f"{count(updates)} updates ({'; '.join(filter(None, [', '.join(stages), ', '.join(longer[updates])]))})"
        for updates, stages in groups.items()
    ]


def summaries(data: ReportData, test: str, region: str, measure: str = RETURN) -> dict[str, stats.Summary]:
    """Return the summary of every label with results."""
    if measure == RETURN:
        return {key: data.summaries[test, key, region] for key in data.names if (test, key, region) in data.summaries}
    found = [key for key in data.names if key in data.parts[test].returns]
    better = data.measure(test, measure).better
    return {key: stats.summarise(data.values(test, key, region, measure), better=better) for key in found}


def mean_cell(data: ReportData, env: str, key: str, summary: stats.Summary | None, best: bool) -> Cell:
    """Return a mean with its spread, and a warning where seeds are missing."""
    if summary is None:
        return Cell(data.gap(env, key), gap=True)
    text = spread(summary.mean, summary.sem, summary.seeds, data.digits[env])
    return Cell(text, data.source(env, key), best, missing_seeds(data, env, key))


def spread(mean: float, sem: float, seeds: int, decimals: int, signed: bool = False) -> str:
    """Return a mean ± its s.e.m., or the number of seeds if these are too few for one."""
    rest = f" ± {number(sem, decimals)}" if math.isfinite(sem) else f" (n = {seeds})" if seeds else ""
    return number(mean, decimals, signed) + rest


def missing_seeds(data: ReportData, env: str, key: str) -> list[Note]:
    """Return a warning if a number is over fewer seeds than planned."""
    text = data.warning(env, key)
    return [Note(text, warn=True)] if text else []


def paper_cell(value: list[float] | None, decimals: int, best: bool, edge: bool = False) -> Cell:
    """Return the paper's mean and s.e.m."""
    text = " ± ".join(number(part, decimals) for part in value or [math.nan])
    return Cell(text, best=best, paper=True, edge=edge)


def winner(data: ReportData, values: Mapping[str, float]) -> str | None:
    """Return the contender with the highest value, if there is more than one contender."""
    contenders = {key: values[key] for key in data.names if key in values and not data.is_reference(key)}
    return max(contenders, key=lambda key: contenders[key]) if len(contenders) > 1 else None


def middles(data: ReportData, tests: Sequence[str], measure: str = RETURN) -> Table | None:
    """Return the interquartile means of the returns, or of a measure; None where all are plain means."""
    places = {(test, part): summaries(data, test, part, measure) for test in tests for part in data.parts[test].regions}
    if all(s.seeds < stats.MIN_RUNS for found in places.values() for s in found.values()):
        return None
    best = {
        place: winner(data, {key: data.measure(place[0], measure).better * s.iqm.value for key, s in found.items()})
        for place, found in places.items()
    }
    rows = []
    for key in data.names:
        cells = []
        for (env, region), found in places.items():
            summary = found.get(key)
            if summary is None:
                cells.append(GAP)
                continue
            value, low, high = (number(part, data.measure(env, measure).digits) for part in summary.iqm)
            interval = f"{low} to {high}" if math.isfinite(summary.iqm.low) else f"n = {summary.seeds}"
            notes = [Note(interval), *missing_seeds(data, env, key)]
            cells.append(Cell(value, data.source(env, key), key == best[env, region], notes))
        rows.append(row(data, key, cells))
    columns = {test: [region.upper() for region in data.parts[test].regions] for test in tests}
    read = data.measure(tests[0], measure)
    of = f" of the {read.title}" if measure != RETURN else ""
    note = (
        "The mean of the middle half of the runs, each averaged over its cells. Below: 95 % interval, from three seeds."
    )
    note += " Less is better." * (read.better < 0)
    return Table(f"Interquartile mean (IQM){of} over seeds", columns, rows, note)


def worst_quarters(data: ReportData, tests: Sequence[str]) -> Table:
    """Return the mean returns of each run's worst quarter of cells ± s.e.m. over seeds."""
    places = {(test, part): summaries(data, test, part) for test in tests for part in data.parts[test].regions}
    best = {place: winner(data, {key: s.worst[0] for key, s in found.items()}) for place, found in places.items()}
    rows = []
    for key in data.names:
        cells = []
        for (test, region), found in places.items():
            summary = found.get(key)
            if summary is None:
                cells.append(GAP)
                continue
            text = spread(*summary.worst, summary.seeds, data.digits[test])
            cells.append(Cell(text, data.source(test, key), key == best[test, region], missing_seeds(data, test, key)))
        rows.append(row(data, key, cells))
    columns = {test: [region.upper() for region in data.parts[test].regions] for test in tests}
    note = "Of every run the quarter of its cells with the lowest return, averaged: what to expect where it is weakest."
    return Table("Mean return in the worst quarter of cells ± s.e.m. over seeds", columns, rows, note)


def sample_sizes() -> Table:
    """Return how many seeds of each method it takes to see differences of several sizes."""
    needed = {f"{effect:g}": stats.seeds_needed(effect) for effect in EFFECTS}
    note = (
        "In standard deviations over the seeds of one method: a difference of 400 between methods whose seeds have a "
        "standard deviation of 200 is 2. Seeds of each method with which "
        f"{100 * stats.POWER:.0f} of 100 suites find it, by a two-sided test at {100 * (1 - stats.CONFIDENCE):.0f} %, "
        "for one comparison by itself: several that are corrected for their number need more."
    )
    row = Row("Seeds needed", [Cell(f"{seeds}") for seeds in needed.values()])
    return Table(
        "To see a difference of this size, so many seeds are needed", {effect: [] for effect in needed}, [row], note
    )


def aggregates(data: ReportData) -> Table | None:
    """Return the interquartile means over all environments, with intervals; None for one environment."""
    envs, used = list(data.results.envs), data.aggregated_envs
    if len(envs) < 2:
        return None
    best = winner(data, {key: estimate.value for key, estimate in data.aggregates.items()})
    rows = []
    for key in data.names:
        estimate = data.aggregates.get(key)
        if estimate is None:
            rows.append(row(data, key, [GAP]))
            continue
        value, low, high = (number(part, 2) for part in estimate)
        done, planned = (sum(data.seeds(env, key)[i] for env in used) for i in (0, 1))
        interval = [Note(f"{low} to {high}")] if math.isfinite(estimate.low) else []
        runs = Note(f"{done} of {planned} runs ⚠", warn=True) if done < planned else Note(f"{done} runs")
        rows.append(row(data, key, [Cell(value, data.source("", key), key == best, [*interval, runs])]))
    unit = data.names[data.normalizer]
    left = [env for env in envs if env not in used]
    note = (
        f"The mean of the middle half of all runs of {joined(used) or 'no environment'}. Of each run its mean OOD "
        f"return, divided by that of {unit} in its environment, so that 1 is as good as {unit}. Below: 95 % "
        f"interval of a bootstrap of whole runs, environments as strata, {unit}’s mean held fixed; from three seeds of "
        "each environment on."
    )
    if left:
        note += f" ⚠ Without {joined(left)}, where not all methods have results or {unit} has no positive return."
    return Table("Interquartile mean (IQM) over all environments, out of distribution", {"IQM": []}, rows, note)


def probabilities(data: ReportData, tests: Sequence[str], measures: Sequence[str] = (RETURN,)) -> Table | None:
    """Return the probability that a run of the first method of a pair beats one of the second, OOD."""
    if not data.pairs:
        return None
    averaged = len(tests) > 1 and measures == (RETURN,)
    rows = []
    for a, b in data.pairs:
        cells = [probability(data, test, a, b, name) for test in tests for name in measures]
        cells += [overall(data, a, b)] if averaged else []
        rows.append(Row(data.pair_name(a, b, "over"), cells))
    if all(cell.source is None for one in rows for cell in one.cells):
        return None
    names = [data.measure(tests[0], name).title for name in measures if name != RETURN]
    columns = {test: names for test in tests} | ({"All, weighted equally": list[str]()} if averaged else {})
    note = (
        "How often a run of the first method has a better mean than one of the second; 0.5 is no difference. "
        "Below: 95 % interval. From three seeds on."
    )
    by = f", by {joined(names)}" if names else ""
    return Table(f"Probability of improvement out of distribution{by}", columns, rows, note)


def probability(data: ReportData, test: str, a: str, b: str, measure: str) -> Cell:
    """Return the probability of improvement in one test, by one measure."""
    found = data.comparisons.get((test, a, b, "ood", measure))
    if found is None:
        return GAP
    warn = bool(data.warning(test, a) or data.warning(test, b))
    pairs = Note(f"{found.x_seeds} × {found.y_seeds} pairs of runs{' ⚠' * warn}", warn)
    return probability_cell(data, found.probability, test, a, b, [pairs])


def overall(data: ReportData, a: str, b: str) -> Cell:
    """Return the probability of improvement by return, averaged over the environments with results of both."""
    parts = [part for env, part in data.results.envs.items() if (env, a, b, "ood", RETURN) in data.comparisons]
    if not parts:
        return GAP
    first, second = ([part.matrix(key, "ood").mean(axis=1) for part in parts] for key in (a, b))
    half, total = len(parts), len(data.results.envs)
    bounds = stats.interval(
        [*first, *second], lambda runs: stats.probability_of_improvement(runs[:half], runs[half:])
    )  # fmt: skip
    estimate = stats.Estimate(stats.probability_of_improvement(first, second), *bounds)
    notes = [Note(f"{half} of {total} environments ⚠", warn=True)] if half < total else []
    return probability_cell(data, estimate, "", a, b, notes)


def probability_cell(
    data: ReportData, estimate: stats.Estimate, test: str, a: str, b: str, notes: Sequence[Note]
) -> Cell:
    """Return a probability with its interval; of one or two runs none, as it would look surer than it is."""
    if not math.isfinite(estimate.low):
        return Cell(notes=[Note("too few seeds"), *notes])
    value, low, high = (number(part, 2) for part in estimate)
    return Cell(value, data.source(test, a, b), notes=[Note(f"{low} to {high}"), *notes])


def row(data: ReportData, key: str, cells: list[Cell]) -> Row:
    """Return the row of a label."""
    return Row(data.names[key], cells, data.is_reference(key))
