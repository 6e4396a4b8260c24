"""A car's figures as the description that TORCS's physics reads: everything it needs, computed from the figures.

What a `Car` does not say follows from what it says: gears from power and drag, springs from weight, ride height and
downforce, the brakes' balance from the weight's. So two cars differ in nothing that their figures do not show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from sparc.envs.racing.tyres import friction
from sparc.errors import UserError, nearest

if TYPE_CHECKING:
    from sparc.envs.racing.cars import Car

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

# Springs, brakes and body.
SINK = 0.40  # of the ride height: how far springs give under the weight and the downforce at top speed
INERTIA = 0.75  # of a uniform body's length: how far its mass is spread out
BRAKE_PRESSURE = 1e7  # Pa
DISC_RADIUS, PAD_FRICTION = 0.6, 0.3  # of the wheel's radius
FRONT_BRAKE_MORE = 0.07  # the front brakes' share beyond that of the load while braking: whoever locks, locks in front
STEERING_SPEED = 5.0  # rad/s
SHIFT_TIME = 0.15  # s

# What TORCS's own driver "inferno" is told to count on: so much of the friction, so much of the downforce. With a tenth
# more it would be one or two per cent quicker, and spin on the hills of the long track.
PACE, AERO_PACE = 0.70, 0.80


@dataclass(frozen=True)
class Physics:
    """What no figure of a car tells: the same for all cars of one version of the physics."""

    front_stiffness: float  # of a tyre's force at small slip; less in front, as steering gives
    rear_stiffness: float
    sliding: float  # what is left of the friction at large slip
    slip_shape: float  # how round the curve is about its peak
    light_load: float  # friction factor of an unloaded tyre
    heavy_load: float  # of an overloaded one
    spring: float  # stiffness factor
    damping: float  # of critical
    front_bar: float  # anti-roll bars, as shares of the spring
    rear_bar: float
    roll_height: float  # height at which side forces lean the body, as a share of the centre of gravity's
    front_lift: float  # front axle's share of the downforce less its share of the weight
    low_torque: float  # torque of an engine at a standstill, as a share of its peak
    boost_at: float  # revs of a turbo engine's full torque, as a share of those of peak power
    top_power: float  # power at the rev limit, as a share of the peak


PHYSICS = {
    "standard": Physics(
        front_stiffness=16.0,
        rear_stiffness=20.0,
        sliding=0.85,
        slip_shape=0.70,
        light_load=2.0,
        heavy_load=0.75,
        spring=1.0,
        damping=0.60,
        front_bar=0.60,
        rear_bar=0.10,
        roll_height=0.40,
        front_lift=-0.07,
        low_torque=0.50,
        boost_at=0.32,
        top_power=0.96,
    ),
    # Fixed once and never trained on.
    "updated": Physics(
        front_stiffness=22.0,
        rear_stiffness=24.0,
        sliding=0.75,
        slip_shape=0.50,
        light_load=1.75,
        heavy_load=0.70,
        spring=0.70,
        damping=0.40,
        front_bar=0.20,
        rear_bar=0.45,
        roll_height=0.60,
        front_lift=-0.13,
        low_torque=0.35,
        boost_at=0.45,
        top_power=0.88,
    ),
}


def describe(car: Car, tyre: str, physics: str = "standard") -> str:
    """Give a car on its tyres in TORCS's XML."""
    if physics not in PHYSICS:
        raise UserError(f"no physics '{physics}'.{nearest(physics, PHYSICS)} Choose one of {', '.join(PHYSICS)}")
    return _describe(car, friction(tyre), PHYSICS[physics])


@lru_cache(maxsize=1024)
def _describe(car: Car, tyre: float, physics: Physics) -> str:
    parts = [_body(car), *_axles(car, car.grip * tyre, physics), _engine(car, physics), *_transmission(car)]
    parts += [_driver(car, car.grip * tyre, physics)]
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', '<params name="car">', *parts, "</params>", ""])


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
    """Give the front wing's downforce, N per (m/s)²."""
    return car.downforce * min(max(car.front_weight + physics.front_lift, 0.1), 0.9)


def _axles(car: Car, grip: float, physics: Physics) -> list[str]:
    parts = []
    mass, track = car.mass - FUEL, car.width - 0.55 * car.wheel_radius  # between the middles of the tyres
    tyre_width, wheel_mass = 0.55 * car.wheel_radius, 4.0 + 0.008 * car.mass
    lift = front_downforce(car, physics)
    ends = {
        "Front": (car.wheelbase / 2, car.front_weight, lift, physics.front_bar, physics.front_stiffness),
        "Rear": (
            -car.wheelbase / 2,
            1 - car.front_weight,
            car.downforce - lift,
            physics.rear_bar,
            physics.rear_stiffness,
        ),
    }
    square_metre = LIFT_TO_DRAG * WING_AIR * math.sin(WING_ANGLE)  # of a wing: its downforce
    disc = DISC_RADIUS * car.wheel_radius
    brake = {
        "disk diameter": 2 * disc,
        "piston area": car.brake_force * car.wheel_radius / (2 * disc * PAD_FRICTION * BRAKE_PRESSURE),
        "mu": PAD_FRICTION,
        "inertia": 0.005 * wheel_mass,
    }
    for end, (x, share, downforce, bar, stiffness) in ends.items():
        load = mass * share / 2  # kg, on each wheel
        spring = (load * GRAVITY + downforce * top_speed(car) ** 2 / 2) / (SINK * car.ride_height) * physics.spring
        damper = 2 * physics.damping * math.sqrt(spring * load)
        wing = {"area": downforce / square_metre, "angle": WING_ANGLE, "xpos": x, "zpos": 0.0}
        roll = physics.roll_height * car.centre_height
        axle = {"xpos": x, "inertia": 0.0025 * wheel_mass, "roll center height": roll}
        parts += [_section(f"{end} Wing", wing), _section(f"{end} Axle", axle)]
        parts.append(_section(f"{end} Anti-Roll Bar", {"spring": bar * spring}))
        wheel = {
            "rim diameter": 2 * car.wheel_radius - tyre_width,
            "tire width": tyre_width,
            "tire height-width ratio": 0.5,
            "inertia": 0.7 * wheel_mass * car.wheel_radius**2,
            "mass": wheel_mass,
            "ride height": car.ride_height,
            "mu": grip,
            "stiffness": stiffness,
            "dynamic friction": physics.sliding,
            "elasticity factor": physics.slip_shape,
            "load factor max": physics.light_load,
            "load factor min": physics.heavy_load,
            "operating load": 1.2 * load * GRAVITY,
        }
        suspension = {
            "spring": spring,
            "suspension course": car.ride_height + 1.2 * load * GRAVITY / spring,
            "slow bump": damper,
            "slow rebound": damper,
            "fast bump": 0.6 * damper,
            "fast rebound": 0.6 * damper,
        }
        for side, y in (("Right", -track / 2), ("Left", track / 2)):
            parts.append(_section(f"{end} {side} Wheel", {"ypos": y, **wheel}))
            parts.append(_section(f"{end} {side} Suspension", suspension))
            parts.append(_section(f"{end} {side} Brake", brake))
    system = {"front-rear brake repartition": front_brake(car, grip), "max pressure": BRAKE_PRESSURE}
    steer = {"steer lock": car.steering_lock, "max steer speed": STEERING_SPEED}
    return [*parts, _section("Brake System", system), _section("Steer", steer)]


def front_brake(car: Car, grip: float) -> float:
    """Give the front brakes' share: what the load is at the limit of these tyres, and some more."""
    return min(car.front_weight + grip * car.centre_height / car.wheelbase + FRONT_BRAKE_MORE, 0.90)


@lru_cache(maxsize=1024)
def top_speed(car: Car) -> float:
    """Give the speed at which drag and rolling take all power, or that of the longest gear, m/s."""
    low, high = 0.0, LONGEST_GEAR
    for _ in range(30):
        speed = (low + high) / 2
        need = HALF_AIR * car.drag_area * speed**3 + ROLLING * car.mass * GRAVITY * speed
        low, high = (speed, high) if need < car.power else (low, speed)
    return low


def gear_ratios(car: Car) -> list[float]:
    """Give the overall ratios, first gear first: equal steps up to the top speed at the revs of peak power."""
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
            "inertia": 0.0 if where == "Central" else 4e-5 * car.mass,
            "max slip bias": 0.1,
            "locking input torque": 2.5 * car.mass,
            "locking brake input torque": 2.5 * car.mass,
        }
        kind = "LIMITED SLIP" if where == "Rear" else "FREE"
        parts.append(_section(f"{where} Differential", numbers, type=kind))
    return parts


def _engine(car: Car, physics: Physics) -> str:
    numbers = {
        "revs limiter": car.rev_limit,
        "revs maxi": 1.1 * car.rev_limit,
        "tickover": 0.12 * car.rev_limit,
        "inertia": 3e-4 * car.torque,
        "fuel cons factor": 1.0,
        "brake coefficient": 0.06,
    }
    curve = enumerate(torque_curve(car, physics), 1)
    points = [_section(str(number), {"rpm": revs, "Tq": torque}) for number, (revs, torque) in curve]
    return _section("Engine", numbers, _section("data points", {}, *points))


def torque_curve(car: Car, physics: Physics) -> list[tuple[float, float]]:
    """Give points (rad/s, N·m) to beyond the rev limit; the peaks of torque and power are among them in any shape."""
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


def expected_figures(car: Car, tyre: str, physics: str = "standard") -> Numbers:
    """Give what the physics must hold of a car once it is loaded, by the names of simulator.FIGURES."""
    version, grip = PHYSICS[physics], car.grip * friction(tyre)
    front = front_downforce(car, version) / LIFT_TO_DRAG / math.sin(WING_ANGLE)
    wings = car.downforce / LIFT_TO_DRAG / math.sin(WING_ANGLE)
    brake, share, ratios = car.brake_force * car.wheel_radius, front_brake(car, grip), gear_ratios(car)
    return {
        "mass": car.mass - FUEL,
        "length": car.length,
        "width": car.width,
        "height": car.height,
        "wheelbase": car.wheelbase,
        "front_weight": car.front_weight,
        "centre_height": car.centre_height - car.ride_height,
        "front_radius": car.wheel_radius,
        "rear_radius": car.wheel_radius,
        "front_grip": grip,
        "rear_grip": grip,
        "power": car.power,
        "torque": car.torque,
        "rev_limit": car.rev_limit,
        "drive": float(list(TORCS_DRIVE).index(car.drive)),
        "gears": float(car.gears),
        "first_gear": ratios[0],
        "top_gear": ratios[-1],
        "drag": HALF_AIR * car.drag_area - car.downforce / LIFT_TO_DRAG,
        "front_lift": 0.0,
        "rear_lift": 0.0,
        "front_wing": front,
        "front_wing_angle": WING_ANGLE,
        "rear_wing": wings - front,
        "rear_wing_angle": WING_ANGLE,
        "front_brake": brake * share,
        "rear_brake": brake * (1.0 - share),
        "steer_lock": car.steering_lock,
        "fuel": FUEL,
        "slip_stiffness": version.front_stiffness,
        "load_sensitivity": version.heavy_load,
    }


def _driver(car: Car, grip: float, physics: Physics) -> str:
    """Tell TORCS's own driver what it may count on; by itself it looks neither at tyres nor at the front wing."""
    rear = car.downforce - front_downforce(car, physics)
    aero = AERO_PACE * car.downforce / rear if rear > 0.0 else 1.0
    return _section("berniw private", {"cfriction": PACE * grip, "caero": aero})
