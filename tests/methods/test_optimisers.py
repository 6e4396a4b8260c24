"""Adam against optax's: the same steps, the same state."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sparc.methods import optimisers

SCHEDULE = optax.linear_schedule(1e-3, 0.0, 40)


def follow(optimiser: optax.GradientTransformation, gradients: list[Any]) -> tuple[list[Any], Any]:
    """Return the step after each gradient, and the state after the last."""
    state, steps = optimiser.init(gradients[0]), []
    for gradient in gradients:
        step, state = optimiser.update(gradient, state)
        steps.append(step)
    return steps, state


@pytest.mark.parametrize("rate", [3e-4, SCHEDULE], ids=["number", "schedule"])
@pytest.mark.parametrize("b1", [0.9, 0.5])
def test_steps_and_state_are_those_of_optax(rate: Any, b1: float) -> None:
    rng = np.random.default_rng(0)
    sizes = 10.0 ** rng.uniform(-9, 3, (40, 3))  # also of the size of ε, where its place matters
    gradients = [{"a": jnp.asarray(s * rng.normal(size=(4, 3)), jnp.float32), "b": jnp.zeros(2)} for s in sizes]
    (steps, state), (expected, theirs) = (
        follow(adam(rate, b1=b1), gradients) for adam in (optimisers.adam, optax.adam)
    )
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=5e-5, atol=1e-12), steps, expected)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), state, theirs)
    assert jax.tree.structure(state) == jax.tree.structure(theirs)  # runs of before can be resumed


def test_the_first_step_worked_out_by_hand() -> None:
    # m̂ = g and v̂ = g², so the step is -rate · g / (|g| + ε)
    gradient = jnp.array([2.0, -3.0, 1e-8, 0.0])
    (step,), _ = follow(optimisers.adam(0.1), [gradient])
    np.testing.assert_allclose(step, [-0.1, 0.1, -0.05, 0.0], rtol=1e-3)  # 1 − 0.999 in single precision
