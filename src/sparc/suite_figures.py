"""The pictures of a suite. What has no results, or fewer seeds than the rest, is named in every one of them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparc.adaptation_figures import adaptation, latent_map
from sparc.figures import (
    ALARM,
    FADED,
    GREY,
    WIDTH,
    Cells,
    add_note,
    add_title,
    colour_scale,
    difference_scale,
    draw_gap,
    draw_line,
    draw_panels,
    grouped,
    new_figure,
    plus_minus,
    save,
    style,
    thousands,
    with_looks,
)
from sparc.gaps import count, gaps, how_many, labels_in, means_over, seeds, why_missing
from sparc.laps import JUDGED, MEASURES, races
from sparc.results import EXPERT, NAMES, TOLD, Array, Curve, EnvResults, Results
from sparc.stats import cell_table, mean_sem, share_of_cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from sparc.evaluation import ProgressCall

PAPER = "0.6"  # grey
MOST_PAIRS = 12  # of which a figure shows the difference: more would be too small to see
LEARNED = {None: "return", "clean": "clean laps [%]", "ratio": "ratio (less is better)"}  # during training
TOLD_LOOKS: dict[str, Any] = {"ls": (0, (2, 2)), "mfc": "white", "alpha": 0.5}  # pale, dashed, open


# Maps


@with_looks
def heatmaps(results: Results, env: str) -> Figure:
    """Draw the mean returns over the seeds, a panel per label, all on one colour scale; IND inside the dashed box."""
    part, names = results.envs[env], labels_in(results, env)
    figure, panels = map_panels(len(names), 3)
    cells: list[Cells | str] = []
    for panel, name in zip(panels.flat, names, strict=False):
        title = f"{results.names[name]} ({seeds(results, env, name)})"
        if part.returns.get(name):
            cells.append((part.contexts, part.ind, part.matrix(name).mean(axis=0)))
            means = [f"{region.upper()} {plus_minus(*mean_sem(runs(part, name, region)))}" for region in part.regions]
            title = "\n".join([title, *means])
        else:
            cells.append(why_missing(results, env, name))
        panel.set_title(title)
    values = [cell[2] for cell in cells if not isinstance(cell, str)]
    draw_panels(figure, panels, part.space, cells, colour_scale(np.concatenate(values or [np.zeros(1)])))
    outer(panels, len(names))
    add_title(figure, f"{env}: mean return over the seeds (± s.e.m.)")
    add_note(figure, gaps(results, env, "returns", names))
    return figure


@with_looks
def differences(results: Results, env: str) -> Figure | None:
    """Draw where the first of each pair is better (green) or worse (purple); None without results to compare.

    A panel per pair shows the difference of the means over the seeds, all on one scale.
    """
    part, shown = results.envs[env], results.names
    planned = [pair for pair in results.pairs if all(results.members(env, name) for name in pair)]
    pairs = planned[:MOST_PAIRS]
    if not any(part.returns.get(a) and part.returns.get(b) for a, b in pairs):
        return None
    figure, panels = map_panels(len(pairs), 4)
    letters = int(14.5 * (figure.get_figwidth() - 1.0) / panels.shape[1])  # so many per inch
    cells: list[Cells | str] = []
    for panel, (a, b) in zip(panels.flat, pairs, strict=False):
        title = f"{shown[a]} − {shown[b]}"
        if len(title) > letters:
            title = "\n".join(textwrap.fill(text, letters) for text in (f"{shown[a]} −", shown[b]))
        title += f"\n{seeds(results, env, a)} and {seeds(results, env, b)[4:]}"
        missing = [name for name in (a, b) if not part.returns.get(name)]
        if missing:
            cells.append("\n".join(f"{shown[name]}:\n{why_missing(results, env, name)}" for name in missing))
        else:
            cells.append((part.contexts, part.ind, part.matrix(a).mean(axis=0) - part.matrix(b).mean(axis=0)))
            shares = (
                f"{region.upper()} {share_of_cells(part.matrix(a, region), part.matrix(b, region)):.0%}"
                for region in part.regions
            )
            title += f"\n{', '.join(shares)}"
        panel.set_title(title)
    values = np.concatenate([cell[2] for cell in cells if not isinstance(cell, str)])
    image = draw_panels(figure, panels, part.space, cells, difference_scale(values, "difference in return"))
    outer(panels, len(pairs))
    where = "green" if image is not None else "above zero"
    firsts = {shown[a] for a, _ in pairs}
    better = firsts.pop() if len(firsts) == 1 else "the first of the two"
    add_title(figure, f"{env}: {where} where {better} is better, and the share of such cells")
    more = [f"{len(planned)} pairs, of which {MOST_PAIRS} are shown."] if len(planned) > MOST_PAIRS else []
    add_note(figure, [*gaps(results, env, "returns", dict.fromkeys(name for pair in pairs for name in pair)), *more])
    return figure


def map_panels(number: int, most: int) -> tuple[Figure, Any]:
    """Make about square panels, at most so many in a row."""
    columns = min(number, most)
    rows = -(-number // columns)
    width = min(WIDTH, 2.6 * columns + 1.0)
    return new_figure(rows, columns, rows * ((width - 1.0) / columns + 0.45) + 0.3, width)


def outer(panels: Any, number: int) -> None:
    """Name the axes, which all panels share, only at the left and where there is no panel below."""
    columns = panels.shape[1]
    for index, panel in enumerate(panels.flat[:number]):
        if index % columns and panel.get_ylabel():
            panel.set_ylabel("")
            panel.tick_params(labelleft=False)
        if index + columns < number:
            panel.set_xlabel("")
            panel.tick_params(labelbottom=False)


# Curves


@with_looks
def learning_curves(results: Results) -> Figure:
    """Draw the IND return during training, a panel per environment: the mean over the seeds ± s.e.m.

    A race, whose return does not show how fast it is, has two instead: the share of clean laps, and the ratio.
    """
    shown = [(env, measure) for env in results.envs for measure in learned(results, env)]
    both = len(shown) == 2 * len(results.envs)  # side by side
    figure, panels = env_panels(results, 2.3, len(shown), 2 if both else 3)
    before: str | None = ""
    for panel, (env, measure) in zip(panels.flat, shown, strict=False):
        for name in labels_in(results, env):
            if results.envs[env].there("curves", name):
                draw_learning(panel, results, env, name, measure)
        if not panel.lines:
            draw_gap(panel, "no results")
        else:
            panel.xaxis.set_major_formatter(thousands)
            panel.yaxis.set_major_formatter(grouped)
            panel.set(xlabel="updates", ylabel="" if measure == before else f"IND {LEARNED[measure]}")
        panel.set_title(env)
        before = measure
    means = means_over(results, results.envs, "curves", results.labels)
    names = dict.fromkeys("return" if measure is None else MEASURES[measure].name for _, measure in shown)
    add_title(figure, f"IND {' and '.join(names)} during training: {means}")
    lines = [line for env in results.envs for line in gaps(results, env, "curves", results.labels)]
    add_note(figure, lines, [*label_handles(results, "curves"), *told_handle(results)])
    return figure


def learned(results: Results, env: str) -> tuple[str | None, ...]:
    """Give what is shown of training: the return (None) or, of a race whose curves all have them, what laps tell."""
    part = results.envs[env]
    curves: list[Curve] = [curve for name in part.curves for curve in part.there("curves", name).values()]
    whole = all(np.isfinite(curve.measures.get(of, np.nan)).all() for curve in curves for of in JUDGED)
    return JUDGED if whole and env in races(results) else (None,)


def draw_learning(panel: Axes, results: Results, env: str, name: str, measure: str | None) -> None:
    """Draw one label's curve over the updates at which all its seeds were evaluated; pale where it was told."""
    curves: list[Curve] = list(results.envs[env].there("curves", name).values())
    values = [
        curve.returns if measure is None else MEASURES[measure].scale * curve.measures[measure] for curve in curves
    ]
    shared = curves[0].updates
    for curve in curves[1:]:
        shared = np.intersect1d(shared, curve.updates)
    look = style(name, results.labels)
    for curve, own in zip(curves, values, strict=True):
        if len(curve.updates) > len(shared):  # what the mean leaves out
            for told in np.unique(curve.phase == EXPERT):
                part = (curve.phase == EXPERT) == told
                dash: Any = TOLD_LOOKS["ls"] if told else "-"
                panel.plot(curve.updates[part], own[part], color=look.colour, ls=dash, lw=0.5, alpha=FADED)
    if not len(shared):
        return
    chosen = [np.isin(curve.updates, shared) for curve in curves]
    mean, sem = cell_table([own[rows] for own, rows in zip(values, chosen, strict=True)])
    expert = np.any([curve.phase[rows] == EXPERT for curve, rows in zip(curves, chosen, strict=True)], axis=0)
    apart = max(1, len(shared) // 7)
    for part, options in ((expert, TOLD_LOOKS), (~expert, {})):
        if count := int(part.sum()):
            first = results.labels.index(name) % min(3, count)  # staggered, but a single evaluation has its mark too
            marks = {"marker": look.marker, "ms": 3.5, "markevery": (first, apart)}
            draw_line(panel, look, shared[part], mean[part], sem[part], **marks, **options)


def told_handle(results: Results) -> list[Line2D]:
    """Make the entry of a legend for evaluations of a policy that was told the context, if there are some."""
    from matplotlib.lines import Line2D

    looks = [style(key, results.labels) for key in results.told]
    if not looks:
        return []
    colour, marker = (looks[0].colour, looks[0].marker) if len(looks) == 1 else (GREY, "o")
    return [Line2D([], [], color=colour, marker=marker, ms=3.5, lw=looks[0].width, label=TOLD, **TOLD_LOOKS)]


@with_looks
def history_length(results: Results) -> Figure | None:
    """Draw the OOD return over the length H of the history, a panel per environment; None if there is but one H."""
    lengths = {name: length for name in results.labels if (length := history_of(results, name)) is not None}
    methods: dict[str, list[str]] = {}
    for name in sorted(lengths, key=lambda name: lengths[name]):
        methods.setdefault(results.methods[name][0], []).append(name)
    methods = {method: names for method, names in methods.items() if len({lengths[name] for name in names}) > 1}
    if not methods:
        return None
    varied = [name for names in methods.values() for name in names]
    ticks = sorted({lengths[name] for name in varied})
    figure, panels = env_panels(results, 2.3)
    for panel, env in zip(panels.flat, results.envs, strict=False):
        for method, names in methods.items():
            draw_lengths(panel, results, env, method, {name: lengths[name] for name in names})
        panel.set_xscale("log")
        panel.set_xticks(ticks, [str(tick) for tick in ticks])
        panel.set_xlim(ticks[0] / 1.4, ticks[-1] * 1.4)
        panel.minorticks_off()
        panel.yaxis.set_major_formatter(grouped)
        panel.set(title=env, xlabel="history length H [steps]", ylabel="OOD return" if panel is panels[0, 0] else "")
    means = means_over(results, results.envs, "returns", varied)
    add_title(
        figure, f"OOD return of {', '.join(NAMES.get(m, m) for m in methods)} by history length: {means} (small dots)"
    )
    lines = [line for env in results.envs for line in gaps(results, env, "returns", varied)]
    add_note(figure, lines, method_handles(results, methods) if len(methods) > 1 else ())
    return figure


def method_handles(results: Results, methods: Iterable[str]) -> list[Line2D]:
    """Make a legend of methods, whatever their variations."""
    from matplotlib.lines import Line2D

    handles = []
    for method in methods:
        look = style(method, [*results.labels, method])
        line: dict[str, Any] = {"color": look.colour, "ls": look.dash, "lw": 1.2, "marker": look.marker, "ms": 5}
        handles.append(Line2D([], [], label=NAMES.get(method, method), **line))
    return handles


def draw_lengths(panel: Axes, results: Results, env: str, method: str, lengths: Mapping[str, int]) -> None:
    """Draw the OOD returns of a method's labels over their history lengths, and where there are none."""
    part, look = results.envs[env], style(method, [*results.labels, method])
    points = []
    for name, length in lengths.items():
        if part.returns.get(name) and (~part.ind).any():
            own = runs(part, name, "ood")
            points.append((length, *mean_sem(own)))
            panel.plot([length] * len(own), own, ls="", marker=".", ms=5, color=look.colour, alpha=0.4)
        elif results.members(env, name):
            middle: dict[str, Any] = {"ha": "center", "va": "center", "transform": panel.get_xaxis_transform()}
            panel.text(length, 0.5, "no results", rotation=90, color=ALARM, fontsize=7, **middle)
    if points:
        x, mean, sem = np.array(points, np.float64).T
        line: dict[str, Any] = {"color": look.colour, "marker": look.marker, "ls": look.dash, "lw": 1.2}
        panel.errorbar(x, mean, sem, ms=5, capsize=3, **line)


def history_of(results: Results, name: str) -> int | None:
    """Find the history length of a label's runs, if the manifest knows it."""
    found = (m["config"].get("history_length") for env in results.envs for m in results.members(env, name))
    return next((length for length in found if length is not None), None)


# Summary


@with_looks
def summary_figure(results: Results) -> Figure:
    """Draw OOD (full) and IND (open) return of every label with s.e.m., and the paper's values where there are some."""
    from matplotlib.lines import Line2D

    reference = {"title": "", "ood": {}} | (results.manifest["reference"] or {})
    names = results.labels
    figure, panels = env_panels(results, 0.34 * len(names) + 0.5)
    for panel, env in zip(panels.flat, results.envs, strict=False):
        for place, name in enumerate(names):
            draw_row(panel, results, env, name, place, reference["ood"].get(env, {}).get(name))
            panel.axhline(place + 0.5, color="0.85", lw=0.6, zorder=0)
        panel.set_ylim(len(names) - 0.5, -0.5)
        first = panel.get_subplotspec().colspan.start == 0
        panel.set_yticks(range(len(names)), [results.names[name] if first else "" for name in names], fontsize=8)
        for text, name in zip(panel.get_yticklabels(), names, strict=True):
            text.set_fontweight("bold" if name in results.ours else "normal")
        panel.tick_params(axis="y", length=0)
        panel.spines["left"].set_visible(False)
        panel.xaxis.set_major_formatter(grouped)
        panel.locator_params(axis="x", nbins=4)
        panel.set(title=env, xlabel="return")
    mark = partial(Line2D, [], [], ls="")
    marks = [mark(color=GREY, marker="o", label="OOD return"),
             mark(color=GREY, marker="o", mfc="white", label="IND return")]  # fmt: skip
    if reference["ood"]:
        updates = thousands(reference["updates"])
        marks.append(
            mark(color=PAPER, marker="D", ms=3.5, label=f"OOD return, {reference['title']}, {updates} updates")
        )
    budget, means = thousands(results.manifest["updates"]), means_over(results, results.envs, "returns", names)
    add_title(figure, f"{results.manifest['title']}: {budget} updates, {means} (small dots)")
    add_note(figure, [line for env in results.envs for line in gaps(results, env, "returns", names)], marks)
    return figure


def draw_row(panel: Axes, results: Results, env: str, name: str, place: int, paper: Sequence[float] | None) -> None:
    """Draw one label's returns at its place: IND above OOD, the paper's OOD return below."""
    part, look = results.envs[env], style(name, results.labels)
    if paper is not None:
        panel.errorbar(paper[0], place + 0.28, xerr=paper[1], color=PAPER, marker="D", ms=3.5, lw=1.0, zorder=1)
    if not part.returns.get(name):
        if results.members(env, name):
            middle: dict[str, Any] = {"ha": "center", "va": "center", "transform": panel.get_yaxis_transform()}
            panel.text(0.5, place, "no results", color=ALARM, fontsize=7, **middle)
        return
    for region, height, face in (("ind", place - 0.2, "white"), ("ood", place + 0.04, look.colour)):
        if region in part.regions:
            own = runs(part, name, region)
            mean, sem = mean_sem(own)
            panel.plot(own, [height] * len(own), ls="", marker=".", ms=3, color=look.colour, alpha=0.4)
            looks: dict[str, Any] = {"color": look.colour, "mfc": face, "marker": look.marker, "ms": 5.5, "lw": 1.2}
            panel.errorbar(mean, height, xerr=None if np.isnan(sem) else sem, zorder=3, **looks)


# All of them


def write_all(results: Results, folder: Path, progress: ProgressCall | None = None) -> dict[str, Path]:
    """Write every figure that the results allow; give their stems by name; remove old ones of the others."""
    from sparc.race_figures import race_figures  # which draws with what is here

    raced = races(results)
    returned = [env for env in results.envs if env not in raced]  # a race is judged by its laps, not by its return
    draw: dict[str, Callable[[], Figure | None]] = {
        "summary": partial(summary_figure, results) if returned else nothing,
        **race_figures(results),
        "curves": partial(learning_curves, results),
        "history-length": partial(history_length, results),
    }
    for env, part in results.envs.items():
        mapped = env in returned or part.space.size <= 2
        draw[f"heatmaps-{env}"] = partial(heatmaps, results, env) if mapped else nothing
        draw[f"difference-{env}"] = partial(differences, results, env) if mapped else nothing
        draw[f"adaptation-{env}"] = partial(adaptation, results, env)
        draw[f"latents-{env}"] = partial(latent_map, results, env)
    stems = {}
    for done, (name, make) in enumerate(draw.items()):
        if progress:
            progress(done, len(draw))
        figure = make()
        if figure is not None:
            save(figure, folder / name)
            stems[name] = folder / name
        else:
            for kind in ("png", "svg"):
                (folder / f"{name}.{kind}").unlink(missing_ok=True)
    return stems


# Parts


def nothing() -> None:
    """Draw no figure."""


def runs(part: EnvResults, name: str, region: str) -> Array:
    """Give the mean return of each of a label's seeds over the cells of a region, (n,)."""
    return part.matrix(name, region).mean(axis=1)


def env_panels(results: Results, height: float, number: int | None = None, most: int = 3) -> tuple[Figure, Any]:
    """Make a panel per environment, or as many as told, at most so many in a row, below them room for a legend."""
    number = number or len(results.envs)
    columns = min(number, most)
    rows = -(-number // columns)
    figure, panels = new_figure(rows, columns, rows * height + 0.9, WIDTH if columns > 1 else WIDTH * 0.6)
    for panel in panels.flat[number:]:
        panel.axis("off")
    return figure, panels


def label_handles(results: Results, kind: str) -> list[Line2D]:
    """Make a legend of every label with its number of seeds, also of those without results."""
    from matplotlib.lines import Line2D

    handles = []
    for name in results.labels:
        look = style(name, results.labels)
        numbers = [count(results, env, kind, name) for env in results.envs if results.members(env, name)]
        text = how_many(numbers) if any(numbers) else "no results"
        line: dict[str, Any] = {"color": look.colour, "ls": look.dash, "lw": look.width, "marker": look.marker}
        handles.append(Line2D([], [], ms=3.5, label=f"{results.names[name]} ({text})", **line))
    return handles
