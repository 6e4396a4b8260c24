"""Pictures: returns over the context grid, with the training region marked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparc.contexts import ContextSpace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sparc.evaluation import Evaluation

COLOURS = "viridis"  # even in grey and for colour-blind readers
SHOWN_PERCENTILES = (2, 98)  # of the returns; those beyond get the colours at the ends
BOX: dict[str, Any] = {"fill": False, "edgecolor": "white", "linestyle": "--", "linewidth": 1.8}


def heatmap(evaluations: Mapping[str, Evaluation], space: ContextSpace, path: Path) -> None:
    """Draw mean returns over the contexts, a panel per title, all on one colour scale; IND inside the dashed box.

    Two features give a map, one a curve, more a scatter against the distance from the training region.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = len(evaluations)
    columns = min(count, 3)
    rows = -(-count // columns)
    figure = Figure(figsize=(3.6 * columns + 1.2, 3.5 * rows + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = np.atleast_1d(figure.subplots(rows, columns, squeeze=False).ravel())
    values = np.concatenate([evaluation.cells()[2] for evaluation in evaluations.values()])
    # a few cells where the wind carries the robot away must not take all the colours
    low, high = (float(value) for value in np.percentile(values, SHOWN_PERCENTILES))
    image = None
    for panel, (title, evaluation) in zip(panels, evaluations.items(), strict=False):
        summary = evaluation.summary()
        means = "  ".join(f"{region.upper()} {part['mean']:.4g}" for region, part in summary.items())
        panel.set_title(f"{title}\n{means}", fontsize=10)
        contexts, ind, returns = evaluation.cells()
        if space.size == 2 and len(returns) == len(np.unique(contexts[:, 0])) * len(np.unique(contexts[:, 1])):
            image = draw_map(panel, space, contexts, returns, low, high)
        elif space.size == 1:
            draw_curve(panel, space, contexts[:, 0], returns)
        else:
            draw_scatter(panel, space, contexts, ind, returns)
    for panel in panels[count:]:
        panel.axis("off")
    if image is not None:
        below, above = values.min() < low, values.max() > high
        extend = "both" if below and above else "min" if below else "max" if above else "neither"
        figure.colorbar(image, ax=list(panels), label="return", shrink=0.85, extend=extend)
    beside = path.with_name(f".{path.name}")
    figure.savefig(beside, dpi=110, format="png")
    beside.replace(path)


def draw_map(panel: Axes, space: ContextSpace, contexts: np.ndarray, returns: np.ndarray, low: float, high: float):  # type: ignore[no-untyped-def]
    """Draw a cell per context and the dashed box around the training region."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    first, second = np.unique(contexts[:, 0]), np.unique(contexts[:, 1])
    grid = np.full((len(second), len(first)), np.nan)
    grid[np.searchsorted(second, contexts[:, 1]), np.searchsorted(first, contexts[:, 0])] = returns
    image = panel.pcolormesh(first, second, grid, shading="nearest", cmap=COLOURS, vmin=low, vmax=high)
    inside = contexts[space.is_train(contexts)]
    if len(inside):
        # around whole cells: a region's edge may run through the middle of one
        half = np.array([np.diff(axis).mean() / 2 if len(axis) > 1 else 0.5 for axis in (first, second)])
        corner, size = inside.min(axis=0) - half, np.ptp(inside, axis=0) + 2 * half
        rim = [withStroke(linewidth=3.2, foreground="black")]  # white alone is lost on the brightest cells
        panel.add_patch(Rectangle((corner[0], corner[1]), size[0], size[1], path_effects=rim, **BOX))
    panel.set_xlabel(axis_label(space, 0))
    panel.set_ylabel(axis_label(space, 1))
    return image


def draw_curve(panel: Axes, space: ContextSpace, context: np.ndarray, returns: np.ndarray) -> None:
    """Draw returns over the only context feature, the training range shaded."""
    order = np.argsort(context)
    panel.plot(context[order], returns[order], color="#21618c")
    panel.axvspan(space.train.low[0], space.train.high[0], color="0.88", linestyle="--", label="in distribution")
    panel.set_xlabel(axis_label(space, 0))
    panel.set_ylabel("return")
    panel.legend(frameon=False)


def draw_scatter(panel: Axes, space: ContextSpace, contexts: np.ndarray, ind: np.ndarray, returns: np.ndarray) -> None:
    """Draw returns over how far a context lies from the training region's centre, 1 being its edge."""
    distance = np.abs((contexts - space.centre) / space.half_range).max(axis=1)
    panel.scatter(distance[ind], returns[ind], s=12, color="#21618c", label="IND")
    panel.scatter(distance[~ind], returns[~ind], s=12, color="#e67e22", marker="^", label="OOD")
    panel.axvline(1.0, color="0.5", linestyle="--")
    panel.set_xlabel("distance from the training region's centre (1 = edge)")
    panel.set_ylabel("return")
    panel.legend(frameon=False)


def axis_label(space: ContextSpace, index: int) -> str:
    """Name a context feature with its unit."""
    unit = space.units[index]
    return f"{space.names[index]} [{unit}]" if unit else space.names[index]
