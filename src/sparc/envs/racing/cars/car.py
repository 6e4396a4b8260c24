"""The cars: their figures, what the physics accepts of them, their contexts, and the catalogue of 515."""

from __future__ import annotations

import csv
import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sparc.envs.racing.cars.description import TORCS_DRIVE
from sparc.envs.racing.cars.tyres import friction
from sparc.errors import UserError, unknown

CATALOGUE = Path(__file__).with_name("cars.csv")
SOURCES = ("combustion", "turbo", "electric")
FRONT_DRIVE = {"rwd": 0.0, "4wd": 0.5, "fwd": 1.0}  # the front axle's share of the torque
CLEARANCE = 0.02  # m, at least, from the floor up to the centre of gravity

# Every number of a car: its unit, and between which values the physics was seen to take it as it is and stay stable.
LIMITS: dict[str, tuple[str, float, float]] = {
    "mass": ("kg", 60.0, 5000.0),
    "length": ("m", 1.5, 7.0),
    "width": ("m", 1.1, 2.5),
    "height": ("m", 0.5, 3.0),
    "wheelbase": ("m", 0.9, 4.5),
    "front_weight": ("1", 0.30, 0.70),
    "centre_height": ("m", 0.10, 0.80),
    "ride_height": ("m", 0.03, 0.40),
    "wheel_radius": ("m", 0.10, 0.60),
    "power": ("W", 2e3, 1.2e6),
    "torque": ("N·m", 3.0, 5000.0),
    "rev_limit": ("rad/s", 200.0, 2200.0),
    "drag_area": ("m²", 0.2, 4.0),
    "downforce": ("N·s²/m²", 0.0, 4.0),
    "grip": ("1", 0.4, 2.0),
    "brake_force": ("N", 500.0, 1e5),
    "steering_lock": ("rad", 0.15, 0.90),
    "gears": ("1", 1, 8),
}


@dataclass(frozen=True)
class Car:
    """A car, ready to drive: with its driver and ten kilograms of fuel. SI units; LIMITS has them all."""

    name: str
    class_name: str
    drive: str  # "fwd", "rwd" or "4wd"
    source: str  # of its power: "combustion", "turbo" or "electric"
    mass: float
    length: float
    width: float
    height: float
    wheelbase: float
    front_weight: float  # share of the weight on the front axle
    centre_height: float  # of gravity, above the road
    ride_height: float  # of the body's floor, above the road
    wheel_radius: float
    power: float  # the most it has
    torque: float  # the most it has, at the engine
    rev_limit: float
    drag_area: float  # drag coefficient × frontal area, wings included
    downforce: float  # in N per (m/s)²
    grip: float  # friction of its standard tyre on a road of friction 1
    brake_force: float  # of all wheels together at full pedal
    steering_lock: float
    gears: int
    draw: int = 0  # which candidate of its class it was when the catalogue was made
    dirt: bool = False  # whether it drives unpaved tracks
    test_tyre: str = "sports-medium"  # the compound it is evaluated on
    region: str = "ind"  # or "ood"
    anomaly: float = 0.0  # the isolation forest's score: the higher, the stranger
    built_as: Car | None = None  # what its gears were made for, where power or mass were scaled since

    def __post_init__(self) -> None:
        for figure, (unit, low, high) in LIMITS.items():
            self._check_number(figure, unit, low, high)
        if not isinstance(self.gears, int | np.integer):
            raise UserError(f"car '{self.name}': gears = {self.gears!r} is not a whole number")
        self._check_number("centre_height", "m", self.ride_height + CLEARANCE, LIMITS["centre_height"][2])
        for figure, options in (("drive", tuple(TORCS_DRIVE)), ("source", SOURCES)):
            if getattr(self, figure) not in options:
                raise UserError(
                    f"car '{self.name}': {figure} '{getattr(self, figure)}' is none of {', '.join(options)}"
                )

    def _check_number(self, figure: str, unit: str, low: float, high: float) -> None:
        value = getattr(self, figure)
        if not isinstance(value, int | float | np.number):
            raise UserError(f"car '{self.name}': {figure} = {value!r} is not a number")
        if not low <= value <= high:  # also so for NaN
            unit = "" if unit == "1" else f" {unit}"
            raise UserError(f"car '{self.name}': {figure} = {value:g}{unit} is not in [{low:g}, {high:g}]")


# The context: name and unit. Two flags for the power source, the torque to the front axle for the drive train, and the
# friction factor of the compound that the car is on.
FEATURES: tuple[tuple[str, str], ...] = (
    *((name, LIMITS[name][0]) for name in ("mass", "length", "width", "height", "wheelbase", "front_weight")),
    *((name, LIMITS[name][0]) for name in ("centre_height", "wheel_radius", "power", "torque", "rev_limit")),
    ("turbo", "1"),
    ("electric", "1"),
    ("front_drive", "1"),
    *((name, LIMITS[name][0]) for name in ("drag_area", "downforce", "grip", "brake_force", "steering_lock")),
    ("tyre", "1"),
)


def features(car: Car, tyre: str) -> NDArray[np.float64]:
    """Return the context of a car on a compound, as FEATURES lists it."""
    made = {
        "turbo": float(car.source == "turbo"),
        "electric": float(car.source == "electric"),
        "front_drive": FRONT_DRIVE[car.drive],
        "tyre": friction(tyre),
    }
    return np.array([made[name] if name in made else getattr(car, name) for name, _ in FEATURES], np.float64)


def scaled(car: Car, power: float, mass: float) -> Car:
    """Return the same car, its gears included, with power (and torque with it) and mass multiplied by these factors."""
    return dataclasses.replace(
        car,
        name=f"{car.name} power ×{power:.2f} mass ×{mass:.2f}",
        power=car.power * power,
        torque=car.torque * power,
        mass=car.mass * mass,
        built_as=car.built_as or car,
    )


@lru_cache(maxsize=1)
def read_catalogue() -> tuple[Car, ...]:
    """Read the catalogue, in its own order."""
    try:
        with CATALOGUE.open(newline="", encoding="utf-8") as file:
            return tuple(_parse(row) for row in csv.DictReader(file))
    except FileNotFoundError:
        raise UserError(f"the catalogue of cars {CATALOGUE} is missing: install sparc again") from None


def find_car(name: str) -> Car:
    """Return a car by its name, or raise a UserError with the nearest name."""
    cars = {car.name: car for car in read_catalogue()}
    if name not in cars:
        padded = re.sub(r"-(\d)$", r"-0\1", name)  # kei-7 is meant to be kei-07, not kei-17
        raise unknown("car", name, [padded] if padded in cars else cars, "docs/environments/racing-cars.md")
    return cars[name]


def columns() -> dict[str, str]:
    """Return the catalogue's columns: field of Car -> heading, with its unit where it has one."""
    units = {name: unit for name, (unit, _, _) in LIMITS.items() if unit != "1"}
    names = [field.name for field in dataclasses.fields(Car) if field.name != "built_as"]
    return {name: f"{name} [{units[name]}]" if name in units else name for name in names}


def _parse(row: dict[str, str]) -> Car:
    readers: dict[str, Callable[[str], object]] = {"float": float, "int": int, "bool": lambda text: text == "yes"}
    kinds = {field.name: str(field.type) for field in dataclasses.fields(Car)}
    values = {name: readers.get(kinds[name], str)(row[heading]) for name, heading in columns().items()}
    return Car(**values)  # type: ignore[arg-type]
