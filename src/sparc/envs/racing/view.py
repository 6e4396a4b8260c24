"""The race from above: the road turned so that the car drives upwards, its trail by speed, pedals, and a map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from sparc.arrays import Array
from sparc.envs.drawing import font
from sparc.envs.racing.course import Course
from sparc.envs.racing.torcs.columns import COLUMN, OFF_COURSE, TRACK_COLUMNS

Points = list[tuple[float, float]]

FINE = 2  # drawn so many times larger, then scaled down: Pillow does not smooth edges
NEAREST, SECONDS = 32.0, 1.0  # m from the lower to the upper edge at rest, and what each m/s adds, in s
CAR_LENGTH = 4.5  # m, whatever the car: it is the road that is to scale
CAR_PLACE = 0.72  # of the height: more road ahead than behind
GRASS, ROAD, DIRT, EDGE, MIDDLE = (66, 104, 66), (70, 74, 82), (140, 108, 72), (236, 236, 236), (110, 114, 122)
BODY, GLASS, INK = (38, 120, 210), (190, 220, 245), (16, 20, 28)
TRAIL = matplotlib.colormaps["plasma"]  # dark is slow
TOP_SPEED = 80.0  # m/s, where the trail's colours end
PANEL, WHITE, GREY, THROTTLE, BRAKE = (17, 24, 36), (255, 255, 255), (170, 182, 198), (86, 180, 233), (230, 120, 30)
LOOSE = 1.0  # friction below which a surface is drawn as loose: dirt, sand


def draw(size: tuple[int, int], course: Course, state: Array, trail: Sequence[Array]) -> NDArray[np.uint8]:
    """Draw a car at its row of state, and where it has been, as an RGB array (height, width, 3)."""
    width, height = size[0] * FINE, size[1] * FINE
    image = Image.new("RGB", (width, height), GRASS)
    canvas = ImageDraw.Draw(image)
    x, y, yaw, speed = (float(state[COLUMN[name]]) for name in ("x", "y", "yaw", "vx"))
    metre = height / (NEAREST + SECONDS * max(speed, 0.0))  # pixels
    ahead, left = np.array([np.cos(yaw), np.sin(yaw)]), np.array([-np.sin(yaw), np.cos(yaw)])

    def place(points: Array) -> Points:
        offset = np.atleast_2d(points) - [x, y]
        across, along = -(offset @ left) * metre + width / 2, CAR_PLACE * height - (offset @ ahead) * metre
        return list(zip(across.tolist(), along.tolist(), strict=True))

    reach = 1.2 * max(width, height) / metre
    near = state[COLUMN["distance"]] + np.arange(-reach, reach, 2.0)
    draw_road(canvas, course, near, place, max(1, round(metre / 8)))
    for before, now in pairwise(trail):
        colour = tuple(round(255 * part) for part in TRAIL(float(np.clip(now[2] / TOP_SPEED, 0.0, 1.0)))[:3])
        canvas.line(place(np.array([before[:2], now[:2]])), fill=colour, width=max(2, round(metre / 3)))
    half = CAR_LENGTH / 2
    body = np.array([[half, 0.6], [half * 0.7, 0.9], [-half, 0.9], [-half, -0.9], [half * 0.7, -0.9], [half, -0.6]])
    glass = np.array([[half * 0.35, 0.7], [0.0, 0.75], [0.0, -0.75], [half * 0.35, -0.7]])
    for shape, colour in ((body, BODY), (glass, GLASS)):
        points = [x, y] + shape[:, :1] * ahead + shape[:, 1:] * left
        canvas.polygon(place(points), fill=colour, outline=INK)
    draw_map(canvas, course, state, width, height)
    draw_dials(canvas, state, width, height)
    return np.asarray(image.resize(size, Image.Resampling.BOX))


def draw_road(
    canvas: ImageDraw.ImageDraw, course: Course, near: Array, place: Callable[[Array], Points], line: int
) -> None:
    """Draw the road over these distances, its edges and the start line."""
    rows = course.at(near)
    headings = np.array([course.track_heading(float(distance)) for distance in near])
    sideways = np.stack([-np.sin(headings), np.cos(headings)], axis=1) * rows[:, 2:3]
    lefts, rights = place(rows[:, :2] + sideways), place(rows[:, :2] - sideways)
    index = (near * len(course.table) / course.length % len(course.table)).astype(int) % len(course.table)
    unpaved = course.table[index, TRACK_COLUMNS.index("friction")] < LOOSE
    for i in range(len(near) - 1):
        canvas.polygon([lefts[i], lefts[i + 1], rights[i + 1], rights[i]], fill=DIRT if unpaved[i] else ROAD)
    canvas.line(place(rows[:, :2]), fill=MIDDLE, width=max(1, line // 2))
    for side in (lefts, rights):
        canvas.line(side, fill=EDGE, width=line)
    for crossing in np.flatnonzero(np.diff(np.floor(near / course.length))).tolist():
        canvas.line([lefts[crossing], rights[crossing]], fill=WHITE, width=4 * line)


def draw_map(canvas: ImageDraw.ImageDraw, course: Course, state: Array, width: int, height: int) -> None:
    """Draw the whole track in a corner, with the car as a dot."""
    box, margin = 0.26 * height, 0.03 * height
    points = course.at(np.linspace(0, course.length, 300))[:, :2]
    low, high = points.min(axis=0), points.max(axis=0)
    scale = box / (high - low).max()

    def at(point: Array) -> tuple[float, float]:
        across, up = (point - low) * scale
        return float(width - margin - box + across), float(margin + box - up)

    canvas.rounded_rectangle(
        (width - 2 * margin - box, 0.4 * margin, width - 0.4 * margin, 2 * margin + box), radius=margin, fill=PANEL
    )
    canvas.line([at(point) for point in points], fill=GREY, width=max(2, height // 200), joint="curve")
    (cx, cy), r = at(state[[COLUMN["x"], COLUMN["y"]]]), height / 90
    canvas.ellipse((cx - r, cy - r, cx + r, cy + r), fill=THROTTLE, outline=WHITE, width=FINE)


def draw_dials(canvas: ImageDraw.ImageDraw, state: Array, width: int, height: int) -> None:
    """Draw speed, gear, pedals and steering in the lower left, and whether the car is off course."""
    unit = height / 22
    left, top = 0.6 * unit, height - 5.1 * unit
    canvas.rounded_rectangle((left, top, left + 9.5 * unit, height - 0.6 * unit), radius=unit / 2, fill=PANEL)
    speed, gear = 3.6 * max(float(state[COLUMN["vx"]]), 0.0), int(state[COLUMN["gear"]])
    canvas.text((left + 0.6 * unit, top + 1.3 * unit), f"{speed:.0f} km/h", WHITE, font(1.1 * unit, True), anchor="lm")
    canvas.text((left + 9.0 * unit, top + 1.3 * unit), f"gear {gear}", GREY, font(0.75 * unit, False), anchor="rm")
    bar, right = top + 2.5 * unit, left + 9.0 * unit
    for name, colour, row in (("throttle", THROTTLE, 0), ("brake", BRAKE, 1)):
        y = bar + 0.65 * unit * row
        canvas.rectangle((left + 0.6 * unit, y, right, y + 0.45 * unit), fill=(40, 50, 66))
        share = float(np.clip(state[COLUMN[name]], 0, 1))
        canvas.rectangle((left + 0.6 * unit, y, left + 0.6 * unit + share * 8.4 * unit, y + 0.45 * unit), fill=colour)
    y, middle = bar + 1.3 * unit, left + 4.8 * unit
    canvas.rectangle((left + 0.6 * unit, y, right, y + 0.45 * unit), fill=(40, 50, 66))
    turned = middle - 4.2 * unit * float(np.clip(state[COLUMN["steer"]], -1, 1))
    canvas.rectangle((min(middle, turned), y, max(middle, turned), y + 0.45 * unit), fill=WHITE)
    if state[COLUMN["wheels_out"]] >= OFF_COURSE:
        canvas.text((width / 2, height - 1.6 * unit), "off course", BRAKE, font(1.1 * unit, True), anchor="mm")
