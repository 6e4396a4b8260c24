"""The number of steps that a curve takes to settle after a switch."""

from __future__ import annotations

import numpy as np

from sparc.arrays import Array

SETTLED = 0.1  # a curve has settled within this share of its jump
CLEAR = 4.0  # a jump is clear above this multiple of the noise
CLOSE = 1.5  # a curve has settled within this multiple of the noise as well
SMOOTH = (1, 5, 25)  # widths of the moving average, tried until the jump is clear


def settling(step: Array, value: Array) -> float | None:
    """Return the steps after the switch until a curve stays within a tenth of its jump of its new level.

    The parts before and after the switch are smoothed apart. The level is the median over the last third after the
    switch, the jump the largest distance from it after the switch. It is clear if it exceeds four times the noise,
    which is the largest distance of the second half before the switch, or of the last third after it, from its own
    median. The curve is smoothed as little as makes the jump clear: not at all, over 5 or over 25 steps, several
    periods of a gait. None where no smoothing does, and without ten steps on either side.

    The curve may still stray beyond its new level to the other side: that is no part of the jump. Where one and a half
    times the noise is more than a tenth of the jump, coming that close is enough.
    """
    old, new = value[step < 0], value[step >= 0]
    if min(len(old), len(new)) < 10 or not np.isfinite(value).all():
        return None
    for width in SMOOTH:
        before, after = moving_average(old, width), moving_average(new, width)
        calm, end = before[len(before) // 2 :], after[-(len(after) // 3) :]
        level = np.median(end)
        noise = max(np.abs(calm - np.median(calm)).max(), np.abs(end - level).max())
        away = after - level
        jump = away[np.abs(away).argmax()]
        if np.abs(jump) > CLEAR * noise:
            far = np.flatnonzero(away * np.sign(jump) > max(SETTLED * np.abs(jump), CLOSE * noise))
            return float(step[step >= 0][far[-1] + 1])
    return None


def moving_average(value: Array, width: int) -> Array:
    """Return the moving average over `width` steps; the window is cut off at both ends."""
    index = np.arange(len(value))
    low, high = np.maximum(index - (width - 1) // 2, 0), np.minimum(index + width // 2 + 1, len(value))
    total = np.concatenate([[0.0], np.cumsum(value)])
    return (total[high] - total[low]) / (high - low)
