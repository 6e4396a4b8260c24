"""Tables of linear probes: what φ(h) says about a quantity of the context, as trained and in variants."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sparc.acting.probe import SETTLED
from sparc.arrays import Array
from sparc.envs.declared import PHI, PSI, TRUE
from sparc.report import stats
from sparc.report.page.data import REGIONS, ReportData
from sparc.report.page.draws import excludes_zero, interval
from sparc.report.page.measures import Numbers
from sparc.report.page.tables import Cell, Row, Table, spread
from sparc.suites.results import EnvResults
from sparc.text import MISSING, number, plural

COLUMNS = {"ψ(c)": ["R²"], "φ(h)": ["R²", "bias", "bias minus that as trained"]}
DIGITS = 3  # of readings
R2_DIGITS = 2
AS_TRAINED = "as trained"


class Reading(NamedTuple):
    """What a probe reads in the runs of a method in one test, a number per run (n,); NaN: nothing was read."""

    psi_r2: Array  # of the readings of ψ(c): how much of the quantity a linear map of ψ can tell at all
    phi_r2: Array  # of those of φ(h)
    bias: Array  # mean reading of φ(h) minus the truth
    change: Array  # the same minus that of the same run as trained, over the contexts read in both


def numbers(data: ReportData) -> Numbers | None:
    """Return a table per quantity, environment and region; None where nothing was probed."""
    found = [
        table(data, env, region, name)
        for env, part in data.results.envs.items()
        for name in probed(part)
        for region in part.regions
    ]
    if not found:
        return None
    introduction = (
        "What the policy’s estimate φ(h) says about a quantity of the context: the reading of a ridge regression from "
        f"ψ(c), fitted on contexts of the training region that are not tested, averaged over each episode from step "
        f"{SETTLED} on. Means ± s.e.m. over seeds. The same regression is used in all variants, and the quantity is "
        "the same in them: where the reading of φ(h) differs, φ is mistaken."
    )
    return Numbers(introduction, "", found)


def probed(part: EnvResults) -> list[str]:
    """Return the quantities that were read in any test, by the columns of their readings."""
    names = list(dict.fromkeys(name for of in (part, *part.variants.values()) for name in of.measure_names))
    quantities = [name.removesuffix(TRUE) for name in names if name.endswith(TRUE)]
    return [name for name in quantities if {f"{name}{PSI}", f"{name}{PHI}"} <= {*names}]


def table(data: ReportData, env: str, region: str, name: str) -> Table:
    """Return a row for every method with an adapter and every physics, or other variant, that it was tested in."""
    part, rows, sentences = data.results.envs[env], list[Row](), list[str]()
    drawn = {draw for draws in part.draws.values() for draw in draws}
    for key in data.names:
        for variant, of in {AS_TRAINED: part, **part.variants}.items():
            found = read(part, of, key, region, name)
            if found is None:
                continue
            cells = [mean_cell(found.psi_r2, R2_DIGITS), mean_cell(found.phi_r2, R2_DIGITS)]
            cells += [mean_cell(found.bias, DIGITS, signed=True)]
            cells += [Cell() if of is part else mean_cell(found.change, DIGITS, signed=True)]
            rows.append(Row(f"{data.names[key]}, {variant}", cells))
            if of is not part and variant not in drawn:
                sentences.append(sentence(data.names[key], variant, name, found.change))
    note = " ".join(["R² = 1: read without an error; 0: no better than the mean of all contexts.", *sentences])
    return Table(f"{name.capitalize()} read from ψ(c) and φ(h): {env}, {REGIONS[region]}", COLUMNS, rows, note)


def read(trained: EnvResults, part: EnvResults, key: str, region: str, name: str) -> Reading | None:
    """Return what is read in the runs of a label in one test; None where it has no adapter, or was not probed."""
    cells = part.ind if region == "ind" else ~part.ind
    columns = [f"{name}{end}" for end in (TRUE, PSI, PHI)]
    rows = []
    for seed, of in part.measures.get(key, {}).items():
        truth, psi, phi = (of.get(column, np.full(len(cells), np.nan))[cells] for column in columns)
        before = trained.measures.get(key, {}).get(seed, {}).get(columns[2], np.full(len(cells), np.nan))[cells]
        rows.append((r2(psi, truth), r2(phi, truth), mean_there(phi - truth), mean_there(phi - before)))
    found = Reading(*np.array(rows).reshape(-1, 4).T)
    return found if np.isfinite(found.bias).any() else None


def r2(guess: Array, truth: Array) -> float:
    """Return the coefficient of determination over the contexts with a guess; NaN where they do not differ."""
    there = np.isfinite(guess)
    spread_of_truth = float(np.square(truth[there] - truth[there].mean()).sum()) if there.any() else 0.0
    error = float(np.square(truth[there] - guess[there]).sum())
    return 1.0 - error / spread_of_truth if spread_of_truth > 0 else math.nan


def mean_there(values: Array) -> float:
    """Return the mean of the values that are there; NaN for none."""
    there = values[np.isfinite(values)]
    return float(there.mean()) if len(there) else math.nan


def mean_cell(values: Array, digits: int, signed: bool = False) -> Cell:
    """Return the mean ± s.e.m. over the runs that have a value."""
    there = values[np.isfinite(values)]
    return Cell(spread(*stats.mean_sem(there), len(there), digits, signed) if len(there) else MISSING)


def sentence(method: str, variant: str, name: str, change: Array) -> str:
    """Return in words whether φ takes a variant for more or less of a quantity."""
    there = change[np.isfinite(change)]
    if not len(there):
        return f"{method}, {variant}: no reading {AS_TRAINED} to compare with; evaluate the runs again."
    found, runs = stats.mean_interval(there), plural(len(there), "run")
    more = "higher" if found.value > 0 else "lower"
    if excludes_zero(found):
        how = f"reads {name} {number(abs(found.value), DIGITS)} {more}"
    else:
        how = f"is not shown to read {name} otherwise"
    known = f"95 % interval {interval(found, DIGITS)}" if math.isfinite(found.low) else "no interval"
    values = f"{number(found.value, DIGITS, True)}, {known}, {runs}"
    return f"{variant.capitalize()}: φ(h) of {method} {how} than {AS_TRAINED} ({values})."
