"""Pictures of adaptation: curves around the switch, and the two encodings of the contexts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from synthetic import CARS, ENVS, STYLES, make_races, make_results

from sparc.acting.adaptation import Latents, Trace
from sparc.acting.settling import settling
from sparc.contexts import ContextSpace
from sparc.report.figures.adaptation import GAIT, adaptation, align, has_latents, has_traces, latent_map, thinned
from sparc.report.figures.style import FADED, save
from sparc.suites.results import Results

ENV = ENVS[0]


def trace(values: np.ndarray, first: int = -100, rows: np.ndarray | None = None) -> Trace:
    """The same values as reward and as distance, IND and OOD alike."""
    step = np.arange(first, first + len(values), dtype=float)
    running = np.full(len(values), 16.0) if rows is None else rows
    both = [np.tile(column, 2) for column in (step, values, values, running)]
    return Trace(np.repeat(["ind", "ood"], len(values)), *both)


def part_of(whole: Trace, kept: np.ndarray) -> Trace:
    return Trace(*(column[kept] for column in vars(whole).values()))


def with_traces(*traces: Trace) -> Results:
    results = make_results((ENV,), methods={"sparc": 1.0}, seeds=tuple(range(len(traces))), grid=5)
    results.envs[ENV].traces["sparc"] = dict(enumerate(traces))
    return results


def grid(results: Results) -> list[Axes]:
    """Distance IND, distance OOD, reward IND, reward OOD."""
    figure = adaptation(results, ENV)
    return figure.axes


def test_the_mean_of_the_seeds_is_drawn_around_the_switch_with_its_settling_time() -> None:
    results = make_results((ENV,), grid=5)
    traces = results.envs[ENV].traces["rma"].values()
    for panel, region in zip(grid(results)[:2], ("ind", "ood"), strict=True):
        assert sorted(line.get_color() for line in panel.lines) == sorted(
            ["0.45", STYLES["sparc"].colour, STYLES["rma"].colour]
        )
        mean = np.mean([t.distance[t.region == region] for t in traces], axis=0)
        (line,) = [line for line in panel.lines if line.get_color() == STYLES["rma"].colour]
        np.testing.assert_allclose(line.get_ydata(), mean)
        took = settling(np.arange(-100.0, 400.0), mean)
        assert line.get_label() == f"RMA: {took:.0f} steps"
        assert list(panel.lines[-1].get_xdata()) == [0, 0]  # the switch
    assert len(grid(results)[2].lines) == 6  # the reward of all five


def test_smoothing_does_not_reach_across_the_switch() -> None:
    step = np.repeat([1.0, 0.0], [100, 200])
    line = grid(with_traces(trace(step), trace(step)))[2].lines[0]
    np.testing.assert_allclose(line.get_ydata(), step, atol=1e-12)
    saw = np.tile([0.0, 1.0], 150)  # goes up and down with every step
    assert np.ptp(grid(with_traces(trace(saw)))[2].lines[0].get_ydata()[GAIT : 100 - GAIT]) < 0.1


def test_what_fewer_than_half_of_the_episodes_say_is_pale() -> None:
    rows = np.repeat([16.0, 7.0], [200, 100])
    results = with_traces(trace(np.ones(300), rows=rows))
    figure = adaptation(results, ENV)
    full, pale = figure.axes[0].lines[:2]
    assert (full.get_xdata()[-1], pale.get_xdata()[0], pale.get_alpha()) == (99, 100, FADED)
    assert "Pale" in figure.get_supxlabel()


def test_a_seed_whose_episodes_end_sooner_does_not_bend_the_mean() -> None:
    full, pale = grid(with_traces(trace(np.zeros(300)), trace(np.ones(150))))[0].lines[:2]
    np.testing.assert_allclose(full.get_ydata(), np.full(150, 0.5))
    assert pale.get_alpha() == FADED and len(pale.get_xdata()) == 150


def test_traces_are_put_side_by_side_by_their_steps() -> None:
    step, values, running = align([trace(np.arange(3.0), 0), trace(np.arange(2.0), 1)], "ood", "reward")
    np.testing.assert_array_equal(step, [0, 1, 2])
    np.testing.assert_array_equal(values, [[0, 1, 2], [np.nan, 0, 1]])
    np.testing.assert_allclose(running, [0.5, 1, 1])


def test_no_traces_no_figure_and_no_switch_to_a_region_a_gap(tmp_path: Path) -> None:
    results = make_results((ENV,), grid=5, seeds=(0,))
    results.envs[ENV].traces.clear()
    assert not has_traces(results, ENV)
    lone = trace(np.ones(300))
    figure = adaptation(with_traces(part_of(lone, lone.region == "ind")), ENV)
    assert [[text.get_text() for text in panel.texts] for panel in figure.axes] == [[], ["no results"]] * 2
    assert figure.get_suptitle().endswith("(one seed each)")
    save(figure, tmp_path / "figure")


@pytest.mark.parametrize("ended", ["long before", "before"])  # of the second, some steps before the switch are known
def test_a_seed_that_never_gets_to_a_switch_does_not_take_the_others_with_it(ended: str) -> None:
    whole = trace(np.repeat([0.0, 1.0], [100, 200]))
    kept = (whole.region == "ind") | ((whole.step < -50) & (ended == "before"))
    results = with_traces(whole, part_of(trace(np.zeros(300)), kept))
    figure = adaptation(results, ENV)
    both, one = figure.axes[0], figure.axes[1]
    assert both.lines[0].get_ydata()[-1] == 0.5 and one.lines[0].get_ydata()[-1] == 1.0
    assert len(one.lines[0].get_xdata()) == 300 and one.lines[0].get_alpha() is None
    assert figure.get_supxlabel().startswith("to contexts out of distribution: SPARC 1 of 2 seeds;")
    assert len(figure.get_supxlabel().splitlines()) == 1
    gone = make_results((ENV,), {"sparc": 1.0, "rma": 0.9}, (0, 1), 5)
    for name, found in gone.envs[ENV].traces.items():
        gone.envs[ENV].traces[name] = {
            s: part_of(t, t.region == "ind") if name == "rma" else t for s, t in found.items()
        }
    figure = adaptation(gone, ENV)
    assert figure.get_supxlabel().startswith("to contexts out of distribution: RMA no results;")
    assert [len(panel.lines) for panel in figure.axes] == [3, 2, 3, 2]  # with the switch


def test_a_trace_without_rows_is_missing(tmp_path: Path) -> None:
    empty = part_of(trace(np.ones(300)), np.zeros(600, bool))
    figure = adaptation(with_traces(trace(np.ones(300)), empty), ENV)
    assert figure.get_supxlabel() == f"{ENV} is incomplete: SPARC 1 of 2 seeds"
    assert figure.get_suptitle().endswith("(one seed each)")
    save(figure, tmp_path / "figure")
    assert not has_traces(with_traces(empty, empty), ENV)


def test_how_many_seeds_the_settling_time_is_the_mean_of_is_said() -> None:
    def titles(results: Results) -> list[str]:
        return [panel.get_legend().get_title().get_text() for panel in grid(results)]

    assert titles(with_traces(trace(np.ones(300)))) == ["settled after"] * 4
    assert titles(with_traces(*[trace(np.ones(300))] * 3)) == ["settled after (mean of 3 seeds)"] * 4
    results = make_results((ENV,), grid=5)
    del results.envs[ENV].traces["oracle"][1]
    assert titles(results) == ["settled after (mean of 3 seeds)"] * 2 + ["settled after (mean of 2–3 seeds)"] * 2


def test_no_settling_is_told_of_a_reward_that_does_not_judge() -> None:
    results = make_races((CARS,), cars=20)
    part = results.envs[CARS]
    for name in results.labels:
        part.traces[name] = {0: trace(np.ones(300))}
    figure = adaptation(results, CARS)
    legends = [legend for panel in figure.axes if (legend := panel.get_legend())]
    titles = [legend.get_title().get_text() for legend in legends]
    assert titles == ["settled after"] * 2 + ["not judged by the reward"] * 2
    assert "SPARC" in [text.get_text() for text in legends[2].get_texts()]  # and no steps behind it


@pytest.mark.parametrize("variations", [("",), ("H=5", "H=25", "H=100")])
@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_legends_cover_no_curve_and_stay_in_the_figure(variations: tuple[str, ...], seeds: tuple[int, ...]) -> None:
    results = make_results((ENV,), seeds=seeds, grid=5, variations=variations)
    for traces in results.envs[ENV].traces.values():  # some stay far away after the switch, where there was room
        for found in traces.values():
            found.distance[found.step > 200] += 1.0
    figure = adaptation(results, ENV)
    figure.draw_without_rendering()
    legends = [panel.get_legend().get_window_extent() for panel in figure.axes]
    for index, legend in enumerate(legends):
        others = [panel.get_window_extent() for panel in figure.axes] + legends[:index]
        assert not legend.count_overlaps(others)
        assert figure.bbox.x0 <= legend.x0 and legend.x1 <= figure.bbox.x1 and figure.bbox.y0 <= legend.y0
    assert min(panel.get_window_extent().height for panel in figure.axes) > 1.2 * figure.dpi


def test_missing_traces_are_named() -> None:
    results = make_results((ENV,), grid=5)
    del results.envs[ENV].traces["oracle"], results.envs[ENV].traces["rma"][1]
    figure = adaptation(results, ENV)
    assert figure.get_supxlabel() == f"{ENV} is incomplete: RMA 2 of 3 seeds, Oracle 0 of 3 seeds"


def test_both_encodings_of_a_context_are_joined_and_coloured_by_its_features() -> None:
    results = make_results((ENV,), grid=7)
    part = results.envs[ENV]
    figure = latent_map(results, ENV)
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [panel.get_title() for panel in panels] == ["SPARC, seed 0"] * 2 + ["RMA, seed 0"] * 2
    latents = part.latents["rma"][0]
    lines, psi, phi = panels[2].collections
    assert isinstance(lines, LineCollection) and isinstance(psi, PathCollection)
    np.testing.assert_allclose(psi.get_offsets(), latents.psi)
    np.testing.assert_allclose(phi.get_offsets(), latents.phi)
    np.testing.assert_allclose(lines.get_segments(), np.stack([latents.psi, latents.phi], axis=1))
    full = ~(psi.get_facecolor() == 1.0).all(axis=1)
    np.testing.assert_array_equal(full, part.ind)
    for panel, feature in zip(panels[2:], part.contexts.T, strict=True):
        colours = panel.collections[1].get_edgecolor()
        np.testing.assert_array_equal(colours[feature == feature.max()], colours[[feature.argmax()]].repeat(7, axis=0))


def test_missing_encodings_are_named() -> None:
    results = make_results((ENV,), grid=5)
    del results.envs[ENV].latents["rma"][0]
    figure = latent_map(results, ENV)
    assert "RMA, seed 1" in [axes.get_title() for axes in figure.axes]
    assert figure.get_supxlabel() == f"{ENV} is incomplete: RMA 2 of 3 seeds"
    results.envs[ENV].latents.clear()
    assert not has_latents(results, ENV)


@pytest.mark.parametrize("size", [1, 3])
def test_encodings_of_other_numbers_of_features(size: int, tmp_path: Path) -> None:
    space = ContextSpace.box(**{f"f{i}": ("", (-1, 1), (-2, 2)) for i in range(size)})
    contexts, results = space.grid(21), make_results((ENV,), grid=5, seeds=(0,))
    psi = contexts[:, [0, -1]]
    part = replace(results.envs[ENV], space=space, contexts=contexts, ind=space.is_train(contexts), returns={},
                   latents={"sparc": {0: Latents(psi, psi + 0.1)}})  # fmt: skip
    figure = latent_map(replace(results, envs={ENV: part}), ENV)
    assert len([axes for axes in figure.axes if axes.get_title()]) == min(size, 2)
    save(figure, tmp_path / "figure")


def test_a_grid_is_thinned_evenly_with_its_middle() -> None:
    contexts = ContextSpace.box(x=("", (-1, 1), (-2, 2)), y=("", (-1, 1), (-2, 2))).grid(21)
    chosen = contexts[thinned(contexts, 150)]
    assert len(chosen) == 121
    assert [0.0, 0.0] in chosen.tolist() and [-2.0, 2.0] in chosen.tolist()
    assert thinned(contexts, 441).all()
    drawn = np.random.default_rng(0).normal(size=(400, 3))
    assert 100 < thinned(drawn, 150).sum() <= 150
