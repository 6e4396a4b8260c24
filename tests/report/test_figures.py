"""Pictures: what is drawn where, checked on the artists and on the file."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib import rc_context, rcParams
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle
from synthetic import ENVS, STYLES, make_results

from sparc.acting.evaluate import Evaluation
from sparc.contexts import ContextSpace, Finite
from sparc.envs.registry import get_env
from sparc.report.figures import maps
from sparc.report.figures.maps import axis_label, draw_map, heatmap
from sparc.report.figures.style import (
    LARGEST,
    SEQUENCE,
    grouped,
    new_figure,
    plus_minus,
    save,
    style,
    thousands,
    with_looks,
)

FEATURES = {
    "x": ("N", (-2.5, 2.5), (-5, 5)),
    "z": ("m/s", (-1, 1), (-2, 2)),
    "mass": ("", (0.9, 1.1), (0.5, 1.5)),
}


def make_space(size: int) -> ContextSpace:
    return ContextSpace.box(**dict(list(FEATURES.items())[:size]))


def results(space: ContextSpace, grid: int = 21, episodes: int = 1, level: float = 1.0) -> Evaluation:
    """Returns that are a known function of the context: 10 c₀ + c₁, plus noise that episodes average away."""
    contexts = space.grid(grid).repeat(episodes, axis=0)
    episode = np.tile(np.arange(episodes), len(contexts) // episodes)
    returns = level * (contexts @ 10.0 ** (1 - np.arange(space.size))) + episode - episode.mean()
    ones = np.ones(len(contexts))
    return Evaluation(space.names, contexts, space.is_train(contexts), episode, returns, ones.astype(int), ones > 1)


def drawn(space: ContextSpace, grid: int):
    panel = Figure().subplots()
    contexts, _, returns = results(space, grid).cells()
    order = np.random.default_rng(0).permutation(len(returns))  # the order of the rows must not matter
    image = draw_map(panel, space, contexts[order], returns[order], -50.0, 50.0)
    return panel, image


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_file_is_a_png_of_modest_size(tmp_path: Path, size: int, count: int) -> None:
    space, path = make_space(size), tmp_path / "picture.png"
    heatmap({f"method {i}": results(space, 11, episodes=2, level=i) for i in range(count)}, space, path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert path.stat().st_size < 300_000
    height, width = imread(path).shape[:2]
    assert 300 < height < 1200 and 400 < width < 1600
    assert [file.name for file in tmp_path.iterdir()] == ["picture.png"]  # nothing half written beside it


def test_two_features_that_are_no_grid_are_drawn_as_well(tmp_path: Path) -> None:
    values = np.array([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0]])
    space = ContextSpace(("a", "b"), ("", ""), Finite(values[:2]), Finite(values))
    heatmap({"cars": results(space)}, space, tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 1000


def test_what_judges_the_environment_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Figure] = []
    monkeypatch.setattr(maps, "write", lambda figure, *_: kept.append(figure))
    space = make_space(2)
    plain = results(space, 3)
    ratio = np.linspace(0.9, 2.0, 9)
    criteria = get_env("RaceCars-forza-v0").criteria
    laps = {"ratio": ratio, "clean": np.ones(9)}
    heatmap({"laps": replace(plain, measures=laps)}, space, tmp_path / "p.png", criteria)
    heatmap({"returns": plain}, space, tmp_path / "p.png", criteria)  # one without laps
    race, other = kept
    (mesh,) = [found for found in race.axes[0].collections if isinstance(found, QuadMesh)]
    assert sorted(np.ravel(mesh.get_array())) == pytest.approx(ratio.tolist())
    assert race.axes[1].get_ylabel() == "ratio (less is better)" and other.axes[1].get_ylabel() == "return"
    assert "OOD 1.45" in race.axes[0].get_title()


def test_equal_returns_everywhere_are_drawn_without_complaint(tmp_path: Path) -> None:
    space = make_space(2)
    heatmap({"flat": results(space, 3, level=0.0)}, space, tmp_path / "p.png")
    assert (tmp_path / "p.png").exists()


def test_the_first_feature_runs_along_the_horizontal_axis() -> None:
    space = make_space(2)
    panel, image = drawn(space, 5)
    x, z = np.linspace(-5, 5, 5), np.linspace(-2, 2, 5)
    np.testing.assert_allclose(image.get_array(), 10 * x[None, :] + z[:, None])  # [row: z, column: x]
    corners = image.get_coordinates()  # (6, 6, 2): the corners of the cells
    np.testing.assert_allclose(corners[0, :, 0], np.linspace(-6.25, 6.25, 6))
    np.testing.assert_allclose(corners[:, 0, 1], np.linspace(-2.5, 2.5, 6))
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("x [N]", "z [m/s]")
    assert image.get_clim() == (-50.0, 50.0)


@pytest.mark.parametrize(("grid", "ind"), [(21, 121), (10, 16), (7, 9)])
def test_the_dashed_box_encloses_exactly_the_cells_in_distribution(grid: int, ind: int) -> None:
    space = make_space(2)
    panel, image = drawn(space, grid)
    (box,) = [patch for patch in panel.patches if isinstance(patch, Rectangle)]
    assert box.get_linestyle() == "--" and not box.get_fill()
    corners = image.get_coordinates()
    low, high = corners[:-1, :-1].reshape(-1, 2), corners[1:, 1:].reshape(-1, 2)  # of each cell
    slack = 1e-9
    inside = np.all((low >= np.array(box.get_xy()) - slack) & (high <= np.array(box.get_corners()[2]) + slack), axis=1)
    outside = np.any((high <= np.array(box.get_xy()) + slack) | (low >= box.get_corners()[2] - slack), axis=1)
    np.testing.assert_array_equal(inside, space.is_train((low + high) / 2))
    assert inside.sum() == ind
    assert (inside ^ outside).all()  # no cell is cut


def test_a_grid_without_cells_in_distribution_has_no_box() -> None:
    assert not drawn(ContextSpace.box(x=("", (0.1, 0.2), (-1, 1)), y=("", (0.1, 0.2), (-1, 1))), 3)[0].patches


def test_labels_name_the_unit_where_there_is_one() -> None:
    space = make_space(3)
    assert [axis_label(space, i) for i in range(3)] == ["x [N]", "z [m/s]", "mass"]


def test_styles_differ_in_colour_and_in_marker_and_in_dashes() -> None:
    for styles in (list(STYLES.values()), list(SEQUENCE)):
        for field in ("colour", "marker", "dash"):
            assert len({getattr(style, field) for style in styles}) == len(styles)
    assert STYLES["sparc"].width > max(style.width for name, style in STYLES.items() if name != "sparc")


def test_variations_get_a_sequence_from_dark_to_light() -> None:
    results = make_results(ENVS[:1], {"sparc": 1.0}, (0,), variations=("", "H=1", "H=5", "H=50"))
    looks = [style(label, results) for label in results.labels]
    assert looks == [STYLES["sparc"], SEQUENCE[0], SEQUENCE[3], SEQUENCE[-1]]
    many = make_results(ENVS[:1], {"sparc": 1.0}, (0,), variations=tuple(f"H={i}" for i in range(9)))
    assert len({style(label, many) for label in many.labels}) == len(SEQUENCE)  # then again
    assert style("sparc", many) == STYLES["sparc"]  # the method, whatever its variations


def test_a_method_without_a_colour_gets_one_of_the_sequence() -> None:
    results = make_results(ENVS[:1], {"sparc": 1.0, "elsewhere": 0.5}, (0,))
    assert style("elsewhere", results) == SEQUENCE[0] and results.names["elsewhere"] == "elsewhere"


def test_a_method_that_is_not_registered_here_looks_as_its_results_say() -> None:
    results = make_results(ENVS[:1], {"sparc": 1.0, "elsewhere": 0.5}, (0,))
    described = {"title": "Elsewhere", "colour": "#123456", "marker": "*", "dash": [0, [2, 1]], "reads": "context"}
    results.manifest["methods"] = {"elsewhere": described}
    assert style("elsewhere", results) == ("#123456", "*", (0, (2, 1)), 1.2)
    assert results.names["elsewhere"] == "Elsewhere" and results.entry("elsewhere").privileged


def test_saved_figures_keep_their_text_and_no_date(tmp_path: Path) -> None:
    figure, panels = new_figure(1, 1, 2.0)
    panels[0, 0].set_title("φ(h) and ψ(c)")
    png, svg = save(figure, tmp_path / "new" / "picture.v5")  # a stem with a dot in it
    assert (png.name, svg.name) == ("picture.v5.png", "picture.v5.svg")
    text = svg.read_text()
    assert "φ(h) and ψ(c)</text>" in text and "<dc:date>" not in text
    assert sorted(path.name for path in svg.parent.iterdir()) == ["picture.v5.png", "picture.v5.svg"]


def test_thousands_of_marks_become_an_image(tmp_path: Path) -> None:
    figure, panels = new_figure(1, 1, 2.0)
    panels[0, 0].scatter(*np.random.default_rng(0).normal(size=(2, 9000)), s=4)
    _, svg = save(figure, tmp_path / "many")
    assert svg.stat().st_size <= LARGEST and "<image" in svg.read_text()


def test_the_looks_do_not_depend_on_the_readers_settings_nor_change_them(tmp_path: Path) -> None:
    def drawn() -> bytes:
        figure, panels = new_figure(1, 1, 2.0)
        panels[0, 0].set_xlabel("x")
        return save(figure, tmp_path / "picture")[1].read_bytes()

    first = with_looks(drawn)()
    with rc_context({"font.size": 20, "axes.facecolor": "red"}):
        assert with_looks(drawn)() == first
        assert rcParams["font.size"] == 20


@pytest.mark.parametrize(
    ("mean", "sem", "text"),
    [(12345.6, 78.9, "12,346 ± 79"), (-99.44, 0.31, "-99.4 ± 0.3"), (0.5, np.nan, "0.50"), (1000, 0, "1,000 ± 0")],
)
def test_means_are_written_with_the_digits_that_matter(mean: float, sem: float, text: str) -> None:
    assert plus_minus(mean, sem) == text


def test_large_numbers_are_written_short() -> None:
    assert [thousands(n) for n in (0, 500, 300_000, 2_500_000)] == ["0", "500", "300 k", "2.5 M"]
    assert [grouped(n) for n in (-10_000, 2.5, 0)] == ["−10,000", "2.5", "0"]
