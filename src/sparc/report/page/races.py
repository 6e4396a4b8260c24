"""What only races show: the columns of their laps, maps with the laps that were not completed, and every single car."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparc.arrays import Array
from sparc.envs.racing.measures import JUDGED
from sparc.envs.racing.tasks import NOT_COMPLETED
from sparc.report.page.data import ReportData
from sparc.report.page.measures import Layout, Numbers, caution, test_tables
from sparc.report.page.tables import STAR, budget, middles, probabilities
from sparc.suites.results import EnvResults
from sparc.text import slug

LAPS = Layout(
    heads={"completed": "completed %", "clean": "clean %", "ratio": "ratio", "completed_ratio": "ratio if completed"},
    published=("completed", "ratio"),
    changed=("completed", "clean", "ratio"),
    here="Here, in TORCS",
    cells="laps",
    variant="physics",
    variant_note="the same policies, which never trained in the new physics, against the built-in AI in the same "
    "physics.",
)
MEANS = {"clean": "shares of clean laps", "ratio": "mean ratios, of which less is better"}  # that verdicts rest on
MAPPED = {"completed_ratio": "lap time / built-in AI’s", "lap_time": "lap time [s]"}  # before the return
MAP_RULE = "A lap that was not completed counts as twice the AI’s."
MAP_NOTE = (
    "The mean over the seeds that completed the lap; bright is fast. Black: no seed completed it (of a difference, no "
    "seed of one of the two); a small black square: not all did. (The paper blackens both.)"
)
MISSING_VALUES = ("not completed", "not completed by both")  # of a method, and of one of two methods


def numbers(data: ReportData) -> Numbers:
    """Return the tables of every race, of what a new physics changes, and of how sure all that is."""
    tables = [table for test in data.races for table in test_tables(data, test, LAPS)]
    # no IQM of the clean laps: a lap is clean or not, so that the middle half is mostly all or nothing
    sureness = (middles(data, data.races, "ratio"), probabilities(data, data.races, JUDGED))
    tables += [table for table in sureness if table]
    introduction = (
        f"Means ± s.e.m. over seeds; {budget(data)}. Ratio: lap time / built-in AI’s, 2.0 if not completed; less is "
        f"better. {STAR} Best mean among the contenders; that alone does not say how sure it is."
    )
    return Numbers(introduction, caution(data), tables)


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
    tests = [test for test in data.races if test not in data.mapped and data.parts[test].context_labels]
    return [CarTable(test, slug(test), list(data.names.values()), cars(data, test)) for test in tests]


def cars(data: ReportData, test: str) -> list[Car]:
    """Return one race's cars, with means over the seeds."""
    part = data.parts[test]
    means = [
        [part.matrix(key, None, measure).mean(axis=0) for measure in ("ratio", "clean")] if key in part.returns else []
        for key in data.names
    ]
    rows = []
    for index, (label, ind, lap) in enumerate(zip(part.context_labels, part.ind, reference_laps(part), strict=True)):
        name, _, tyre = label.partition(" ")
        values = [(f"{of[0][index]:.3f}", f"{100 * of[1][index]:.0f}") if of else None for of in means]
        rows.append(Car(name, tyre, "IND" if ind else "OOD", f"{lap:.1f}", values))
    return rows
