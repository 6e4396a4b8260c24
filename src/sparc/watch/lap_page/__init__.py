"""The race replay: one HTML page, which needs nothing but itself, of the agent and the built-in AI side by side."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparc.envs.racing.torcs.columns import OFF_COURSE, TRACE
from sparc.report.html import write_page

HERE = Path(__file__).parent
SCRIPTS = ("laps.js", "map.js", "charts.js", "page.js")  # rooms of one script
NEAR = 0.5  # s, how near to the line the first and the last sample of a lap must be


class Column(NamedTuple):
    """How the page's script gets a column of numbers: as whole steps, delta-encoded `order` times."""

    name: str
    step: float
    order: int
    between: Literal["curve", "line", "nearest"] = "line"  # how to go from one sample to the next


LAP = (
    Column("time", 0.001, 2),  # s
    Column("x", 0.01, 2, "curve"),  # m
    Column("y", 0.01, 2, "curve"),
    Column("yaw", 0.002, 2),  # rad
    Column("speed", 0.05, 1),  # m/s
    Column("distance", 0.02, 2),  # m
    Column("steer", 0.01, 1),
    Column("throttle", 0.02, 1),
    Column("brake", 0.02, 1),
    Column("gear", 1, 1, "nearest"),
    Column("wheels_out", 1, 1, "nearest"),
)
AT = {column.name: index for index, column in enumerate(LAP)}
MOVING = np.array([column.name in ("time", "x", "y", "yaw", "distance") for column in LAP])
LINE = (
    Column("x", 0.01, 2),
    Column("y", 0.01, 2),
    Column("heading", 0.001, 1),
    Column("half_width", 0.01, 1),
    Column("friction", 0.01, 1),
)


@dataclass(frozen=True)
class LapPair:
    """One evaluated car: its flying lap, and the built-in AI's with the same car and tyre."""

    car: str
    class_name: str
    tyre: str
    region: str  # "ind" or "ood"
    agent: NDArray[np.float64]  # (T, len(TRACE)) at 10 Hz, time from the line
    ai: NDArray[np.float64]  # (T2, len(TRACE))
    lap_time: float | None  # s; None: not completed, and `agent` is what it drove until it failed
    ai_time: float  # s
    clean: bool
    length: float = 4.5  # m, of the car, which is drawn to scale
    width: float = 1.9


@dataclass(frozen=True)
class Course:
    """The track."""

    name: str
    length: float  # m
    line: NDArray[np.float64]  # (P, 5): x, y, heading, half_width, friction; the last point is followed by the first


def write_replay(path: Path, course: Course, pairs: Sequence[LapPair], title: str) -> None:
    """Write the page; it opens with the first pair."""
    if not pairs:
        raise ValueError("there is no lap to replay")
    data = {
        "course": {"name": course.name, "length": course.length, "line": packed(course.line, LINE)},
        "columns": {"lap": LAP, "line": LINE},
        "offCourse": OFF_COURSE,
        "pairs": [_describe(pair, course.length) for pair in pairs],
    }
    parts = "".join((HERE / name).read_text() for name in SCRIPTS)
    write_page(
        path,
        HERE,
        title=title,
        style=(HERE / "page.css").read_text(),
        script=f"(async () => {{\n'use strict';\n{parts}}})();\n",
        data=data,
        course=course,
    )


def _describe(pair: LapPair, length: float) -> dict[str, Any]:
    try:
        laps = [
            packed(from_line_to_line(trace, time, length), LAP)
            for trace, time in ((pair.agent, pair.lap_time), (pair.ai, pair.ai_time))
        ]
    except ValueError as error:
        raise ValueError(f"cannot replay {pair.car}: {error}") from None
    return {
        "car": pair.car,
        "class": pair.class_name,
        "tyre": pair.tyre,
        "region": pair.region,
        "time": pair.lap_time,
        "aiTime": pair.ai_time,
        "clean": bool(pair.clean),
        "off": bool((pair.agent[:, TRACE.index("wheels_out")] >= OFF_COURSE).any()),
        "size": [pair.length, pair.width],
        "laps": laps,
    }


def from_line_to_line(trace: NDArray[np.float64], lap_time: float | None, length: float) -> NDArray[np.float64]:
    """Let a lap begin and, if completed, end at the line, between two samples, and give LAP's columns of it.

    Heading and distance are made to run on where they would jump by a turn or a lap; a car that slides backwards has a
    speed like any other.
    """
    lap = trace[:, [TRACE.index(column.name) for column in LAP]]
    lap = lap[lap[:, AT["time"]] >= 0]
    if len(lap) == 0:
        return lap
    lap[:, AT["speed"]] = np.abs(lap[:, AT["speed"]])
    lap[:, AT["yaw"]] = np.unwrap(lap[:, AT["yaw"]])
    distance = np.unwrap(lap[:, AT["distance"]], period=length)
    lap[:, AT["distance"]] = distance - length * round(distance[0] / length)
    if lap_time is None:
        return lap
    times = lap[:, AT["time"]]
    inside = lap[(times > 0) & (times < lap_time)]
    if len(inside) < 2 or times[0] > NEAR or times[-1] < lap_time - NEAR:
        raise ValueError(f"its lap takes {lap_time:g} s, its samples go from {times[0]:g} to {times[-1]:g} s")
    return np.stack([_moved(inside[1], inside[0], 0.0), *inside, _moved(inside[-2], inside[-1], lap_time)])


def _moved(before: NDArray[np.float64], row: NDArray[np.float64], time: float) -> NDArray[np.float64]:
    """Go on from two samples to another time."""
    step = (row - before) * (time - row[AT["time"]]) / (row - before)[AT["time"]]
    moved = np.where(MOVING, row + step, row)
    moved[AT["time"]] = time
    return moved


def packed(table: NDArray[np.float64], columns: Sequence[Column]) -> str:
    """Write columns of numbers as text: differences of whole steps, byte by byte, deflated; laps.js unpacks them."""
    if not np.isfinite(table).all():
        raise ValueError("not all of its numbers are finite")
    parts = []
    for values, column in zip(table.T, columns, strict=True):
        steps = np.round(values / column.step).astype(np.int32)
        for _ in range(column.order):
            steps = np.diff(steps, prepend=np.int32(0))
        parts.append(steps)
    planes = np.concatenate(parts).astype("<i4").view(np.uint8).reshape(-1, 4).T  # high bytes, mostly 0, stand together
    return base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode()
