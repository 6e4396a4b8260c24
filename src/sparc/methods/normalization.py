"""Running statistics that learning keeps beside the weights: of observations, and inside renormalised critics.

Neither is ever trained by a gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

MIN_STD = 1e-3  # of an observation: a dimension that hardly moves must not be blown up
MOMENTUM = 0.99  # of a renormalised layer's running moments
MAX_RATIO, MAX_SHIFT = 3.0, 5.0  # limits of batch renormalisation's corrections r and d
EPSILON = 1e-5


class Moments(NamedTuple):
    """Mean and variance of each unit."""

    mean: Array  # (U,)
    variance: Array  # (U,)


class RunningNorm(eqx.Module):
    """Standardises observations by the mean and variance of all minibatches so far, each of which counts the same."""

    count: Array  # () minibatches so far
    mean: Array  # (O,)
    variance: Array  # (O,)
    clip: float = eqx.field(static=True)  # largest absolute value of a standardised observation

    def __init__(self, size: int, clip: float):
        self.count = jnp.zeros((), jnp.float32)
        self.mean, self.variance = jnp.zeros(size, jnp.float32), jnp.ones(size, jnp.float32)
        self.clip = clip

    def updated(self, obs: Array) -> RunningNorm:
        """Return the statistics with one more minibatch (B, O) in them."""
        count = self.count + 1.0
        rate = 1.0 / count
        change = jnp.mean(obs, axis=0) - self.mean
        mean = self.mean + rate * change
        spread = jnp.var(obs, axis=0) + (1.0 - rate) * change**2  # the second term: between the minibatches
        variance = self.variance + rate * (spread - self.variance)
        return eqx.tree_at(lambda s: (s.count, s.mean, s.variance), self, (count, mean, variance))

    def frozen(self) -> RunningNorm:
        """Return statistics that no minibatch changes any more: with a count of infinity its weight is 0."""
        return eqx.tree_at(lambda s: s.count, self, jnp.full((), jnp.inf, jnp.float32))

    def __call__(self, obs: Array) -> Array:
        """Return standardised and clipped observations (..., O)."""
        std = jnp.maximum(jnp.sqrt(self.variance), MIN_STD)
        return jnp.clip((obs - self.mean) / std, -self.clip, self.clip)

    def history(self, history: Array) -> Array:
        """Return a history (..., H, O+A) with standardised observations; the zeros before an episode stay zeros."""
        size = self.mean.shape[0]
        there = jnp.any(history != 0.0, axis=-1, keepdims=True)
        obs = jnp.where(there, self(history[..., :size]), 0.0)
        return jnp.concatenate([obs, history[..., size:]], axis=-1)


class BatchRenorm(eqx.Module):
    """Batch renormalisation (Ioffe, 2017): normalises by the batch, corrected towards the running moments."""

    scale: Array  # (U,)
    shift: Array  # (U,)
    running: Moments  # no gradient reaches them

    def __init__(self, units: int):
        self.scale, self.shift = jnp.ones(units, jnp.float32), jnp.zeros(units, jnp.float32)
        self.running = Moments(jnp.zeros(units, jnp.float32), jnp.ones(units, jnp.float32))

    def __call__(self, x: Array) -> Array:
        """Normalise (B, U) by the running moments, as in use."""
        mean, variance = jax.lax.stop_gradient(self.running)
        return (x - mean) * (self.scale * jax.lax.rsqrt(variance + EPSILON)) + self.shift

    def train(self, x: Array) -> tuple[Array, Moments]:
        """Normalise (B, U) by its own moments and return these too, for `follow`."""
        mean = jnp.mean(x, axis=0)
        centred = x - mean
        variance = jnp.mean(centred**2, axis=0)
        inverse = jax.lax.rsqrt(variance + EPSILON)
        running_mean, running_variance = self.running
        running_inverse = jax.lax.rsqrt(running_variance + EPSILON)
        ratio = jnp.clip(running_inverse / inverse, 1.0 / MAX_RATIO, MAX_RATIO)
        shift = jnp.clip((mean - running_mean) * running_inverse, -MAX_SHIFT, MAX_SHIFT)
        ratio, shift = jax.lax.stop_gradient((ratio, shift))
        y = centred * (self.scale * ratio * inverse) + (self.scale * shift + self.shift)
        return y, jax.lax.stop_gradient(Moments(mean, variance))

    def follow(self, batch: Moments) -> BatchRenorm:
        """Return the layer with its running moments moved towards a batch's."""
        moved = jax.tree.map(lambda r, b: MOMENTUM * r + (1.0 - MOMENTUM) * b, self.running, batch)
        return eqx.tree_at(lambda layer: layer.running, self, moved)
