"""Figures of continual learning: what judges a policy in each region after each stage, and the stages' curves."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from sparc.arrays import Array
from sparc.envs.measures import RETURN, Measure
from sparc.report.continual import Chain, chains, has_stages, judged_by, region_mask, tests_in, values_of, world
from sparc.report.figures.entry import FigureEntry
from sparc.report.figures.style import FADED, Style, add_note, add_title, grouped, method_style, new_figure, with_looks
from sparc.report.stats import mean_sem
from sparc.suites.results import Results, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "p", "<", ">", "h")  # of the stages, in their order
SPREAD = 0.6  # of the room of a method that its stages take


def look(results: Results, method: str) -> Style:
    """Return a method's own style; grey for one without."""
    return method_style(results.entries[method]) or Style("0.4", "o", "-")


def methods_of(results: Results, env: str) -> list[str]:
    """Return the methods with continued stages, in the suite's order."""
    return list(dict.fromkeys(chain.method for chain in chains(results, env)))


def region_names(results: Results, env: str) -> list[str]:
    """Return a stage for each region, in each variant of the environment: the first that trains on it."""
    found: dict[str, str] = {}
    for name in results.manifest["stages"]:
        found.setdefault(str(world(results, env, name)), name)
    return list(found.values())


@with_looks
def stage_values(results: Results, env: str) -> Figure:
    """Draw what judges the environment, in each region (a panel), after each stage: mean ± s.e.m., a dot per seed."""
    methods, marks = methods_of(results, env), marks_of(results)
    regions, judged = region_names(results, env), judged_by(results, env)
    figure, panels = new_figure(len(judged), len(regions), 0.7 + 2.7 * len(judged))
    for row, (name, shown) in zip(panels, judged.items(), strict=True):
        for panel, region in zip(row, regions, strict=True):
            for place, method in enumerate(methods):
                own = [stage for stage in marks if results.members(env, label(method, stage))]
                for number, stage in enumerate(own):
                    values = shown.scale * seed_values(results, env, region, label(method, stage), name)
                    x = place + SPREAD * ((number + 0.5) / len(own) - 0.5)
                    if len(values):
                        draw_seeds(panel, x, values, look(results, method).colour, marks[stage])
            panel.set_xticks(
                range(len(methods)), [results.entries[name].title for name in methods], rotation=30, ha="right"
            )
            panel.yaxis.set_major_formatter(axis_format(name))
            panel.set(title=f"in the region of {region}")
        row[0].set_ylabel(axis_of(shown, name))
    what = " and ".join(shown.title for shown in judged.values())
    add_title(figure, f"{env}: {what} in each region after each stage")
    add_note(figure, [], [handle("0.3", "", name, mark) for name, mark in marks.items()])
    return figure


def marks_of(results: Results) -> dict[str, dict[str, Any]]:
    """Return how each stage is marked: hollow where it is trained anew, filled where it continues another."""
    anew, continued = itertools.cycle(MARKERS), itertools.cycle(MARKERS)
    return {
        name: {"marker": next(continued)} if stage["after"] else {"marker": next(anew), "mfc": "white"}
        for name, stage in results.manifest["stages"].items()
    }


def seed_values(results: Results, env: str, region: str, key: str, name: str) -> Array:
    """Return the mean over the cells of a stage's region, in its variant, of every seed of a label, (n,)."""
    part, mask = tests_in(results, env, region), region_mask(results, env, region)
    seeds = part.returns.get(key, {}) if mask.any() else {}
    return np.array([values_of(part, key, seed, name)[mask].mean() for seed in seeds])


def draw_seeds(panel: Axes, x: float, values: Array, colour: str, mark: dict[str, Any]) -> None:
    """Draw a dot per seed, and mean ± s.e.m."""
    panel.plot([x] * len(values), values, ls="", marker=".", ms=3, color=colour, alpha=0.4)
    mean, sem = mean_sem(values)
    panel.errorbar(x, mean, None if np.isnan(sem) else sem, color=colour, ms=4.5, lw=1, **mark)


def axis_of(shown: Measure, name: str) -> str:
    """Return the label of an axis."""
    return "mean return" if name == RETURN else shown.axis


def axis_format(name: str) -> Any:
    """Return how the numbers of an axis are written: returns with separators, measures as they are."""
    from matplotlib.ticker import ScalarFormatter

    return grouped if name == RETURN else ScalarFormatter(useOffset=False)


@with_looks
def stage_curves(results: Results, env: str) -> Figure:
    """Draw what judges the environment, in the new and the first region, in every stage; thin: trained anew."""
    found, judged = chains(results, env), judged_by(results, env)
    stages = list(dict.fromkeys(chain.stages[-1] for chain in found))
    rows = [(stage, name) for stage in stages for name in judged]
    figure, panels = new_figure(len(rows), 2, 2.2 * len(rows) + 0.7)
    for row, (stage, name) in zip(panels, rows, strict=True):
        own = [chain for chain in found if chain.stages[-1] == stage]
        for panel, which in zip(row, ("new", "first"), strict=True):
            for chain in own:
                draw_chain(panel, results, env, chain, which, name)
            panel.yaxis.set_major_formatter(axis_format(name))
            panel.set(title=f"{stage}: in {'its own' if which == 'new' else 'the first'} region", xlabel="updates")
        row[0].set_ylabel(axis_of(judged[name], name))
    add_title(figure, f"{env}: learning in a new region, and what is left of the first")
    methods = methods_of(results, env)
    handles = [handle(look(results, m).colour, look(results, m).dash, results.entries[m].title) for m in methods]
    add_note(figure, [], [*handles, handle("0.3", (0, (1, 1.5)), "trained anew")])
    return figure


def draw_chain(panel: Axes, results: Results, env: str, chain: Chain, which: str, name: str) -> None:
    """Draw the curves of a stage's seeds, and of training anew up to the same number of updates, each a mean."""
    part, mine = results.envs[env], look(results, chain.method)
    scale = part.criteria[name].scale
    column = f"stage_{len(chain.stages) if which == 'new' else 1}_{name}"
    curves = [curve for curve in part.curves.get(chain.last, {}).values() if column in curve.measures]
    if not curves:
        return
    end = max(float(curve.updates[-1]) for curve in curves)
    grid = np.linspace(min(float(curve.updates[0]) for curve in curves), end, 101)
    mean = np.mean([np.interp(grid, curve.updates, curve.measures[column]) for curve in curves], axis=0)
    panel.plot(grid, scale * mean, color=mine.colour, ls=mine.dash, lw=mine.width)
    anew = part.curves.get(label(chain.method, chain.anew or ""), {}).values()
    if which == "new" and anew:
        grid = np.linspace(max(float(curve.updates[0]) for curve in anew), end, 101)
        mean = np.mean([np.interp(grid, curve.updates, curve.values(name)) for curve in anew], axis=0)
        panel.plot(grid, scale * mean, color=mine.colour, ls=(0, (1, 1.5)), lw=0.8, alpha=FADED)


def handle(colour: str, dash: Any, text: str, mark: dict[str, Any] | None = None) -> Line2D:
    """Return an entry of a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, ls=dash or "", ms=4.5, label=text, **(mark or {}))


STAGE_FIGURES = (
    FigureEntry(
        name="stages",
        draw=stage_values,
        per="env",
        heading="Continual learning: what is learned and what is kept",
        caption="The mean in the region of each stage, and in its variant of the environment, after each stage; hollow "
        "marks are stages trained anew, small dots the seeds; look "
        "whether a continued policy is as good in the new region as one that was trained anew, and still as good in "
        "the first.",
        not_shown="contexts outside of all regions; those are in the maps.",
        applies=has_stages,
    ),
    FigureEntry(
        name="stage-curves",
        draw=stage_curves,
        per="env",
        heading="Continual learning: the curves",
        caption="The mean over the settings of the new and of the first region during a stage; thin and dotted, the "
        "new region trained anew.",
        not_shown="the spread over seeds. RMA’s first phase is of the expert, which observes the context.",
        applies=has_stages,
    ),
)
