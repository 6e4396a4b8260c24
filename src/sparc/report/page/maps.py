"""The maps that the page draws in the browser, and the numbers and colours that it draws them from."""

from __future__ import annotations

import json
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sparc.arrays import Array
from sparc.envs.racing.tasks import NOT_COMPLETED
from sparc.report import stats
from sparc.report.figures.maps import COLOURS, DIFFERENCE_COLOURS, LESS_COLOURS, colour_scale, difference_scale
from sparc.report.laps import mean_of, over_seeds
from sparc.report.page.book import RETURN, Book
from sparc.report.page.text import attributes
from sparc.suites.tables import EnvResults
from sparc.text import joined, number, percent

LAPS = {"completed_ratio": "lap time / built-in AI’s", "lap_time": "lap time [s]"}  # that are mapped before the return
SHADES = 181  # of a colour table; page.js takes every 15th for its legends


def env_choice(book: Book) -> str:
    """Write a button per environment."""
    return "".join(
        f"<label><input type='radio' name='env'{attributes(value=env)}{' checked' * (not index)}>{escape(env)}</label>"
        for index, env in enumerate(book.mapped)
    )


def method_options(book: Book, chosen: int) -> str:
    """Write the choice of a method for the difference; at first, those of the first comparison."""
    first = book.pairs[0][chosen] if book.pairs else ""
    return "".join(
        f"<option{attributes(value=key)}{' selected' * (key == first)}>{escape(name)}</option>"
        for key, name in book.names.items()
    )


def data(book: Book) -> str:
    """Return all that page.js needs, as JSON that cannot end its script element."""
    values = {
        "names": book.names,
        "colours": {"more": shades(COLOURS), "less": shades(LESS_COLOURS), "difference": shades(DIFFERENCE_COLOURS)},
        "envs": {test: env_data(book, test, book.parts[test]) for test in book.mapped},
    }
    return json.dumps(values, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def shades(name: str) -> list[str]:
    """Sample one of matplotlib's colour maps."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colour) for colour in colormaps[name](np.linspace(0, 1, SHADES))]


def env_data(book: Book, test: str, part: EnvResults) -> dict[str, Any]:
    """Return one test's maps."""
    shown = {name: quantity(book, test, name, title) for name, title in LAPS.items()} if test in book.races else {}
    return {
        "features": part.space.names,
        "units": part.space.units,
        "contexts": part.contexts.tolist(),
        "ind": part.ind.astype(int).tolist(),
        **plane(part),
        "gaps": {key: book.gap(test, key) for key in book.names if not book.seeds(test, key)[0]},
        **({"reference": rounded(reference(part), 1)} if shown else {}),
        "shown": shown | {RETURN: quantity(book, test, RETURN, RETURN)},
    }


def reference(part: EnvResults) -> Array:
    """Return the built-in AI's lap in each context, which is the same for all runs, (M,)."""
    return next((part.matrix(key, None, "reference")[0] for key in part.returns), np.full(len(part.contexts), np.nan))


def rounded(values: ArrayLike, decimals: int) -> list[float | None]:
    """Return numbers with two digits more than are shown, NaN as nothing."""
    values = np.round(np.asarray(values, float), decimals + 2)
    return [float(value) if np.isfinite(value) else None for value in values]


def plane(part: EnvResults) -> dict[str, Any]:
    """Place the contexts on a map, rows downwards; on none if they are no full grid of one or two features."""
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
    """Enclose the cells in distribution, left, top, width and height; nothing where they do not fill a rectangle."""
    if not len(column):
        return None
    left, top = int(column.min()), int(row.min())
    width, height = int(column.max()) - left + 1, int(row.max()) - top + 1
    return [left, top, width, height] if width * height == len(column) else None


def quantity(book: Book, test: str, name: str, title: str) -> dict[str, Any]:
    """Return the maps of the return, or of a measure of completed laps; null where no seed completed one."""
    part, read = book.parts[test], book.measure(test, name)
    rows = {key: part.matrix(key, None, None if name == RETURN else name) for key in part.returns}
    means = {key: over_seeds(matrix)[0] for key, matrix in rows.items()}
    found = np.concatenate([mean[np.isfinite(mean)] for mean in means.values()] or [np.empty(0)])
    scale = colour_scale(found) if len(found) else None
    digits = min(read.digits, 3)
    return {
        "title": title,
        "digits": digits,
        "less": read.better < 0,
        "limits": [scale.low, scale.high] if scale else [0, 1],
        "clipped": [scale.extend in ("min", "both"), scale.extend in ("max", "both")] if scale else [False, False],
        "runs": {
            key: {seed: rounded(row, digits) for seed, row in zip(part.returns[key], matrix, strict=True)}
            for key, matrix in rows.items()
        },
        "means": {key: rounded(mean, digits) for key, mean in means.items()},
        "sems": {key: rounded(over_seeds(matrix)[1], digits) for key, matrix in rows.items()},
        "about": {key: about(book, test, key, name, digits) for key in part.returns},
        "pairs": {
            a: {b: pair(book, test, a, b, name, means[a] - means[b]) for b in means if b != a} for a in means
        },
    }  # fmt: skip


def about(book: Book, test: str, key: str, name: str, digits: int) -> dict[str, str]:
    """Describe a method's map: its means and its seeds."""
    part, done = book.parts[test], book.seeds(test, key)[0]
    means = [
        part.matrix(key, region).mean() if name == RETURN else mean_of(part, key, region, name)[0]
        for region in part.regions
    ]
    texts = [f"{region.upper()} {number(mean, digits)}" for region, mean in zip(part.regions, means, strict=True)]
    warning = book.warning(test, key)
    seeds = [] if warning else [f"{done} seed{'s' * (done > 1)}"]
    return {"text": " · ".join([*texts, *seeds]), "warning": warning}


def pair(book: Book, test: str, a: str, b: str, name: str, difference: Array) -> dict[str, Any]:
    """Describe the difference of two methods in words, and the end of its colour scale."""
    part, read = book.parts[test], book.measure(test, name)
    values = {region: [values_of(part, key, region, name) for key in (a, b)] for region in part.regions}
    shares = {region: stats.share_of_cells(*(read.better * rows for rows in pair)) for region, pair in values.items()}
    gaps = {region: number(x.mean() - y.mean(), min(read.digits, 3), True) for region, (x, y) in values.items()}
    better = joined(
        [f"{percent(shares[region])} of {book.cells(test, region)} {region.upper()} cells" for region in part.regions]
    )
    mean = joined([f"{gaps[region]} {region.upper()}" for region in part.regions])
    seeds = [book.seeds(test, key)[0] for key in (a, b)]
    marks = "".join(f" {book.names[key]}: {book.warning(test, key)}." for key in (a, b) if book.warning(test, key))
    rule = " A lap that was not completed counts as twice the AI’s." if name != RETURN else ""
    text = (
        f"{book.names[a]} is better than {book.names[b]} in {better}; mean difference {mean}. "
        f"Means over {seeds[0]} and {seeds[1]} seeds.{rule}{marks}"
    )
    finite = difference[np.isfinite(difference)]
    return {"text": text, "limit": difference_scale(finite, "").high if len(finite) else 1.0}


def values_of(part: EnvResults, key: str, region: str, name: str) -> Array:
    """Return the return, or a measure of completed laps with those that were not counted as twice the AI's, (n, M)."""
    rows = part.matrix(key, region, None if name == RETURN else name)
    if name == RETURN:
        return rows
    twice = NOT_COMPLETED * (part.matrix(key, region, "reference") if name == "lap_time" else np.ones_like(rows))
    return np.where(np.isfinite(rows), rows, twice)
