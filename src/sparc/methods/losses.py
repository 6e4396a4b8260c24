"""The formulas, one per function; shapes in the margin: B samples, N quantiles."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

HUBER_KAPPA = 1.0


def quantile_huber(quantiles: Array, target: Array) -> Array:
    """Fit quantiles (B, N) to target samples (B, M): Dabney et al. (2018), Eq. 10; κ = 1, midpoints (i + ½)/N.

    Sum over the quantiles, mean over the target samples and the batch. With one quantile it is the halved squared
    error instead, the critic loss of plain SAC.
    """
    assert quantiles.ndim == target.ndim == 2 and len(quantiles) == len(target), (quantiles.shape, target.shape)
    if quantiles.shape[1] == 1:
        return 0.5 * jnp.mean((target - quantiles) ** 2)
    midpoints = (jnp.arange(quantiles.shape[1]) + 0.5) / quantiles.shape[1]  # (N,)
    error = target[:, None, :] - quantiles[:, :, None]  # (B, N, M)
    size = jnp.abs(error)
    huber = jnp.where(size <= HUBER_KAPPA, 0.5 * error**2, HUBER_KAPPA * (size - 0.5 * HUBER_KAPPA)) / HUBER_KAPPA
    weight = jnp.abs(midpoints[None, :, None] - (error < 0))
    return jnp.mean(jnp.sum(jnp.mean(weight * huber, axis=2), axis=1))


def pessimistic(first: Array, second: Array) -> Array:
    """Of two critics' quantiles (B, N), take for each sample the whole vector with the smaller mean."""
    assert first.shape == second.shape and first.ndim == 2, (first.shape, second.shape)
    smaller = jnp.mean(first, axis=1, keepdims=True) <= jnp.mean(second, axis=1, keepdims=True)
    return jnp.where(smaller, first, second)


def soft_target(
    reward: Array, discount: Array, next_quantiles: Array, next_log_prob: Array, temperature: Array
) -> Array:
    """Bootstrap r + d·(Z(o', a') − α log π(a'|o')) per quantile, (B, N); d is 0 after termination. No gradient."""
    assert reward.shape == discount.shape == next_log_prob.shape == next_quantiles.shape[:1], reward.shape
    soft = next_quantiles - temperature * next_log_prob[:, None]
    return jax.lax.stop_gradient(reward[:, None] + discount[:, None] * soft)


def actor_loss(log_prob: Array, quantiles: Array, temperature: Array) -> Array:
    """Minimise α log π(a|o) − Q(o, a), Q the mean of the quantiles."""
    assert log_prob.shape == quantiles.shape[:1], (log_prob.shape, quantiles.shape)
    return jnp.mean(temperature * log_prob - jnp.mean(quantiles, axis=1))


def temperature_loss(log_temperature: Array, log_prob: Array, target_entropy: float) -> Array:
    """Move the temperature until the policy's entropy is the target (Haarnoja et al., 2018)."""
    return -jnp.mean(log_temperature * jax.lax.stop_gradient(log_prob + target_entropy))


def adapter_loss(guess: Array, latent: Array) -> Array:
    """Mean (φ(h) − sg ψ(c))², Eq. 2 of the paper; the gradient never reaches ψ."""
    assert guess.shape == latent.shape, (guess.shape, latent.shape)
    return jnp.mean((guess - jax.lax.stop_gradient(latent)) ** 2)
