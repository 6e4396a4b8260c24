"""A car's figures as the description that TORCS's physics reads: everything it needs, computed from the figures.

What a `Car` does not say follows from what it says: gears from power and drag, springs from weight, ride height and
downforce, the brakes' balance from the weight's. So two cars differ in nothing that their figures do not show.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from html import escape, unescape
from typing import TYPE_CHECKING

from sparc.envs.racing.cars.physics import PHYSICS, Physics
from sparc.envs.racing.cars.tyres import friction
from sparc.errors import UserError, unknown

if TYPE_CHECKING:
    from sparc.envs.racing.cars.car import Car

Numbers = dict[str, float]

GRAVITY = 9.81  # m/s²
FUEL = 10.0  # kg, part of the car's mass; the worker burns none
TORCS_DRIVE = {"rwd": "RWD", "fwd": "FWD", "4wd": "4WD"}  # in the order of TORCS's own numbers

# The air, as the physics has it.
HALF_AIR = 0.645  # kg/m³: half the density
WING_AIR = 1.23  # kg/m³
LIFT_TO_DRAG = 4.0  # of a wing
WING_ANGLE = 0.5  # rad: steep, so that a pitching body changes little

# Engine and gears.
PEAK_POWER_AT = 0.92  # of the rev limit: drivers change up at 0.9
# Torque × revs of peak power / power: how much torque there is for the power. Outside, the curve would need a power
# above the peak.
TORQUE_SHARE = {"combustion": (1.02, 1.35), "turbo": (1.02, 1.54), "electric": (1.10, 8.0)}
LONGEST_GEAR = 105.0  # m/s
ROLLING = 0.015  # of the weight
SPREAD = {1: 1.0, 2: 1.9, 3: 2.4, 4: 2.9, 5: 3.5, 6: 4.0, 7: 4.3, 8: 4.6}  # first gear's ratio / last one's
# With this ratio, undone in the gears, the road's reaction does not pass the central differential. TORCS would count
# it twice there and lose half of the power of a car with four driven wheels.
CENTRAL_RATIO = 1000.0
DIFFERENTIAL_INERTIA, SLIP_BIAS, LOCKING = 4e-5, 0.1, 2.5  # m², of the car's mass; share; N·m per kg
MOST_REVS, TICKOVER = 1.1, 0.12  # of the rev limit
ENGINE_INERTIA, ENGINE_BRAKE = 3e-4, 0.06  # s², of the torque; TORCS's own measure

# Springs, brakes and body.
SINK = 0.40  # of the ride height: how far springs give under the weight and the downforce at top speed
INERTIA = 0.75  # of a uniform body's length: how far its mass is spread out
BRAKE_PRESSURE = 1e7  # Pa
DISC_RADIUS, PAD_FRICTION = 0.6, 0.3  # of the wheel's radius
FRONT_BRAKE_MORE = 0.07  # the front brakes' share beyond that of the load while braking: whoever locks, locks in front
AXLE_INERTIA, BRAKE_INERTIA = 0.0025, 0.005  # m², of the wheel's mass
FAST_DAMPING = 0.6  # of the damping, beyond the speed at which TORCS's dampers give way
STEERING_SPEED = 5.0  # rad/s
SHIFT_TIME = 0.15  # s

# What TORCS's own driver "inferno" is told to count on: so much of the friction, so much of the downforce. With a tenth
# more it would be one or two per cent quicker, and spin on the hills of the long track.
PACE, AERO_PACE = 0.70, 0.80


def describe(car: Car, tyre: str, physics: str = "standard") -> str:
    """Return a car on its tyres in TORCS's XML."""
    if physics not in PHYSICS:
        raise unknown("physics", physics, PHYSICS)
    friction(tyre)  # an unknown compound is said here
    return _describe(car, tyre, PHYSICS[physics])


@lru_cache(maxsize=1024)
def _describe(car: Car, tyre: str, physics: Physics) -> str:
    grip = car.grip * friction(tyre)
    parts = [_body(car), *_axles(car, grip, physics), _engine(car, physics), *_transmission(car)]
    parts += [_driver(car, grip, physics)]
    name = escape(f"{car.name} {tyre}")  # TORCS does not look at it; errors tell it
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', f'<params name="{name}">', *parts, "</params>", ""])


def name_in(xml: str) -> str:
    """Return the name of the car that a description is of."""
    found = re.search(r'<params[^>]*? name="([^"]*)"', xml)
    return unescape(found[1]) if found else "this car"


def _section(name: str, numbers: Numbers, *inner: str, **texts: str) -> str:
    lines = [f'<attstr name="{key}" val="{text}"/>' for key, text in texts.items()]
    lines += [f'<attnum name="{key}" val="{number:.9g}"/>' for key, number in numbers.items()]
    return "\n".join([f'<section name="{name}">', *lines, *inner, "</section>"])


def _body(car: Car) -> str:
    body = {
        "body length": car.length,
        "body width": car.width,
        "body height": car.height,
        "mass": car.mass - FUEL,
        "GC height": car.centre_height - car.ride_height,  # TORCS counts from the floor
        "front-rear weight repartition": car.front_weight,
        "mass repartition coefficient": INERTIA,
        "fuel tank": FUEL,
        "initial fuel": FUEL,
    }
    drag = car.drag_area - car.downforce / LIFT_TO_DRAG / HALF_AIR
    if drag <= 0.0:
        least = car.downforce / LIFT_TO_DRAG / HALF_AIR
        raise UserError(f"car '{car.name}': drag_area = {car.drag_area:g} m² is not above {least:.3g}, its wings' own")
    return "\n".join([_section("Car", body), _section("Aerodynamics", {"Cx": drag, "front area": 1.0})])


def front_downforce(car: Car, physics: Physics) -> float:
    """Return the front wing's downforce, N per (m/s)²."""
    return car.downforce * min(max(car.front_weight + physics.front_lift, 0.1), 0.9)


@dataclass(frozen=True)
class End:
    """The front or the rear of a car: what it carries, and what holds it up."""

    x: float  # m, from the middle of the wheelbase
    load: float  # kg, on each wheel
    downforce: float  # N per (m/s)²
    spring: float  # N/m
    damper: float  # N·s/m
    bar: float  # N/m
    stiffness: float  # of the tyres


def ends_of(car: Car, physics: Physics) -> tuple[End, End]:
    """Return the two ends of a car, its front first."""
    lift = front_downforce(car, physics)

    def end(x: float, share: float, downforce: float, bar: float, stiffness: float) -> End:
        load = (car.mass - FUEL) * share / 2
        spring = (load * GRAVITY + downforce * top_speed(car) ** 2 / 2) / (SINK * car.ride_height) * physics.spring
        damper = 2 * physics.damping * math.sqrt(spring * load)
        return End(x, load, downforce, spring, damper, bar * spring, stiffness)

    return (
        end(car.wheelbase / 2, car.front_weight, lift, physics.front_bar, physics.front_stiffness),
        end(-car.wheelbase / 2, 1 - car.front_weight, car.downforce - lift, physics.rear_bar, physics.rear_stiffness),
    )


def tyre_width(car: Car) -> float:
    """Return the width of a tyre, m."""
    return 0.55 * car.wheel_radius


def track_width(car: Car) -> float:
    """Return the distance between the middles of the tyres, m."""
    return car.width - tyre_width(car)


def wheel_mass(car: Car) -> float:
    """Return the mass of a wheel, kg."""
    return 4.0 + 0.008 * car.mass


def wheel_inertia(car: Car) -> float:
    """Return the moment of inertia of a wheel, kg·m²."""
    return 0.7 * wheel_mass(car) * car.wheel_radius**2


def operating_load(end: End) -> float:
    """Return the load at which a tyre has its friction, N."""
    return 1.2 * end.load * GRAVITY


def spring_travel(car: Car, end: End) -> float:
    """Return how far a wheel moves, m."""
    return car.ride_height + operating_load(end) / end.spring


def _axles(car: Car, grip: float, physics: Physics) -> list[str]:
    parts = []
    square_metre = LIFT_TO_DRAG * WING_AIR * math.sin(WING_ANGLE)  # of a wing: its downforce
    disc = DISC_RADIUS * car.wheel_radius
    brake = {
        "disk diameter": 2 * disc,
        "piston area": car.brake_force * car.wheel_radius / (2 * disc * PAD_FRICTION * BRAKE_PRESSURE),
        "mu": PAD_FRICTION,
        "inertia": BRAKE_INERTIA * wheel_mass(car),
    }
    for name, end in zip(("Front", "Rear"), ends_of(car, physics), strict=True):
        wing = {"area": end.downforce / square_metre, "angle": WING_ANGLE, "xpos": end.x, "zpos": 0.0}
        roll = physics.roll_height * car.centre_height
        axle = {"xpos": end.x, "inertia": AXLE_INERTIA * wheel_mass(car), "roll center height": roll}
        parts += [_section(f"{name} Wing", wing), _section(f"{name} Axle", axle)]
        parts.append(_section(f"{name} Anti-Roll Bar", {"spring": end.bar}))
        wheel = {
            "rim diameter": 2 * car.wheel_radius - tyre_width(car),
            "tire width": tyre_width(car),
            "tire height-width ratio": 0.5,
            "inertia": wheel_inertia(car),
            "mass": wheel_mass(car),
            "ride height": car.ride_height,
            "mu": grip,
            "stiffness": end.stiffness,
            "dynamic friction": physics.sliding,
            "elasticity factor": physics.slip_shape,
            "load factor max": physics.light_load,
            "load factor min": physics.heavy_load,
            "operating load": operating_load(end),
        }
        suspension = {
            "spring": end.spring,
            "suspension course": spring_travel(car, end),
            "slow bump": end.damper,
            "slow rebound": end.damper,
            "fast bump": FAST_DAMPING * end.damper,
            "fast rebound": FAST_DAMPING * end.damper,
        }
        for side, y in (("Right", -track_width(car) / 2), ("Left", track_width(car) / 2)):
            parts.append(_section(f"{name} {side} Wheel", {"ypos": y, **wheel}))
            parts.append(_section(f"{name} {side} Suspension", suspension))
            parts.append(_section(f"{name} {side} Brake", brake))
    system = {"front-rear brake repartition": front_brake(car, grip), "max pressure": BRAKE_PRESSURE}
    steer = {"steer lock": car.steering_lock, "max steer speed": STEERING_SPEED}
    return [*parts, _section("Brake System", system), _section("Steer", steer)]


def front_brake(car: Car, grip: float) -> float:
    """Return the front brakes' share: what the load is at the limit of these tyres, and some more."""
    return min(car.front_weight + grip * car.centre_height / car.wheelbase + FRONT_BRAKE_MORE, 0.90)


@lru_cache(maxsize=1024)
def top_speed(car: Car) -> float:
    """Return the speed at which drag and rolling take all power, or that of the longest gear, m/s."""
    low, high = 0.0, LONGEST_GEAR
    for _ in range(30):
        speed = (low + high) / 2
        need = HALF_AIR * car.drag_area * speed**3 + ROLLING * car.mass * GRAVITY * speed
        low, high = (speed, high) if need < car.power else (low, speed)
    return low


def gear_ratios(car: Car) -> list[float]:
    """Return the overall ratios, first gear first: equal steps up to the top speed at the revs of peak power."""
    last = PEAK_POWER_AT * car.rev_limit * car.wheel_radius / top_speed(car.built_as or car)
    steps = max(car.gears - 1, 1)
    return [last * SPREAD[car.gears] ** ((car.gears - gear) / steps) for gear in range(1, car.gears + 1)]


def _transmission(car: Car) -> list[str]:
    final = CENTRAL_RATIO if car.drive == "4wd" else 1.0
    ratios = [ratio / final for ratio in gear_ratios(car)]
    gears = [_section("r", {"ratio": -ratios[0]})]
    gears += [_section(str(number), {"ratio": ratio}) for number, ratio in enumerate(ratios, 1)]
    parts = [_section("Drivetrain", {}, type=TORCS_DRIVE[car.drive])]
    parts.append(_section("Gearbox", {"shift time": SHIFT_TIME}, _section("gears", {}, *gears)))
    for where in ("Front", "Rear", "Central"):  # all three, so that every drive train can move
        numbers = {
            "ratio": CENTRAL_RATIO if where == "Central" else 1.0,
            "inertia": 0.0 if where == "Central" else DIFFERENTIAL_INERTIA * car.mass,
            "max slip bias": SLIP_BIAS,
            "locking input torque": LOCKING * car.mass,
            "locking brake input torque": LOCKING * car.mass,
        }
        kind = "LIMITED SLIP" if where == "Rear" else "FREE"
        parts.append(_section(f"{where} Differential", numbers, type=kind))
    return parts


def _engine(car: Car, physics: Physics) -> str:
    numbers = {
        "revs limiter": car.rev_limit,
        "revs maxi": MOST_REVS * car.rev_limit,
        "tickover": TICKOVER * car.rev_limit,
        "inertia": ENGINE_INERTIA * car.torque,
        "fuel cons factor": 1.0,
        "brake coefficient": ENGINE_BRAKE,
    }
    curve = enumerate(torque_curve(car, physics), 1)
    points = [_section(str(number), {"rpm": revs, "Tq": torque}) for number, (revs, torque) in curve]
    return _section("Engine", numbers, _section("data points", {}, *points))


def torque_curve(car: Car, physics: Physics) -> list[tuple[float, float]]:
    """Return points (rad/s, N·m) to beyond the rev limit; the peaks of torque and power are among them in any shape."""
    peak = PEAK_POWER_AT * car.rev_limit
    at_peak = car.power / peak
    share = car.torque / at_peak
    least, most = TORQUE_SHARE[car.source]
    if not least <= share <= most:
        raise UserError(
            f"car '{car.name}': torque = {car.torque:g} N·m is not in [{least * at_peak:.4g}, {most * at_peak:.4g}], "
            f"what a {car.source} engine of its power and rev limit can have"
        )
    beyond = 1.25 * car.rev_limit
    if car.source == "electric":  # full torque, then full power
        base = car.power / car.torque
        points = [(0.0, car.torque), (0.97 * base, car.torque), (1.03 * base, car.power / (1.03 * base))]
        for step in range(1, 7):
            revs = 1.03 * base * (beyond / (1.03 * base)) ** (step / 6)
            level = 0.97 + (physics.top_power - 0.97) * min((revs - base) / (car.rev_limit - base), 1.0)
            points.append((revs, level * car.power / revs))
        return points
    if car.source == "turbo":  # a plateau
        points = [(0.0, 0.6 * physics.low_torque * car.torque), (physics.boost_at * peak, car.torque)]
        points.append((max(min(0.75, 1.98 - share), 0.46) * peak, car.torque))
    else:
        middle = (1.0 + physics.low_torque) / 2
        points = [(0.0, physics.low_torque * car.torque), (0.3 * peak, middle * car.torque), (0.6 * peak, car.torque)]
    at_limit = physics.top_power * car.power / car.rev_limit
    return [*points, (peak, at_peak), (car.rev_limit, at_limit), (beyond, 0.4 * at_peak)]


def _driver(car: Car, grip: float, physics: Physics) -> str:
    """Return what TORCS's own driver may count on; by itself it looks neither at tyres nor at the front wing."""
    rear = car.downforce - front_downforce(car, physics)
    aero = AERO_PACE * car.downforce / rear if rear > 0.0 else 1.0
    return _section("berniw private", {"cfriction": PACE * grip, "caero": aero})
