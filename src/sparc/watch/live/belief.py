"""What φ(h) says about the context: its place on ψ's map, and the context whose ψ(c) is nearest."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from sparc.acting.adaptation import encode, principal_axes, spread
from sparc.acting.inference import GRID, ContextEstimator
from sparc.arrays import Array
from sparc.contexts import Box, ContextSpace

if TYPE_CHECKING:  # brings JAX
    from sparc.methods.nets import ContextEncoder

LINES = 5  # every so many contexts of the grid is a line of the map
EDGE = 11  # points on each edge of the training region


class Belief:
    """ψ over the test region, to read latents by."""

    def __init__(self, psi: ContextEncoder, space: ContextSpace) -> None:
        self.psi, self.space = psi, space
        self.estimator = ContextEstimator(psi, space)
        self.contexts, self.table = self.estimator.contexts, self.estimator.table
        self.mean = self.table.mean(axis=0)
        self.axes = principal_axes(self.table, (self.contexts - space.centre) / space.half_range)
        self.unit = float(np.nan_to_num(spread(self.table), nan=1.0))  # NaN: ψ is the same everywhere
        self._truth: tuple[bytes, Array] = (b"", np.empty(0))

    def place(self, latent: Array) -> Array:
        """Return latents (..., Z) on the first two principal components of ψ, in units of its spread, (..., 2)."""
        return np.asarray((latent - self.mean) @ self.axes / self.unit)

    def truth(self, context: Array) -> Array:
        """Return ψ(c) of one context, (Z,)."""
        if self._truth[0] != context.tobytes():
            self._truth = (context.tobytes(), encode(self.psi, context[None])[0])
        return self._truth[1]

    def estimate(self, latent: Array) -> Array:
        """Return the context (C,) whose ψ(c) is nearest to a latent (Z,)."""
        return np.asarray(self.estimator.estimate(latent[None])[0])

    def read(self, latent: Array, context: Array) -> dict[str, Any]:
        """Return what a page shows of φ(h) under a context: place, estimate, distance from ψ(c)."""
        truth = self.truth(context)
        distance = float(np.linalg.norm(latent - truth)) / self.unit
        return {
            "phi": self.place(latent).round(4).tolist(),
            "psi": self.place(truth).round(4).tolist(),
            "estimate": [float(f"{value:.4g}") for value in self.estimate(latent)],
            "distance": round(distance, 4),
        }

    def map(self) -> dict[str, Any]:
        """Return ψ's map: the grid's lines and the outlines of training boxes, or points where there is no plane."""
        places = self.place(self.table).round(3)
        if self.space.size != 2 or not isinstance(self.space.test, Box) or not isinstance(self.space.train, Box):
            return {"points": places.tolist(), "train": self.space.is_train(self.contexts).tolist()}
        plane = places.reshape(GRID, GRID, 2)
        kept = range(0, GRID, LINES)
        lines = [plane[row] for row in kept] + [plane[:, column] for column in kept]
        boxes = [self.outline(region.low, region.high) for region in (*self.space.earlier, self.space.train)]
        return {"lines": [line.tolist() for line in lines], "boxes": boxes}

    def outline(self, low: Array, high: Array) -> list[list[float]]:
        """Return the places of ψ along the edges of a box of two features."""
        along = np.linspace(0.0, 1.0, EDGE)[:, None]
        corners = np.array([low, [high[0], low[1]], high, [low[0], high[1]], low])
        edge = np.concatenate([a + along * (b - a) for a, b in pairwise(corners)])
        places: list[list[float]] = self.place(encode(self.psi, edge)).round(3).tolist()
        return places
