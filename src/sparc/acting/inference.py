"""From a latent back to a context: the one whose ψ(c) is nearest to φ(h)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sparc.acting.adaptation import encode
from sparc.arrays import Array
from sparc.contexts import Box, ContextSpace

if TYPE_CHECKING:  # brings JAX
    from sparc.methods.nets import ContextEncoder

GRID = 41  # contexts per feature among which the nearest ψ(c) is looked for
NEIGHBOURS = 4  # an estimate is the mean of as many nearest contexts, weighted by 1/distance²


class ContextEstimator:
    """ψ over a grid of the test region, in which latents are looked up."""

    def __init__(self, psi: ContextEncoder, space: ContextSpace) -> None:
        self.contexts = space.grid(GRID)  # (M, C)
        self.table = encode(psi, self.contexts)  # (M, Z)
        self._norms = np.square(self.table).sum(axis=1)
        self._between = isinstance(space.test, Box)  # there is nothing between two cars
        self._least = 1e-9 * float(np.var(self.table, axis=0).sum()) or 1.0  # against a division by zero

    def estimate(self, latents: Array) -> Array:
        """Return the contexts (N, C) whose ψ(c) are nearest to latents (N, Z)."""
        # squared distances without |φ|², which is the same for all contexts
        distance = self._norms - 2 * latents @ self.table.T
        if not self._between:
            return np.asarray(self.contexts[distance.argmin(axis=1)])
        nearest = np.argpartition(distance, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
        squared = np.take_along_axis(distance, nearest, axis=1) + np.square(latents).sum(axis=1, keepdims=True)
        weight = 1 / (np.maximum(squared, 0.0) + self._least)
        weight /= weight.sum(axis=1, keepdims=True)
        return np.asarray(np.einsum("nk,nkc->nc", weight, self.contexts[nearest]))
