"""Out of distribution, split: contexts that a policy can withstand, and those that carry off whoever is in them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparc.report.page.data import ReportData
from sparc.report.page.tables import STAR, Cell, Row, Table, missing_seeds, row, spread, winner
from sparc.report.stats import mean_sem
from sparc.suites.results import EnvResults
from sparc.text import joined, number

CARRIED_SHARE = 0.25  # of the best run's IND mean: where doing nothing gets more, up or down, the context acts
STOOD, CARRIED = "withstood", "carried off"
IDLE = ""  # the key of doing nothing among labels


def best_run(part: EnvResults) -> float:
    """Return the highest mean return in distribution of any run; 0 if there is none."""
    runs = [part.matrix(key, "ind").mean(axis=1).max() for key in part.returns] if part.ind.any() else []
    return float(max(runs, default=0.0))


def carried_off(part: EnvResults) -> NDArray[np.bool_]:
    """Return in which OOD contexts (M,) a return measures the context more than the policy."""
    limit = CARRIED_SHARE * best_run(part)
    if part.idle is None or limit <= 0:
        return np.zeros(len(part.ind), bool)
    return ~part.ind & (np.abs(part.idle) > limit)


def apart(data: ReportData) -> Table | None:
    """Return the mean returns in both kinds of OOD contexts; None where no environment has both."""
    places: dict[tuple[str, str], NDArray[np.bool_]] = {}
    for env, part in data.results.envs.items():
        carried = carried_off(part)
        stood = ~part.ind & ~carried
        if carried.any() and stood.any():
            places |= {(env, STOOD): stood, (env, CARRIED): carried}
    if not places:
        return None
    columns, by_column = dict[str, list[str]](), list[dict[str, Cell]]()
    for (env, kind), cells in places.items():
        columns.setdefault(env, []).append(f"{kind}, {cells.sum()} cells")
        by_column.append(column(data, env, cells, marked=kind == STOOD))
    rows = [row(data, key, [column[key] for column in by_column]) for key in data.names]
    rows.append(Row("Doing nothing", [column[IDLE] for column in by_column]))
    limits = joined([f"{number(CARRIED_SHARE * best_run(data.results.envs[env]))} in {env}" for env in columns])
    note = (
        "Carried off: doing nothing, the action zero, already gets more than a quarter of the best run’s mean in "
        f"distribution ({limits}), up or down. Such a cell measures the context, not the policy. {STAR} Highest mean "
        "among the contenders in the other cells."
    )
    return Table(
        "Mean return out of distribution, split by what doing nothing gets, ± s.e.m. over seeds", columns, rows, note
    )


def column(data: ReportData, env: str, cells: NDArray[np.bool_], marked: bool) -> dict[str, Cell]:
    """Return the mean returns of every label, and of doing nothing, in some cells; `marked` shows the highest."""
    part = data.results.envs[env]
    runs = {key: part.matrix(key)[:, cells].mean(axis=1) for key in part.returns}
    best = winner(data, {key: float(values.mean()) for key, values in runs.items()}) if marked else None
    found = {key: Cell(data.gap(env, key), gap=True) for key in data.names}
    for key, values in runs.items():
        text = spread(*mean_sem(values), len(values), data.digits[env])
        found[key] = Cell(text, data.source(env, key), key == best, missing_seeds(data, env, key), edge=marked)
    assert part.idle is not None
    low, high = (number(float(end), data.digits[env]) for end in (part.idle[cells].min(), part.idle[cells].max()))
    return found | {IDLE: Cell(f"{low} to {high}", edge=marked)}  # its mean would be that of −15,000 and +15,000
