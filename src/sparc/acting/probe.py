"""A linear probe: what the encoding behind a policy's actions says about a quantity of its context.

A ridge regression from ψ(c) to the quantity is fitted on contexts of the training region that are not tested. It is
then applied to ψ(c) of the tested contexts, which shows how much of the quantity can be read at all, and to φ(h) while
the policy acts. It is the same in every variant of the environment, and so is the quantity: a reading of φ(h) that
differs from one variant to another is φ's mistake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sparc.acting.adaptation import encode
from sparc.acting.episodes import Step
from sparc.arrays import Array
from sparc.contexts import ContextSpace, Finite
from sparc.envs.declared import PHI, PSI, TRUE, Quantities

if TYPE_CHECKING:  # these bring JAX
    from sparc.acting.policy import Policy
    from sparc.methods.nets import ContextEncoder

SETTLED = 50  # steps of an episode before φ(h) is first read
STRIDE = 5  # steps between two readings
# Penalty, relative to the mean variance of ψ's units: directions in which ψ hardly varies but φ may, count for little.
RIDGE = 1e-3
SAMPLES = 4096  # contexts to fit on, where there is no end of them


class Readout(NamedTuple):
    """An affine map from encodings (..., Z) to quantities (..., K)."""

    weights: Array  # (Z, K)
    offset: Array  # (K,)

    def read(self, latents: Array) -> Array:
        """Return the quantities (..., K) that latents (..., Z) say."""
        return np.asarray(latents @ self.weights + self.offset)


def fit_readout(latents: Array, values: Array) -> Readout:
    """Fit a ridge regression from latents (M, Z) to values (M, K)."""
    centre, mean = latents.mean(axis=0), values.mean(axis=0)
    centred = latents - centre
    covariance = centred.T @ centred / len(latents)
    penalty = RIDGE * float(np.trace(covariance)) / len(covariance) or 1.0  # any will do where ψ is constant
    together = centred.T @ (values - mean) / len(latents)
    weights = np.linalg.solve(covariance + penalty * np.eye(len(covariance)), together)
    return Readout(weights, mean - centre @ weights)


class Probe:
    """Readouts of one policy: watches it act and returns columns for the table of its test."""

    def __init__(self, policy: Policy, psi: ContextEncoder, space: ContextSpace, quantities: Quantities) -> None:
        self.policy, self.psi, self.quantities = policy, psi, quantities
        contexts = fitted_contexts(space)
        self.readout = fit_readout(encode(psi, contexts), self.truth(contexts))
        self._steps = 0
        self._sum: Array = np.zeros(1)  # (R, K) of the readings so far
        self._count: Array = np.zeros(1)  # (R, 1)

    def truth(self, contexts: Array) -> Array:
        """Return the quantities of contexts (M, C) as (M, K)."""
        return np.stack([np.asarray(of(contexts), np.float64) for of in self.quantities.values()], axis=1)

    def watch(self, step: Step) -> None:
        """Read φ(h) of the episodes that still run; to be called after every step."""
        if self._steps >= SETTLED and self._steps % STRIDE == 0:
            running = step.running[:, None]
            self._sum = self._sum + np.where(running, self.readout.read(self.policy.latent), 0.0)
            self._count = self._count + running
        self._steps += 1

    def columns(self, contexts: Array) -> dict[str, Array]:
        """Return for the contexts (R, C) of all episodes each quantity, its reading of ψ(c) and that of φ(h).

        The latter is the mean over the episode, NaN if it was over before φ was read.
        """
        shape = len(contexts), len(self.quantities)
        count = np.broadcast_to(self._count, shape)
        phi = np.broadcast_to(self._sum, shape) / np.where(count > 0, count, np.nan)
        parts = (TRUE, self.truth(contexts)), (PSI, self.readout.read(encode(self.psi, contexts))), (PHI, phi)
        return {f"{name}{end}": of[:, place] for place, name in enumerate(self.quantities) for end, of in parts}


def make_probe(policy: Policy, psi: ContextEncoder | None, space: ContextSpace, quantities: Quantities) -> Probe | None:
    """Return the probe of a policy; None without an adapter, or where the environment declares no quantities."""
    return None if psi is None or not quantities else Probe(policy, psi, space, quantities)


def fitted_contexts(space: ContextSpace) -> Array:
    """Return contexts of the training region to fit on: of a finite one all that are not tested, else a sample."""
    if not isinstance(space.train, Finite):
        return space.sample(np.random.default_rng(0), SAMPLES)
    tested = {row.tobytes() for row in space.grid(2)}  # a finite region is tested in the same contexts on any grid
    others = np.array([row for row in space.train.values if row.tobytes() not in tested])
    return others if len(others) else space.train.values
