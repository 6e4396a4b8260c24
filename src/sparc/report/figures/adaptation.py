"""Figures of adaptation: the response to a switch of the context, and φ(h) next to ψ(c)."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sparc.acting.adaptation import Latents, Trace
from sparc.acting.settling import moving_average, settling
from sparc.arrays import Array
from sparc.envs.measures import RETURN
from sparc.report.figures.maps import COLOURS, axis_label
from sparc.report.figures.style import (
    ALARM,
    FADED,
    GREY,
    WIDTH,
    Style,
    add_note,
    add_title,
    draw_line,
    new_figure,
    style,
    with_looks,
)
from sparc.report.gaps import gaps, how_many, labels_in, means_over
from sparc.report.stats import cell_table
from sparc.suites.results import EnvResults, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REGIONS = {"ind": "to contexts in distribution", "ood": "to contexts out of distribution"}
GAIT = 25  # steps: the moving average of the reward spans several strides
WINDOW_SHARE = 20  # but at most one part in so many of the steps shown: short episodes have short strides
BARE = 1.0  # distance of a panel without axis label from its legend, in font sizes
LABELLED = 4.3  # the same with an axis label
MOST_LETTERS = 40  # in a line of a legend of two columns: more would make it wider than its panel
LINE = 0.16  # inches: a line of a legend
MOST_MARKS = 300  # contexts whose encodings a figure shows, in all its rows: more cannot be told apart


def has_traces(results: Results, env: str) -> bool:
    """Return whether any label was tested with a switch of the context."""
    return any(results.envs[env].available("traces", name) for name in labels_in(results, env))


def adaptation_remarks(results: Results) -> list[str]:
    """Return what the steps in the legend are of, where there are several seeds."""
    counts = [len(part.available("traces", label)) for part in results.envs.values() for label in results.labels]
    if max(counts, default=0) < 2:
        return []
    return ["The steps until it has settled are those of the mean over the seeds, not the mean of each seed’s."]


@with_looks
def adaptation(results: Results, env: str) -> Figure:
    """Draw what a switch of the context does to φ(h)'s distance from ψ(c) and to the reward."""
    part = results.envs[env]
    names = labels_in(results, env)
    traces: dict[str, list[Trace]] = {name: list(part.available("traces", name).values()) for name in names}
    shown = max(len(np.unique(trace.step)) for found in traces.values() for trace in found)
    gait = max(min(GAIT, shown // WINDOW_SHARE), 1)
    figure, panels = new_figure(2, 2, 4.3, sharex=True, sharey="row")
    titles: dict[Axes, str] = {}  # of the legends
    notes = gaps(results, env, "traces", names)
    judged = RETURN in part.judged_by  # elsewhere the reward may go up and down for reasons of its own
    for column, (region, words) in enumerate(REGIONS.items()):
        switched = {name: [trace for trace in found if reaches(trace, region)] for name, found in traces.items()}
        for row, (quantity, smooth) in enumerate((("distance", 1), ("reward", gait))):
            panel = panels[row, column]
            drawn, tells = set[int](), quantity == "distance" or judged
            for name, found in switched.items():
                step, values, running = align(found, region, quantity)
                shared = np.isfinite(values).all(axis=0)  # steps at which episodes of every seed are running
                if shared.any():
                    text = results.names[name]
                    if tells:
                        took = settling(step[shared], values[:, shared].mean(axis=0))
                        text += ": " + ("unclear" if took is None else f"{took:.0f} steps" if took != 1 else "1 step")
                    draw_switch(panel, style(name, results), step, values, running, smooth, text)
                    drawn.add(len(found))
            if panel.lines:
                of = f" (mean of {how_many(drawn)})" if max(drawn) > 1 else ""
                titles[panel] = ("settled after" if tells else "not judged by the reward") + of
            else:
                panel.text(0.5, 0.5, "no results", transform=panel.transAxes, ha="center", va="center", color=ALARM)
            panel.axvline(0, color=GREY, lw=0.8, zorder=0)
        panels[0, column].set_title(words)
        missing = [
            f"{results.names[name]} {f'{len(found)} of {len(traces[name])} seeds' if found else 'no results'}"
            for name, found in switched.items()
            if len(found) < len(traces[name])
        ]
        if missing:
            notes.append(f"{words}: {', '.join(missing)}; no episode of the rest lasts until the switch")
    panels[0, 0].set(ylabel="distance of φ(h) from ψ(c)", ylim=(0, None))
    panels[1, 0].set(xlabel="steps since the switch", ylabel=f"reward per step (mean of {gait})")
    panels[1, 1].set(xlabel="steps since the switch")
    add_title(figure, f"{env}: the context switches in mid-episode ({means_over(results, [env], 'traces', names)})")
    if any(line.get_alpha() == FADED for panel in panels.flat for line in panel.lines):
        notes.append("Pale: fewer than half of the episodes, or not those of all seeds, are still running.")
    add_note(figure, notes)
    for pair, below in zip(panels, (BARE, LABELLED), strict=True):
        height = add_legends({panel: titles[panel] for panel in pair if panel in titles}, below)
        figure.set_figheight(figure.get_figheight() + height)  # the curves keep their room
    return figure


def add_legends(titles: dict[Axes, str], below: float) -> float:
    """Add a legend below each panel, where it covers no curve, and return the largest height in inches."""
    columns, most = 2, 0
    for panel in titles:
        letters = [len(text) for text in panel.get_legend_handles_labels()[1]]
        most, half = max(most, len(letters)), ceil(len(letters) / 2)
        if max(letters[:half]) + max(letters[half:], default=0) > MOST_LETTERS:
            columns = 1  # for all of them: side by side they look alike
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "borderaxespad": below}
    for panel, title in titles.items():
        panel.legend(title=title, handlelength=2.5, ncols=columns, columnspacing=1.0, **place)
    return LINE * (1 + ceil(most / columns))


def reaches(trace: Trace, region: str) -> bool:
    """Return whether any episode of a run lasts until the switch to a region."""
    return bool(((trace.region == region) & (trace.step >= 0)).any())


def align(traces: Sequence[Trace], region: str, quantity: str) -> tuple[Array, Array, Array]:
    """Return steps (S,), values (seeds, S), NaN after the last episode, and the share still running (S,)."""
    chosen = [trace.region == region for trace in traces]
    step = np.unique(np.concatenate([np.zeros(0), *(t.step[c] for t, c in zip(traces, chosen, strict=True))]))
    values, rows = np.full((len(traces), len(step)), np.nan), np.zeros((len(traces), len(step)))
    for index, (trace, part) in enumerate(zip(traces, chosen, strict=True)):
        at = np.searchsorted(step, trace.step[part])
        values[index, at], rows[index, at] = getattr(trace, quantity)[part], trace.rows[part]
    total = rows.sum(axis=0)
    return step, values, total / total.max(initial=1.0)


def draw_switch(panel: Axes, look: Style, step: Array, values: Array, running: Array, smooth: int, text: str) -> None:
    """Draw the mean over the seeds, smoothed before and after the switch apart; pale where episodes have ended."""
    smoothed = np.full_like(values, np.nan)
    for row, value in zip(smoothed, values, strict=True):
        for side in (step < 0, step >= 0):
            finite = side & np.isfinite(value)
            row[finite] = moving_average(value[finite], smooth)
    shared = np.isfinite(smoothed).all(axis=0)
    full = shared & (running >= 0.5)  # episodes only ever end: a pale part follows the full line
    draw_line(panel, look, step[full], *cell_table(smoothed[:, full]), label=text)
    if not full.all():
        panel.plot(step[~full], np.nanmean(smoothed[:, ~full], axis=0), color=look.colour, alpha=FADED)


def encoded_labels(results: Results, env: str) -> list[str]:
    """Return the labels whose encodings of the contexts were recorded."""
    return [name for name in labels_in(results, env) if results.envs[env].latents.get(name)]


def has_latents(results: Results, env: str) -> bool:
    """Return whether any label has encodings."""
    return bool(encoded_labels(results, env))


@with_looks
def latent_map(results: Results, env: str) -> Figure:
    """Draw ψ(c) (circles) and φ(h) (crosses) over the contexts, a row per label.

    The axes of two runs have nothing in common, so that each row shows one: the first seed.
    """
    part = results.envs[env]
    names = encoded_labels(results, env)
    features = min(part.space.size, 2)
    height = 2.6 if len(names) <= 2 else 2.0
    figure, panels = new_figure(len(names), features, height * len(names) + 0.6, WIDTH * (0.05 + 0.475 * features))
    chosen = thinned(part.contexts, MOST_MARKS // max(2, len(names)))
    for row, name in zip(panels, names, strict=True):
        seed = min(part.latents[name])
        for feature, panel in enumerate(row):
            scale = draw_latents(panel, part, part.latents[name][seed], chosen, feature)
            panel.set_title(f"{results.names[name]}, seed {seed}")
            if name == names[0]:
                figure.colorbar(
                    scale, ax=panels[:, feature], label=axis_label(part.space, feature), aspect=40, pad=0.02
                )
        row[0].set_ylabel("second component")
    for panel in panels[-1]:
        panel.set_xlabel("first component of ψ(c)")
    add_title(
        figure,
        f"{env}: contexts as the encoder ψ sees them (circles; full: IND, open: OOD)\n"
        f"and as the adapter φ guesses them from history (crosses); {chosen.sum()} of {len(chosen)} contexts",
    )
    adapters = [name for name in labels_in(results, env) if any(e.latents.get(name) for e in results.envs.values())]
    add_note(figure, gaps(results, env, "latents", adapters))
    return figure


def thinned(contexts: Array, most: int) -> NDArray[np.bool_]:
    """Return a mask of at most `most` contexts: of a grid, every second, third, … value of each feature."""
    levels = [np.unique(values) for values in contexts.T]
    grid = len(contexts) == np.prod([len(level) for level in levels])
    for every in range(1, len(contexts) + 1):
        chosen = np.arange(len(contexts)) % every == 0
        if grid:  # with the value in the middle
            kept = [level[len(level) // 2 % every :: every] for level in levels]
            chosen = np.all([np.isin(values, k) for values, k in zip(contexts.T, kept, strict=True)], axis=0)
        if chosen.sum() <= most:
            break
    return chosen


def draw_latents(panel: Axes, part: EnvResults, latents: Latents, chosen: NDArray[np.bool_], feature: int) -> Any:
    """Draw both encodings of each context, joined by a line, coloured by a context feature; return the scale."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Normalize

    value, psi, phi = part.contexts[chosen, feature], latents.psi[chosen], latents.phi[chosen]
    scale = ScalarMappable(Normalize(value.min(), value.max()), colormaps[COLOURS])
    colours = scale.to_rgba(value)
    faces = np.where(part.ind[chosen][:, None], colours, 1.0)
    circles: dict[str, Any] = {"facecolors": faces, "edgecolors": colours, "s": 20, "linewidths": 1.0, "zorder": 1.2}
    crosses: dict[str, Any] = {"c": colours, "marker": "x", "s": 14, "linewidths": 0.9, "zorder": 1.3}
    panel.add_collection(LineCollection(list(np.stack([psi, phi], axis=1)), colors=GREY, lw=0.6, zorder=1.1))
    panel.scatter(psi[:, 0], psi[:, 1], **circles)
    panel.scatter(phi[:, 0], phi[:, 1], **crosses)
    panel.autoscale_view()
    return scale
