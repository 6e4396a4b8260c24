"""The boat from above: the buoy and the ring to stay in, the wake, the current as an arrow and as streaks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from sparc.arrays import Array

FINE = 2  # drawn so many times larger, then scaled down: Pillow does not smooth edges
REACH = 4.2  # m from the buoy to the upper edge of the picture, more where the boat is further off
MARGIN = 1.2  # m, between the boat and the edge
WATER, STREAK, RING, RIM = (37, 105, 150), (58, 126, 170), (51, 124, 163), (134, 190, 214)
WAKE = np.array([226, 240, 248])
BUOY, BUOY_TOP, HULL, DECK = (217, 54, 42), (255, 236, 232), (250, 248, 242), (201, 152, 96)
ARROW, INK = (255, 205, 60), (20, 50, 76)
# Outlines along (ahead, to the left), in m.
HULL_SHAPE = np.array(
    [[0.75, 0.0], [0.42, 0.24], [-0.1, 0.31], [-0.6, 0.25], [-0.6, -0.25], [-0.1, -0.31], [0.42, -0.24]]
)
DECK_SHAPE = HULL_SHAPE * 0.6
HEAD, SHAFT = 0.07, 0.011  # of the picture's height: length of an arrow's head, half the width of its shaft
ARROW_PLACE = np.array([0.5, 0.13])  # of width and height
WAKE_STEPS = 12
STREAK_SPACING, STREAK_TIME = 1.4, 0.45  # m between streaks, s of drift that one shows


def draw(
    size: tuple[int, int], track: Array, heading: Array, current: Array, ring: float, speed: float, seconds: float
) -> NDArray[np.uint8]:
    """Draw the track (T, 2) in m around the buoy, newest last, as an RGB array (height, width, 3)."""
    width, height = size[0] * FINE, size[1] * FINE
    boat = track[-1]
    reach = max(REACH, abs(boat[1]) + MARGIN, (abs(boat[0]) + MARGIN) * height / width)
    metre = height / 2 / reach  # pixels
    image = Image.new("RGB", (width, height), WATER)
    canvas = ImageDraw.Draw(image)

    def place(points: Any) -> list[tuple[float, float]]:
        shifted = np.array([width / 2, height / 2]) + np.atleast_2d(points) * [metre, -metre]
        return [(float(x), float(y)) for x, y in shifted]

    def disc(centre: Any, radius: float, **colours: Any) -> None:
        (x, y), r = place(centre)[0], radius * metre
        canvas.ellipse((x - r, y - r, x + r, y + r), **colours)

    thin = max(1, round(metre / 25))
    disc((0.0, 0.0), ring, fill=RING)
    drifted = current * seconds * (len(track) - 1)
    across = reach * max(width / height, 1.0) + STREAK_SPACING
    lines = np.arange(-np.ceil(across / STREAK_SPACING), np.ceil(across / STREAK_SPACING) + 1) * STREAK_SPACING
    for row, y in enumerate(lines):
        for x in lines + (row % 2) * STREAK_SPACING / 2:
            # the pattern repeats after two rows, so it can be shifted back by that much
            head = np.array([x, y]) + np.mod(drifted, [STREAK_SPACING, 2 * STREAK_SPACING])
            canvas.line(place([head - current * STREAK_TIME, head]), fill=STREAK, width=2 * thin)
    disc((0.0, 0.0), ring, outline=RIM, width=2 * thin)

    wake = track[-WAKE_STEPS - 1 :]
    for age, (start, end) in enumerate(zip(wake[-2::-1], wake[:0:-1], strict=True)):
        fade = (1 - age / WAKE_STEPS) ** 1.5
        colour = tuple(int(value) for value in WATER + (WAKE - WATER) * 0.75 * fade)
        canvas.line(place([start, end]), fill=colour, width=max(thin, round(metre * 0.14 * fade)))
    canvas.polygon(place(boat + turn(HULL_SHAPE, heading)), fill=HULL, outline=INK, width=2 * thin)
    canvas.polygon(place(boat + turn(DECK_SHAPE, heading)), fill=DECK)
    disc((0.0, 0.0), 0.2, fill=BUOY, outline=INK, width=thin)  # over the boat: how far off it is, is the point
    disc((0.0, 0.0), 0.07, fill=BUOY_TOP)

    if (strength := float(np.hypot(*current))) > 1e-9:
        # A current as fast as the boat would take half of the height.
        shape = turn(arrow(strength / speed * height / 2, HEAD * height, SHAFT * height), current) * [1.0, -1.0]
        points = [(float(x), float(y)) for x, y in ARROW_PLACE * [width, height] + shape]
        canvas.polygon(points, fill=ARROW)
    return np.asarray(image.resize(size, Image.Resampling.BOX))


def arrow(length: float, head: float, shaft: float) -> Array:
    """Outline an arrow around the origin (7, 2), pointing ahead; a short one is all head."""
    tip, tail = length / 2, -length / 2
    neck = max(tip - head, tail)
    side = head / 2
    return np.array(
        [[tip, 0], [neck, side], [neck, shaft], [tail, shaft], [tail, -shaft], [neck, -shaft], [neck, -side]]
    )


def turn(shape: Array, ahead: Array) -> Array:
    """Turn an outline (K, 2) to where ahead points; left as it is where that has no length."""
    length = float(np.hypot(*ahead))
    x, y = ahead / length if length > 1e-9 else (0.0, 1.0)
    return shape @ np.array([[x, y], [-y, x]])
