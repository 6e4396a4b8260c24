"""Panels and legends that the figures of a suite share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparc.arrays import Array
from sparc.report.figures.style import WIDTH, new_figure, style
from sparc.report.gaps import count, how_many
from sparc.suites.results import EnvResults, Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


def map_panels(number: int, most: int) -> tuple[Figure, Any]:
    """Return a figure with roughly square panels, at most `most` in a row."""
    columns = min(number, most)
    rows = -(-number // columns)
    width = min(WIDTH, 2.6 * columns + 1.0)
    return new_figure(rows, columns, rows * ((width - 1.0) / columns + 0.45) + 0.3, width)


def outer(panels: Any, number: int) -> None:
    """Keep axis labels only at the first panel of a row and the last of a column, not counting empty panels."""
    columns = panels.shape[1]
    named = [bool(panel.get_ylabel()) for panel in panels.flat[:number]]  # the others tell of a gap
    for index, panel in enumerate(panels.flat[:number]):
        if any(named[index - index % columns : index]):
            panel.set_ylabel("")
            panel.tick_params(labelleft=False)
        if any(named[index + columns :: columns]):
            panel.set_xlabel("")
            panel.tick_params(labelbottom=False)


def env_panels(results: Results, height: float, number: int | None = None, most: int = 3) -> tuple[Figure, Any]:
    """Return a figure with a panel per environment, or `number` panels, and room for a legend below."""
    number = number or len(results.envs)
    columns = min(number, most)
    rows = -(-number // columns)
    figure, panels = new_figure(rows, columns, rows * height + 0.9, WIDTH if columns > 1 else WIDTH * 0.6)
    for panel in panels.flat[number:]:
        panel.axis("off")
    return figure, panels


def label_handles(results: Results, kind: str) -> list[Line2D]:
    """Return legend handles of every label with its number of seeds, including labels without results."""
    from matplotlib.lines import Line2D

    handles = []
    for name in results.labels:
        look = style(name, results)
        numbers = [count(results, env, kind, name) for env in results.envs if results.members(env, name)]
        text = how_many(numbers) if any(numbers) else "no results"
        line: dict[str, Any] = {"color": look.colour, "ls": look.dash, "lw": look.width, "marker": look.marker}
        handles.append(Line2D([], [], ms=3.5, label=f"{results.names[name]} ({text})", **line))
    return handles


def runs(part: EnvResults, name: str, region: str) -> Array:
    """Return the mean return of each of a label's seeds over the cells of a region, (n,)."""
    return part.matrix(name, region).mean(axis=1)
