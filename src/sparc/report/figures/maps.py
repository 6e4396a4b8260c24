"""Maps: returns and measures over two context features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sparc.contexts import ContextSpace
from sparc.envs.measures import RETURN, Criteria, Measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

    from sparc.acting.evaluate import Evaluation
from sparc.report.figures.style import ALARM, grouped, new_figure, write

Cells = tuple[np.ndarray, np.ndarray, np.ndarray]  # contexts (M, C), whether each is IND, a value of each (M,)


COLOURS = "viridis"  # even in grey and for colour-blind readers
LESS_COLOURS = "viridis_r"  # where less is better: bright is good here too
DIFFERENCE_COLOURS = "PRGn"  # the paper's: green where SPARC is better, purple where its rival is


RETURNS = Measure(RETURN)
SHOWN_PERCENTILES = (2, 98)  # of the returns; those beyond get the colours at the ends
BOX: dict[str, Any] = {"fill": False, "linestyle": "--", "linewidth": 1.4}
# and of its rim
BOX_COLOURS = {COLOURS: ("white", "black"), LESS_COLOURS: ("white", "black"), DIFFERENCE_COLOURS: ("black", "white")}


def heatmap(
    evaluations: Mapping[str, Evaluation], space: ContextSpace, path: Path, criteria: Criteria | None = None
) -> None:
    """Draw mean returns over the contexts, a panel per title, all on one colour scale; IND inside the dashed box.

    Of an environment that is judged by measures, the last of these. Two features give a map, one a curve, more a
    scatter against the distance from the training region.
    """
    criteria = criteria or Criteria()
    common = set.intersection(*(set(evaluation.measures) for evaluation in evaluations.values()))
    name = criteria.judged(common)[-1]
    measure = criteria[name]
    columns = min(len(evaluations), 3)
    rows = -(-len(evaluations) // columns)
    figure, panels = new_figure(rows, columns, 3.5 * rows + 0.4, 3.6 * columns + 1.2)
    cells = []
    for panel, (title, evaluation) in zip(panels.flat, evaluations.items(), strict=False):
        contexts, ind, values = evaluation.cells(None if name == RETURN else evaluation.measures[name])
        cells.append((contexts, ind, measure.scale * values))
        means = (
            f"{region.upper()} {measure.scale * part['mean' if name == RETURN else name]:.4g}"
            for region, part in evaluation.summary().items()
        )
        panel.set_title(f"{title}\n{'  '.join(means)}", fontsize=10)
    draw_panels(figure, panels, space, cells, colour_scale(np.concatenate([values for _, _, values in cells]), measure))
    write(figure, path, (110,), {})


class Scale(NamedTuple):
    """A colour scale."""

    low: float
    high: float
    extend: str  # which of its ends values go beyond: "neither", "min", "max", "both"
    colours: str
    quantity: str


def colour_scale(values: np.ndarray, measure: Measure = RETURNS) -> Scale:
    """Return the colour scale for returns, or for a measure; bright is good."""
    # a few cells where the wind carries the robot away must not take all the colours
    low, high = (float(value) for value in np.percentile(values, SHOWN_PERCENTILES))
    colours = LESS_COLOURS if measure.better < 0 else COLOURS
    return Scale(low, high, beyond(values, low, high), colours, measure.axis)


def difference_scale(values: np.ndarray, quantity: str) -> Scale:
    """Return the colour scale for differences of returns: symmetric about zero, which is white."""
    high = float(np.percentile(np.abs(values), SHOWN_PERCENTILES[1])) or 1.0  # all equal: any scale will do
    return Scale(-high, high, beyond(values, -high, high), DIFFERENCE_COLOURS, quantity)


def beyond(values: np.ndarray, low: float, high: float) -> str:
    """Return which ends of a scale the values exceed, as Matplotlib's `extend`."""
    below, above = values.min() < low, values.max() > high
    return "both" if below and above else "min" if below else "max" if above else "neither"


def draw_panels(
    figure: Figure, panels: np.ndarray, space: ContextSpace, cells: Sequence[Cells | str], scale: Scale
) -> QuadMesh | None:
    """Draw a value per context in each panel: a map where two features form a grid, else a curve or a scatter.

    A text in place of the cells says why there are none. Unused panels are hidden. Return the last map.
    """
    image = None
    for panel, part in zip(panels.flat, cells, strict=False):
        if isinstance(part, str):
            draw_gap(panel, part)
            continue
        contexts, ind, values = part
        if space.size == 2 and len(values) == len(np.unique(contexts[:, 0])) * len(np.unique(contexts[:, 1])):
            image = draw_map(panel, space, contexts, values, scale.low, scale.high, scale.colours)
        elif space.size == 1:
            draw_curve(panel, space, contexts[:, 0], values, scale.quantity)
        else:
            draw_scatter(panel, space, contexts, ind, values, scale.quantity)
    for panel in panels.flat[len(cells) :]:
        panel.axis("off")
    drawn = [panel for panel, part in zip(panels.flat, cells, strict=False) if not isinstance(part, str)]
    if image is not None:
        bar = figure.colorbar(image, ax=list(panels.flat), label=scale.quantity, aspect=30, extend=scale.extend)
        bar.ax.yaxis.set_major_formatter(grouped)
    elif drawn:
        low, high = np.transpose([panel.get_ylim() for panel in drawn])
        for panel in drawn:
            panel.set_ylim(low.min(), high.max())
    return image


def draw_gap(panel: Axes, reason: str) -> None:
    """Leave a panel visibly empty."""
    panel.set(xticks=[], yticks=[], facecolor="0.94")
    panel.text(0.5, 0.5, reason, transform=panel.transAxes, ha="center", va="center", color=ALARM)


def draw_map(
    panel: Axes,
    space: ContextSpace,
    contexts: np.ndarray,
    returns: np.ndarray,
    low: float,
    high: float,
    colours: str = COLOURS,
) -> QuadMesh:
    """Draw a cell per context and a dashed box around the training region, or that of each stage."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    first, second = np.unique(contexts[:, 0]), np.unique(contexts[:, 1])
    grid = np.full((len(second), len(first)), np.nan)
    grid[np.searchsorted(second, contexts[:, 1]), np.searchsorted(first, contexts[:, 0])] = returns
    # in an SVG as an image: hundreds of little squares would be large and show hair lines between them
    looks: dict[str, Any] = {"shading": "nearest", "cmap": colours, "rasterized": True}
    image = panel.pcolormesh(first, second, grid, vmin=low, vmax=high, **looks)
    # around whole cells: a region's edge may run through the middle of one
    half = np.array([np.diff(axis).mean() / 2 if len(axis) > 1 else 0.5 for axis in (first, second)])
    for region in (*space.earlier, space.train):
        if not len(inside := contexts[region.contains(contexts)]):
            continue
        corner, size = inside.min(axis=0) - half, np.ptp(inside, axis=0) + 2 * half
        colour, other = BOX_COLOURS[colours]
        rim = [withStroke(linewidth=2 * BOX["linewidth"], foreground=other)]  # one colour alone is lost on some cells
        box = Rectangle((corner[0], corner[1]), size[0], size[1], edgecolor=colour, path_effects=rim, **BOX)
        panel.add_patch(box)
    panel.xaxis.set_major_formatter(grouped)
    panel.yaxis.set_major_formatter(grouped)
    panel.set_xlabel(axis_label(space, 0))
    panel.set_ylabel(axis_label(space, 1))
    return image


def draw_curve(
    panel: Axes, space: ContextSpace, context: np.ndarray, returns: np.ndarray, quantity: str = "return"
) -> None:
    """Draw returns over the only context feature, the training range shaded."""
    order = np.argsort(context)
    panel.plot(context[order], returns[order], color="#21618c")
    for region in (*space.earlier, space.train):
        label = "in distribution" if region is space.train else None
        panel.axvspan(region.low[0], region.high[0], color="0.88", linestyle="--", label=label)
    panel.set_xlabel(axis_label(space, 0))
    panel.set_ylabel(quantity)
    panel.legend(frameon=False)


def draw_scatter(
    panel: Axes,
    space: ContextSpace,
    contexts: np.ndarray,
    ind: np.ndarray,
    returns: np.ndarray,
    quantity: str = "return",
) -> None:
    """Draw returns over how far a context lies from the training region's centre, 1 being its edge."""
    distance = np.abs((contexts - space.centre) / space.half_range).max(axis=1)
    panel.scatter(distance[ind], returns[ind], s=12, color="#21618c", label="IND")
    panel.scatter(distance[~ind], returns[~ind], s=12, color="#e67e22", marker="^", label="OOD")
    panel.axvline(1.0, color="0.5", linestyle="--")
    panel.set_xlabel("distance from the centre\nof training (1 = edge)")
    panel.set_ylabel(quantity)
    panel.legend(frameon=False)


def axis_label(space: ContextSpace, index: int) -> str:
    """Return the name of a context feature with its unit."""
    unit = space.units[index]
    return f"{space.names[index]} [{unit}]" if unit else space.names[index]
