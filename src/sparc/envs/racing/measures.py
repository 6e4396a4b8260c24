"""What flying laps are judged by, and the physics that they can be driven in."""

from sparc.envs.measures import Measure
from sparc.envs.racing.tasks import PHYSICS

MEASURES = {
    "completed": Measure("completed laps", unit="%", scale=100.0),
    "clean": Measure("clean laps", unit="%", scale=100.0),
    "ratio": Measure("ratio", better=-1, digits=4),  # NOT_COMPLETED of a lap that was not
    "completed_ratio": Measure("ratio of completed laps", better=-1, digits=4),
    "lap_time": Measure("lap time", better=-1, unit="s"),  # of completed laps
    "reference": Measure("built-in AI's lap", better=0, unit="s", digits=3),
}
JUDGED = ("clean", "ratio")  # what verdicts rest on: every lap has both
VARIANTS = {name: {"physics": name} for name in PHYSICS}
