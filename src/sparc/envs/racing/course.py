"""What a driver sees and feels, and what a step is worth: observation and reward from the simulator's rows of state.

Everything is in the car's frame and none of it tells where on the track the car is, or is a figure of the car: loads
are shares of their sum, revs are relative to the limit. What a driver feels at rest is there from the first moment: the
shares of the loads tell how the weight is distributed; gear, revs, roll and pitch, and with it vz, differ between cars.
What the car weighs, what its engine gives and how its tyres grip must be felt in driving.
"""

from __future__ import annotations

import numpy as np

from sparc.arrays import Array, Flags
from sparc.envs.racing.torcs.columns import COLUMN, OFF_COURSE, TRACK_COLUMNS, WHEELS

SPACING = 2.0  # m between the points of the centre line
SMOOTHED = 10.0  # m over which curvature is averaged: TORCS's segments change it in jumps
POINTS = 20  # ahead
HORIZON = 6.0  # s ahead, at the current speed
LOOKING_SPEED = 10.0  # m/s: below it the car looks as far ahead as at this speed
CLIP = 5.0  # of every scaled number

# Feature, unit, and the number it is divided by.
FELT: tuple[tuple[str, str, float], ...] = (
    ("vx", "m/s", 20.0), ("vy", "m/s", 2.0), ("vz", "m/s", 1.0),
    ("roll_rate", "rad/s", 0.1), ("pitch_rate", "rad/s", 0.05), ("yaw_rate", "rad/s", 0.4),
    ("ax", "m/s²", 5.0), ("ay", "m/s²", 10.0), ("az", "m/s²", 3.0),
    ("roll", "rad", 0.05), ("pitch", "rad", 0.05),
    ("gear", "", 2.0), ("revs", "of the limit", 0.25), ("steer", "of the lock", 0.5),
)  # fmt: skip
_FELT = [COLUMN[name] for name, _, _ in FELT]
_SCALE = np.array([scale for _, _, scale in FELT])
_SLIP_RATIO, _SLIP_ANGLE, _LOAD = (
    slice(COLUMN[f"{name}_front_right"], COLUMN[f"{name}_front_right"] + 4)
    for name in ("slip_ratio", "slip_angle", "load")
)
SLIP_SCALE = (0.1, 0.2)  # ratio; rad
LOAD_SCALE = 0.25  # of a quarter of the weight
HEADING_SCALE, WIDTH_SCALE, BEND_SCALE, AHEAD_SCALE = 0.2, 10.0, 0.01, 0.2  # rad, m, 1/m, of the way there

# Name of each number and what a value of 1 means, in the order of `observe`.
OBSERVATION: tuple[tuple[str, str], ...] = (
    *((name, f"{scale:g} {unit}".strip()) for name, unit, scale in FELT),
    ("offset", "half width"),
    ("sin_heading_error", f"{HEADING_SCALE:g}"),
    ("cos_heading_error", "1"),
    ("half_width", f"{WIDTH_SCALE:g} m"),
    ("bend", f"sqrt({BEND_SCALE:g}/m), signed"),
    ("wheels_out", "4 wheels"),
    ("off_course", "0 or 1"),
    ("at_wall", "0 or 1"),
    *((f"slip_ratio_{wheel}", f"{SLIP_SCALE[0]:g}") for wheel in WHEELS),
    *((f"slip_angle_{wheel}", f"{SLIP_SCALE[1]:g} rad") for wheel in WHEELS),
    *((f"load_{wheel}", f"{LOAD_SCALE:g} of a quarter of the weight, above it") for wheel in WHEELS),
    ("last_steering", "lock"),
    ("last_pedal", "1"),
    *((f"ahead_{point}_along", f"{AHEAD_SCALE:g} of the way there, beyond it") for point in range(1, POINTS + 1)),
    *((f"ahead_{point}_left", f"{AHEAD_SCALE:g} of the way there") for point in range(1, POINTS + 1)),
    *((f"ahead_{point}_bend", f"sqrt({BEND_SCALE:g}/m), signed") for point in range(1, POINTS + 1)),
    *((f"ahead_{point}_half_width", f"{WIDTH_SCALE:g} m") for point in range(1, POINTS + 1)),
)
OBSERVATION_SIZE = len(OBSERVATION)

# After what the paper's group is known to use, but milder where that hid the rest. Per step, times REWARD_SCALE:
REWARD_SCALE = 0.05
# Not its square: the slow bends, where most laps are spoiled, would cost too little, a slide at full speed everything.
OFF_PENALTY = 2.5  # m per second off course and km/h
WALL_PENALTY = 2.5  # m per second in contact with a wall and km/h
SLIP_PENALTY = 0.25  # per tyre, of its slip ratio times its slip angle
# Cars with much grip hardly move when the wheel is swung from side to side, yet lose 3 % of a lap by it: too little per
# step for critics to see. Smooth driving costs next to nothing, a swing from lock to lock 1.6 m.
SWING_PENALTY = 0.4  # m, of the square of the change of the steering action
# Once, as it is:
FAILURE_PENALTY = 20.0  # when a race has to be given up


class Course:
    """The centre line of a track, closed, at equal distances."""

    def __init__(self, length: float, table: Array) -> None:
        self.length, self.table = length, table
        columns = dict(zip(TRACK_COLUMNS, table.T, strict=True))
        kernel = np.ones(max(1, round(SMOOTHED * len(table) / length)))
        padded = np.concatenate([columns["curvature"][-len(kernel) :], columns["curvature"], columns["curvature"]])
        smooth = np.convolve(padded, kernel / kernel.sum(), "same")[len(kernel) : len(kernel) + len(table)]
        # One row more than points: the last piece ends where the first begins.
        line = np.stack([columns["x"], columns["y"], columns["half_width"], smooth], axis=1)
        self._line = np.concatenate([line, line[:1]])
        self._steps = np.diff(self._line, axis=0)

    def at(self, distance: Array) -> Array:
        """Interpolate x, y, half width and curvature at distances from the line of any shape, (..., 4)."""
        place = np.asarray(distance) * (len(self._steps) / self.length) % len(self._steps)
        index = np.minimum(place.astype(np.intp), len(self._steps) - 1)
        return self._line[index] + self._steps[index] * (place - index)[..., None]

    def heading_to(self, distance: float, offset: float, track_heading: float, ahead: float) -> float:
        """Return the heading, against the track's, at which a car faces the centre line so far ahead."""
        (x, y, *_), (tx, ty, *_) = self.at(np.array([distance, distance + ahead]))
        x, y = x - offset * np.sin(track_heading), y + offset * np.cos(track_heading)
        return float(_wrapped(np.arctan2(ty - y, tx - x) - track_heading))

    def track_heading(self, distance: float) -> float:
        """Return the heading of the centre line."""
        (x, y, *_), (tx, ty, *_) = self.at(np.array([distance, distance + SPACING / 2]))
        return float(np.arctan2(ty - y, tx - x))


def _wrapped(angle: Array) -> Array:
    return (angle + np.pi) % (2 * np.pi) - np.pi


def _bend(curvature: Array) -> Array:
    """Scale curvature by its root, to which the speed that a bend allows is inverse."""
    return np.sign(curvature) * np.sqrt(np.abs(curvature) / BEND_SCALE)


def observe(states: Array, last_actions: Array, course: Course) -> Array:
    """Return what the drivers of these cars see, (N, OBSERVATION_SIZE)."""
    rows = len(states)
    out = np.empty((rows, OBSERVATION_SIZE))
    at = len(FELT)
    out[:, :at] = states[:, _FELT] / _SCALE
    half_width, offset = states[:, COLUMN["half_width"]], states[:, COLUMN["offset"]]
    error = states[:, COLUMN["yaw"]] - states[:, COLUMN["track_heading"]]
    distance, yaw = states[:, COLUMN["distance"]], states[:, COLUMN["yaw"]]
    reach = np.maximum(states[:, COLUMN["vx"]], LOOKING_SPEED)
    times = np.linspace(0.0, HORIZON, POINTS + 1)
    line = course.at(distance[:, None] + reach[:, None] * times)  # (N, POINTS + 1, 4); the first is beside the car
    out[:, at] = offset / half_width
    out[:, at + 1] = np.sin(error) / HEADING_SCALE
    out[:, at + 2] = np.cos(error)
    out[:, at + 3] = half_width / WIDTH_SCALE
    out[:, at + 4] = _bend(line[:, 0, 3])
    at += 5
    wheels_out = states[:, COLUMN["wheels_out"]]
    out[:, at] = wheels_out / 4
    out[:, at + 1] = wheels_out >= OFF_COURSE
    out[:, at + 2] = states[:, COLUMN["wall_time"]] > 0
    at += 3
    out[:, at : at + 4] = states[:, _SLIP_RATIO] / SLIP_SCALE[0]
    out[:, at + 4 : at + 8] = states[:, _SLIP_ANGLE] / SLIP_SCALE[1]
    load = states[:, _LOAD]
    out[:, at + 8 : at + 12] = (4 * load / np.maximum(load.sum(axis=1, keepdims=True), 1.0) - 1.0) / LOAD_SCALE
    at += 12
    out[:, at : at + 2] = last_actions
    at += 2
    ahead = line[:, 1:]
    dx, dy = ahead[..., 0] - states[:, COLUMN["x"], None], ahead[..., 1] - states[:, COLUMN["y"], None]
    cosine, sine = np.cos(yaw)[:, None], np.sin(yaw)[:, None]
    way = reach[:, None] * times[1:]
    out[:, at : at + POINTS] = ((dx * cosine + dy * sine) / way - 1.0) / AHEAD_SCALE
    out[:, at + POINTS : at + 2 * POINTS] = (dy * cosine - dx * sine) / way / AHEAD_SCALE
    out[:, at + 2 * POINTS : at + 3 * POINTS] = _bend(ahead[..., 3])
    out[:, at + 3 * POINTS :] = ahead[..., 2] / WIDTH_SCALE
    return np.clip(out, -CLIP, CLIP, out=out)


def reward_of(states: Array, progress: Array, swing: Array, failed: Flags) -> Array:
    """Return what the last step was worth, (N,): metres made, less what cost grip, road, walls or calm steering."""
    speed = 3.6 * np.hypot(states[:, COLUMN["vx"]], states[:, COLUMN["vy"]])
    off, wall = states[:, COLUMN["off_time"]], states[:, COLUMN["wall_time"]]
    sliding = np.minimum(np.abs(states[:, _SLIP_RATIO]), 1.0) * np.abs(states[:, _SLIP_ANGLE])
    on_road = 1.0 - np.minimum(states[:, COLUMN["wheels_out"]] / OFF_COURSE, 1.0)
    reward = np.where(progress > 0.0, progress * on_road, progress)
    reward = reward - (OFF_PENALTY * off + WALL_PENALTY * wall) * speed - SLIP_PENALTY * sliding.sum(axis=1)
    reward = reward - SWING_PENALTY * swing**2
    return REWARD_SCALE * reward - FAILURE_PENALTY * failed
