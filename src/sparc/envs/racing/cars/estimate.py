"""A lap time without the simulator: a point mass at the limit of its tyres, on the line that the AI drives.

The second opinion on the AI's laps when the catalogue is made: a lap much slower than this is no reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparc.arrays import Array
from sparc.envs.racing.cars.car import FRONT_DRIVE, Car
from sparc.envs.racing.cars.description import GRAVITY, HALF_AIR, ROLLING, top_speed
from sparc.envs.racing.torcs.columns import TRACE, TRACK_COLUMNS

STEP = 4.0  # m
SMOOTHING = 6.0  # m: the line is known in steps of about three


@dataclass(frozen=True)
class Line:
    """The AI's line: curvature (1/m) and friction of the road every STEP metres."""

    curvature: Array
    friction: Array


def find_line(trace: Array, track: Array) -> Line:
    """Find the line in a lap's trace; `track` is describe_track's table."""
    column = {name: index for index, name in enumerate(TRACE)}
    place = trace[:, column["x"]] + 1j * trace[:, column["y"]]
    place = np.append(place, place[0])  # a closed line
    along = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(place)))])
    count = int(along[-1] / STEP)
    at = np.linspace(0.0, along[-1], count, endpoint=False)
    waves = np.fft.fftfreq(count, along[-1] / count) * 2 * np.pi
    spectrum = np.fft.fft(np.interp(at, along, place.real) + 1j * np.interp(at, along, place.imag))
    spectrum *= np.exp(-0.5 * (waves * SMOOTHING) ** 2)
    velocity, bend = np.fft.ifft(1j * waves * spectrum), np.fft.ifft(-(waves**2) * spectrum)
    curvature = np.abs((np.conj(velocity) * bend).imag) / np.abs(velocity) ** 3
    friction = track[(at / along[-1] * len(track)).astype(int), TRACK_COLUMNS.index("friction")]
    return Line(curvature, friction)


def estimate_lap(line: Line, car: Car, tyre: float) -> float:
    """Estimate a flying lap on tyres with this friction factor, s."""
    grip = car.grip * tyre * line.friction
    lift = grip * car.downforce / car.mass
    corner = grip * GRAVITY / np.maximum(line.curvature - lift, 1e-9)
    limit = np.minimum(corner, top_speed(car) ** 2)  # (m/s)²
    front = FRONT_DRIVE[car.drive]
    driven = 1.0 if front == 0.5 else front * car.front_weight + (1 - front) * (1 - car.front_weight)
    drag, rolling = HALF_AIR * car.drag_area / car.mass, ROLLING * GRAVITY
    push, brake = car.power / car.mass, car.brake_force / car.mass

    def spare(i: int, square: float) -> float:  # grip left for speeding up or down, m/s²
        whole = grip[i] * GRAVITY + lift[i] * square
        return float(whole * max(1.0 - (square * line.curvature[i] / whole) ** 2, 0.0) ** 0.5)

    count = len(limit)
    square = limit.copy()
    for i in [*range(count)] * 2:  # twice round, so that the start does not matter
        now = square[i - 1]
        gain = min(push / max(now, 1.0) ** 0.5, driven * spare(i - 1, now)) - drag * now - rolling
        square[i] = min(limit[i], now + 2 * STEP * gain)
    for i in [*range(count - 1, -1, -1)] * 2:
        now = square[(i + 1) % count]
        loss = min(brake, spare((i + 1) % count, now)) + drag * now + rolling
        square[i] = min(square[i], now + 2 * STEP * loss)
    return float(STEP * np.sum(1.0 / np.sqrt(np.maximum(square, 1.0))))
