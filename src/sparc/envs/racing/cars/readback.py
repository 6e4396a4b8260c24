"""What TORCS's physics must hold of a car that was loaded: the worker reads every figure back (worker/cars.h)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sparc.envs.racing.cars.description import (
    AXLE_INERTIA,
    BRAKE_INERTIA,
    CENTRAL_RATIO,
    DIFFERENTIAL_INERTIA,
    ENGINE_BRAKE,
    ENGINE_INERTIA,
    FAST_DAMPING,
    FUEL,
    HALF_AIR,
    INERTIA,
    LIFT_TO_DRAG,
    LOCKING,
    MOST_REVS,
    SHIFT_TIME,
    SLIP_BIAS,
    STEERING_SPEED,
    TICKOVER,
    TORCS_DRIVE,
    WING_ANGLE,
    End,
    ends_of,
    front_brake,
    gear_ratios,
    operating_load,
    spring_travel,
    torque_curve,
    track_width,
    wheel_inertia,
    wheel_mass,
)
from sparc.envs.racing.cars.physics import PHYSICS
from sparc.envs.racing.cars.tyres import friction

if TYPE_CHECKING:
    from sparc.envs.racing.cars.car import Car

PRECISION = 1e-5  # relative: the physics calculates in single precision


def expected_figures(car: Car, tyre: str, physics: str = "standard") -> dict[str, list[float]]:
    """Return what the physics must hold of a car once it is loaded: all that its description tells it."""
    version, grip = PHYSICS[physics], car.grip * friction(tyre)
    ends = ends_of(car, version)
    mass, wheel, half_track = car.mass - FUEL, wheel_mass(car), track_width(car) / 2
    brake, share = car.brake_force * car.wheel_radius / 2, front_brake(car, grip)
    ratios, (revs, torque) = gear_ratios(car), zip(*torque_curve(car, version), strict=True)
    diff, locking = DIFFERENTIAL_INERTIA * car.mass, LOCKING * car.mass
    driven = [car.drive != "rwd", car.drive != "fwd", car.drive == "4wd"]  # front, rear, central differential

    def wheels(figure: Callable[[End], float]) -> list[float]:
        return [figure(end) for end in ends for _ in range(2)]

    def differentials(front: float, rear: float, central: float) -> list[float]:
        return [held * there for held, there in zip((front, rear, central), driven, strict=True)]

    return {
        "mass": [mass],
        "size": [car.length, car.width, car.height],
        "front_weight": [car.front_weight],
        "centre_height": [car.centre_height - car.ride_height],
        "inverse_inertia": [
            12 / mass / (car.width**2 + car.height**2),
            12 / mass / (car.length**2 + car.height**2),
            12 / mass / (car.width**2 + (INERTIA * car.length) ** 2),
        ],
        "fuel": [FUEL],
        "tank": [FUEL],
        "drag": [HALF_AIR * car.drag_area - car.downforce / LIFT_TO_DRAG],
        "body_lift": [0.0, 0.0],
        "wing": [end.downforce / LIFT_TO_DRAG / math.sin(WING_ANGLE) for end in ends],
        "wing_angle": [WING_ANGLE] * 2,
        "wing_x": [end.x for end in ends],
        "wing_z": [0.0] * 2,
        "axle_x": [end.x for end in ends],
        "axle_inertia": [AXLE_INERTIA * wheel] * 2,
        "anti_roll_bar": [end.bar for end in ends],
        "roll_centre": [version.roll_height * car.centre_height] * 4,
        "wheel_x": wheels(lambda end: end.x),
        "wheel_y": [-half_track, half_track] * 2,
        "radius": [car.wheel_radius] * 4,
        "wheel_mass": [wheel] * 4,
        "wheel_inertia": [wheel_inertia(car)] * 4,
        "grip": [grip] * 4,
        "stiffness": wheels(lambda end: end.stiffness),
        "sliding": [version.sliding] * 4,
        "slip_shape": [version.slip_shape] * 4,
        "light_load": [version.light_load] * 4,
        "heavy_load": [version.heavy_load] * 4,
        "operating_load": wheels(operating_load),
        "ride_height": [car.ride_height] * 4,
        "spring": wheels(lambda end: end.spring),
        "spring_travel": wheels(lambda end: spring_travel(car, end)),
        "slow_bump": wheels(lambda end: end.damper),
        "fast_bump": wheels(lambda end: FAST_DAMPING * end.damper),
        "slow_rebound": wheels(lambda end: end.damper),
        "fast_rebound": wheels(lambda end: FAST_DAMPING * end.damper),
        "brake": [brake * share] * 2 + [brake * (1.0 - share)] * 2,
        "brake_inertia": [BRAKE_INERTIA * wheel] * 4,
        "steer_lock": [car.steering_lock],
        "steer_speed": [STEERING_SPEED],
        "power": [car.power],
        "torque": [car.torque],
        "rev_limit": [car.rev_limit],
        "most_revs": [MOST_REVS * car.rev_limit],
        "tickover": [TICKOVER * car.rev_limit],
        "engine_inertia": [ENGINE_INERTIA * car.torque],
        "engine_brake": [ENGINE_BRAKE],
        "fuel_use": [0.0],
        "curve_revs": list(revs[1:]),
        "curve_torque": list(torque),
        "drive": [float(list(TORCS_DRIVE).index(car.drive))],
        "ratios": [-ratios[0], *ratios],
        "shift_time": [SHIFT_TIME],
        "differential": differentials(2.0, 3.0, 2.0),  # TORCS's numbers: free, limited slip, free
        "differential_ratio": differentials(1.0, 1.0, CENTRAL_RATIO),
        "differential_inertia": differentials(diff, diff, 0.0),
        "slip_bias": differentials(SLIP_BIAS, SLIP_BIAS, SLIP_BIAS),
        "locking_torque": differentials(locking, locking, locking),
        "locking_brake_torque": differentials(locking, locking, locking),
    }


def differing_figures(
    held: Mapping[str, Sequence[float]], expected: Mapping[str, Sequence[float]]
) -> dict[str, tuple[Sequence[float], Sequence[float]]]:
    """Return the figures that two cars do not share, as TORCS holds them: in single precision."""
    return {
        name: (held.get(name, ()), expected.get(name, ()))
        for name in {**expected, **held}
        if len(held.get(name, ())) != len(expected.get(name, ()))
        or not np.allclose(held[name], expected[name], rtol=PRECISION, atol=1e-9)
    }
