"""The pictures of a suite: what is drawn is what the results say, and what they lack is said."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import FillBetweenPolyCollection, QuadMesh
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from synthetic import ENVS, EXPERT_UPDATES, METHODS, STYLES, make_results

from sparc.contexts import ContextSpace
from sparc.report.figures.curves import has_history_lengths, history_length, learning_curves
from sparc.report.figures.panels import map_panels, outer
from sparc.report.figures.registry import FIGURES, write_all
from sparc.report.figures.style import LARGEST, save, style
from sparc.report.figures.suite import MOST_PAIRS, differences, has_differences, heatmaps, summary_figure
from sparc.suites.results import Curve, EnvResults, Results

ENV, OTHER = ENVS[:2]
LABELS = list(METHODS)
SHOWN = ["SPARC", "RMA", "Only Obs", "History Input", "Oracle"]


def panels(figure: Figure) -> list[Axes]:
    """The panels in use, without colour bars."""
    return [axes for axes in figure.axes if axes.get_title()]


def mesh(panel: Axes) -> QuadMesh:
    (found,) = [artist for artist in panel.collections if isinstance(artist, QuadMesh)]
    return found


def note(figure: Figure) -> str:
    """What stands below a figure: under the panels or over the legend."""
    return figure.get_supxlabel() + "".join(legend.get_title().get_text() for legend in figure.legends)


def as_grid(part: EnvResults, values: np.ndarray) -> np.ndarray:
    """Values over contexts, of which the last feature varies fastest, as rows of the second feature."""
    side = len(np.unique(part.contexts[:, 0]))
    return values.reshape(side, -1).T


def with_history(lengths: dict[str, int], methods: tuple[str, ...] = ("sparc",), **options: Any) -> Results:
    results = make_results(methods={name: METHODS[name] for name in methods}, variations=tuple(lengths), **options)
    for member in results.manifest["members"]:
        member["config"] = {"history_length": lengths[member["variation"]]}
    return results


def with_space(size: int) -> Results:
    """Results over contexts with one feature or with three."""
    features = {f"f{i}": ("N", (-1.0, 1.0), (-2.0, 2.0)) for i in range(size)}
    space, results = ContextSpace.box(**features), make_results((ENV,), seeds=(0, 1), grid=5)
    contexts = space.grid(5)
    part = results.envs[ENV]
    cells = np.arange(len(contexts))
    part = replace(
        part,
        space=space,
        contexts=contexts,
        ind=space.is_train(contexts),
        returns={name: {seed: 10.0 * k + cells + seed for seed in (0, 1)} for k, name in enumerate(part.returns)},
        latents={},
    )
    return replace(results, envs={ENV: part})


# Maps


def test_heatmaps_show_the_mean_over_the_seeds_on_one_scale() -> None:
    results = make_results((ENV,), grid=7)
    figure, part = heatmaps(results, ENV), results.envs[ENV]
    assert [panel.get_title().split(" (")[0] for panel in panels(figure)] == SHOWN
    means = {name: np.mean([part.returns[name][seed] for seed in range(3)], axis=0) for name in LABELS}
    for panel, name in zip(panels(figure), LABELS, strict=True):
        np.testing.assert_allclose(mesh(panel).get_array(), as_grid(part, means[name]))
    assert len({mesh(panel).get_clim() for panel in panels(figure)}) == 1
    np.testing.assert_allclose(mesh(panels(figure)[0]).get_clim(), np.percentile(list(means.values()), (2, 98)))


def test_heatmaps_mark_the_training_region() -> None:
    results = make_results((ENV,), grid=21)
    part = results.envs[ENV]
    half = np.ptp(part.contexts, axis=0) / 20 / 2
    for panel in panels(heatmaps(results, ENV)):
        (box,) = [patch for patch in panel.patches if isinstance(patch, Rectangle)]
        assert box.get_linestyle() == "--"
        np.testing.assert_allclose(box.get_xy(), part.contexts[part.ind].min(axis=0) - half)
        np.testing.assert_allclose(box.get_corners()[2], part.contexts[part.ind].max(axis=0) + half)


def test_heatmaps_name_means_standard_errors_and_seeds() -> None:
    results = make_results((ENV,), grid=5)
    runs = results.envs[ENV].matrix("rma", "ood").mean(axis=1)
    expected = f"OOD {runs.mean():,.0f} ± {runs.std(ddof=1) / np.sqrt(3):,.0f}"
    title = panels(heatmaps(results, ENV))[1].get_title()
    assert title.splitlines()[:2] == ["RMA (n = 3)", expected]
    assert not note(heatmaps(results, ENV))
    assert "±" not in panels(heatmaps(make_results((ENV,), seeds=(0,), grid=5), ENV))[1].get_title()


def test_a_gap_is_a_panel_that_says_so_and_uneven_seeds_are_marked() -> None:
    gaps = (*((ENV, "rma", seed) for seed in range(3)), (ENV, "oracle", 1))
    figure = heatmaps(make_results((ENV,), grid=5, gaps=gaps), ENV)
    rma, oracle = panels(figure)[1], panels(figure)[4]
    assert not [artist for artist in rma.collections if isinstance(artist, QuadMesh)]
    assert rma.get_title() == "RMA (n = 0 of 3)" and rma.texts[0].get_text() == "no results\n3 missing"
    assert oracle.get_title().startswith("Oracle (n = 2 of 3)")
    assert note(figure) == f"{ENV} is incomplete: RMA 0 of 3 seeds, Oracle 2 of 3 seeds"


@pytest.mark.slow
def test_an_environment_without_any_results_is_all_gaps(tmp_path: Path) -> None:
    results = make_results(ENVS[:2], grid=5, gaps=tuple((OTHER, name, seed) for name in LABELS for seed in range(3)))
    empty = EnvResults(results.envs[OTHER].space, np.empty((0, 2)), np.empty(0, bool))  # as it is read from files
    results = replace(results, envs=results.envs | {OTHER: empty})
    assert all(panel.texts[0].get_text().startswith("no results") for panel in panels(heatmaps(results, OTHER)))
    written = write_all(results, tmp_path)
    assert [figure.stem.name for figure in written if figure.env == OTHER] == [f"heatmaps-{OTHER}"]
    for figure in (learning_curves(results), summary_figure(results)):
        assert f"{OTHER}: no results" in note(figure)
        assert panels(figure)[1].texts[0].get_text() == "no results"


def test_differences_are_symmetric_about_zero_and_green_where_sparc_is_better() -> None:
    results = make_results((ENV,), grid=7)
    figure, part = differences(results, ENV), results.envs[ENV]
    found = panels(figure)
    assert [panel.get_title().splitlines()[0] for panel in found] == [f"SPARC − {name}" for name in SHOWN[1:]]
    expected = {name: (part.matrix("sparc").mean(axis=0) - part.matrix(name).mean(axis=0)) for name in LABELS[1:]}
    limit = np.percentile(np.abs(list(expected.values())), 98)
    for panel, values in zip(found, expected.values(), strict=True):
        np.testing.assert_allclose(mesh(panel).get_array(), as_grid(part, values))
        np.testing.assert_allclose(mesh(panel).get_clim(), (-limit, limit))
    low, middle, high = mesh(found[0]).get_cmap()([0.0, 0.5, 1.0])
    assert low[1] < low[2] and high[1] > max(high[0], high[2]) and middle[:3].min() > 0.9  # purple, green, white
    share = np.mean(expected["rma"][~part.ind] > 0)
    assert f"OOD {share:.0%}" in found[0].get_title() and "n = 3 and 3" in found[0].get_title()


def test_without_both_sides_there_is_no_difference() -> None:
    results = make_results(ENVS[:2], grid=5, gaps=tuple((ENV, name, s) for name in ("rma", "oracle") for s in range(3)))
    figure = differences(results, ENV)
    assert [bool(panel.texts) for panel in panels(figure)] == [True, False, False, True]
    assert panels(figure)[0].texts[0].get_text() == "RMA:\nno results\n3 missing"
    assert "RMA 0 of 3 seeds" in note(figure)
    gone = make_results((ENV,), grid=5, gaps=tuple((ENV, "sparc", seed) for seed in range(3)))
    assert not has_differences(gone, ENV)
    assert not has_differences(make_results((ENV,), {"sparc": 1.0}, grid=5), ENV)


def test_variations_differ_from_each_other_in_the_pairs_of_the_page() -> None:
    results = make_results((ENV,), {"sparc": 1.0}, grid=5, variations=("adapter", "expert"))
    figure, part = differences(results, ENV), results.envs[ENV]
    (panel,) = panels(figure)
    assert panel.get_title().startswith("SPARC adapter − SPARC expert\n")
    values = part.matrix("sparc adapter").mean(axis=0) - part.matrix("sparc expert").mean(axis=0)
    np.testing.assert_allclose(mesh(panel).get_array(), as_grid(part, values))
    assert "where SPARC adapter is better" in figure.get_suptitle().replace("\n", " ")
    assert max(len(line) for line in figure.get_suptitle().splitlines()) < 50  # as wide as the figure
    results = make_results((ENV,), {"sparc": 1.0}, grid=5, variations=("H=5", "H=50", "H=100"))
    figure = differences(results, ENV)
    first_lines = [panel.get_title().replace(" −\n", " − ").splitlines()[0] for panel in panels(figure)]
    assert first_lines == [f"{results.names[a]} − {results.names[b]}" for a, b in results.pairs]
    assert len(first_lines) == 3 and "where the first of the two is better" in figure.get_suptitle()


def test_more_pairs_than_can_be_seen_are_named(tmp_path: Path) -> None:
    results = make_results((ENV,), seeds=(0,), grid=21, variations=("first", "second"))
    figure = differences(results, ENV)
    assert figure is not None and len(panels(figure)) == MOST_PAIRS < len(results.pairs) == 17
    assert note(figure) == f"17 pairs, of which {MOST_PAIRS} are shown."
    assert max(path.stat().st_size for path in save(figure, tmp_path / "figure")) <= LARGEST


@pytest.mark.parametrize("size", [1, 3])
def test_contexts_that_are_no_plane_are_drawn_on_one_scale_too(size: int, tmp_path: Path) -> None:
    results = with_space(size)
    part = results.envs[ENV]
    for figure in (heatmaps(results, ENV), differences(results, ENV)):
        assert len({panel.get_ylim() for panel in panels(figure)}) == 1
        assert not figure.findobj(QuadMesh) and "green" not in figure.get_suptitle()
        save(figure, tmp_path / "figure")
    panel = panels(heatmaps(results, ENV))[1]
    drawn = (
        panel.lines[0].get_ydata() if size == 1 else np.concatenate([c.get_offsets()[:, 1] for c in panel.collections])
    )
    np.testing.assert_allclose(np.sort(drawn), np.sort(part.matrix("rma").mean(axis=0)))


# Curves


def test_learning_curves_show_mean_and_standard_error() -> None:
    results = make_results(ENVS[:2])
    figure = learning_curves(results)
    assert [panel.get_title() for panel in panels(figure)] == list(ENVS[:2])
    rows = np.stack([curve.returns for curve in results.envs[OTHER].curves["only-obs"].values()])
    panel = panels(figure)[1]
    (line,) = [line for line in panel.lines if line.get_color() == STYLES["only-obs"].colour]
    np.testing.assert_allclose(line.get_ydata(), rows.mean(axis=0))
    band = [artist for artist in panel.collections if isinstance(artist, FillBetweenPolyCollection)][3]  # RMA has two
    sem = rows.std(axis=0, ddof=1) / np.sqrt(3)
    low, high = (edge(band.get_paths()[0].vertices, pick) for pick in (min, max))
    np.testing.assert_allclose(low, rows.mean(axis=0) - sem)
    np.testing.assert_allclose(high, rows.mean(axis=0) + sem)
    assert "SPARC (3 seeds)" in legend_texts(figure)


def test_learning_curves_show_the_policys_variants_thin() -> None:
    results = make_results((ENV,), {"sparc": 1.0, "oracle": 1.1}, (0, 1))
    assert not results.policy_variants and "the newest weights" not in legend_texts(learning_curves(results))
    for seed, curve in results.envs[ENV].curves["sparc"].items():
        curve.measures["expert_return"] = curve.returns + 100.0 * (seed + 1)
        curve.measures["newest_return"] = np.where(curve.updates > curve.updates[4], curve.returns - 50.0, np.nan)
        curve.measures["q_bias"] = curve.returns
    assert results.policy_variants == ["expert", "newest"]
    figure = learning_curves(results)
    ours = [line for line in panels(figure)[0].lines if line.get_color() == STYLES["sparc"].colour]
    thin = {line.get_label(): line for line in ours if line.get_linewidth() < 1}
    (thick,) = [line for line in ours if line.get_linewidth() >= 1]
    mean = np.asarray(thick.get_ydata())
    np.testing.assert_allclose(thin["expert"].get_ydata(), mean + 150.0)
    np.testing.assert_allclose(thin["newest"].get_ydata(), mean[5:] - 50.0)  # what there is of it
    assert legend_texts(figure)[-2:] == ["the expert, told the context", "the newest weights"]
    del results.envs[ENV].curves["sparc"][1].measures["expert_return"]  # one of two seeds lacks it
    labels = [line.get_label() for line in panels(learning_curves(results))[0].lines]
    assert "newest" in labels and "expert" not in labels


def edge(corners: np.ndarray, pick: Any) -> list[float]:
    """The lower or upper edge of a band, by its points' x."""
    return [pick(corners[corners[:, 0] == x, 1]) for x in np.unique(corners[:, 0])]


def legend_texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_one_seed_has_no_band_and_says_so() -> None:
    figure = learning_curves(make_results((ENV,), seeds=(4,)))
    assert not panels(figure)[0].collections
    assert legend_texts(figure)[:5] == [f"{name} (1 seed)" for name in SHOWN]
    assert figure.get_suptitle().endswith("one seed each")


def test_uneven_seeds_are_named_with_the_curves() -> None:
    figure = learning_curves(make_results(ENVS[:2], gaps=((OTHER, "rma", 0), (OTHER, "rma", 2))))
    assert "RMA (1–3 seeds)" in legend_texts(figure)
    assert note(figure) == f"{OTHER} is incomplete: RMA 1 of 3 seeds"


@pytest.mark.parametrize("expert_updates", [None, 100_000])
def test_what_a_policy_that_is_told_the_context_reaches_is_pale_dashed_and_open(expert_updates: int | None) -> None:
    results = make_results((ENV,), seeds=(0, 1))
    for member in results.members(ENV, "rma"):  # must not matter: the evaluations know their phase
        member["config"] = {"expert_updates": expert_updates}
    figure = learning_curves(results)
    (panel,) = panels(figure)
    rows = np.stack([curve.returns for curve in results.envs[ENV].curves["rma"].values()])
    updates = results.envs[ENV].curves["rma"][0].updates
    told, own = [line for line in panel.lines if line.get_color() == STYLES["rma"].colour]
    for line, part in ((told, updates <= EXPERT_UPDATES), (own, updates > EXPERT_UPDATES)):
        np.testing.assert_array_equal(line.get_xdata(), updates[part])
        np.testing.assert_allclose(line.get_ydata(), rows.mean(axis=0)[part])
    assert told.get_alpha() == 0.5 and told.get_markerfacecolor() == "white" and told.get_linestyle() == "--"
    assert own.get_alpha() is None and own.get_markerfacecolor() != "white"
    assert legend_texts(figure)[5:] == ["RMA's first phase observes the context"]
    (mine,) = [line for line in panel.lines if line.get_color() == STYLES["sparc"].colour]
    assert mine.get_alpha() is None and len(mine.get_xdata()) == 30


def test_nobody_is_said_to_be_told_where_nobody_is() -> None:
    figure = learning_curves(make_results((ENV,), {"sparc": 1.0, "oracle": 1.1}, (0,)))
    assert legend_texts(figure) == ["SPARC (1 seed)", "Oracle (1 seed)"]


def test_runs_that_were_never_evaluated_have_no_curve(tmp_path: Path) -> None:
    results = make_results((ENV,), {"sparc": 1.0}, (0, 1))
    curves, empty = results.envs[ENV].curves["sparc"], np.empty(0)
    curves[1] = Curve(empty, empty, np.empty(0, str))
    figure = learning_curves(results)
    assert len(panels(figure)[0].lines[0].get_xdata()) == 30 and "SPARC 1 of 2 seeds" in note(figure)
    curves[0] = curves[1]
    assert panels(learning_curves(results))[0].texts[0].get_text() == "no results"


def test_a_curve_that_only_some_seeds_have_is_not_averaged() -> None:
    results = make_results((ENV,), methods={"sparc": 1.0}, seeds=(0, 1))
    curves = results.envs[ENV].curves["sparc"]
    curves[1] = Curve(curves[1].updates[:20], curves[1].returns[:20], curves[1].phase[:20])
    alone, mean = panels(learning_curves(results))[0].lines
    assert len(mean.get_xdata()) == 20 and len(alone.get_xdata()) == 30
    np.testing.assert_allclose(mean.get_ydata(), (curves[0].returns[:20] + curves[1].returns) / 2)


# History lengths


def test_history_length_shows_ood_means_errors_and_seeds() -> None:
    results = with_history({"H=50": 50, "H=5": 5, "H=100": 100}, envs=(ENV,), grid=5)
    figure = history_length(results)
    (panel,) = panels(figure)
    runs = [results.envs[ENV].matrix(f"sparc H={h}", "ood").mean(axis=1) for h in (5, 50, 100)]
    (bars,) = [container for container in panel.containers if isinstance(container, ErrorbarContainer)]
    np.testing.assert_allclose(bars.lines[0].get_xdata(), [5, 50, 100])
    np.testing.assert_allclose(bars.lines[0].get_ydata(), np.mean(runs, axis=1))
    tops = [segment[1, 1] for segment in bars.lines[2][0].get_segments()]
    np.testing.assert_allclose(tops, np.mean(runs, axis=1) + np.std(runs, axis=1, ddof=1) / np.sqrt(3))
    dots = [line.get_ydata() for line in panel.lines if line.get_marker() == "."]
    np.testing.assert_allclose(np.sort(np.ravel(dots)), np.sort(np.ravel(runs)))
    assert [text.get_text() for text in panel.get_xticklabels()] == ["5", "50", "100"]


def test_two_methods_by_history_length_have_a_legend(tmp_path: Path) -> None:
    results = with_history({"H=5": 5, "H=50": 50}, ("sparc", "history-input"), envs=(ENV,), grid=5)
    del results.envs[ENV].returns["sparc H=5"]
    figure = history_length(results)
    assert legend_texts(figure) == ["SPARC", "History Input"] and "SPARC H=5 0 of 3 seeds" in note(figure)
    drawn = [bars.lines[0] for bars in panels(figure)[0].containers if isinstance(bars, ErrorbarContainer)]
    for handle, line in zip(figure.legends[0].legend_handles, drawn, strict=True):
        assert isinstance(handle, Line2D)
        assert (handle.get_color(), handle.get_marker()) == (line.get_color(), line.get_marker())
    save(figure, tmp_path / "figure")
    alone = history_length(with_history({"H=5": 5, "H=50": 50}, envs=(ENV,), grid=5))
    assert not alone.legends  # the title names the only one


def test_one_history_length_is_no_figure() -> None:
    assert not has_history_lengths(make_results((ENV,), grid=5))
    assert not has_history_lengths(with_history({"a": 50, "b": 50}, envs=(ENV,), grid=5))


def test_a_history_length_without_results_is_a_gap(tmp_path: Path) -> None:
    results = with_history({"H=5": 5, "H=50": 50}, envs=(ENV,), grid=5, seeds=(0,))
    del results.envs[ENV].returns["sparc H=5"]
    figure = history_length(results)
    (panel,) = panels(figure)
    assert [(text.get_text(), text.get_position()[0]) for text in panel.texts] == [("no results", 5)]
    assert "SPARC H=5 0 of 1 seeds" in note(figure)
    assert "OOD return of SPARC by history length" in figure.get_suptitle()
    save(figure, tmp_path / "figure")


# Summary


def test_summary_shows_both_regions_and_the_paper() -> None:
    results = make_results(ENVS[:2], grid=5)
    figure = summary_figure(results)
    panel, part = panels(figure)[1], results.envs[OTHER]
    points = {
        (bars.lines[0].get_color(), bars.lines[0].get_markerfacecolor()): float(bars.lines[0].get_xdata()[0])
        for bars in panel.containers
        if isinstance(bars, ErrorbarContainer)
    }
    for name in LABELS:
        colour = STYLES[name].colour
        assert points[colour, colour] == pytest.approx(part.matrix(name, "ood").mean())
        assert points[colour, "white"] == pytest.approx(part.matrix(name, "ind").mean())
    paper = [bars for bars in panel.containers if bars.lines[0].get_color() == "0.6"]
    assert [float(bars.lines[0].get_xdata()[0]) for bars in paper] == [4000 * level for level in METHODS.values()]
    assert legend_texts(figure)[2] == "OOD return, paper, 5 seeds, 3 M updates"
    assert "300 k updates, mean ± s.e.m. over 3 seeds" in figure.get_suptitle()
    assert [text.get_text() for text in panels(figure)[0].get_yticklabels()] == SHOWN


def test_summary_without_a_reference_and_with_gaps() -> None:
    results = make_results((ENV,), grid=5, gaps=tuple((ENV, "oracle", seed) for seed in range(3)))
    results.manifest["reference"] = None
    figure = summary_figure(results)
    (panel,) = panels(figure)
    assert [(text.get_text(), text.get_position()[1]) for text in panel.texts] == [("no results", 4)]
    assert len(legend_texts(figure)) == 2
    assert note(figure) == f"{ENV} is incomplete: Oracle 0 of 3 seeds"


# All of them


def test_every_figure_has_a_name_of_its_own_and_a_whole_caption() -> None:
    assert len({entry.name for entry in FIGURES}) == len(FIGURES)
    for entry in FIGURES:
        assert entry.heading and not entry.heading.endswith(".")
        assert entry.caption.endswith(".") and entry.not_shown.endswith(".")


@pytest.mark.slow
def test_everything_is_written_small_and_stale_figures_go(tmp_path: Path) -> None:
    (tmp_path / "history-length.svg").write_text("of an older suite")
    (tmp_path / "notes.svg").write_text("somebody's")
    written = write_all(make_results(seeds=(0, 1)), tmp_path)
    kinds = ("adaptation", "latents", "heatmaps", "difference")  # in the order of the page
    names = ["summary", "curves", *(f"{kind}-{env}" for kind in kinds for env in ENVS)]
    assert [figure.stem.name for figure in written] == names
    files = {figure.stem.with_name(f"{figure.stem.name}.{kind}") for figure in written for kind in ("png", "svg")}
    assert set(tmp_path.iterdir()) == files | {tmp_path / "notes.svg"}
    assert {path.name: path.stat().st_size for path in files if path.stat().st_size > LARGEST} == {}


@pytest.mark.slow
def test_variations_are_written_small_as_well(tmp_path: Path) -> None:
    results = with_history({f"H={h}": h for h in (1, 5, 10, 50, 100)}, envs=(ENV,), seeds=(0, 1))
    written = write_all(results, tmp_path)
    kinds = ("adaptation", "latents", "heatmaps", "difference")
    assert [figure.stem.name for figure in written] == [
        "summary", "curves", "history-length", *(f"{kind}-{ENV}" for kind in kinds)
    ]  # fmt: skip
    assert {path.name for path in tmp_path.iterdir() if path.stat().st_size > LARGEST} == set()
    colours = [style(name, results).colour for name in results.labels]
    assert len(set(colours)) == 5


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    files = []
    for folder in ("first", "second"):
        results = make_results((ENV,), seeds=(0, 1), grid=11)
        files.append([*save(heatmaps(results, ENV), tmp_path / folder / "maps"),
                      *save(learning_curves(results), tmp_path / folder / "curves")])  # fmt: skip
    for first, second in zip(*files, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_a_single_evaluation_is_visible_for_every_label() -> None:
    results = make_results((ENV,), grid=5)
    for seeds in results.envs[ENV].curves.values():
        for seed, curve in seeds.items():
            seeds[seed] = Curve(curve.updates[:1], curve.returns[:1], curve.phase[:1])
    lines = [line for line in learning_curves(results).axes[0].lines if len(np.atleast_1d(line.get_xdata())) == 1]
    assert [line.get_markevery()[0] for line in lines] == [0] * len(results.labels)


def test_axes_are_named_once_in_a_row_and_a_column_also_beside_a_gap() -> None:
    _, panels = map_panels(5, 3)
    drawn = (1, 2, 3)  # the first and the last of five are gaps
    for index in drawn:
        panels.flat[index].set(xlabel="power", ylabel="mass")
    outer(panels, 5)
    assert [panel.get_ylabel() for panel in panels.flat[:5]] == ["", "mass", "", "mass", ""]
    assert [panel.get_xlabel() for panel in panels.flat[:5]] == ["", "power", "power", "power", ""]
