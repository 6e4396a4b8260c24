"""What the TORCS worker writes, by name: the columns of its rows, and when a car is off course.

The worker says the same of itself when it starts; where the two differ, it is refused.
"""

from __future__ import annotations

from itertools import zip_longest

from sparc.envs.racing.torcs.installation import REMEDY
from sparc.errors import RunFailure

WHEELS = ("front_right", "front_left", "rear_right", "rear_left")


def _per_wheel(name: str) -> list[str]:
    return [f"{name}_{wheel}" for wheel in WHEELS]


# The columns of a row of state, as the worker writes them: SI units, the car's frame (x ahead, y to the left).
STATE = (
    "x", "y", "roll", "pitch", "yaw", "vx", "vy", "vz", "roll_rate", "pitch_rate", "yaw_rate", "ax", "ay", "az",
    "distance", "offset", "half_width", "track_heading", "progress",
    "gear", "revs", "steer", "throttle", "brake",
    *_per_wheel("slip_ratio"), *_per_wheel("slip_angle"), *_per_wheel("load"), *_per_wheel("wheel_speed"),
    "wheels_out", "off_time", "wall_time", "damage", "time", "laps", "lap_time", "lap_off", "lap_wall", "lap_now",
)  # fmt: skip
COLUMN = {name: index for index, name in enumerate(STATE)}

# Likewise of a trace of a lap, and of the centre line.
TRACE = ("time", "x", "y", "yaw", "speed", "distance", "offset", "steer", "throttle", "brake", "gear", "wheels_out")
TRACK_COLUMNS = ("x", "y", "heading", "half_width", "curvature", "friction")
OFF_COURSE = 3  # wheels out
# What a worker says of itself when it starts must be the same.
VOCABULARY = {"state": STATE, "trace": TRACE, "track": TRACK_COLUMNS, "off_course": (str(OFF_COURSE),)}


def check_vocabulary(said: str) -> None:
    """Raise a RunFailure that names the first word in which a worker and this module differ."""
    found = {kind: tuple(words) for kind, *words in (line.split() for line in said.splitlines())}
    for kind, expected in VOCABULARY.items():
        pairs = zip_longest(found.get(kind, ()), expected, fillvalue="nothing")
        for place, (theirs, ours) in enumerate(pairs, 1):
            if theirs != ours:
                raise RunFailure(
                    f"the TORCS worker does not fit this version of sparc: its {kind} has {theirs} in place {place}, "
                    f"not {ours}; {REMEDY}, or make its source and columns.py say the same"
                )
