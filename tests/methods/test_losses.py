"""Every formula against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparc.methods import losses


def close(actual: jax.Array, expected: object) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-7)


def test_quantile_huber_worked_out_by_hand() -> None:
    # Midpoints of two quantiles: 1/4 and 3/4.
    # quantile 0: errors 1 - 0 = 1 and 4 - 0 = 4; Huber 1/2 and 4 - 1/2 = 7/2; both errors are positive: weight 1/4
    #             mean over the targets (1/8 + 7/8) / 2 = 1/2
    # quantile 2: errors 1 - 2 = -1 and 4 - 2 = 2; Huber 1/2 and 3/2; weights |3/4 - 1| = 1/4 and 3/4
    #             mean over the targets (1/8 + 9/8) / 2 = 5/8
    # sum over the quantiles 9/8
    quantiles, target = jnp.array([[0.0, 2.0]]), jnp.array([[1.0, 4.0]])
    close(losses.quantile_huber(quantiles, target), 9 / 8)
    # A second sample without error halves the mean over the batch.
    both = jnp.array([[0.0, 2.0], [3.0, 3.0]]), jnp.array([[1.0, 4.0], [3.0, 3.0]])
    close(losses.quantile_huber(*both), 9 / 16)


def test_quantile_huber_gradient_worked_out_by_hand() -> None:
    # The slope of Huber is the error clipped to ±1, so d/dq = -mean(weight · clipped error):
    # quantile 0: -(1/4 · 1 + 1/4 · 1) / 2 = -1/4;  quantile 2: -(1/4 · -1 + 3/4 · 1) / 2 = -1/4
    gradient = jax.grad(losses.quantile_huber)(jnp.array([[0.0, 2.0]]), jnp.array([[1.0, 4.0]]))
    close(gradient, [[-0.25, -0.25]])


def test_quantile_huber_takes_as_many_targets_as_there_are() -> None:
    # Quantile 0, midpoints 1/4 and 3/4, one target at -2: Huber 3/2, weights |1/4 - 1| = 3/4 and |3/4 - 1| = 1/4
    close(losses.quantile_huber(jnp.zeros((1, 2)), jnp.array([[-2.0]])), 3 / 2 * (3 / 4 + 1 / 4))


def test_one_quantile_is_half_the_squared_error() -> None:
    # Also far outside the Huber threshold: (3 - 1)² / 2 = 2 and (5 - 5)² / 2 = 0; the mean is 1.
    close(losses.quantile_huber(jnp.array([[1.0], [5.0]]), jnp.array([[3.0], [5.0]])), 1.0)


@pytest.mark.parametrize(
    ("quantiles", "target"), [((2, 3), (3, 3)), ((3,), (3,)), ((2, 3), (2,))], ids=["batch", "vector", "no quantiles"]
)
def test_quantile_huber_refuses_shapes_that_would_broadcast(quantiles: tuple[int], target: tuple[int]) -> None:
    with pytest.raises(AssertionError):
        losses.quantile_huber(jnp.zeros(quantiles), jnp.zeros(target))


def test_pessimistic_takes_the_whole_vector_with_the_smaller_mean() -> None:
    first = jnp.array([[0.0, 10.0], [1.0, 1.0], [2.0, 4.0]])  # means 5, 1, 3
    second = jnp.array([[4.0, 5.0], [0.0, 3.0], [3.0, 3.0]])  # means 4.5, 1.5, 3: a tie takes the first
    # An elementwise minimum would give (0, 5) in the first row.
    close(losses.pessimistic(first, second), [[4.0, 5.0], [1.0, 1.0], [2.0, 4.0]])
    with pytest.raises(AssertionError):
        losses.pessimistic(first, second[:1])


def test_soft_target_worked_out_by_hand() -> None:
    # 1 + 0.9 · (2 - 0.5 · -4) = 4.6 and 1 + 0.9 · (3 - 0.5 · -4) = 5.5;
    # a discount of 0, after termination, leaves the reward: 7
    target = losses.soft_target(
        jnp.array([1.0, 7.0]), jnp.array([0.9, 0.0]), jnp.array([[2.0, 3.0], [100.0, 200.0]]),
        jnp.array([-4.0, -1000.0]), jnp.asarray(0.5),
    )  # fmt: skip
    close(target, [[4.6, 5.5], [7.0, 7.0]])


def test_no_gradient_passes_through_the_soft_target() -> None:
    arguments = (jnp.ones(2), jnp.ones(2), jnp.ones((2, 3)), jnp.ones(2), jnp.asarray(0.5))
    gradients = jax.grad(lambda *a: losses.soft_target(*a).sum(), argnums=tuple(range(5)))(*arguments)
    assert all(not gradient.any() for gradient in gradients)


def test_actor_loss_worked_out_by_hand() -> None:
    # 0.1 · 2 - (1 + 3) / 2 = -1.8 and 0.1 · -4 - (0 + 1) / 2 = -0.9; the mean is -1.35
    log_prob, quantiles = jnp.array([2.0, -4.0]), jnp.array([[1.0, 3.0], [0.0, 1.0]])
    close(losses.actor_loss(log_prob, quantiles, jnp.asarray(0.1)), -1.35)
    # Both the entropy and the value teach the actor: α / B = 0.05 and -1 / (B · N) = -1/4 each.
    for_log_prob, for_quantiles = jax.grad(losses.actor_loss, argnums=(0, 1))(log_prob, quantiles, jnp.asarray(0.1))
    close(for_log_prob, [0.05, 0.05])
    close(for_quantiles, np.full((2, 2), -0.25))


def test_temperature_loss_worked_out_by_hand() -> None:
    # Mean log-probability 3, so an entropy of -3, below a target of -2: -(log α · (3 - 2)) with log α = -1.5 is 1.5.
    log_temperature, log_prob = jnp.asarray(-1.5), jnp.array([2.0, 4.0])
    close(losses.temperature_loss(log_temperature, log_prob, -2.0), 1.5)
    for_temperature, for_log_prob = jax.grad(losses.temperature_loss, argnums=(0, 1))(log_temperature, log_prob, -2.0)
    close(for_temperature, -1.0)  # descending raises the temperature: more entropy is wanted
    assert not for_log_prob.any()  # the policy is not taught by it


def test_adapter_loss_worked_out_by_hand() -> None:
    # ((1 - 0)² + (2 - 4)² + 0 + 0) / 4 = 5/4: a mean over the batch and the latent, not a sum
    guess, latent = jnp.array([[1.0, 2.0], [3.0, 3.0]]), jnp.array([[0.0, 4.0], [3.0, 3.0]])
    close(losses.adapter_loss(guess, latent), 5 / 4)
    for_guess, for_latent = jax.grad(losses.adapter_loss, argnums=(0, 1))(guess, latent)
    close(for_guess, [[0.5, -1.0], [0.0, 0.0]])  # 2 (guess - latent) / 4
    assert not for_latent.any()  # ψ never bends towards φ
    with pytest.raises(AssertionError):
        losses.adapter_loss(guess, latent[:1])
