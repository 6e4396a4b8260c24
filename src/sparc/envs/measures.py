"""What laps are judged by: the measures of a race, what they are called, and which way is better."""

from __future__ import annotations

from typing import NamedTuple


class Measure(NamedTuple):
    """How a measure of a lap is read."""

    name: str
    better: int  # 1: more is better; −1: less
    scale: float  # of what is shown
    digits: int
    unit: str = ""


MEASURES = {
    "completed": Measure("completed laps", 1, 100.0, 1, "%"),
    "clean": Measure("clean laps", 1, 100.0, 1, "%"),
    "ratio": Measure("ratio", -1, 1.0, 4),  # NOT_COMPLETED of a lap that was not
    "completed_ratio": Measure("ratio of completed laps", -1, 1.0, 4),
    "lap_time": Measure("lap time", -1, 1.0, 1, "s"),  # of completed laps
}
JUDGED = ("clean", "ratio")  # what verdicts rest on: every lap has both
