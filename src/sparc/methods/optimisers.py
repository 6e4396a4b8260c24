"""Adam as in optax, the same state and the same steps, with one division per weight instead of three."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax


def adam(rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> optax.GradientTransformation:
    """Replace optax.adam; `rate` is a number or a schedule."""
    return optax.chain(scale_by_adam(b1, b2, eps), optax.scale_by_learning_rate(rate))


def scale_by_adam(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
    """Correct the bias of both moments by two numbers per step: m̂ / (√v̂ + ε) = √c₂/c₁ · m / (√v + √c₂ ε)."""

    def init(params: Any) -> optax.ScaleByAdamState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return optax.ScaleByAdamState(jnp.zeros((), jnp.int32), zeros, jax.tree.map(jnp.copy, zeros))

    def update(gradient: Any, state: Any, params: Any = None) -> tuple[Any, optax.ScaleByAdamState]:
        count = optax.safe_increment(state.count)
        mu = jax.tree.map(lambda g, m: b1 * m + (1.0 - b1) * g, gradient, state.mu)
        nu = jax.tree.map(lambda g, v: b2 * v + (1.0 - b2) * g**2, gradient, state.nu)
        root = jnp.sqrt(1.0 - b2**count)  # √c₂
        scale, small = root / (1.0 - b1**count), root * eps
        steps = jax.tree.map(lambda m, v: scale * m / (jnp.sqrt(v) + small), mu, nu)
        return steps, optax.ScaleByAdamState(count, mu, nu)

    return optax.GradientTransformation(init, update)
