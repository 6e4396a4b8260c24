"""Settling times by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sparc.acting.settling import moving_average, settling

STEP = np.arange(-30.0, 60.0)


def curve(after: Callable[[np.ndarray], Any], before: float = 0.0) -> np.ndarray:
    return np.where(STEP < 0, before, after(np.maximum(STEP, 0.0)))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_jump_that_falls_evenly_has_settled_within_its_last_tenth(sign: float) -> None:
    # 1 − k/25 is 0.12 at 22 and 0.08 at 23
    assert settling(STEP, sign * curve(lambda k: np.maximum(1 - k / 25, 0.0))) == 23.0
    # the new level need not be the old one: from 3 at the switch down to 2, above the 0.5 of before
    assert settling(STEP, sign * curve(lambda k: 2 + np.maximum(1 - k / 25, 0.0), before=0.5)) == 23.0


def test_a_relapse_counts_and_an_overshoot_does_not() -> None:
    value = curve(lambda k: np.where(k < 10, 1.0, 0.0))
    assert settling(STEP, value) == 10.0
    relapse, overshoot = value.copy(), value.copy()
    relapse[STEP == 30], overshoot[STEP == 30] = 0.2, -0.2
    assert settling(STEP, relapse) == 31.0
    assert settling(STEP, overshoot) == 10.0


def test_what_is_at_its_new_level_at_once_has_not_jumped() -> None:
    assert settling(STEP, curve(lambda k: 2.0, before=5.0)) is None
    assert settling(STEP, curve(lambda k: 0.0)) is None


def test_the_jump_must_exceed_the_noise() -> None:
    noise = np.where(STEP % 2 == 0, 0.1, -0.1)
    jump = curve(lambda k: np.where(k < 10, 1.0, 0.0))
    assert settling(STEP, noise + jump) == 10.0  # eleven times the noise
    assert settling(STEP, noise) is None
    assert settling(STEP, noise + jump * np.where(STEP == 4, 0.1, 0.0)) is None


def test_a_gait_is_smoothed_away() -> None:
    # a jump of twice the gait's amplitude is clear only after smoothing over 5 steps, its period, which leaves no gait.
    # The smoothed jump is 1 up to step 7, then falls by fifths: 0.2 at step 11, 0 from step 12 on.
    gait = 0.5 * np.array([1.0, -1.0, 0.5, -1.0, 0.5])[np.arange(len(STEP)) % 5]
    assert settling(STEP, gait + curve(lambda k: np.where(k < 10, 1.0, 0.0))) == 12.0


def test_without_numbers_or_steps_there_is_no_answer() -> None:
    assert settling(STEP, np.full(90, np.nan)) is None
    few = STEP < 5
    assert settling(STEP[few], curve(lambda k: np.where(k < 2, 1.0, 0.0))[few]) is None
    assert settling(np.empty(0), np.empty(0)) is None


def test_moving_average_by_hand() -> None:
    value = np.array([1.0, 2.0, 6.0, 3.0])
    np.testing.assert_allclose(moving_average(value, 1), value)
    np.testing.assert_allclose(moving_average(value, 3), [1.5, 3.0, 11 / 3, 4.5])
