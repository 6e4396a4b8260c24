"""Curves over training updates and over the history length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sparc.envs.measures import RETURN
from sparc.report.figures.maps import draw_gap
from sparc.report.figures.panels import env_panels, label_handles, runs
from sparc.report.figures.style import (
    ALARM,
    FADED,
    GREY,
    add_note,
    add_title,
    draw_line,
    grouped,
    style,
    thousands,
    with_looks,
)
from sparc.report.gaps import gaps, labels_in, means_over
from sparc.report.stats import cell_table, mean_sem
from sparc.suites.results import VARIANTS, Curve, Results
from sparc.text import joined

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

VARIANT_DASHES: dict[str, Any] = {"expert": (0, (4, 2)), "newest": (0, (1, 1.5))}
PRIVILEGED_LOOKS: dict[str, Any] = {"ls": (0, (2, 2)), "mfc": "white", "alpha": 0.5}  # pale, dashed, open


@with_looks
def learning_curves(results: Results) -> Figure:
    """Draw the IND return during training, a panel per environment: the mean over the seeds ± s.e.m.

    Thin lines are of the policy's variants: the expert with the true context, the newest weights.
    An environment that is judged by measures has a panel for each of these instead.
    """
    shown = [(env, name) for env in results.envs for name in learned(results, env)]
    both = len(shown) == 2 * len(results.envs)  # side by side
    figure, panels = env_panels(results, 2.3, len(shown), 2 if both else 3)
    before = ""
    for panel, (env, measure) in zip(panels.flat, shown, strict=False):
        for name in labels_in(results, env):
            if results.envs[env].available("curves", name):
                draw_learning(panel, results, env, name, measure)
        words = results.envs[env].criteria[measure].axis
        if not panel.lines:
            draw_gap(panel, "no results")
        else:
            panel.xaxis.set_major_formatter(thousands)
            panel.yaxis.set_major_formatter(grouped)
            panel.set(xlabel="updates", ylabel="" if words == before else f"IND {words}")
        panel.set_title(env)
        before = words
    means = means_over(results, results.envs, "curves", results.labels)
    names = dict.fromkeys(results.envs[env].criteria[measure].title for env, measure in shown)
    add_title(figure, f"IND {' and '.join(names)} during training: {means}")
    lines = [line for env in results.envs for line in gaps(results, env, "curves", results.labels)]
    add_note(
        figure, lines, [*label_handles(results, "curves"), *privileged_handles(results), *variant_handles(results)]
    )
    return figure


def curve_remarks(results: Results) -> list[str]:
    """Return what pale and thin lines are, where there are some."""
    pale = [f"Pale and open: {results.privileged_note}."] if results.privileged_labels else []
    thin = joined([VARIANTS[name] for name in results.policy_variants])
    return [*pale, *([f"Thin, without marks: {thin}, in the place of what is shipped."] if thin else [])]


def learned(results: Results, env: str) -> tuple[str, ...]:
    """Return what is shown of training: what the environment is judged by where all curves have it, or the return."""
    part = results.envs[env]
    curves: list[Curve] = [curve for name in part.curves for curve in part.available("curves", name).values()]
    complete = all(np.isfinite(curve.values(name)).all() for curve in curves for name in part.judged_by)
    return part.judged_by if complete else (RETURN,)


def draw_learning(panel: Axes, results: Results, env: str, name: str, measure: str) -> None:
    """Draw one label's curve over the updates at which all seeds were evaluated; pale where it observes the context."""
    curves: list[Curve] = list(results.envs[env].available("curves", name).values())
    scale = results.envs[env].criteria[measure].scale
    values = [scale * curve.values(measure) for curve in curves]
    for variant in VARIANTS:
        draw_variant(panel, results, env, name, variant, measure)
    shared = curves[0].updates
    for curve in curves[1:]:
        shared = np.intersect1d(shared, curve.updates)
    look = style(name, results)
    for curve, own in zip(curves, values, strict=True):
        if len(curve.updates) > len(shared):  # what the mean leaves out
            for privileged in np.unique(results.observes_context(name, curve)):
                part = results.observes_context(name, curve) == privileged
                dash: Any = PRIVILEGED_LOOKS["ls"] if privileged else "-"
                panel.plot(curve.updates[part], own[part], color=look.colour, ls=dash, lw=0.5, alpha=FADED)
    if not len(shared):
        return
    chosen = [np.isin(curve.updates, shared) for curve in curves]
    mean, sem = cell_table([own[rows] for own, rows in zip(values, chosen, strict=True)])
    expert = np.any(
        [results.observes_context(name, curve)[rows] for curve, rows in zip(curves, chosen, strict=True)], axis=0
    )
    apart = max(1, len(shared) // 7)
    for part, options in ((expert, PRIVILEGED_LOOKS), (~expert, {})):
        if count := int(part.sum()):
            first = results.labels.index(name) % min(3, count)  # staggered, but a single evaluation has its mark too
            marks = {"marker": look.marker, "ms": 3.5, "markevery": (first, apart)}
            draw_line(panel, look, shared[part], mean[part], sem[part], **marks, **options)


def draw_variant(panel: Axes, results: Results, env: str, name: str, variant: str, measure: str) -> None:
    """Draw the mean over the seeds of a variant of a label's policy, where all of them have it."""
    part = results.envs[env]
    curves: list[Curve] = list(part.available("curves", name).values())
    columns = [part.criteria[measure].scale * curve.values(f"{variant}_{measure}") for curve in curves]
    found = [
        dict(zip(curve.updates.tolist(), column, strict=True)) for curve, column in zip(curves, columns, strict=True)
    ]
    rows = [(at, np.mean([seed.get(at, np.nan) for seed in found])) for at in found[0]]
    if shown := [(at, mean) for at, mean in rows if np.isfinite(mean)]:
        look = style(name, results)
        dash = VARIANT_DASHES[variant]
        panel.plot(*zip(*shown, strict=True), color=look.colour, ls=dash, lw=0.8, alpha=0.7, label=variant)


def variant_handles(results: Results) -> list[Line2D]:
    """Return the legend handles of the variants that were evaluated."""
    from matplotlib.lines import Line2D

    looks: dict[str, Any] = {"color": GREY, "lw": 0.8}
    return [Line2D([], [], ls=VARIANT_DASHES[name], label=VARIANTS[name], **looks) for name in results.policy_variants]


def privileged_handles(results: Results) -> list[Line2D]:
    """Return the legend handle of evaluations of a policy that observes the context, if there are any."""
    from matplotlib.lines import Line2D

    looks = [style(key, results) for key in results.privileged_labels]
    if not looks:
        return []
    colour, marker = (looks[0].colour, looks[0].marker) if len(looks) == 1 else (GREY, "o")
    line: dict[str, Any] = {"color": colour, "marker": marker, "ms": 3.5, "lw": looks[0].width, **PRIVILEGED_LOOKS}
    return [Line2D([], [], label=results.privileged_note, **line)]


def history_lengths(results: Results) -> dict[str, dict[str, int]]:
    """Return the history length of each label, ascending, for every method that was trained with several."""
    lengths = {name: length for name in results.labels if (length := history_of(results, name)) is not None}
    methods: dict[str, dict[str, int]] = {}
    for name in sorted(lengths, key=lambda name: lengths[name]):
        methods.setdefault(results.methods[name][0], {})[name] = lengths[name]
    return {method: found for method, found in methods.items() if len(set(found.values())) > 1}


def has_one_stage(results: Results) -> bool:
    """Return whether no run continues another: the figure of stages has the curves of those that do."""
    return not results.manifest.get("stages")


def has_history_lengths(results: Results) -> bool:
    """Return whether a method was trained with several history lengths."""
    return bool(history_lengths(results))


@with_looks
def history_length(results: Results) -> Figure:
    """Draw the OOD return over the length H of the history, a panel per environment."""
    methods = history_lengths(results)
    varied = [name for lengths in methods.values() for name in lengths]
    ticks = sorted({length for lengths in methods.values() for length in lengths.values()})
    figure, panels = env_panels(results, 2.3)
    for panel, env in zip(panels.flat, results.envs, strict=False):
        for method, lengths in methods.items():
            draw_lengths(panel, results, env, method, lengths)
        panel.set_xscale("log")
        panel.set_xticks(ticks, [str(tick) for tick in ticks])
        panel.set_xlim(ticks[0] / 1.4, ticks[-1] * 1.4)
        panel.minorticks_off()
        panel.yaxis.set_major_formatter(grouped)
        panel.set(title=env, xlabel="history length H [steps]", ylabel="OOD return" if panel is panels[0, 0] else "")
    means = means_over(results, results.envs, "returns", varied, shown="small dots")
    titles = ", ".join(results.entries[method].title for method in methods)
    add_title(figure, f"OOD return of {titles} by history length: {means}")
    lines = [line for env in results.envs for line in gaps(results, env, "returns", varied)]
    add_note(figure, lines, method_handles(results, methods) if len(methods) > 1 else ())
    return figure


def method_handles(results: Results, methods: Iterable[str]) -> list[Line2D]:
    """Return legend handles of methods, whatever their variations."""
    from matplotlib.lines import Line2D

    handles = []
    for method in methods:
        look = style(method, results)
        line: dict[str, Any] = {"color": look.colour, "ls": look.dash, "lw": 1.2, "marker": look.marker, "ms": 5}
        handles.append(Line2D([], [], label=results.entries[method].title, **line))
    return handles


def draw_lengths(panel: Axes, results: Results, env: str, method: str, lengths: Mapping[str, int]) -> None:
    """Draw the OOD returns of a method's labels over their history lengths, and where there are none."""
    part, look = results.envs[env], style(method, results)
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
    """Return the history length of a label's runs, or None if the manifest has none."""
    found = (m["config"].get("history_length") for env in results.envs for m in results.members(env, name))
    return next((length for length in found if length is not None), None)
