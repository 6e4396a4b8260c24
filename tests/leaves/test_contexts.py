"""ContextSpace: regions, edges, grids, and errors that name the remedy."""

import numpy as np
import pytest

from sparc.contexts import Box, ContextSpace, Finite
from sparc.envs.registry import all_envs
from sparc.errors import UserError, unknown

WIND = ContextSpace.box(x=("N", (-2.5, 2.5), (-5, 5)), z=("N", (-5, 5), (-10, 10)))
CARS = ContextSpace(
    ("power", "mass"),
    ("kW", "kg"),
    Finite(np.array([[100.0, 900.0], [200.0, 1000.0], [300.0, 1200.0]])),
    Finite(np.array([[100.0, 900.0], [200.0, 1000.0], [300.0, 1200.0], [600.0, 500.0]])),
)


def test_the_paper_grid_has_121_ind_and_320_ood_cells() -> None:
    for id, entry in all_envs().items():
        if id.startswith(("Motor", "Wind")):
            grid = entry.context_space.grid(21)
            assert grid.shape == (441, 2)
            assert entry.context_space.is_train(grid).sum() == 121


def test_last_name_varies_fastest() -> None:
    np.testing.assert_array_equal(WIND.grid(2), [[-5, -10], [-5, 10], [5, -10], [5, 10]])


def test_default_settings_are_the_papers() -> None:
    np.testing.assert_array_equal(WIND.settings, [[0, 0], [-1.25, 2.5], [2.5, 5]])
    ant = all_envs()["WindAnt-v5"].context_space
    np.testing.assert_allclose(ant.settings, [[0.0, 0.0], [-0.05, 0.05], [0.1, 0.1]])


def test_choice_settings_fill_the_training_region_and_are_not_tested() -> None:
    midpoints = [-0.75, -0.25, 0.25, 0.75]
    np.testing.assert_allclose(WIND.choice_settings, [[2.5 * x, 5 * z] for x in midpoints for z in midpoints])
    assert not (WIND.choice_settings[:, None] == WIND.grid(21)).all(axis=2).any()
    one = ContextSpace.box(m=("kg", (0.0, 1.6), (0.0, 2.0)))
    np.testing.assert_allclose(one.choice_settings[:, 0], np.arange(0.05, 1.6, 0.1))
    flat = ContextSpace.box(m=("kg", (0.0, 1.6), (0.0, 2.0)), g=("", (9.81, 9.81), (9.81, 9.81)))
    np.testing.assert_allclose(flat.choice_settings, np.c_[one.choice_settings, np.full(16, 9.81)])
    constant = ContextSpace.box(g=("", (9.81, 9.81), (9.81, 9.81)))
    np.testing.assert_array_equal(constant.choice_settings, np.full((16, 1), 9.81))
    for size in (3, 5):
        many = ContextSpace.box(**{f"x{i}": ("", (-1, 1), (-2, 2)) for i in range(size)})
        rows = many.choice_settings
        assert rows.shape == (16, size) and many.is_train(rows).all() and len(np.unique(rows, axis=0)) == 16
        for column in rows.T:  # each feature takes each of 16 values once
            np.testing.assert_allclose(np.sort(column), np.arange(-15, 16, 2) / 16)
        assert np.abs(np.corrcoef(rows.T) - np.eye(size)).max() < 0.5


def test_choice_settings_of_a_finite_set_are_spread_over_it() -> None:
    values = np.arange(31.0)[:, None]
    space = ContextSpace(("x",), ("",), Finite(values), Finite(values))
    np.testing.assert_array_equal(space.choice_settings[:, 0], np.arange(0, 31, 2))
    np.testing.assert_array_equal(CARS.choice_settings, CARS.train.values)  # type: ignore[union-attr]  # fewer than 16


def test_an_evaluation_in_training_runs_each_setting_once() -> None:
    np.testing.assert_array_equal(WIND.evaluated, np.concatenate([WIND.settings, WIND.choice_settings]))
    np.testing.assert_array_equal(WIND.choice_rows, np.arange(3, 19))
    shared = ContextSpace.box(x=("", (0, 1), (0, 1)), settings=[[1.0], [0.5]], choice_settings=[[0.0], [0.5], [0.25]])
    np.testing.assert_array_equal(shared.evaluated, [[1.0], [0.5], [0.0], [0.25]])
    np.testing.assert_array_equal(shared.evaluated[shared.choice_rows], shared.choice_settings)


def test_one_and_many_features() -> None:
    one = ContextSpace.box(m=("kg", (0.75, 1.25), (0.5, 1.5)))
    np.testing.assert_array_equal(one.grid(3), [[0.5], [1.0], [1.5]])
    three = ContextSpace.box(**{name: ("", (0, 1), (-1, 2)) for name in "abc"})
    grid = three.grid(5)
    assert grid.shape == (25, 3)
    np.testing.assert_array_equal(grid, three.grid(5))
    three.check(grid)
    assert not three.is_train(grid).all()


def test_samples_fill_the_training_region_and_nothing_else() -> None:
    draws = WIND.sample(np.random.default_rng(0), 2000)
    assert draws.shape == (2000, 2) and draws.dtype == np.float64
    assert WIND.is_train(draws).all()
    assert (draws.max(axis=0) > 0.95 * WIND.train.high).all() and (draws.min(axis=0) < 0.95 * WIND.train.low).all()
    assert WIND.sample(np.random.default_rng(0)).shape == (2,)


def test_edges_belong_to_the_region_and_just_outside_does_not() -> None:
    assert WIND.is_train([[2.5, -5.0], [2.5 + 1e-12, 0.0]]).all()
    assert not WIND.is_train([[2.5001, 0.0], [0.0, -5.001]]).any()


def test_normalisation_survives_a_feature_without_range() -> None:
    flat = ContextSpace.box(x=("N", (1, 3), (0, 4)), g=("m/s2", (9.81, 9.81), (9.81, 9.81)))
    np.testing.assert_allclose(flat.centre, [2, 9.81])
    np.testing.assert_allclose(flat.half_range, [1, 1])


def test_finite_sets() -> None:
    draws = CARS.sample(np.random.default_rng(0), 200)
    assert isinstance(CARS.train, Finite) and isinstance(CARS.test, Finite)
    assert {tuple(row) for row in draws} == {tuple(row) for row in CARS.train.values}
    np.testing.assert_array_equal(CARS.grid(21), CARS.test.values)
    np.testing.assert_array_equal(CARS.is_train(CARS.test.values), [True, True, True, False])
    assert CARS.settings.shape == (3, 2) and CARS.is_train(CARS.settings).all()
    with pytest.raises(UserError, match=r"^\{'power': 200.0, 'mass': 900.0\} is none of the 4 contexts"):
        CARS.check([[200.0, 900.0]])
    with pytest.raises(UserError, match=r"^context 1: \{'power': 200.0, "):
        CARS.check([[200.0, 1000.0], [200.0, 900.0]])


@pytest.mark.parametrize(
    ("contexts", "message"),
    [
        ([[0, 0], [7.5, 0]], r"^context 1: x = 7\.5 N is outside .*\[-5, 5\]"),
        ([[7.5, 0]], r"^x = 7\.5 N is outside .*\[-5, 5\]"),  # the only one needs no index
        ([7.5, 0], r"^x = 7\.5 N is outside"),
        ([[0, float("nan")]], r"^z = nan N"),
        ([[0, float("inf")]], r"^z = inf N"),
        ([[0, 0, 0]], r"2 numbers \(x, z\)"),
        ([["strong", 0]], r"2 numbers \(x, z\)"),
        ([[[0, 0]]], r"shape \(1, 1, 2\)"),
    ],
)
def test_check_names_what_is_wrong(contexts: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        WIND.check(contexts)  # type: ignore[arg-type]


def test_check_returns_a_float_copy() -> None:
    given = np.array([[1, 2]])
    checked = WIND.check(given)
    assert checked.dtype == np.float64 and not np.shares_memory(checked, given)
    assert WIND.check([1.0, 2.0]).shape == (1, 2)


def test_impossible_spaces_are_refused() -> None:
    with pytest.raises(UserError, match="must contain the training region"):
        ContextSpace.box(x=("N", (-2, 2), (-1, 1)))
    with pytest.raises(UserError, match="finite low <= high"):
        ContextSpace.box(x=("N", (2, -2), (-5, 5)))
    with pytest.raises(UserError, match="'x' must be"):
        ContextSpace.box(x=("N", (-2, 2)))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"\('x',\): settings must be at least one row of 1, all in the training"):
        ContextSpace.box(x=("N", (-2, 2), (-5, 5)), settings=[[3.0]])
    for wrong in ([[3.0]], [[1.0, 1.0]], np.zeros((0, 1))):
        with pytest.raises(UserError, match="choice_settings must be"):
            ContextSpace.box(x=("N", (-2, 2), (-5, 5)), choice_settings=wrong)
    with pytest.raises(UserError, match="cannot contain a training box"):
        ContextSpace(("x",), ("N",), Box(np.zeros(1), np.ones(1)), Finite(np.zeros((1, 1))))


def test_regions_cannot_be_changed_under_the_feet_of_others() -> None:
    with pytest.raises(ValueError, match="read-only"):
        WIND.train.low[0] = 3.0


def test_the_fingerprint_is_of_what_is_trained_on() -> None:
    def box(train: float, test: float) -> str:
        return ContextSpace.box(x=("N", (-train, train), (-test, test))).fingerprint()

    assert box(1, 2) == box(1, 3) != box(2, 3)


def test_unknown_names_suggest_the_nearest_or_list_a_few() -> None:
    envs = ["WindHopper-v5", "WindAnt-v5"]
    nearest = "unknown environment 'windhoper-v5': did you mean 'WindHopper-v5'? See `sparc envs`."
    assert str(unknown("environment", "windhoper-v5", envs, "`sparc envs`")) == nearest
    assert (
        str(unknown("environment", "zzz", envs))
        == "unknown environment 'zzz': choose one of WindHopper-v5, WindAnt-v5."
    )
    assert str(unknown("car", "zzz", map(str, range(500)))) == "unknown car 'zzz'."
