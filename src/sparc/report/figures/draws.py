"""The figure of several draws of one change: what each draw does to every method, run by run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sparc.report.figures.entry import FigureEntry
from sparc.report.figures.style import GREY, WIDTH, add_note, add_title, new_figure, style, with_looks
from sparc.report.gaps import gaps, labels_in
from sparc.report.measured import changes
from sparc.report.stats import mean_sem
from sparc.suites.results import EnvResults, Results
from sparc.text import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REGIONS = {"ood": "out of distribution", "ind": "in distribution"}
ASIDE = 0.22  # of the distance between two methods: where the mean stands beside its draws
ROW, HEAD = 1.7, 0.9  # inches: of a row of panels, and of what is above and below them all


@with_looks
def draw_changes(results: Results, env: str) -> Figure:
    """Draw what each draw changes for each method: dots joined by draw, the mean over draws with its s.e.m. beside."""
    part = results.envs[env]
    draws = [draw for names in part.draws.values() for draw in names]
    names = [name for name in labels_in(results, env) if all(name in of.returns for of in tested(part, draws))]
    measures = drawn_measures(part)
    figure, panels = new_figure(len(measures), len(part.regions), HEAD + ROW * len(measures), WIDTH, sharex="all")
    for row, measure in enumerate(measures):
        for column, region in enumerate(part.regions):
            panel = panels[row, column]
            found = {name: changes(part, draws, name, region, measure) for name in names}  # (runs, draws) each
            lines = np.array([of.mean(axis=0) for of in found.values()]).reshape(len(names), len(draws))
            panel.axhline(0.0, color=GREY, lw=0.8, zorder=0)
            panel.plot(np.arange(len(names)), lines, color="0.8", lw=0.7, zorder=1)  # a line per draw
            for place, (name, values) in enumerate(zip(names, lines, strict=True)):
                look = style(name, results)
                panel.plot([place] * len(draws), values, ls="", marker=".", ms=5, color=look.colour, zorder=2)
                mean, sem = mean_sem(values)
                bar: dict[str, Any] = {"color": look.colour, "marker": look.marker, "ms": 5, "lw": 1.2, "zorder": 3}
                panel.errorbar(place + ASIDE, mean, yerr=sem, **bar)
            shown = part.criteria[measure]
            unit = " [points]" if shown.unit == "%" else f" [{shown.unit}]" if shown.unit else ""
            less = "\n(less is better)" if shown.better < 0 else ""
            panel.set_ylabel(f"change of the\n{shown.title}{unit}{less}" if column == 0 else "")
            panel.set_title(f"{REGIONS[region]} ({region.upper()})" if row == 0 else "")
            panel.set_xticks(np.arange(len(names)), [results.names[name] for name in names], rotation=20, ha="right")
    runs = sorted({len(part.returns[name]) for name in names})
    seeds = f"{runs[0]}{f' to {runs[-1]}' * (len(runs) > 1)} seed{'s' * (runs[-1] > 1)}" if runs else "no run"
    add_title(
        figure,
        f"{env}: {plural(len(draws), 'draw')} minus as trained, within each run, mean over {seeds}\n"
        "A dot per draw, lines join the same draw; beside them the mean ± s.e.m. over draws",
    )
    add_note(figure, gaps(results, env, "returns", labels_in(results, env)))
    return figure


def tested(part: EnvResults, draws: list[str]) -> list[EnvResults]:
    """Return the results as trained and in each draw."""
    return [part, *(part.variants[draw] for draw in draws)]


def drawn_measures(part: EnvResults) -> list[str]:
    """Return the declared measures that policies differ in and every episode has, else what the env. is judged by."""
    rows = [of for seeds in part.measures.values() for of in seeds.values()]
    declared = [name for name, measure in part.criteria.measures.items() if measure.better]
    whole = [name for name in declared if rows and all(name in of and np.isfinite(of[name]).all() for of in rows)]
    return whole or list(part.judged_by)


def has_draws(results: Results, env: str) -> bool:
    """Return whether an environment was tested in several draws of one change."""
    part = results.envs[env]
    return any(all(part.variants[draw].returns for draw in draws) for draws in part.draws.values())


DRAW_FIGURES = (
    FigureEntry(
        name="draws",
        draw=draw_changes,
        per="env",
        heading="Several draws of what no policy was trained in",
        caption="What each draw changes within each run, averaged over runs; look whether a method keeps its place in "
        "all draws, or only in some. Bars are ± s.e.m. over draws.",
        not_shown="the spread over seeds; that is in the tables of changes.",
        applies=has_draws,
    ),
)
