"""What differs between the races of an environment: the car and its tyres, or the power and mass of one car."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from sparc.arrays import Array
from sparc.contexts import ContextSpace, Finite
from sparc.envs.racing.cars.car import FEATURES, Car, features, find_car, read_catalogue, scaled
from sparc.envs.racing.cars.description import describe
from sparc.envs.racing.cars.physics import PHYSICS as VERSIONS
from sparc.envs.racing.cars.tyres import COMPOUNDS
from sparc.envs.racing.tracks import Track
from sparc.errors import UserError

PHYSICS = tuple(VERSIONS)  # the first is that of training
GROUPS = ("ind", "ood")  # regions of cars: trained on, and held out
NOT_COMPLETED = 2.0  # the ratio of a lap that was not completed; a lap slower than this is not completed
# The car of the power & mass races and its tyres. On tarmac one whose bends depend on its mass: it lives on downforce.
TARMAC_CAR, DIRT_CAR = "prototype-01", "rally-01"
TARMAC_TYRE, DIRT_TYRE = "sports-medium", "sports-medium"
SCALE_TRAINED, SCALE_TESTED = (0.75, 1.25), (0.5, 1.5)  # of power and of mass
UNCLEAN = 1.5  # the ratio that an unclean lap counts as where checkpoints are chosen
HELD_IN = 45  # cars that the evaluations during training report: five on each compound
CHOICE_TURNS = 2  # as many cars each that checkpoints are chosen by, those above included
# Likewise, of power and of mass each; none of them is tested.
CHOICE_SCALES = (0.775, 0.825, 0.875, 0.925, 0.975, 1.025, 1.075, 1.125, 1.175, 1.225)
HELD_IN_SCALES = CHOICE_SCALES[::3]


class Task(Protocol):
    """A family of cars, told apart by a context."""

    @property
    def space(self) -> ContextSpace:
        """The contexts."""
        ...

    def describe(self, context: Array, physics: str) -> str:
        """Return the car of a context as TORCS is told it."""
        ...

    def label(self, context: Array) -> str:
        """Name the car of a context."""
        ...


@dataclass(frozen=True)
class CarModels:
    """A car of the catalogue on one of nine compounds."""

    track: Track

    @cached_property
    def _cars(self) -> tuple[Car, ...]:
        return tuple(car for car in read_catalogue() if car.dirt or not self.track.dirt)

    @cached_property
    def _known(self) -> dict[bytes, tuple[Car, str]]:
        return {features(car, tyre).tobytes(): (car, tyre) for car in self._cars for tyre in COMPOUNDS}

    @cached_property
    def space(self) -> ContextSpace:
        """All cars on all compounds; tested is each car once, on its own test compound."""
        return self._trained_on([car for car in self._cars if car.region == "ind"])

    def subset(self, names: Sequence[str]) -> ContextSpace:
        """Return the space that trains on these cars, on all compounds.

        Beside names of cars, "ind" and "ood" are all that are usually trained on and held out; "ind:0:300" are the
        first 300 of these in the order of the catalogue.
        """
        wanted: set[str] = set()
        for name in names:
            group, *ends = name.split(":")
            if group in GROUPS:
                if ends and not (len(ends) == 2 and all(end.isdecimal() for end in ends)):
                    raise UserError(f"'{name}' is no group of cars: write {group}, or {group}:0:100 for the first 100")
                cars = [car.name for car in self._cars if car.region == group]
                wanted |= set(cars[slice(*map(int, ends))] if ends else cars)
            else:
                self.context_of(name)  # says if there is no such car on this track
                wanted.add(name)
        if not wanted:
            raise UserError(f"{' '.join(names)}: there are no such cars on {self.track.name}")
        return self._trained_on([car for car in self._cars if car.name in wanted])

    def _trained_on(self, cars: list[Car]) -> ContextSpace:
        def on_all(cars: Sequence[Car]) -> Finite:
            return Finite(np.array([features(car, tyre) for car in cars for tyre in COMPOUNDS]))

        def settings(count: int) -> Array:
            chosen = dict.fromkeys(held_in(cars, number) for number in range(count))  # few cars come more than once
            return np.array([features(car, tyre) for car, tyre in chosen])

        return ContextSpace(
            tuple(name for name, _ in FEATURES),
            tuple(unit for _, unit in FEATURES),
            on_all(cars),
            on_all(self._cars),
            settings(HELD_IN),
            np.array([features(car, car.test_tyre) for car in self._cars]),
            settings(CHOICE_TURNS * HELD_IN),
        )

    def find(self, context: Array) -> tuple[Car, str]:
        """Return the car and the compound of a context."""
        context = np.ascontiguousarray(context, np.float64)
        found = self._known.get(context.tobytes())
        if found is None:  # not bit for bit, after rounding: the nearest
            rows = np.array([np.frombuffer(row) for row in self._known])
            nearest_row = int(np.argmin(np.abs((rows - context) / self.space.half_range).max(axis=1)))
            found = self._known[rows[nearest_row].tobytes()]
        return found

    def context_of(self, name: str, tyre: str | None = None) -> Array:
        """Return the context of a car by its name, on its test compound unless told otherwise."""
        car = find_car(name)
        if car not in self._cars:
            raise UserError(f"'{name}' does not race on {self.track.name}: only dirt-capable cars do")
        return features(car, tyre or car.test_tyre)

    def describe(self, context: Array, physics: str) -> str:
        """Return the car of a context as TORCS is told it."""
        return describe(*self.find(context), physics)

    def friction(self, contexts: Array) -> Array:
        """Return the friction of the tyres of contexts (M, C) on a road of friction 1: grip × compound, (M,)."""
        names = self.space.names
        return np.asarray(contexts[:, names.index("grip")] * contexts[:, names.index("tyre")])

    def label(self, context: Array) -> str:
        """Name car and compound."""
        car, tyre = self.find(context)
        return f"{car.name} {tyre}"


@dataclass(frozen=True)
class PowerMass:
    """One car with its power and its mass scaled."""

    track: Track

    @property
    def space(self) -> ContextSpace:
        """The two factors."""
        return ContextSpace.box(
            settings=[(power, mass) for power in HELD_IN_SCALES for mass in HELD_IN_SCALES],
            choice_settings=[(power, mass) for power in CHOICE_SCALES for mass in CHOICE_SCALES],
            power=("×", SCALE_TRAINED, SCALE_TESTED),
            mass=("×", SCALE_TRAINED, SCALE_TESTED),
        )

    def describe(self, context: Array, physics: str) -> str:
        """Return the car of a context as TORCS is told it."""
        car, tyre = (DIRT_CAR, DIRT_TYRE) if self.track.dirt else (TARMAC_CAR, TARMAC_TYRE)
        return describe(scaled(find_car(car), *(float(factor) for factor in context)), tyre, physics)

    def label(self, context: Array) -> str:
        """Name the factors."""
        return f"power ×{context[0]:.2f} mass ×{context[1]:.2f}"


def held_in(trained: list[Car], number: int) -> tuple[Car, str]:
    """Return a car and a compound for evaluations during training: compounds in turn, none that the car is tested on.

    The cars of a turn are spread evenly over the catalogue, those of the next lie between them, on other compounds.
    """
    turn, place = divmod(number, HELD_IN)
    tyre = [*COMPOUNDS][(place + turn * (len(COMPOUNDS) // CHOICE_TURNS)) % len(COMPOUNDS)]
    near = (CHOICE_TURNS * place + turn) * len(trained) // (CHOICE_TURNS * HELD_IN)
    others = (car for car in (*trained[near:], *trained) if car.test_tyre != tyre)
    return next(others, trained[near]), tyre
