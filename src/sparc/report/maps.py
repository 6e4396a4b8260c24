"""The maps that the page draws in the browser, and the numbers and colours that it draws them from."""

from __future__ import annotations

import json
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sparc import stats
from sparc.figures import COLOURS, DIFFERENCE_COLOURS, colour_scale, difference_scale
from sparc.report.book import Book
from sparc.report.text import attributes, joined, number, percent
from sparc.results import EnvResults

SHADES = 181  # of a colour table; page.js takes every 15th for its legends


def env_choice(book: Book) -> str:
    """Write a button per environment."""
    return "".join(
        f"<label><input type='radio' name='env'{attributes(value=env)}{' checked' * (not index)}>{escape(env)}</label>"
        for index, env in enumerate(book.results.envs)
    )


def method_options(book: Book, chosen: int) -> str:
    """Write the choice of a method for the difference; at first, those of the first comparison."""
    first = book.pairs[0][chosen] if book.pairs else ""
    return "".join(
        f"<option{attributes(value=key)}{' selected' * (key == first)}>{escape(name)}</option>"
        for key, name in book.names.items()
    )


def data(book: Book) -> str:
    """Give all that page.js needs, as JSON that cannot end its script element."""
    values = {
        "names": book.names,
        "colours": {"returns": shades(COLOURS), "difference": shades(DIFFERENCE_COLOURS)},
        "envs": {env: env_data(book, env, part) for env, part in book.results.envs.items()},
    }
    return json.dumps(values, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def shades(name: str) -> list[str]:
    """Sample one of matplotlib's colour maps."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colour) for colour in colormaps[name](np.linspace(0, 1, SHADES))]


def env_data(book: Book, env: str, part: EnvResults) -> dict[str, Any]:
    """Give one environment's maps."""
    decimals = book.digits[env]
    found = {key: stats.cell_table(part.matrix(key)) for key in part.returns}
    means = {key: mean for key, (mean, _) in found.items()}
    scale = colour_scale(np.concatenate(list(means.values()))) if means else None
    return {
        "features": part.space.names,
        "units": part.space.units,
        "digits": decimals,
        "contexts": part.contexts.tolist(),
        "ind": part.ind.astype(int).tolist(),
        **plane(part),
        "limits": [scale.low, scale.high] if scale else [0, 1],
        "clipped": [scale.extend in ("min", "both"), scale.extend in ("max", "both")] if scale else [False, False],
        "runs": {
            key: {seed: rounded(values, decimals) for seed, values in seeds.items()}
            for key, seeds in part.returns.items()
        },
        "means": {key: rounded(values, decimals) for key, values in means.items()},
        "sems": {key: rounded(sem, decimals) for key, (_, sem) in found.items()},
        "about": {key: about(book, env, key) for key in book.names},
        "pairs": {
            a: {b: pair(book, env, a, b, means[a] - means[b]) for b in means if b != a} for a in means
        },
    }  # fmt: skip


def rounded(values: ArrayLike, decimals: int) -> list[float | None]:
    """Give numbers with two digits more than are shown, NaN as nothing."""
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


def about(book: Book, env: str, key: str) -> dict[str, str]:
    """Describe a method's map: its means, its seeds, or why there is none."""
    done, _ = book.seeds(env, key)
    if not done:
        return {"text": "", "warning": "", "gap": book.gap(env, key)}
    means = [
        f"{region.upper()} {number(book.summaries[env, key, region].mean, book.digits[env])}"
        for region in book.results.envs[env].regions
    ]
    warning = book.warning(env, key)
    seeds = [] if warning else [f"{done} seed{'s' * (done > 1)}"]
    return {"text": " · ".join([*means, *seeds]), "warning": warning, "gap": ""}


def pair(book: Book, env: str, a: str, b: str, difference: np.ndarray) -> dict[str, Any]:
    """Describe the difference of two methods in words, and the end of its colour scale."""
    part, decimals = book.results.envs[env], book.digits[env]
    regions = part.regions
    shares = {region: stats.share_of_cells(part.matrix(a, region), part.matrix(b, region)) for region in regions}
    gaps = {
        region: number(book.summaries[env, a, region].mean - book.summaries[env, b, region].mean, decimals, True)
        for region in regions
    }
    better = joined(
        [f"{percent(shares[region])} of {book.cells(env, region)} {region.upper()} cells" for region in regions]
    )
    mean = joined([f"{gaps[region]} {region.upper()}" for region in regions])
    seeds = [book.seeds(env, key)[0] for key in (a, b)]
    marks = "".join(f" {book.names[key]}: {book.warning(env, key)}." for key in (a, b) if book.warning(env, key))
    text = (
        f"{book.names[a]} is better than {book.names[b]} in {better}; mean difference {mean}. "
        f"Means over {seeds[0]} and {seeds[1]} seeds.{marks}"
    )
    return {"text": text, "limit": difference_scale(difference, "").high}
