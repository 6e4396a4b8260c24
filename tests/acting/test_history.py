import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparc.acting.history import History, window_index


@settings(max_examples=50, deadline=None)
@given(num=st.integers(1, 3), length=st.integers(1, 7), steps=st.integers(0, 15), seed=st.integers(0, 2**32 - 1))
def test_history_is_the_last_steps_of_the_episode_oldest_first(num: int, length: int, steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    history = History(num, length, 3 + 2)
    episodes: list[list[np.ndarray]] = [[] for _ in range(num)]
    for _ in range(steps):
        obs, action = rng.normal(size=(num, 3)), rng.normal(size=(num, 2))
        history.push(obs, action)
        mask = rng.random(num) < 0.2
        history.reset(mask)
        for i in range(num):
            episodes[i] = [] if mask[i] else [*episodes[i], np.concatenate([obs[i], action[i]])]
    for h, past in zip(history.array, episodes, strict=True):
        padding = [np.zeros(5)] * length
        np.testing.assert_array_equal(h, np.array((padding + past)[-length:], np.float32))
    assert history.array.dtype == np.float32


def test_what_was_handed_out_stays_as_it_was() -> None:
    history = History(2, 3, 2)
    history.push(np.ones((2, 1)), np.full((2, 1), 2.0))
    handed_out = history.array
    before = handed_out.copy()
    history.push(np.full((2, 1), 3.0), np.full((2, 1), 4.0))
    history.reset(np.array([True, False]))
    history.reset()
    np.testing.assert_array_equal(handed_out, before)
    assert not history.array.any()


def test_reset_with_a_mask_leaves_the_others() -> None:
    history = History(2, 2, 2)
    history.push(np.array([[1.0], [2.0]]), np.array([[3.0], [4.0]]))
    history.reset(np.array([True, False]))
    np.testing.assert_array_equal(history.array, [[[0, 0], [0, 0]], [[0, 0], [2, 4]]])


def test_going_on_from_an_array_handed_out_before() -> None:
    history = History(2, 3, 2)
    history.push(np.ones((2, 1)), np.full((2, 1), 2.0))
    handed_out = history.array.copy()
    again = History.of(handed_out)
    for carried in (history, again):
        carried.push(np.full((2, 1), 3.0), np.full((2, 1), 4.0))
    np.testing.assert_array_equal(again.array, history.array)
    np.testing.assert_array_equal(handed_out[0], [[0, 0], [0, 0], [1, 2]])


def test_a_wrong_action_width_is_refused() -> None:
    with pytest.raises(ValueError):
        History(2, 3, 5).push(np.zeros((2, 3)), np.zeros((2, 3)))


def test_window_index_worked_out_by_hand() -> None:
    offsets, valid = window_index(np.array([0, 1, 3, 9]), 3)
    assert offsets.tolist() == [-3, -2, -1]
    assert valid.tolist() == [[False, False, False], [False, False, True], [True, True, True], [True, True, True]]
