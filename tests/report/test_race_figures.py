"""The pictures of races: what is drawn is what the laps say; and the means that they and the page are made from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection, QuadMesh
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from synthetic import CARS, ENVS, POWER_MASS, SKILL, STYLES, make_races, make_results

from sparc.envs.racing.course import Course
from sparc.envs.racing.measures import MEASURES
from sparc.envs.racing.torcs.columns import TRACE, TRACK_COLUMNS
from sparc.envs.registry import get_env
from sparc.report.figures.curves import learning_curves
from sparc.report.figures.races import PARTLY, has_lap_map, has_laps, lap_map, laps, physics_update, racing_line
from sparc.report.figures.registry import write_all
from sparc.report.figures.style import ALARM, LARGEST, save
from sparc.report.measured import mean_of, over_seeds, run_means
from sparc.report.races import races
from sparc.runs.tests import choose_contexts
from sparc.suites.results import Results
from sparc.watch.lap_page import LapPair
from sparc.watch.laps import MOST_PICTURES, draw_lines

UPDATED = f"{CARS}, updated"


def drawn(figure: Figure | None) -> list[Axes]:
    """The panels, without colour bars and empty places."""
    return [panel for panel in figure.axes if panel.get_label() != "<colorbar>" and panel.axison]


def bars(panel: Axes) -> dict[Any, ErrorbarContainer]:
    """The marks with error bars, by colour."""
    found = [container for container in panel.containers if isinstance(container, ErrorbarContainer)]
    return {container.lines[0].get_color(): container for container in found}


# Means


def test_means_leave_out_what_is_not_there_and_say_how_much_is_left() -> None:
    part = make_races((CARS,), cars=20).envs[CARS]
    for values in part.measures["rma"].values():
        values["completed_ratio"][:4] = np.nan  # OOD
    part.measures["rma"][0]["completed_ratio"][0] = 1.5
    part.measures["rma"][2]["completed_ratio"][:2] = 1.1, 1.3
    np.testing.assert_allclose(run_means(part, "rma", "ood", "completed_ratio"), [1.5, np.nan, 1.2])
    mean, sem, seeds = mean_of(part, "rma", "ood", "completed_ratio")
    assert (mean, sem, seeds) == (pytest.approx(1.35), pytest.approx(0.15), 2)
    part.measures["rma"][0]["completed_ratio"][0] = part.measures["rma"][2]["completed_ratio"][1] = np.nan
    assert mean_of(part, "rma", "ood", "completed_ratio")[::2] == (1.1, 1)
    part.measures["rma"][2]["completed_ratio"][0] = np.nan
    mean, sem, seeds = mean_of(part, "rma", "ood", "completed_ratio")
    assert np.isnan(mean) and np.isnan(sem) and seeds == 0
    shares = run_means(part, "rma", "ood", "clean")
    np.testing.assert_allclose(shares, 100 * part.matrix("rma", "ood", "clean").mean(axis=1))  # percent


def test_means_over_seeds_in_each_context() -> None:
    mean, sem = over_seeds(np.array([[1.0, np.nan, np.nan], [3.0, 5.0, np.nan], [5.0, 9.0, np.nan]]))
    np.testing.assert_allclose(mean, [3.0, 7.0, np.nan])
    np.testing.assert_allclose(sem, [2 / np.sqrt(3), 2.0, np.nan])
    assert np.isnan(over_seeds(np.array([[1.0]]))[1]).all()


def test_a_race_is_known_by_its_measures_and_what_has_no_results_by_the_others() -> None:
    results = make_races(cars=10, grid=3, variants=("updated",))
    assert races(results) == [POWER_MASS, f"{POWER_MASS}, updated", CARS, UPDATED]
    assert races(make_results(grid=3)) == []
    half = make_races(cars=10, grid=3, gaps=tuple((CARS, method, seed) for method in SKILL for seed in range(3)))
    assert races(half) == [POWER_MASS, CARS] and not half.envs[CARS].returns
    mixed = Results(half.manifest, {**make_results(grid=3).envs, CARS: half.envs[CARS]})
    assert races(mixed) == []
    assert {name: measure.better for name, measure in MEASURES.items()} == {
        "completed": 1, "clean": 1, "ratio": -1, "completed_ratio": -1, "lap_time": -1, "reference": 0,
    }  # fmt: skip


# Speed against success


def test_marks_are_at_the_means_over_the_seeds_with_their_standard_errors() -> None:
    results = make_races((CARS,), cars=40)
    part, panels = results.envs[CARS], drawn(laps(results, CARS))
    assert [panel.get_title() for panel in panels[:2]] == [
        "out of distribution (OOD, 8 laps each)", "in distribution (IND, 32 laps each)",
    ]  # fmt: skip
    assert [panels[0].get_ylabel(), panels[2].get_ylabel()] == ["completed laps [%]", "clean laps [%]"]
    places = [(region, measure) for measure in ("completed", "clean") for region in ("ood", "ind")]
    for panel, (region, measure) in zip(panels, places, strict=True):
        assert len(bars(panel)) == len(SKILL)
        for key in SKILL:
            mark, _, lines = bars(panel)[STYLES[key].colour].lines
            x, y = (part.matrix(key, region, of).mean(axis=1) for of in ("ratio", measure))
            assert mark is not None and mark.get_marker() == STYLES[key].marker
            np.testing.assert_allclose(mark.get_xydata(), [[x.mean(), 100 * y.mean()]])
            horizontal, vertical = (line.get_segments()[0] for line in lines)
            np.testing.assert_allclose(np.ptp(horizontal[:, 0]), 2 * x.std(ddof=1) / np.sqrt(3))
            np.testing.assert_allclose(np.ptp(vertical[:, 1]), 200 * y.std(ddof=1) / np.sqrt(3))
        dots = [line for line in panel.lines if line.get_marker() == "."]
        assert len(dots) == len(SKILL) and all(len(line.get_xdata()) == 3 for line in dots)
        assert "↖ better" in [text.get_text() for text in panel.texts]  # upper left: fast, and many


def test_one_seed_has_no_bars_and_no_share_beyond_100_percent_is_on_the_axis() -> None:
    results = make_races((CARS,), seeds=(0,), cars=10)
    for seeds in results.envs[CARS].measures.values():
        seeds[0]["completed"][:] = seeds[0]["clean"][:] = 1.0
    figure = laps(results, CARS)
    assert figure is not None and figure.get_suptitle().endswith("one seed each")
    for panel in drawn(figure):
        assert not any(container.has_xerr or container.has_yerr for container in bars(panel).values())
        assert max(panel.get_yticks()) <= 100 < panel.get_ylim()[1]


def test_gaps_are_named_and_the_legend_counts_the_seeds_of_this_race() -> None:
    gaps = ((CARS, "rma", 1), *((CARS, "oracle", seed) for seed in range(3)))
    figure = laps(make_races(cars=10, grid=3, gaps=gaps), CARS)
    (legend,) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert "RMA (2 seeds)" in texts and "Oracle (no results)" in texts and "SPARC (3 seeds)" in texts
    assert "RMA 2 of 3 seeds, Oracle 0 of 3 seeds" in legend.get_title().get_text()
    assert STYLES["oracle"].colour not in bars(drawn(figure)[0])


def test_what_is_no_race_or_has_no_results_has_no_picture() -> None:
    assert not has_laps(make_results(grid=3), ENVS[0]) and not has_lap_map(make_results(grid=3), ENVS[0])
    nobody = make_races((CARS,), seeds=(0,), cars=10, gaps=tuple((CARS, method, 0) for method in SKILL))
    assert not has_laps(nobody, CARS) and not has_lap_map(nobody, CARS)


# Another physics


def test_arrows_lead_from_before_to_after() -> None:
    results = make_races((CARS,), cars=40, variants=("updated",), gaps=((CARS, "rma", 2),))
    before, after = results.envs[CARS], results.envs[CARS].variants["updated"]
    figure = physics_update(results, CARS, "updated")
    places = [(region, measure) for measure in ("completed", "clean") for region in ("ood", "ind")]
    for panel, (region, measure) in zip(drawn(figure), places, strict=True):
        arrows = {note.arrow_patch.get_edgecolor(): note for note in panel.texts if hasattr(note, "arrow_patch")}
        assert len(arrows) == len(SKILL)
        for key in SKILL:
            ends = [
                [part.matrix(key, region, of).mean() * MEASURES[of].scale for of in ("ratio", measure)]
                for part in (before, after)
            ]
            marks = [line for line in panel.lines if line.get_color() == STYLES[key].colour]
            np.testing.assert_allclose([line.get_xydata()[0] for line in marks], ends)
            assert [line.get_markerfacecolor() for line in marks] == ["white", STYLES[key].colour]
            found = [note for note in arrows.values() if np.allclose([note.xyann, note.xy], ends)]
            assert len(found) == 1 and found[0].arrowprops is not None
            assert found[0].arrowprops["color"] == STYLES[key].colour
    assert figure is not None and "RMA 2 of 3 seeds" in figure.legends[0].get_title().get_text()


# Maps


def with_unfinished(grid: int = 5) -> Results:
    """Laps that all are completed but for two settings of SPARC: one by no seed, one by two of three."""
    results = make_races((POWER_MASS,), grid=grid)
    for key, seeds in results.envs[POWER_MASS].measures.items():
        for seed, values in seeds.items():
            rows = values["reference"] * (1.0 + 0.01 * seed + 0.1 * list(SKILL).index(key))
            values.update(lap_time=rows.copy(), completed_ratio=rows / values["reference"])
            if key == "sparc":
                for cell in (3, 7) if seed == 1 else (3,):
                    values["lap_time"][cell] = values["completed_ratio"][cell] = np.nan
    return results


@pytest.mark.parametrize("measure", ["lap_time", "completed_ratio"])
def test_a_cell_is_the_mean_of_the_seeds_that_completed_the_lap(measure: str) -> None:
    results = with_unfinished()
    part, figure = results.envs[POWER_MASS], lap_map(results, POWER_MASS, measure)
    panels = drawn(figure)
    meshes = [[a for a in panel.collections if isinstance(a, QuadMesh)] for panel in panels]
    limits = {mesh.get_clim() for (mesh,) in meshes}
    assert len(limits) == 1 and len(panels) == len(SKILL)
    for (mesh,), key in zip(meshes, SKILL, strict=True):
        expected = over_seeds(part.matrix(key, None, measure))[0].reshape(5, 5).T
        np.testing.assert_allclose(np.ma.filled(mesh.get_array(), np.nan), expected)
        assert mesh.get_cmap().name == "viridis_r"  # bright is fast
    if measure == "completed_ratio":
        values = meshes[0][0].get_array()
        assert values is not None and values.T.ravel()[7] == pytest.approx(1.01)  # of seeds 0 and 2


def test_squares_mark_laps_that_no_seed_and_that_not_every_seed_completed() -> None:
    results = with_unfinished()
    part = results.envs[POWER_MASS]
    for index, panel in enumerate(drawn(lap_map(results, POWER_MASS, "lap_time"))):
        whole, some = [found for found in panel.collections if isinstance(found, PatchCollection)]
        assert (len(whole.get_paths()), len(some.get_paths())) == ((1, 1) if index == 0 else (0, 0))
        if index == 0:
            for found, cell, size in ((whole, 3, 1.0), (some, 7, PARTLY)):
                corners = found.get_paths()[0].vertices[:4]
                np.testing.assert_allclose(corners.mean(axis=0), part.contexts[cell])
                np.testing.assert_allclose(np.ptp(corners, axis=0), 0.25 * size)
                np.testing.assert_allclose(found.get_facecolor()[0][:3], 0.0)
        (box,) = [patch for patch in panel.patches if isinstance(patch, Rectangle)]
        assert box.get_linestyle() == "--"


def test_a_map_names_its_means_and_what_is_missing() -> None:
    gaps = ((POWER_MASS, "rma", 1), *((POWER_MASS, "oracle", seed) for seed in range(3)))
    results = make_races((POWER_MASS,), grid=5, gaps=gaps)
    figure = lap_map(results, POWER_MASS, "completed_ratio")
    assert figure is not None and "not all did" in figure.get_suptitle()
    mean, sem, _ = mean_of(results.envs[POWER_MASS], "sparc", "ood", "completed_ratio")
    titles = [panel.get_title() for panel in drawn(figure)]
    assert titles[0].splitlines()[:2] == ["SPARC (n = 3)", f"OOD {mean:.3f} ± {sem:.3f}"]
    assert titles[1].startswith("RMA (n = 2 of 3)") and titles[4] == "Oracle (n = 0 of 3)"
    assert "RMA 2 of 3 seeds" in figure.get_supxlabel()


def test_where_nobody_completes_a_lap_all_is_black(tmp_path: Path) -> None:
    results = make_races((POWER_MASS,), methods={"sparc": 1.0}, seeds=(0,), grid=3)
    results.envs[POWER_MASS].measures["sparc"][0]["lap_time"][:] = np.nan
    figure = lap_map(results, POWER_MASS, "lap_time")
    whole, _ = [found for found in drawn(figure)[0].collections if isinstance(found, PatchCollection)]
    assert len(whole.get_paths()) == 9 and "nan" not in drawn(figure)[0].get_title()
    save(figure, tmp_path / "black")


# A line on the track


def oval() -> Course:
    """A track of 200 points, 12 m wide."""
    angle = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    table = np.zeros((200, len(TRACK_COLUMNS)))
    values = {"x": 300 * np.cos(angle), "y": 100 * np.sin(angle), "half_width": 6.0,
              "heading": np.arctan2(100 * np.cos(angle), -300 * np.sin(angle))}  # fmt: skip
    for name, column in values.items():
        table[:, TRACK_COLUMNS.index(name)] = column
    return Course(1400.0, table)


def test_a_lap_is_drawn_on_the_track_by_its_speed() -> None:
    angle = np.linspace(0, 2 * np.pi, 150)
    trace = np.zeros((150, len(TRACE)))
    values = {"x": 297 * np.cos(angle), "y": 97 * np.sin(angle), "speed": 30 + 20 * np.sin(angle), "time": angle * 5,
              "wheels_out": np.where(np.arange(150) < 4, 3, 2)}  # fmt: skip
    for name, column in values.items():
        trace[:, TRACE.index(name)] = column
    figure = racing_line(trace, oval(), "kart-03, 31.4 s")
    panel = figure.axes[0]
    (line,) = [found for found in panel.collections if isinstance(found, LineCollection)]
    speed = line.get_array()
    assert speed is not None and len(line.get_segments()) == 149
    np.testing.assert_allclose(speed, 3.6 * (values["speed"][:-1] + values["speed"][1:]) / 2)
    np.testing.assert_allclose(line.get_segments()[7], np.stack([values["x"][7:9], values["y"][7:9]], axis=1))
    (off,) = [found for found in panel.lines if found.get_marker() == "x"]
    assert off.get_color() == ALARM and len(off.get_xdata()) == 4
    assert "4 of 150 samples" in figure.get_supxlabel() and figure.get_suptitle() == "kart-03, 31.4 s"
    left, right = panel.lines[:2]  # the edges of the road, closed
    np.testing.assert_allclose(np.hypot(*(left.get_xydata() - right.get_xydata()).T), 12.0)
    np.testing.assert_allclose(left.get_xydata()[0], left.get_xydata()[-1])


def test_a_replay_has_the_lines_of_a_dozen_laps_and_of_none_that_never_began(tmp_path: Path) -> None:
    trace = np.random.default_rng(0).uniform(0, 50, (30, len(TRACE)))

    def drive(number: int, samples: int = 30, time: float | None = 31.4, tyre: str = "") -> LapPair:
        agent = trace[:samples]
        return LapPair(f"power ×{number / 10:g}", "", tyre, "ood", agent, trace, time, 30.0, clean=False)

    never = "1 never came to the line (`sparc play RUN --context power=…,mass=…` shows why)"

    few, without = draw_lines([drive(5), drive(6, 0, None), drive(7, 9, None)], oval(), tmp_path / "few")
    assert without == never
    assert [path.name for path in few] == ["power-0.5.png", "power-0.7.png"] and set(few) == {
        *(tmp_path / "few").iterdir()
    }
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size <= LARGEST for path in few)
    laps = [drive(number) for number in range(40)]
    many, without = draw_lines([*laps, drive(41, 0, None)], oval(), tmp_path / "many")
    assert len(many) == len(set(many)) == MOST_PICTURES
    assert without == f"{never}, 28 beyond the 12 that are drawn (name up to 12 with --cars for theirs)"
    (tmp_path / "many" / "mine.txt").touch()
    assert draw_lines(laps[:2], oval(), tmp_path / "many")[1] == ""
    assert {path.name for path in (tmp_path / "many").iterdir()} == {"power-0.png", "power-0.1.png", "mine.txt"}
    assert {"power-0.png", "power-3.9.png"} <= {path.name for path in many}  # over all of them
    none, without = draw_lines([drive(1, 0, None, "racing-soft")], oval(), tmp_path / "none")
    assert none == [] and not (tmp_path / "none").exists()
    assert without == "1 never came to the line (`sparc play RUN --car NAME` shows why)"


@pytest.mark.parametrize(("count", "ood", "ind"), [(1, 1, 0), (24, 12, 12), (300, 103, 197), (999, 103, 412)])
def test_cars_are_chosen_from_the_whole_test_set_for_a_replay(count: int, ood: int, ind: int) -> None:
    space = get_env("RaceCars-forza-v0").context_space
    tested = space.grid(21)
    chosen = choose_contexts(space, count)
    inside = space.is_train(chosen)
    assert len(np.unique(chosen, axis=0)) == len(chosen) and ((~inside).sum(), inside.sum()) == (ood, ind)
    for region, row in ((~inside, ~space.is_train(tested)), (inside, space.is_train(tested))):
        if region.sum() > 1:  # from the first to the last
            np.testing.assert_array_equal(chosen[region][[0, -1]], tested[row][[0, -1]])


# Learning


def test_training_is_shown_by_clean_laps_and_ratio() -> None:
    results = make_races(cars=10, grid=3, gaps=((CARS, "rma", 1),))
    figure = learning_curves(results)
    places = [(env, measure) for env in (POWER_MASS, CARS) for measure in ("clean", "ratio")]
    words = {"clean": "IND clean laps [%]", "ratio": "IND ratio (less is better)"}
    for panel, (env, measure) in zip(drawn(figure), places, strict=True):
        assert panel.get_title() == env and panel.get_ylabel() == words[measure]
        for key in SKILL:
            rows = [curve.measures[measure] for curve in results.envs[env].curves[key].values()]
            (line,) = [line for line in panel.lines if line.get_color() == STYLES[key].colour]
            np.testing.assert_allclose(line.get_ydata(), MEASURES[measure].scale * np.mean(rows, axis=0))
    assert len({panel.get_subplotspec().rowspan.start for panel in drawn(figure)}) == 2  # a race per row
    assert figure.get_suptitle().startswith("IND clean laps and ratio during training")
    assert "RMA 2 of 3 seeds" in figure.legends[0].get_title().get_text()


def test_training_of_which_no_laps_are_known_is_shown_by_its_return() -> None:
    results = make_races((CARS,), cars=10)
    results.envs[CARS].curves["rma"][1].measures["clean"][0] = np.nan
    (panel,) = drawn(learning_curves(results))
    assert panel.get_ylabel() == "IND return"
    results.envs[CARS].curves["rma"][1].measures.clear()
    (panel,) = drawn(learning_curves(results))
    assert panel.get_ylabel() == "IND return" and len(panel.lines) == len(SKILL)


# All of them


@pytest.mark.slow
def test_a_suite_of_races_has_the_pictures_of_races_and_none_that_returns_alone_would_have(tmp_path: Path) -> None:
    for old in ("summary", f"heatmaps-{CARS}"):
        (tmp_path / f"{old}.png").write_text("old")
    drawn = write_all(make_races(cars=20, grid=5, seeds=(0, 1), variants=("updated",)), tmp_path)
    stems = {figure.stem.name for figure in drawn}
    assert stems == {
        "curves", f"laps-{POWER_MASS}", f"laps-{CARS}", f"lap-times-{POWER_MASS}", f"ratios-{POWER_MASS}",
        f"heatmaps-{POWER_MASS}", f"difference-{POWER_MASS}",
        f"physics-updated-{POWER_MASS}", f"physics-updated-{CARS}",
    }  # fmt: skip
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.{kind}" for name in stems for kind in ("png", "svg")}
    assert all(path.stat().st_size <= LARGEST for path in tmp_path.iterdir())
