"""Contexts: the named, bounded features of the dynamics that differ between episodes and that a policy cannot read."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparc.arrays import Array
from sparc.errors import UserError, unknown

EDGE_TOLERANCE = 1e-9  # of the range: the edges of a region belong to it, also after rounding in a grid
CHOICE_SETTINGS = 16  # that checkpoints are chosen by
GRID_SEED = 0  # for grids over more than two features, so that every evaluation sees the same contexts


def _frozen(values: ArrayLike) -> Array:
    array = np.array(values, dtype=np.float64)
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class Box:
    """All contexts between low and high, edges included."""

    low: Array  # (C,)
    high: Array  # (C,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", _frozen(self.low))
        object.__setattr__(self, "high", _frozen(self.high))
        if self.low.ndim != 1 or self.low.shape != self.high.shape or not self.low.size:
            raise UserError(f"a context box needs one low and one high per feature, got {self.low} and {self.high}")
        if not (np.isfinite(self.low).all() and np.isfinite(self.high).all() and (self.low <= self.high).all()):
            raise UserError(f"a context box needs finite low <= high, got low {self.low} and high {self.high}")

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Draw n contexts uniformly, (n, C)."""
        return rng.uniform(self.low, self.high, (n, self.low.size))

    def contains(self, contexts: ArrayLike) -> NDArray[np.bool_]:
        """Return for each context (n, C) whether it lies inside, (n,)."""
        slack = EDGE_TOLERANCE * (self.high - self.low)
        contexts = np.asarray(contexts)
        return np.all((contexts >= self.low - slack) & (contexts <= self.high + slack), axis=-1)


@dataclass(frozen=True, eq=False)
class Finite:
    """A finite set of contexts, such as the cars of a game."""

    values: Array  # (M, C)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _frozen(self.values))
        if self.values.ndim != 2 or not self.values.size or not np.isfinite(self.values).all():
            raise UserError(f"a finite context set needs finite values of shape (M, C), got {self.values.shape}")

    @property
    def low(self) -> Array:
        """The smallest value of each feature, (C,)."""
        return self.values.min(axis=0)

    @property
    def high(self) -> Array:
        """The largest value of each feature, (C,)."""
        return self.values.max(axis=0)

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Draw n of the contexts uniformly, (n, C)."""
        return self.values[rng.integers(len(self.values), size=n)]

    def contains(self, contexts: ArrayLike) -> NDArray[np.bool_]:
        """Return for each context (n, C) whether it is one of the set, (n,)."""
        contexts = np.ascontiguousarray(contexts, dtype=np.float64)
        known = np.array([row.tobytes() in self._rows for row in contexts], dtype=bool)
        slack = EDGE_TOLERANCE * (self.high - self.low)
        for row in np.flatnonzero(~known):  # not bit for bit: after rounding, or not at all
            known[row] = np.any(np.all(np.abs(self.values - contexts[row]) <= slack, axis=-1))
        return known

    @cached_property
    def _rows(self) -> frozenset[bytes]:
        return frozenset(row.tobytes() for row in self.values)


@dataclass(frozen=True, eq=False)
class ContextSpace:
    """The features of a context and the regions to train (IND) and to test (IND and OOD) on.

    `ContextSpace.box` is the short way for ranges; for a finite set of contexts give `Finite` regions.

    Args:
        names: the names of the features.
        units: their units, as written on axes.
        train: the contexts that training draws from: a `Box` or a `Finite` set.
        test: the contexts to test on; it must contain `train`. Those outside `train` are out of distribution.
        settings: contexts inside `train`, (S, C), that evaluations during training report; by default three.
        tested: the contexts of a finite `test` that are evaluated, (M, C); by default all.
        choice_settings: contexts inside `train`, (K, C), that select the best checkpoint; by default 16.
        earlier: the training regions of the stages before, see `continued`.

    Raises:
        UserError: sizes differ, names repeat, or a region or setting lies outside of what must contain it.

    Example:
        >>> loads = Finite([[0.0], [5.0]]), Finite([[0.0], [5.0], [10.0]])
        >>> ContextSpace(("load",), ("kg",), *loads)
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    train: Box | Finite
    test: Box | Finite
    settings: Array = None  # type: ignore[assignment]  # (S, C) IND; None is replaced by three default settings
    tested: Array | None = None  # (M, C) what is evaluated of a finite test set; None: all of it
    choice_settings: Array = None  # type: ignore[assignment]  # (K, C) IND; None is replaced by 16 default settings
    earlier: tuple[Box | Finite, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "units", tuple(self.units))
        widths = {len(self.names), len(self.units), self.train.low.size, self.test.low.size}
        if len(widths) != 1 or len(set(self.names)) != len(self.names):
            raise UserError(f"a context space needs one unit, train and test range per distinct name, got {self.names}")
        if isinstance(self.test, Finite) and isinstance(self.train, Box):
            raise UserError(f"contexts {self.names}: a finite test set cannot contain a training box")
        corners = np.stack([self.train.low, self.train.high])
        inside = self.test.contains(self.train.values if isinstance(self.train, Finite) else corners)
        if not inside.all():
            raise UserError(f"contexts {self.names}: the test region must contain the training region; widen it")
        defaults = {"settings": self._default_settings, "choice_settings": self._default_choice_settings}
        for name, default in defaults.items():
            given = getattr(self, name)
            settings = default() if given is None else _frozen(given)
            object.__setattr__(self, name, settings)
            wrong = settings.ndim != 2 or settings.shape[1] != self.size or not len(settings)
            if wrong or not self.train.contains(settings).all():
                raise UserError(
                    f"contexts {self.names}: {name} must be at least one row of {self.size}, all in the training region"
                )
        if self.tested is not None:
            object.__setattr__(self, "tested", self.check(self.tested))

    @classmethod
    def box(
        cls, *, settings: ArrayLike | None = None, choice_settings: ArrayLike | None = None,
        **features: tuple[str, Any, Any],
    ) -> ContextSpace:  # fmt: skip
        """Return a space of ranges.

        Args:
            settings: as in `ContextSpace`.
            choice_settings: as in `ContextSpace`.
            **features: for each feature name=(unit, (train low, train high), (test low, test high)).

        Raises:
            UserError: a feature has another form, or its test range does not contain its training range.

        Example:
            >>> sparc.ContextSpace.box(x=("m/s", (-0.5, 0.5), (-1, 1)), y=("m/s", (-0.5, 0.5), (-1, 1)))
        """
        for name, feature in features.items():
            if len(feature) != 3 or len(feature[1]) != 2 or len(feature[2]) != 2:
                raise UserError(f"context feature '{name}' must be (unit, (train low, high), (test low, high))")
        if not features:
            raise UserError("a context space needs at least one feature")
        units, train, test = zip(*features.values(), strict=True)
        (low, high), (test_low, test_high) = np.transpose(train), np.transpose(test)
        given = {"settings": settings, "choice_settings": choice_settings}
        chosen: dict[str, Any] = {name: _frozen(rows) for name, rows in given.items() if rows is not None}
        return cls(tuple(features), units, Box(low, high), Box(test_low, test_high), **chosen)

    def with_train(self, train: Box | Finite) -> ContextSpace:
        """Return the space with another region to train on, and the default settings of that."""
        defaults: dict[str, Any] = {"settings": None, "choice_settings": None}
        return replace(self, train=train, **defaults)

    def continued(self, stage: ContextSpace) -> ContextSpace:
        """Return the space of a further stage, which trains on the region and has the settings of another space.

        What was trained on before stays in distribution, and contexts stay scaled by the first stage's region: networks
        that go on learning must not see their inputs change.
        """
        return replace(stage, earlier=(*self.earlier, self.train))

    def region(self, ranges: Mapping[str, Sequence[float]]) -> Box | Finite:
        """Return the training region with the ranges of some features replaced; of a finite test set, what is in it."""
        low, high = self.train.low.copy(), self.train.high.copy()
        for name, bounds in ranges.items():
            if name not in self.names:
                raise unknown("context feature", name, self.names)
            index = self.names.index(name)
            least, most = self.test.low[index], self.test.high[index]
            try:
                low[index], high[index] = bounds
            except (TypeError, ValueError):
                raise UserError(f"the range of {name} must be two numbers, (low, high), not {bounds!r}.") from None
            if not np.isfinite([low[index], high[index]]).all():
                raise UserError(f"the bounds of {name} must be finite, not {low[index]:g}:{high[index]:g}.")
            if low[index] > high[index]:
                raise UserError(f"the range of {name} is reversed: {low[index]:g} is greater than {high[index]:g}.")
            if low[index] < least or high[index] > most:
                raise UserError(
                    f"{name}={low[index]:g}:{high[index]:g} reaches outside the test region: {name} must stay within "
                    f"[{least:g}, {most:g}]."
                )
        if isinstance(self.test, Box):
            return Box(low, high)
        inside = self.test.values[Box(low, high).contains(self.test.values)]
        if not len(inside):
            raise UserError("none of the test contexts lies in these ranges: widen them.")
        return Finite(inside)

    def _default_settings(self) -> Array:
        if isinstance(self.train, Finite):
            last = len(self.train.values) - 1
            return _frozen(self.train.values[sorted({0, last // 2, last})])
        # The paper's three: no deviation, half-way with alternating signs, the upper corner.
        alternating = np.where(np.arange(self.size) % 2 == 0, -0.5, 0.5)
        centre, half = (self.train.low + self.train.high) / 2, (self.train.high - self.train.low) / 2
        return _frozen([centre, centre + alternating * half, self.train.high])

    def _default_choice_settings(self) -> Array:
        if isinstance(self.train, Finite):
            last = len(self.train.values) - 1
            return _frozen(self.train.values[sorted({round(row) for row in np.linspace(0, last, CHOICE_SETTINGS)})])
        varied = self.train.high > self.train.low
        places = np.zeros((CHOICE_SETTINGS, self.size))
        places[:, varied] = spread(int(varied.sum()))
        return _frozen(self.train.low + places * (self.train.high - self.train.low))

    @cached_property
    def evaluated(self) -> Array:
        """The contexts of an evaluation during training: the settings, then the choice settings not among them."""
        known = {row.tobytes() for row in self.settings}
        further = [row for row in self.choice_settings if row.tobytes() not in known]
        return _frozen([*self.settings, *further])

    @cached_property
    def choice_rows(self) -> NDArray[np.intp]:
        """The rows of `evaluated` that are the choice settings, (K,)."""
        rows = {row.tobytes(): index for index, row in enumerate(self.evaluated)}
        return np.array([rows[row.tobytes()] for row in self.choice_settings])

    def as_tested(self) -> ContextSpace:
        """Return the space of what is tested alone, for results, which show no more."""
        if self.tested is None:
            return self
        trained = Finite(self.tested[self.is_train(self.tested)])
        return ContextSpace(self.names, self.units, trained, Finite(self.tested), trained.values[:1])  # of all stages

    def describe_region(self) -> str:
        """Return the training region in words."""
        if isinstance(self.train, Finite):
            return f"{len(self.train.values):,} contexts"
        bounds = zip(self.names, self.train.low, self.train.high, strict=True)
        return ", ".join(f"{name} {low:g} to {high:g}" for name, low, high in bounds)

    def as_stage(self) -> dict[str, Any]:
        """Return the region of this stage alone for JSON: of a finite set, what is tested of it."""
        if isinstance(self.train, Box) or self.tested is None:
            return _to_dict(self.train)
        return _to_dict(Finite(self.tested[self.train.contains(self.tested)]))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; `from_dict` reads them."""
        values: dict[str, Any] = {"train": _to_dict(self.train), "test": _to_dict(self.test)}
        if self.earlier:
            values["earlier"] = [_to_dict(region) for region in self.earlier]
        return {"names": list(self.names), "units": list(self.units), **values, "settings": self.settings.tolist()}

    def fingerprint(self) -> str:
        """Return what a policy was trained on: another one, and its context is scaled or drawn otherwise."""
        values = self.to_dict()
        trained = {name: values[name] for name in ("names", "units", "train", "earlier") if name in values}
        return hashlib.sha256(json.dumps(trained).encode()).hexdigest()[:16]

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ContextSpace:
        """Make the space that `to_dict` described."""
        train, test, *earlier = map(read_region, (values["train"], values["test"], *values.get("earlier", [])))
        settings = _frozen(values["settings"])
        return cls(tuple(values["names"]), tuple(values["units"]), train, test, settings, earlier=tuple(earlier))

    @property
    def size(self) -> int:
        """The number of features C."""
        return len(self.names)

    @property
    def scale(self) -> Box | Finite:
        """The region that contexts are scaled by: that of the first stage."""
        return self.earlier[0] if self.earlier else self.train

    @property
    def centre(self) -> Array:
        """The centre of the region that contexts are scaled by, (C,)."""
        return (self.scale.low + self.scale.high) / 2

    @property
    def half_range(self) -> Array:
        """Half the range of that region, (C,); 1 where it has none, so that dividing by it is safe."""
        half = (self.scale.high - self.scale.low) / 2
        return np.where(half > 0, half, 1.0)

    def sample(self, rng: np.random.Generator, n: int | None = None) -> Array:
        """Draw one context (C,) or n contexts (n, C) from the training region."""
        return self.train.sample(rng, 1)[0] if n is None else self.train.sample(rng, n)

    def grid(self, k: int) -> Array:
        """Return the contexts to test on: k per feature, the last name varying fastest, or all of a finite set."""
        if k < 1:
            raise UserError(f"a grid needs at least one cell per feature, got {k}")
        if isinstance(self.test, Finite):
            return (self.test.values if self.tested is None else self.tested).copy()
        if self.size > 2:  # a full grid would explode: as many cells as a plane has
            return self.test.sample(np.random.default_rng(GRID_SEED), k * k)
        axes = [np.linspace(low, high, k) for low, high in zip(self.test.low, self.test.high, strict=True)]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, self.size)

    def is_train(self, contexts: ArrayLike) -> NDArray[np.bool_]:
        """Return for each context whether it is in distribution: in the region of any stage so far, (n,)."""
        rows = np.atleast_2d(np.asarray(contexts, dtype=np.float64))
        return np.any([region.contains(rows) for region in (*self.earlier, self.train)], axis=0)

    def text(self, context: Array) -> str:
        """Return a context as messages name it: "x=1, y=2"."""
        return ", ".join(f"{name}={value:.6g}" for name, value in zip(self.names, context, strict=True))

    def check(self, contexts: ArrayLike) -> Array:
        """Return the contexts as a float64 array (n, C), or raise a UserError that names the one that cannot be."""
        try:
            array = np.atleast_2d(np.array(contexts, dtype=np.float64))
        except (TypeError, ValueError):
            raise UserError(
                f"a context must be {self.size} numbers ({', '.join(self.names)}), got {contexts!r}"
            ) from None
        if array.ndim != 2 or array.shape[1] != self.size:
            expected = f"{self.size} numbers ({', '.join(self.names)})"
            raise UserError(f"a context must be {expected}, got an array of shape {np.shape(contexts)}")
        low, high = self.test.low, self.test.high
        slack = EDGE_TOLERANCE * (high - low)
        wrong = ~((array >= low - slack) & (array <= high + slack))  # also true for NaN
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            value = f"{array[row, column]:g} {self.units[column]}".rstrip()
            raise UserError(
                f"{which(row, array)}{self.names[column]} = {value} is outside the test region; "
                f"choose it in [{low[column]:g}, {high[column]:g}]"
            )
        if isinstance(self.test, Finite) and not (known := self.test.contains(array)).all():
            row = int(np.argmin(known))
            raise UserError(
                f"{which(row, array)}{dict(zip(self.names, array[row].tolist(), strict=True))} is none of the "
                f"{len(self.test.values)} contexts of the test set; choose one of them"
            )
        return array


def _to_dict(region: Box | Finite) -> dict[str, Any]:
    """Return a region as plain values."""
    if isinstance(region, Finite):
        return {"values": region.values.tolist()}
    return {"low": region.low.tolist(), "high": region.high.tolist()}


def read_region(values: Mapping[str, Any]) -> Box | Finite:
    """Return the region that plain values describe."""
    return Finite(values["values"]) if "values" in values else Box(values["low"], values["high"])


def spread(size: int) -> Array:
    """Return CHOICE_SETTINGS points that fill the unit cube evenly, (16, size).

    In a square the midpoints of 4 × 4 cells; else a lattice in which each feature takes each of 16 values once (Korobov
    points: row i has i·5^j mod 17 for feature j, and 5 is a primitive root of 17).
    """
    if size == 2:
        side = math.isqrt(CHOICE_SETTINGS)
        cells = (np.arange(side) + 0.5) / side
        return np.stack(np.meshgrid(cells, cells, indexing="ij"), axis=-1).reshape(-1, 2)
    prime = CHOICE_SETTINGS + 1
    factors = [pow(5, feature, prime) for feature in range(size)]
    return (np.outer(np.arange(1, prime), factors) % prime - 0.5) / CHOICE_SETTINGS


def which(row: int, contexts: Array) -> str:
    """Name a context by its index, where there is more than one."""
    return f"context {row}: " if len(contexts) > 1 else ""
