"""Figures that compare all methods of a suite. Each names the methods with missing seeds or results."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sparc.arrays import Array
from sparc.envs.measures import RETURN
from sparc.report.figures.maps import Cells, colour_scale, difference_scale, draw_panels
from sparc.report.figures.panels import env_panels, map_panels, outer
from sparc.report.figures.style import (
    ALARM,
    GREY,
    add_note,
    add_title,
    grouped,
    plus_minus,
    style,
    thousands,
    with_looks,
)
from sparc.report.gaps import gaps, labels_in, means_over, seeds, why_missing
from sparc.report.measured import mean_of, over_seeds, run_means
from sparc.report.races import races
from sparc.report.stats import MIN_RUNS, mean_sem, share_of_cells
from sparc.suites.results import EnvResults, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "0.6"  # grey
MOST_PAIRS = 12  # of which a figure shows the difference: more would be too small to see


# Maps


def has_map(results: Results, env: str) -> bool:
    """Return whether returns are mapped: not of races with many features, which have figures of their own."""
    return env not in races(results) or results.envs[env].space.size <= 2


@with_looks
def heatmaps(results: Results, env: str, measure: str = RETURN) -> Figure:
    """Draw the mean over the seeds, a panel per label, all on one colour scale; IND inside the dashed box."""
    part, names = results.envs[env], labels_in(results, env)
    read = part.criteria[measure]
    figure, panels = map_panels(len(names), 3)
    cells: list[Cells | str] = []
    for panel, name in zip(panels.flat, names, strict=False):
        title = f"{results.names[name]} ({seeds(results, env, name)})"
        if part.returns.get(name):
            cells.append((part.contexts, part.ind, shown_means(part, name, measure)))
            means = [f"{region.upper()} {written(part, name, region, measure)}" for region in part.regions]
            title = "\n".join([title, *means])
        else:
            cells.append(why_missing(results, env, name))
        panel.set_title(title)
    values = [cell[2] for cell in cells if not isinstance(cell, str)]
    draw_panels(figure, panels, part.space, cells, colour_scale(np.concatenate(values or [np.zeros(1)]), read))
    outer(panels, len(names))
    add_title(figure, f"{env}: mean {read.title} over the seeds (± s.e.m.)")
    add_note(figure, gaps(results, env, "returns", names))
    return figure


def planned_pairs(results: Results, env: str) -> list[tuple[str, str]]:
    """Return the pairs of labels that the suite plans for an environment."""
    return [pair for pair in results.pairs if all(results.members(env, name) for name in pair)]


def has_differences(results: Results, env: str) -> bool:
    """Return whether returns are mapped and both labels of a shown pair have results."""
    return has_map(results, env) and has_pair(results, env)


def has_pair(results: Results, env: str) -> bool:
    """Return whether both labels of a shown pair have results."""
    returns = results.envs[env].returns
    return any(returns.get(a) and returns.get(b) for a, b in planned_pairs(results, env)[:MOST_PAIRS])


def has_measure(results: Results, env: str, measure: str) -> bool:
    """Return whether a measure is mapped: not of races, which have maps of their own."""
    return env not in races(results) and bool(results.envs[env].returns)


def has_measure_differences(results: Results, env: str, measure: str) -> bool:
    """Return whether a measure is mapped and both labels of a shown pair have results."""
    return has_measure(results, env, measure) and has_pair(results, env)


@with_looks
def differences(results: Results, env: str, measure: str = RETURN) -> Figure:
    """Draw where the first of each pair is better (green) or worse (purple).

    A panel per pair shows the difference of the means over the seeds, all on one scale.
    """
    part, shown = results.envs[env], results.names
    read = part.criteria[measure]
    planned = planned_pairs(results, env)
    pairs = planned[:MOST_PAIRS]
    figure, panels = map_panels(len(pairs), 4)
    letters = int(14.5 * (figure.get_figwidth() - 1.0) / panels.shape[1])  # so many per inch
    cells: list[Cells | str] = []
    with_shares = False
    for panel, (a, b) in zip(panels.flat, pairs, strict=False):
        title = f"{shown[a]} − {shown[b]}"
        if len(title) > letters:
            title = "\n".join(textwrap.fill(text, letters) for text in (f"{shown[a]} −", shown[b]))
        title += f"\n{seeds(results, env, a)} and {seeds(results, env, b)[4:]}"
        missing = [name for name in (a, b) if not part.returns.get(name)]
        if missing:
            cells.append("\n".join(f"{shown[name]}:\n{why_missing(results, env, name)}" for name in missing))
        else:
            difference = shown_means(part, a, measure) - shown_means(part, b, measure)
            cells.append((part.contexts, part.ind, read.better * difference))
            if enough := min(len(part.returns[key]) for key in (a, b)) >= MIN_RUNS:  # fewer look surer than they are
                shares = (f"{name.upper()} {better_share(part, a, b, name, measure):.0%}" for name in part.regions)
                title += f"\n{', '.join(shares)}"
            with_shares |= enough
        panel.set_title(title)
    values = np.concatenate([cell[2] for cell in cells if not isinstance(cell, str)])
    image = draw_panels(
        figure,
        panels,
        part.space,
        cells,
        difference_scale(values, f"difference in {read.heading}{', reversed' * (read.better < 0)}"),
    )
    outer(panels, len(pairs))
    where = "green" if image is not None else "above zero"
    firsts = {shown[a] for a, _ in pairs}
    better = firsts.pop() if len(firsts) == 1 else "the first of the two"
    add_title(figure, f"{env}: {where} where {better} is better{', and the share of such cells' * with_shares}")
    more = [f"{len(planned)} pairs, of which {MOST_PAIRS} are shown."] if len(planned) > MOST_PAIRS else []
    add_note(figure, [*gaps(results, env, "returns", dict.fromkeys(name for pair in pairs for name in pair)), *more])
    return figure


def shown_means(part: EnvResults, name: str, measure: str) -> Array:
    """Return the mean of a label's seeds in each context, as it is shown, (M,)."""
    return part.criteria[measure].scale * over_seeds(part.matrix(name, None, measure))[0]


def better_share(part: EnvResults, a: str, b: str, region: str, measure: str) -> float:
    """Return the share of a region's cells in which the first of two labels is better."""
    read = part.criteria[measure]
    return share_of_cells(*(read.better * part.matrix(name, region, measure) for name in (a, b)))


def written(part: EnvResults, name: str, region: str, measure: str) -> str:
    """Write a region's mean ± s.e.m."""
    mean, sem, _ = mean_of(part, name, region, measure)
    if measure == RETURN:
        return plus_minus(mean, sem)
    digits = part.criteria[measure].digits
    return f"{mean:,.{digits}f}" + (f" ± {sem:,.{digits}f}" if np.isfinite(sem) else "")


# Summary


def has_summary(results: Results) -> bool:
    """Return whether there is an environment besides races, which have figures of their own."""
    raced = races(results)
    return any(env not in raced for env in results.envs)


@with_looks
def summary_figure(results: Results) -> Figure:
    """Draw what judges each environment, OOD (full) and IND (open), of every label with s.e.m.

    The paper's values are beside it where there are some. Races, which have figures of their own, show their return.
    """
    from matplotlib.lines import Line2D

    reference = {"title": "", "ood": {}, "measures": {}} | (results.manifest["reference"] or {})
    names, raced = results.labels, races(results)
    shown = [(env, of) for env, part in results.envs.items() for of in ((RETURN,) if env in raced else part.judged_by)]
    figure, panels = env_panels(results, 0.34 * len(names) + 0.5, len(shown))
    for panel, (env, measure) in zip(panels.flat, shown, strict=False):
        published = reference["ood"].get(env, {}) if measure == RETURN else {
            name: of[measure] for name, of in reference["measures"].get(env, {}).get("ood", {}).items() if measure in of
        }  # fmt: skip
        for place, name in enumerate(names):
            draw_row(panel, results, env, name, measure, place, published.get(name))
            panel.axhline(place + 0.5, color="0.85", lw=0.6, zorder=0)
        panel.set_ylim(len(names) - 0.5, -0.5)
        first = panel.get_subplotspec().colspan.start == 0
        panel.set_yticks(range(len(names)), [results.names[name] if first else "" for name in names], fontsize=8)
        for text, name in zip(panel.get_yticklabels(), names, strict=True):
            text.set_fontweight("bold" if name in results.main_labels else "normal")
        panel.tick_params(axis="y", length=0)
        panel.spines["left"].set_visible(False)
        panel.xaxis.set_major_formatter(grouped)
        panel.locator_params(axis="x", nbins=4)
        panel.set(title=env, xlabel=results.envs[env].criteria[measure].axis)
    what = " return" * all(measure == RETURN for _, measure in shown)
    mark = partial(Line2D, [], [], ls="")
    marks = [mark(color=GREY, marker="o", label=f"OOD{what}"),
             mark(color=GREY, marker="o", mfc="white", label=f"IND{what}")]  # fmt: skip
    if reference["ood"] or (reference["measures"] and not what):
        updates = thousands(reference["updates"])
        marks.append(mark(color=PAPER, marker="D", ms=3.5, label=f"OOD{what}, {reference['title']}, {updates} updates"))
    budget = thousands(results.manifest["updates"])
    means = means_over(results, results.envs, "returns", names, shown="small dots")
    add_title(figure, f"{results.manifest['title']}: {budget} updates, {means}")
    add_note(figure, [line for env in results.envs for line in gaps(results, env, "returns", names)], marks)
    return figure


def draw_row(
    panel: Axes, results: Results, env: str, name: str, measure: str, place: int, paper: Sequence[float] | None
) -> None:
    """Draw one label's returns, or a measure of its runs, at its place: IND above OOD, the paper's OOD below."""
    part, look = results.envs[env], style(name, results)
    if paper is not None:
        panel.errorbar(
            paper[0], place + 0.28, xerr=[*paper[1:2]] or None, color=PAPER, marker="D", ms=3.5, lw=1.0, zorder=1
        )
    if not part.returns.get(name):
        if results.members(env, name):
            middle: dict[str, Any] = {"ha": "center", "va": "center", "transform": panel.get_yaxis_transform()}
            panel.text(0.5, place, "no results", color=ALARM, fontsize=7, **middle)
        return
    for region, height, face in (("ind", place - 0.2, "white"), ("ood", place + 0.04, look.colour)):
        if region in part.regions:
            own = run_means(part, name, region, measure)
            mean, sem = mean_sem(own)
            panel.plot(own, [height] * len(own), ls="", marker=".", ms=3, color=look.colour, alpha=0.4)
            looks: dict[str, Any] = {"color": look.colour, "mfc": face, "marker": look.marker, "ms": 5.5, "lw": 1.2}
            panel.errorbar(mean, height, xerr=None if np.isnan(sem) else sem, zorder=3, **looks)
