"""The maps that the page draws in the browser, and the numbers and colours that it draws them from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sparc.arrays import Array
from sparc.envs.measures import RETURN
from sparc.report import stats
from sparc.report.figures.maps import COLOURS, DIFFERENCE_COLOURS, LESS_COLOURS, colour_scale, difference_scale
from sparc.report.measured import mean_of, over_seeds
from sparc.report.page import races
from sparc.report.page.data import ReportData
from sparc.report.page.measures import column_head
from sparc.suites.results import EnvResults
from sparc.text import joined, number, percent

SHADES = 181  # of a colour table; page.js takes every 15th for its legends


@dataclass(frozen=True)
class Choices:
    """What a reader can choose to see on maps; page.js draws it."""

    envs: list[str]
    methods: dict[str, str]  # displayed name by label
    selected: tuple[str, str]  # the labels of the first difference


def choices(data: ReportData) -> Choices:
    """Return the choices, of which the first comparison is selected."""
    return Choices(data.mapped, data.names, data.pairs[0] if data.pairs else ("", ""))


def script_data(data: ReportData) -> dict[str, Any]:
    """Return all that page.js needs."""
    return {
        "names": data.names,
        "colours": {"more": shades(COLOURS), "less": shades(LESS_COLOURS), "difference": shades(DIFFERENCE_COLOURS)},
        "envs": {test: env_data(data, test, data.parts[test]) for test in data.mapped},
    }


def shades(name: str) -> list[str]:
    """Return evenly spaced colours of one of Matplotlib's colour maps."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colour) for colour in colormaps[name](np.linspace(0, 1, SHADES))]


def env_data(data: ReportData, test: str, part: EnvResults) -> dict[str, Any]:
    """Return the maps of one test."""
    raced = test in data.races
    own = {name: column_head(data.measure(test, name)) for name in data.judged_by(test) if name != RETURN}
    mapped = races.MAPPED if raced else own
    one, both = races.MISSING_VALUES if raced else ("no value", "no value of both")
    return {
        "features": part.space.names,
        "units": part.space.units,
        "contexts": part.contexts.tolist(),
        "ind": part.ind.astype(int).tolist(),
        **plane(part),
        "gaps": {key: data.gap(test, key) for key in data.names if not data.seeds(test, key)[0]},
        "givens": [given(part, name) for name in part.criteria.givens if name in part.measure_names],
        "missing": {"one": one, "both": both},
        "shown": {name: quantity(data, test, name, title) for name, title in (mapped | {RETURN: RETURN}).items()},
    }


def given(part: EnvResults, name: str) -> dict[str, Any]:
    """Return a measure that belongs to the context, the same for all runs."""
    read, label = part.criteria[name], next(iter(part.returns))
    values = rounded(read.scale * part.matrix(label, None, name)[0], read.digits)
    return {"title": read.title, "unit": read.unit, "digits": read.digits, "values": values}


def rounded(values: ArrayLike, decimals: int) -> list[float | None]:
    """Return numbers with two digits more than are shown, NaN as None."""
    values = np.round(np.asarray(values, float), decimals + 2)
    return [float(value) if np.isfinite(value) else None for value in values]


def plane(part: EnvResults) -> dict[str, Any]:
    """Return each context's place on a map, rows downwards; no columns unless it is a full grid of 1 or 2 features."""
    axes = [np.unique(values) for values in part.contexts.T]
    if part.space.size > 2 or not len(part.contexts) or np.prod([len(axis) for axis in axes]) != len(part.contexts):
        return {"columns": 0, "rows": 0}
    places = [np.searchsorted(axis, values) for axis, values in zip(axes, part.contexts.T, strict=True)]
    columns, rows = len(axes[0]), len(axes[1]) if len(axes) > 1 else 1
    column, row = places[0], rows - 1 - places[1] if len(places) > 1 else np.zeros_like(places[0])
    return {
        "columns": columns,
        "rows": rows,
        "column": column.tolist(),
        "row": row.tolist(),
        "ends": [[float(axis[0]), float(axis[-1])] for axis in axes],
        "box": box(column[part.ind], row[part.ind]),
    }


def box(column: np.ndarray, row: np.ndarray) -> list[int] | None:
    """Return left, top, width and height of the cells in distribution; None if they do not fill a rectangle."""
    if not len(column):
        return None
    left, top = int(column.min()), int(row.min())
    width, height = int(column.max()) - left + 1, int(row.max()) - top + 1
    return [left, top, width, height] if width * height == len(column) else None


def quantity(data: ReportData, test: str, name: str, title: str) -> dict[str, Any]:
    """Return the maps of the return or of a measure; null where no seed has a value."""
    part, measure = data.parts[test], data.measure(test, name)
    rows = {key: measure.scale * part.matrix(key, None, name) for key in part.returns}
    means = {key: over_seeds(matrix)[0] for key, matrix in rows.items()}
    found = np.concatenate([mean[np.isfinite(mean)] for mean in means.values()] or [np.empty(0)])
    scale = colour_scale(found) if len(found) else None
    digits = min(measure.digits, 3)
    return {
        "title": title,
        "digits": digits,
        "less": measure.better < 0,
        "note": races.MAP_NOTE if test in data.races and name != RETURN else "",
        "limits": [scale.low, scale.high] if scale else [0, 1],
        "clipped": [scale.extend in ("min", "both"), scale.extend in ("max", "both")] if scale else [False, False],
        "runs": {
            key: {seed: rounded(row, digits) for seed, row in zip(part.returns[key], matrix, strict=True)}
            for key, matrix in rows.items()
        },
        "means": {key: rounded(mean, digits) for key, mean in means.items()},
        "sems": {key: rounded(over_seeds(matrix)[1], digits) for key, matrix in rows.items()},
        "about": {key: about(data, test, key, name, digits) for key in part.returns},
        "pairs": {
            a: {b: pair(data, test, a, b, name, means[a] - means[b]) for b in means if b != a} for a in means
        },
    }  # fmt: skip


def about(data: ReportData, test: str, key: str, name: str, digits: int) -> dict[str, str]:
    """Return the caption of a method's map: its means and its seeds."""
    part, done = data.parts[test], data.seeds(test, key)[0]
    means = [mean_of(part, key, region, name)[0] for region in part.regions]
    texts = [f"{region.upper()} {number(mean, digits)}" for region, mean in zip(part.regions, means, strict=True)]
    warning = data.warning(test, key)
    seeds = [] if warning else [f"{done} seed{'s' * (done > 1)}"]
    return {"text": " · ".join([*texts, *seeds]), "warning": warning}


def pair(data: ReportData, test: str, a: str, b: str, name: str, difference: Array) -> dict[str, Any]:
    """Return the difference of two methods in words, and the end of its colour scale."""
    part, measure = data.parts[test], data.measure(test, name)
    unfinished = test in data.races and name != RETURN
    values = {
        region: [
            races.with_unfinished(part, key, region, name) if unfinished else data.values(test, key, region, name)
            for key in (a, b)
        ]
        for region in part.regions
    }
    shares = {region: stats.share_of_cells(measure.better * x, measure.better * y) for region, (x, y) in values.items()}
    gaps = {region: number(x.mean() - y.mean(), min(measure.digits, 3), True) for region, (x, y) in values.items()}
    better = joined(
        [f"{percent(shares[region])} of {data.cells(test, region)} {region.upper()} cells" for region in part.regions]
    )
    mean = joined([f"{gaps[region]} {region.upper()}" for region in part.regions])
    seeds = [data.seeds(test, key)[0] for key in (a, b)]
    marks = "".join(f" {data.names[key]}: {data.warning(test, key)}." for key in (a, b) if data.warning(test, key))
    rule = f" {races.MAP_RULE}" if unfinished else ""
    text = (
        f"{data.names[a]} is better than {data.names[b]} in {better}; mean difference {mean}. "
        f"Means over {seeds[0]} and {seeds[1]} seeds.{rule}{marks}"
    )
    finite = difference[np.isfinite(difference)]
    return {"text": text, "limit": difference_scale(finite, "").high if len(finite) else 1.0}
