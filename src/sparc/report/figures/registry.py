"""All figures of a suite, in the order of the page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sparc.report.figures.adaptation import adaptation, adaptation_remarks, has_latents, has_traces, latent_map
from sparc.report.figures.continual import STAGE_FIGURES
from sparc.report.figures.curves import (
    curve_remarks,
    has_history_lengths,
    has_one_stage,
    history_length,
    learning_curves,
)
from sparc.report.figures.draws import DRAW_FIGURES
from sparc.report.figures.entry import DrawnFigure, FigureEntry
from sparc.report.figures.races import RACE_FIGURES
from sparc.report.figures.style import save
from sparc.report.figures.suite import (
    differences,
    has_differences,
    has_map,
    has_measure,
    has_measure_differences,
    has_summary,
    heatmaps,
    summary_figure,
)
from sparc.suites.results import Results

if TYPE_CHECKING:
    from sparc.envs.contextual import ProgressCall

FIGURES = (
    FigureEntry(
        name="summary",
        draw=summary_figure,
        per="suite",
        heading="All environments at a glance",
        caption="Mean return of each method, or what else an environment is judged by, with its s.e.m., a dot per "
        "seed; look for methods further apart than their seeds.",
        not_shown="where in the contexts a method wins; that is in the maps.",
        applies=has_summary,
    ),
    *RACE_FIGURES,
    *DRAW_FIGURES,
    *STAGE_FIGURES,
    FigureEntry(
        name="curves",
        draw=learning_curves,
        per="suite",
        heading="Learning curves",
        caption="Return, or what else an environment is judged by, in the IND settings during training; look whether "
        "the curves still get better where the budget ends.",
        not_shown="anything out of distribution. The band of ± s.e.m. over few seeds is itself a rough estimate.",
        applies=has_one_stage,
        remarks=curve_remarks,
    ),
    FigureEntry(
        name="history-length",
        draw=history_length,
        per="suite",
        heading="Length of the history",
        caption="OOD return over the number H of steps that the policy looks back; look whether it levels off.",
        not_shown="the price: a longer history makes acting and training slower.",
        applies=has_history_lengths,
    ),
    FigureEntry(
        name="adaptation",
        draw=adaptation,
        per="env",
        heading="A new context in mid-episode",
        caption="How far φ(h), the guess from history, is from ψ(c), the encoding of the true context, and the reward, "
        "around a switch of the context; look how many steps it takes until both have settled.",
        not_shown="whether a closer guess makes a higher return. Episodes that have ended drop out of the average.",
        applies=has_traces,
        remarks=adaptation_remarks,
    ),
    FigureEntry(
        name="latents",
        draw=latent_map,
        per="env",
        heading="What the history tells",
        caption="The encoding ψ(c) of each context and the guess φ(h) of it from history, joined by a line; where the "
        "lines are short, the policy knows its context.",
        not_shown="the dimensions beyond the first two principal components, the other seeds, and the return.",
        applies=has_latents,
    ),
    FigureEntry(
        name="heatmaps",
        draw=heatmaps,
        per="env",
        heading="Mean return in each context",
        caption="All methods on one colour scale; trained inside the dashed box, tested everywhere.",
        not_shown="the spread over seeds.",
        applies=has_map,
        interactive=True,
    ),
    FigureEntry(
        name="difference",
        draw=differences,
        per="env",
        heading="Where the first of two is better",
        caption="Green where the first has the higher mean over seeds, purple where the second has.",
        not_shown="the spread over seeds: a coloured cell alone is no proof.",
        applies=has_differences,
        interactive=True,
    ),
    FigureEntry(
        name="measures",
        draw=heatmaps,
        per="measure",
        heading="A measure in each context",
        caption="All methods on one colour scale, bright is good; trained inside the dashed box, tested everywhere.",
        not_shown="the spread over seeds.",
        applies=has_measure,
        interactive=True,
    ),
    FigureEntry(
        name="measure-differences",
        draw=differences,
        per="measure",
        heading="Where the first of two is better by a measure",
        caption="Green where the first has the better mean over seeds, purple where the second has.",
        not_shown="the spread over seeds: a coloured cell alone is no proof.",
        applies=has_measure_differences,
        interactive=True,
    ),
)


def write_all(results: Results, folder: Path, progress: ProgressCall | None = None) -> list[DrawnFigure]:
    """Write every figure that the results allow, in the order of FIGURES, and remove old files of the others."""
    planned = [(entry, target) for entry in FIGURES for target in entry.targets(results)]
    drawn = []
    for done, (entry, target) in enumerate(planned):
        if progress:
            progress(done, len(planned))
        stem = folder / "-".join([entry.name, *reversed(target)])
        if entry.applies(results, *target):
            save(entry.draw(results, *target), stem)
            drawn.append(DrawnFigure(entry, stem, *target[:1]))
        else:
            for kind in ("png", "svg"):
                stem.with_name(f"{stem.name}.{kind}").unlink(missing_ok=True)
    return drawn
