"""Make the catalogue of cars: draw candidates class by class, let TORCS's AI drive them, keep the sound ones, split.

    python -m sparc.envs.racing.cars.catalogue    writes cars.csv (half an hour of one core)

A class of cars is one file in classes/; a new one only needs to be put there.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from sparc.envs.racing.cars.car import CATALOGUE, FEATURES, SOURCES, Car, columns, features
from sparc.envs.racing.cars.description import GRAVITY, PEAK_POWER_AT, TORCS_DRIVE, describe
from sparc.envs.racing.cars.estimate import Line, estimate_lap, find_line
from sparc.envs.racing.cars.physics import PHYSICS
from sparc.envs.racing.cars.readback import differing_figures, expected_figures
from sparc.envs.racing.cars.tyres import COMPOUNDS
from sparc.envs.racing.reference import LAPS, race_reference
from sparc.envs.racing.torcs.installation import Installation, find_torcs
from sparc.envs.racing.torcs.simulator import Laps, Simulator, WorkerLost
from sparc.envs.racing.tracks import TRACKS, Track
from sparc.errors import RunFailure, SparcError, UserError
from sparc.files import write_table

CLASSES = Path(__file__).with_name("classes")
SEED = 515
RPM = math.pi / 30
# What makes a car what it is within its class: how big it is, and how sporty. Each figure of a class's file follows one
# of the two for this share, down instead of up where it is negative, and chance for the rest.
FOLLOWS = {
    "mass": ("size", 0.7),
    "length": ("size", 0.8),
    "width": ("size", 0.6),
    "height": ("size", 0.5),
    "wheelbase": ("size", 0.8),
    "front_weight": ("sport", -0.3),
    "centre_height": ("sport", -0.5),
    "ride_height": ("sport", -0.6),
    "wheel_radius": ("size", 0.6),
    "power_per_mass": ("sport", 0.8),
    "rev_limit": ("sport", 0.5),
    "drag_area": ("size", 0.6),
    "downforce": ("sport", 0.7),
    "grip": ("sport", 0.7),
    "brakes": ("sport", 0.4),
    "steering_lock": ("size", 0.3),
}
# How much torque there is for the power (see description.TORQUE_SHARE), and what electric motors have in every class.
TORQUE = {"combustion": (1.06, 1.30), "turbo": (1.15, 1.50), "electric": (1.8, 3.2)}
MOTOR_REVS, MOTOR_GEARS = (12000.0, 19000.0), (1, 1, 2)  # rpm
# Decimals of the table.
DECIMALS = {"mass": 0, "power": -2, "torque": 1, "rev_limit": 1, "brake_force": -1}
DECIMALS |= dict.fromkeys(("length", "width", "height", "wheelbase"), 2)
OTHER_DECIMALS = 3
DIRT_CLEARANCE = 0.145  # m of ride height that unpaved tracks ask for

HARDEST, SOFTEST = min(COMPOUNDS, key=COMPOUNDS.__getitem__), max(COMPOUNDS, key=COMPOUNDS.__getitem__)
TESTED = ""  # in RACES: the car's own test compound
# Where the AI drives every candidate, from the shortest races to the longest; mixed-2 is for the dirt-capable ones.
RACES = (
    ("g-track-1", SOFTEST, "standard"),
    ("g-track-1", HARDEST, "standard"),
    ("mixed-2", SOFTEST, "standard"),
    ("mixed-2", HARDEST, "standard"),
    ("forza", SOFTEST, "standard"),
    ("forza", HARDEST, "standard"),
    ("forza", SOFTEST, "updated"),
    ("forza", HARDEST, "updated"),
    ("spring", TESTED, "standard"),
)
WEAK, TOO_QUICK = 1.25, 1.0  # of the lap that a point mass at the limit would need on the same line
PATIENCE = 4  # candidates drawn for each car wanted, before a class is given up

OOD_SHARE = 0.2
TREES = 300


# Drawing


def read_classes() -> dict[str, dict[str, Any]]:
    """Read the files of all classes, in the order of their names."""
    classes = {file.stem: yaml.safe_load(file.read_text(encoding="utf-8")) for file in sorted(CLASSES.glob("*.yaml"))}
    wanted = {"count", "sources", "drives", "gears", *FOLLOWS}
    for name, given in classes.items():
        if wrong := sorted(wanted.symmetric_difference(given)):
            raise UserError(f"classes/{name}.yaml: '{wrong[0]}' is {'missing' if wrong[0] in wanted else 'unknown'}")
        for key, options in (("sources", SOURCES), ("drives", tuple(TORCS_DRIVE))):
            if wrong := sorted(set(given[key]).difference(options)):
                raise UserError(f"classes/{name}.yaml: {key}: '{wrong[0]}' is none of {', '.join(options)}")
    return classes


def draw_car(class_name: str, given: dict[str, Any], draw: int) -> Car:
    """Draw a candidate of a class; the same class and number give the same car."""
    rng = np.random.default_rng([SEED, *class_name.encode(), draw])

    def choose(weights: Mapping[Any, float]) -> Any:
        sums = np.cumsum([*weights.values()])
        return [*weights][int(np.searchsorted(sums, rng.uniform() * sums[-1], side="right"))]

    size_and_sport = {"size": rng.uniform(), "sport": rng.uniform()}
    drive, source = choose(given["drives"]), choose(given["sources"])
    made: dict[str, Any] = {}
    for figure, (cause, share) in FOLLOWS.items():
        level = size_and_sport[cause] if share > 0 else 1.0 - size_and_sport[cause]
        low, high = MOTOR_REVS if figure == "rev_limit" and source == "electric" else given[figure]
        made[figure] = low + (high - low) * (abs(share) * level + (1 - abs(share)) * rng.uniform())
    gears = choose(Counter(MOTOR_GEARS if source == "electric" else given["gears"]))
    made["power"] = made.pop("power_per_mass") * made["mass"]
    made["rev_limit"] *= RPM
    made["torque"] = rng.uniform(*TORQUE[source]) * made["power"] / (PEAK_POWER_AT * made["rev_limit"])
    made["brake_force"] = made.pop("brakes") * made["grip"] * made["mass"] * GRAVITY
    made["steering_lock"] = math.radians(made["steering_lock"])
    made = {name: round(value, DECIMALS.get(name, OTHER_DECIMALS)) for name, value in made.items()}
    dirt = made["ride_height"] >= DIRT_CLEARANCE
    return Car(f"{class_name}-{draw:02d}", class_name, drive, source, gears=gears, draw=draw, dirt=dirt, **made)


# Judging


def fault_of(laps: Laps, estimate: float) -> str | None:
    """Return what is wrong with the AI's race, if anything is."""
    if len(laps.times) < LAPS:
        return "not finished"
    for what, seconds in (("off course", laps.off[-1]), ("wall", laps.wall[-1]), ("damage", laps.damage[-1])):
        if seconds > 0.0:
            return what
    ratio = laps.times[-1] / estimate
    return "weak" if ratio > WEAK else "too quick" if ratio < TOO_QUICK else None


def check_figures(simulator: Simulator, car: Car) -> None:
    """Load a car and compare every figure with what it should have; a RunFailure names the one that differs."""
    for physics in PHYSICS:
        for tyre in (HARDEST, SOFTEST):
            held = simulator.load(0, describe(car, tyre, physics))
            if wrong := differing_figures(held, expected_figures(car, tyre, physics)):
                name, (there, wanted) = wrong.popitem()
                raise RunFailure(f"{car.name}: the physics holds {name} = {there} instead of {wanted}")


class TrialDriver:
    """TORCS's AI on all tracks, and the lap that a point mass would drive on its line."""

    def __init__(self, torcs: Installation, pilot: Car) -> None:
        self._torcs = torcs
        self._simulator = Simulator(torcs, TRACKS["g-track-1"].file, 1)
        self._lines = {name: self._find_line(TRACKS[name], pilot) for name in dict.fromkeys(race[0] for race in RACES)}

    def _find_line(self, track: Track, pilot: Car) -> Line:
        laps = race_reference(self._torcs, track, describe(pilot, HARDEST))
        simulator = Simulator(self._torcs, track.file, 1)
        try:
            return find_line(laps.trace, simulator.describe_track(round(simulator.length)))
        finally:
            simulator.close()

    def find_fault(self, car: Car) -> tuple[str | None, dict[str, float]]:
        """Let the AI drive; give what is wrong with the car, if anything, and its laps on the medium track by tyre."""
        check_figures(self._simulator, car)
        times: dict[str, float] = {}
        for name, compound, physics in RACES:
            if TRACKS[name].dirt and not car.dirt:
                continue
            tyre = compound or car.test_tyre
            try:
                laps = race_reference(self._torcs, TRACKS[name], describe(car, tyre, physics))
            except WorkerLost:
                return f"crash on {name}", {}
            fault = fault_of(laps, estimate_lap(self._lines[name], car, COMPOUNDS[tyre]))
            if fault:
                return f"{fault} on {name}", {}
            if (name, physics) == ("forza", "standard"):
                times[tyre] = float(laps.times[-1])
        return None if times[SOFTEST] < times[HARDEST] else "slower on softer tyres", times

    def close(self) -> None:
        """End the simulator."""
        self._simulator.close()


def make_cars(torcs: Installation, console: Console) -> list[Car]:
    """Draw and judge until every class has its cars; tell what was rejected and how quick the rest is."""
    classes = read_classes()
    # The slowest of the first candidates shows the line: its trace is the finest.
    pilot = min((draw_car(name, given, 1) for name, given in classes.items()), key=lambda car: car.power / car.mass)
    driver = TrialDriver(torcs, pilot)
    cars: list[Car] = []
    table = Table("class", "cars", "rejected", f"forza, {HARDEST} [s]", f"forza, {SOFTEST} [s]")
    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*parts, console=console) as progress:
        task = progress.add_task("cars", total=sum(given["count"] for given in classes.values()))
        for name, given in classes.items():
            kept: list[Car] = []
            laps: list[dict[str, float]] = []
            faults: Counter[str] = Counter()
            for draw in range(1, PATIENCE * given["count"] + 1):
                tyre = [*COMPOUNDS][(len(cars) + len(kept)) % len(COMPOUNDS)]  # dealt round
                car = dataclasses.replace(draw_car(name, given, draw), test_tyre=tyre)
                fault, times = driver.find_fault(car)
                if fault:
                    faults[fault] += 1
                    continue
                kept.append(dataclasses.replace(car, name=f"{name}-{len(kept) + 1:02d}"))
                laps.append(times)
                progress.update(task, advance=1, description=name)
                if len(kept) == given["count"]:
                    break
            else:
                raise RunFailure(f"the AI cannot drive {name} cars well enough: {dict(faults)}")
            cars += kept
            told = ", ".join(f"{count} {fault}" for fault, count in faults.most_common())
            both = [[lap[tyre] for lap in laps] for tyre in (HARDEST, SOFTEST)]
            table.add_row(name, str(len(kept)), told, *(f"{min(times):.0f}–{max(times):.0f}" for times in both))
    driver.close()
    console.print(table)
    return cars


# Splitting


def split(cars: Sequence[Car]) -> list[Car]:
    """Mark the cars that an isolation forest finds strangest as out of distribution."""
    from sklearn.ensemble import IsolationForest  # only this needs it

    table = np.array([features(car, car.test_tyre) for car in cars])[:, [name != "tyre" for name, _ in FEATURES]]
    forest = IsolationForest(n_estimators=TREES, random_state=SEED).fit(table)
    scores = -forest.score_samples(table)
    strange = set(np.argsort(-scores, kind="stable")[: round(OOD_SHARE * len(cars))].tolist())
    return [
        dataclasses.replace(car, region="ood" if row in strange else "ind", anomaly=round(float(scores[row]), 6))
        for row, car in enumerate(cars)
    ]


def write(cars: Sequence[Car], file: Path) -> None:
    """Write the table, units in its head, complete or not at all."""
    rows = ([getattr(car, name) for name in columns()] for car in cars)
    words = {True: "yes", False: "no"}
    write_table(file, columns().values(), ([words[v] if isinstance(v, bool) else v for v in row] for row in rows))


def main() -> int:
    """Make the catalogue."""
    try:
        write(split(make_cars(find_torcs(), Console())), CATALOGUE)
    except SparcError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
