"""Figures of races: speed against success, a new physics, maps over power and mass, a racing line on the track."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sparc.arrays import Array
from sparc.envs.racing.measures import MEASURES
from sparc.envs.racing.torcs.columns import OFF_COURSE
from sparc.report.figures.entry import FigureEntry
from sparc.report.figures.maps import LESS_COLOURS, SHOWN_PERCENTILES, Cells, Scale, beyond, draw_panels
from sparc.report.figures.panels import label_handles, map_panels, outer
from sparc.report.figures.style import ALARM, GREY, WIDTH, add_note, add_title, grouped, new_figure, style, with_looks
from sparc.report.gaps import gaps, labels_in, means_over, seeds, why_missing
from sparc.report.measured import mean_of, over_seeds, run_means
from sparc.report.races import races
from sparc.suites.results import EnvResults, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from sparc.envs.racing.course import Course

REGIONS = {"ood": "out of distribution", "ind": "in distribution"}
SUCCESS = ("completed", "clean")  # a row of panels each
QUANTITIES = {"lap_time": "lap time [s]", "completed_ratio": "lap time / built-in AI's"}  # that are mapped
UNFINISHED: dict[str, Any] = {"facecolor": "black", "edgecolor": "white", "lw": 0.3}  # seen on dark cells too
PARTLY = 0.45  # of a cell's side: the square where some seeds did not finish
CORNER = 0.14  # of a panel's sides: room for the word in the corner
ROAD = "0.86"
SPEED_COLOURS = "plasma"
SHARE = 0.85  # of a figure's width that the track has, beside its colour bar


# How fast against how many


@with_looks
def laps(results: Results, env: str) -> Figure:
    """Draw the share of completed and of clean laps over the ratio to the built-in AI's."""
    part = results.envs[env]
    figure, panels = region_panels(part)
    names = [name for name in labels_in(results, env) if part.returns.get(name)]
    for name in names:
        look = style(name, results)
        for panel, region, measure in places(panels, part):
            runs = [run_means(part, name, region, of) for of in ("ratio", measure)]
            panel.plot(*runs, ls="", marker=".", ms=4, color=look.colour, alpha=0.4)
            (x, x_sem, _), (y, y_sem, _) = (mean_of(part, name, region, of) for of in ("ratio", measure))
            bars: dict[str, Any] = {"xerr": x_sem, "yerr": y_sem} if np.isfinite(x_sem) else {}
            panel.errorbar(x, y, **bars, color=look.colour, marker=look.marker, ms=6, lw=1.2, zorder=1 + look.width)
    label_axes(panels, part)
    add_title(figure, f"{env}: {means_over(results, [env], 'returns', names, shown='small dots')}")
    add_note(figure, gaps(results, env, "returns", labels_in(results, env)), mark_handles(results, env))
    return figure


@with_looks
def physics_update(results: Results, env: str, physics: str) -> Figure:
    """Draw where each method goes when the physics changes, from the open mark to the full one."""
    part = results.envs[env]
    after = part.variants[physics]
    figure, panels = region_panels(part)
    names = [name for name in labels_in(results, env) if part.returns.get(name) and after.returns.get(name)]
    for name in names:
        look = style(name, results)
        for panel, region, measure in places(panels, part):
            ends = [
                (mean_of(of, name, region, "ratio")[0], mean_of(of, name, region, measure)[0]) for of in (part, after)
            ]
            arrow: dict[str, Any] = {"arrowstyle": "-|>", "color": look.colour, "lw": 1.0, "shrinkA": 3, "shrinkB": 3}
            panel.annotate("", ends[1], ends[0], arrowprops=arrow, zorder=1)
            for (x, y), face in zip(ends, ("white", look.colour), strict=True):
                marks: dict[str, Any] = {"color": look.colour, "marker": look.marker, "mfc": face, "ms": 6}
                panel.plot(x, y, ls="", zorder=1 + look.width, **marks)
    label_axes(panels, part)
    add_title(figure, f"{env}: from the physics of training (open) to the {physics} one (full)")
    add_note(figure, gaps(results, env, "returns", labels_in(results, env)), mark_handles(results, env))
    return figure


def mark_handles(results: Results, env: str) -> list[Line2D]:
    """Return legend handles of marks, with the seeds of one environment."""
    handles = label_handles(Results(results.manifest, {env: results.envs[env]}), "returns")
    for handle in handles:
        handle.set(linestyle="", markersize=6)
    return handles


def region_panels(part: EnvResults) -> tuple[Figure, Any]:
    """Return a figure with a column per region, OOD first, and a row per measure of success."""
    width = WIDTH if len(part.regions) > 1 else WIDTH * 0.6
    return new_figure(len(SUCCESS), len(part.regions), 4.9, width, sharex="col")


def places(panels: Any, part: EnvResults) -> list[tuple[Axes, str, str]]:
    """Return each panel with its region and its measure of success."""
    return [
        (panels[row, column], region, measure)
        for row, measure in enumerate(SUCCESS)
        for column, region in enumerate(part.regions)
    ]


def label_axes(panels: Any, part: EnvResults) -> None:
    """Label the axes and mark the corner where laps are fast and many are completed."""
    for panel, region, measure in places(panels, part):
        first, last = panel in panels[:, 0], panel in panels[-1]
        cars = int((part.ind if region == "ind" else ~part.ind).sum())
        panel.set_title(f"{REGIONS[region]} ({region.upper()}, {cars} laps each)" if panel in panels[0] else "")
        panel.set_ylabel(f"{MEASURES[measure].title} [%]" if first else "")
        panel.set_xlabel("lap time / built-in AI's (2 if not completed)" if last else "")
        panel.grid(color="0.92", lw=0.6)
        panel.set_axisbelow(True)
        (left, right), (bottom, top) = panel.get_xlim(), panel.get_ylim()
        if last:  # the panels of a column share it
            panel.set_xlim(left - CORNER * (right - left), right)
        panel.set_ylim(bottom, top + CORNER * (top - bottom))
        panel.set_yticks([tick for tick in panel.get_yticks() if bottom <= tick <= min(top, 100.0)])
        corner: dict[str, Any] = {"transform": panel.transAxes, "ha": "left", "va": "top", "color": GREY}
        panel.text(0.015, 0.985, "↖ better", fontsize=7.5, **corner)


# Maps over power and mass


@with_looks
def lap_map(results: Results, env: str, measure: str) -> Figure:
    """Draw a measure of completed laps over two features, a panel per label, all on one scale.

    A cell is the mean over the seeds that completed the lap there; a black square says that none did, a small one that
    some did not.
    """
    part, names = results.envs[env], labels_in(results, env)
    figure, panels = map_panels(len(names), 3)
    cells: list[Cells | str] = []
    for panel, name in zip(panels.flat, names, strict=False):
        title = f"{results.names[name]} ({seeds(results, env, name)})"
        if part.returns.get(name):
            rows = part.matrix(name, None, measure)
            cells.append((part.contexts, part.ind, over_seeds(rows)[0]))
            title = "\n".join(
                [title, *(f"{region.upper()} {average(part, name, region, measure)}" for region in part.regions)]
            )
            draw_unfinished(panel, part, np.isfinite(rows))
        else:
            cells.append(why_missing(results, env, name))
        panel.set_title(title)
    quantity = QUANTITIES[measure]
    draw_panels(figure, panels, part.space, cells, less_scale(cells, quantity))
    outer(panels, len(names))
    add_title(
        figure,
        f"{env}: {quantity}, mean of the seeds that completed the lap; bright is fast\n"
        "Black: no seed completed it; small black square: not all did",
    )
    add_note(figure, gaps(results, env, "returns", names))
    return figure


def average(part: EnvResults, name: str, region: str, measure: str) -> str:
    """Return a region's mean ± s.e.m. as text."""
    mean, sem, _ = mean_of(part, name, region, measure)
    digits = min(MEASURES[measure].digits, 3)
    spread = f" ± {sem:.{digits}f}" if np.isfinite(sem) else ""
    return f"{mean:.{digits}f}{spread}" if np.isfinite(mean) else "none completed"


def less_scale(cells: list[Cells | str], quantity: str) -> Scale:
    """Return the colour scale of all panels, for a quantity of which less is better."""
    found = np.concatenate([cell[2] for cell in cells if not isinstance(cell, str)])
    found = found[np.isfinite(found)]
    if not found.size:
        return Scale(0.0, 1.0, "neither", LESS_COLOURS, quantity)
    low, high = (float(value) for value in np.percentile(found, SHOWN_PERCENTILES))
    return Scale(low, high, beyond(found, low, high), LESS_COLOURS, quantity)


def draw_unfinished(panel: Axes, part: EnvResults, finished: np.ndarray) -> None:
    """Draw a black square where no seed completed the lap, a small one where some did not."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    side = np.array([np.diff(np.unique(axis)).mean() if len(np.unique(axis)) > 1 else 1.0 for axis in part.contexts.T])
    some, every = finished.any(axis=0), finished.all(axis=0)  # of the seeds
    for cells, size in ((~some, 1.0), (some & ~every, PARTLY)):
        corners = part.contexts[cells] - side * size / 2
        squares = [Rectangle((x, y), *(side * size)) for x, y in corners]
        panel.add_collection(PatchCollection(squares, zorder=1.5, rasterized=True, **UNFINISHED))


# A line on the track


@with_looks
def racing_line(trace: Array, course: Course, title: str = "") -> Figure:
    """Draw a lap, (T, len(TRACE)), on the map of its track, coloured by speed, red where it was off course."""
    from matplotlib.collections import LineCollection

    from sparc.envs.racing.torcs.columns import TRACE, TRACK_COLUMNS

    lap = dict(zip(TRACE, trace.T, strict=True))
    line = dict(zip(TRACK_COLUMNS, course.table.T, strict=True))
    beside = np.stack([-np.sin(line["heading"]), np.cos(line["heading"])], axis=1) * line["half_width"][:, None]
    middle = np.stack([line["x"], line["y"]], axis=1)
    left, right = (np.concatenate([edge, edge[:1]]) for edge in (middle + beside, middle - beside))  # closed
    spread = np.ptp(middle, axis=0)
    figure, panels = new_figure(1, 1, float(np.clip(WIDTH * SHARE * spread[1] / max(spread[0], 1.0), 2.5, 8.0)) + 0.4)
    panel = panels[0, 0]
    road = np.concatenate([left, right[::-1]])
    panel.fill(*road.T, color=ROAD, lw=0, zorder=0)
    for edge in (left, right):
        panel.plot(*edge.T, color=GREY, lw=0.5, zorder=1)
    panel.plot(*np.stack([left[0], right[0]]).T, color="black", lw=2.0, zorder=2)  # start and finish
    points = np.stack([lap["x"], lap["y"]], axis=1)
    pieces = np.stack([points[:-1], points[1:]], axis=1)
    speed = 3.6 * (lap["speed"][:-1] + lap["speed"][1:]) / 2
    inches = figure.get_figwidth() * SHARE
    road_width = 2 * float(np.median(line["half_width"])) * 72 * inches / max(spread[0], 1.0)  # points
    width = float(np.clip(road_width / 2, 1.2, 2.0))
    drawn = LineCollection(list(pieces), cmap=SPEED_COLOURS, array=speed, lw=width, capstyle="round", zorder=3)
    panel.add_collection(drawn)
    off = lap["wheels_out"] >= OFF_COURSE
    panel.plot(lap["x"][off], lap["y"][off], ls="", marker="x", ms=5, mew=1.2, color=ALARM, zorder=4)
    panel.set_aspect("equal")
    panel.axis("off")
    bar = figure.colorbar(drawn, ax=panel, label="speed [km/h]", aspect=30, shrink=0.8)
    bar.ax.yaxis.set_major_formatter(grouped)
    add_title(figure, title)
    add_note(figure, [f"× off course, {off.sum()} of {len(off)} samples"] if off.any() else [])
    return figure


# All of them


def has_laps(results: Results, env: str) -> bool:
    """Return whether an environment is a race with results."""
    return env in races(results) and bool(results.envs[env].returns)


def has_new_physics(results: Results, env: str, variant: str) -> bool:
    """Return whether a race has results in another physics as well; draws have a figure together."""
    part = results.envs[env]
    drawn = any(variant in draws for draws in part.draws.values())
    return env in races(results) and bool(part.variants[variant].returns) and not drawn


def has_lap_map(results: Results, env: str) -> bool:
    """Return whether an environment is a race over two features."""
    return has_laps(results, env) and results.envs[env].space.size == 2


MAP_CAPTION = (
    "Of the seeds that completed the lap, bright is fast; black where no seed completed it, a small black square where "
    "not all did (the paper blackens both). Trained inside the dashed box."
)
RACE_FIGURES = (
    FigureEntry(
        name="laps",
        draw=laps,
        per="env",
        heading="How fast against how many",
        caption="The share of completed and of clean laps over the ratio to the built-in AI’s lap, which counts a lap "
        "that was not completed as 2; the nearer to the upper left corner, the better. Bars are ± s.e.m., small dots "
        "the seeds.",
        not_shown="which cars or settings fail; and a lap that is not completed moves a mark in both directions.",
        applies=has_laps,
    ),
    FigureEntry(
        name="physics",
        draw=physics_update,
        per="variant",
        heading="A physics that no policy was trained in",
        caption="From the open mark, in the physics of training, to the full one, in the other physics; the shorter "
        "the arrow, the less the change matters. The built-in AI’s laps are of the same physics as the lap.",
        not_shown="the spread over seeds; that is in the table of changes.",
        applies=has_new_physics,
    ),
    FigureEntry(
        name="lap-times",
        draw=partial(lap_map, measure="lap_time"),
        per="env",
        heading="Lap time in each context",
        caption=MAP_CAPTION,
        not_shown="the spread over seeds.",
        applies=has_lap_map,
        interactive=True,
    ),
    FigureEntry(
        name="ratios",
        draw=partial(lap_map, measure="completed_ratio"),
        per="env",
        heading="Lap time / built-in AI’s in each context",
        caption=MAP_CAPTION,
        not_shown="the spread over seeds.",
        applies=has_lap_map,
        interactive=True,
    ),
)
