"""Running statistics: of observations and inside renormalised layers, against numbers worked out by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparc.methods.nets import Actor, Critic, HistoryAdapter, Inputs, Mlp, Nothing, Trunk, joined, normalized
from sparc.methods.normalization import (
    EPSILON,
    MAX_RATIO,
    MAX_SHIFT,
    MIN_STD,
    MOMENTUM,
    BatchRenorm,
    Moments,
    RunningNorm,
)

RNG = np.random.default_rng(0)


def running(layer: BatchRenorm, mean: object, variance: object) -> BatchRenorm:
    moments = Moments(jnp.asarray(mean, jnp.float32), jnp.asarray(variance, jnp.float32))
    return eqx.tree_at(lambda x: x.running, layer, moments)


# Observations


def test_the_statistics_are_those_of_all_minibatches_together() -> None:
    batches = RNG.normal([1.0, -20.0, 0.1], [0.1, 5.0, 3.0], (7, 16, 3)).astype(np.float32)
    norm = RunningNorm(3, clip=10.0)
    for batch in batches:
        norm = norm.updated(batch)
    together = batches.reshape(-1, 3).astype(np.float64)
    np.testing.assert_allclose(norm.mean, together.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(norm.variance, together.var(axis=0), rtol=1e-4)
    assert float(norm.count) == 7


def test_two_minibatches_by_hand() -> None:
    norm = RunningNorm(1, clip=10.0).updated(jnp.array([[1.0], [3.0]])).updated(jnp.array([[5.0], [7.0]]))
    assert float(norm.mean[0]) == 4.0 and float(norm.variance[0]) == 5.0  # of 1, 3, 5, 7
    np.testing.assert_allclose(norm(jnp.array([[4.0 + 5.0**0.5]])), [[1.0]], rtol=1e-6)


def test_frozen_statistics_stay_whatever_comes() -> None:
    norm = RunningNorm(1, clip=10.0).updated(jnp.array([[1.0], [3.0]])).frozen()
    later = norm.updated(jnp.array([[1e6], [-1e3]])).updated(jnp.array([[7.0], [7.0]]))
    np.testing.assert_array_equal(jnp.concatenate([later.mean, later.variance]), [2.0, 1.0])


def test_before_the_first_minibatch_observations_stay_as_they_are() -> None:
    obs = jnp.array([[0.5, -3.0]])
    np.testing.assert_array_equal(RunningNorm(2, clip=10.0)(obs), obs)


def test_observations_are_clipped() -> None:
    norm = RunningNorm(1, clip=2.0)
    np.testing.assert_array_equal(norm(jnp.array([[-9.0], [0.5], [9.0]])), [[-2.0], [0.5], [2.0]])


@pytest.mark.parametrize("value", [0.0, 1.0, -1234.567, 3e4])
def test_a_constant_dimension_gives_zeros_never_nan(value: float) -> None:
    norm = RunningNorm(2, clip=1e6)
    for seed in range(200):
        rest = np.random.default_rng(seed).normal(size=(32, 1))
        norm = norm.updated(jnp.asarray(np.concatenate([np.full((32, 1), value), rest], axis=1), jnp.float32))
    seen = np.asarray(norm(jnp.array([[value, 0.0]], jnp.float32)))
    assert np.isfinite(seen).all() and abs(seen[0, 0]) < max(1e-3, 4e-7 * abs(value) / MIN_STD)
    assert np.isfinite(np.asarray(norm(jnp.array([[value + 1.0, 0.0]], jnp.float32)))).all()


def test_rows_before_the_episode_stay_zero_in_a_history() -> None:
    norm = RunningNorm(2, clip=10.0).updated(jnp.asarray(RNG.normal(5.0, 2.0, (32, 2)), jnp.float32))
    history = np.zeros((2, 4, 3), np.float32)
    history[0, 2:] = RNG.normal(5.0, 2.0, (2, 3))
    history[1, 3] = [0.0, 0.0, 0.3]  # an observation of zeros that was seen: the action tells
    seen = np.asarray(norm.history(jnp.asarray(history)))
    assert not seen[0, :2].any() and not seen[1, :3].any()
    np.testing.assert_allclose(seen[0, 2:, :2], norm(jnp.asarray(history[0, 2:, :2])), rtol=1e-6)
    np.testing.assert_allclose(seen[1, 3, :2], norm(jnp.zeros(2)), rtol=1e-6)
    np.testing.assert_array_equal(seen[..., 2], history[..., 2])  # actions are left alone


def test_an_actor_with_a_norm_acts_as_one_without_it_on_standardised_observations() -> None:
    rng = np.random.default_rng(1)
    norm = RunningNorm(2, clip=10.0).updated(jnp.asarray(RNG.normal(5.0, 2.0, (32, 2)), jnp.float32))
    phi = HistoryAdapter(3, 8, 4, rng=rng)
    actor = Actor(Trunk(2, 4, 8, 2, rng=rng), phi)
    history = RNG.normal(size=(5, 8, 3)).astype(np.float32)
    history[:, :3] = 0.0
    raw = Inputs(jnp.asarray(RNG.normal(5.0, 2.0, (5, 2)), jnp.float32), history=jnp.asarray(history))
    seen = normalized(raw, norm)
    equipped = Actor(actor.trunk, phi, norm)
    np.testing.assert_allclose(equipped.mode(raw), actor.mode(seen), rtol=1e-5)
    np.testing.assert_allclose(equipped.latent(raw), phi(seen), rtol=1e-5, atol=1e-6)
    assert not np.allclose(equipped.mode(raw), actor.mode(raw), rtol=1e-2)


# Batch renormalisation


def test_a_batch_by_hand_without_corrections() -> None:
    layer = running(BatchRenorm(1), [2.0], [1.0])
    y, moments = layer.train(jnp.array([[1.0], [3.0]]))  # mean 2, variance 1, as the running ones
    np.testing.assert_allclose(y, [[-1.0], [1.0]], rtol=1e-4)
    assert float(moments.mean[0]) == 2.0 and float(moments.variance[0]) == 1.0


def test_corrections_by_hand() -> None:
    layer = eqx.tree_at(
        lambda x: (x.scale, x.shift), running(BatchRenorm(1), [0.0], [4.0]), (jnp.array([3.0]), jnp.array([0.5]))
    )
    # mean 2, variance 1: r = 1/2, d = (2 − 0)/2 = 1; y = 3 ((x − 2)·1/2 + 1) + 0.5
    y, _ = layer.train(jnp.array([[1.0], [3.0]]))
    np.testing.assert_allclose(y, [[2.0], [5.0]], rtol=1e-4)
    np.testing.assert_allclose(layer(jnp.array([[1.0], [3.0]])), [[2.0], [5.0]], rtol=1e-4)  # within the limits: alike


def test_corrections_are_limited() -> None:
    x = jnp.array([[1.0], [3.0]])
    y, _ = running(BatchRenorm(1), [2.0], [1e-4]).train(x)  # r = 100, cut to 3
    np.testing.assert_allclose(y, [[-MAX_RATIO], [MAX_RATIO]], rtol=1e-3)
    y, _ = running(BatchRenorm(1), [-1e3], [1.0]).train(x)  # d = 1002, cut to 5
    np.testing.assert_allclose(y, [[MAX_SHIFT - 1.0], [MAX_SHIFT + 1.0]], rtol=1e-4)


def second_implementation(
    x: np.ndarray, scale: np.ndarray, shift: np.ndarray, mean: np.ndarray, var: np.ndarray
) -> np.ndarray:
    """Algorithm 1 of Ioffe (2017) in NumPy, float64, row by row."""
    out = np.empty_like(x)
    for unit in range(x.shape[1]):
        batch_mean = sum(x[:, unit]) / len(x)
        batch_std = (sum((value - batch_mean) ** 2 for value in x[:, unit]) / len(x) + EPSILON) ** 0.5
        std = (var[unit] + EPSILON) ** 0.5
        r = min(max(batch_std / std, 1 / MAX_RATIO), MAX_RATIO)
        d = min(max((batch_mean - mean[unit]) / std, -MAX_SHIFT), MAX_SHIFT)
        out[:, unit] = ((x[:, unit] - batch_mean) / batch_std * r + d) * scale[unit] + shift[unit]
    return out


def test_a_second_implementation_agrees() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(rng.normal(size=6), rng.uniform(0.1, 4.0, 6), (32, 6))
    scale, shift = rng.normal(size=6), rng.normal(size=6)
    mean, var = rng.normal(size=6), rng.uniform(0.01, 20.0, 6)
    layer = running(BatchRenorm(6), mean, var)
    layer = eqx.tree_at(
        lambda n: (n.scale, n.shift), layer, (jnp.asarray(scale, jnp.float32), jnp.asarray(shift, jnp.float32))
    )
    y, moments = layer.train(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(y, second_implementation(x, scale, shift, mean, var), rtol=2e-4, atol=2e-4)
    after = layer.follow(moments).running
    np.testing.assert_allclose(after.mean, MOMENTUM * mean + (1 - MOMENTUM) * x.mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(after.variance, MOMENTUM * var + (1 - MOMENTUM) * x.var(axis=0), rtol=1e-4)


def test_the_gradient_runs_through_the_batch_moments_but_not_through_r_and_d() -> None:
    """Within the limits the forward pass does not depend on the batch's moments, but the gradient does."""
    layer = running(BatchRenorm(2), [0.1, -0.2], [1.5, 0.8])
    x = jnp.asarray(np.random.default_rng(5).normal(size=(8, 2)), jnp.float32)
    weight = jnp.asarray(np.random.default_rng(6).normal(size=(8, 2)), jnp.float32)

    def fixed(x: jax.Array) -> jax.Array:
        """The same with r and d as numbers: what the gradient should be."""
        mean, std = x.mean(axis=0), jnp.sqrt(x.var(axis=0) + EPSILON)
        now, (m, v) = (np.asarray(x0.mean(axis=0)), np.asarray(jnp.sqrt(x0.var(axis=0) + EPSILON))), layer.running
        r, d = now[1] / np.sqrt(v + EPSILON), (now[0] - m) / np.sqrt(v + EPSILON)
        return jnp.sum(weight * ((x - mean) / std * r + d))

    x0 = x
    gradient = jax.grad(lambda x: jnp.sum(weight * layer.train(x)[0]))(x)
    np.testing.assert_allclose(gradient, jax.grad(fixed)(x), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(gradient.sum(axis=0), 0.0, atol=1e-5)  # shifting the whole batch changes nothing


def test_no_gradient_reaches_running_statistics() -> None:
    mlp = Mlp((3, 4, 4), rng=np.random.default_rng(0), batch_renorm=True)
    x = jnp.asarray(RNG.normal(size=(16, 3)), jnp.float32)
    for call in (lambda m: jnp.sum(m.train(x)[0] ** 2), lambda m: jnp.sum(m(x) ** 2)):
        gradient = jax.grad(call)(mlp)
        assert all(float(jnp.abs(leaf).max()) == 0.0 for norm in gradient.norms for leaf in norm.running)
        assert all(float(jnp.abs(norm.scale).max()) > 0.0 for norm in gradient.norms)


def make_critic(batch_renorm: bool = True) -> Critic:
    trunk = Trunk(5, 0, 8, 4, rng=np.random.default_rng(0), batch_renorm=batch_renorm)
    return Critic(trunk, Nothing())


def test_a_joint_pass_is_two_passes_with_shared_statistics() -> None:
    """Each half of the joint pass, normalised by the moments of both, worked out layer by layer."""
    critic = make_critic()
    now, then = (Inputs(jnp.asarray(RNG.normal(mean, 1.0, (16, 3)), jnp.float32)) for mean in (0.0, 2.0))
    first, second = (jnp.asarray(RNG.uniform(-1, 1, (16, 2)), jnp.float32) for _ in range(2))
    joint, _ = critic.train(joined(now, then), jnp.concatenate([first, second]))

    halves = [np.concatenate([now.obs, first], axis=1), np.concatenate([then.obs, second], axis=1)]
    for mlp in (critic.trunk.observe, critic.trunk.decide):
        for layer, norm in zip(mlp.layers, mlp.norms or (), strict=True):
            halves = [half @ np.asarray(layer.weight) + np.asarray(layer.bias) for half in halves]
            shared = np.concatenate(halves)
            given = (np.asarray(norm.scale), np.asarray(norm.shift), *map(np.asarray, norm.running))
            done = second_implementation(shared.astype(np.float64), *given)
            halves = [np.maximum(part, 0.0) for part in np.split(done, 2)]
    head = critic.trunk.head
    expected = [half @ np.asarray(head.weight) + np.asarray(head.bias) for half in halves]
    np.testing.assert_allclose(joint, np.concatenate(expected), rtol=1e-3, atol=1e-3)
    alone, _ = critic.train(now, first)
    assert not np.allclose(joint[:16], alone, atol=1e-3)  # statistics of its own would give something else


@pytest.mark.slow
def test_following_batches_brings_training_and_use_together() -> None:
    critic = make_critic()
    inputs = Inputs(jnp.asarray(RNG.normal(1.0, 3.0, (64, 3)), jnp.float32))
    action = jnp.asarray(RNG.uniform(-1, 1, (64, 2)), jnp.float32)
    for _ in range(2_000):
        _, moments = critic.train(inputs, action)
        critic = critic.follow(moments)
    np.testing.assert_allclose(critic(inputs, action), critic.train(inputs, action)[0], rtol=1e-3, atol=1e-3)


def test_a_critic_without_renormalisation_trains_as_it_is_used() -> None:
    critic = make_critic(batch_renorm=False)
    inputs, action = Inputs(jnp.ones((4, 3))), jnp.ones((4, 2))
    quantiles, moments = critic.train(inputs, action)
    np.testing.assert_array_equal(quantiles, critic(inputs, action))
    followed = critic.follow(moments)
    assert not jax.tree.leaves(moments) and eqx.tree_equal(followed, critic)


# The latent of History Input's critics


def make_history_critic(renorm_latent: bool) -> Critic:
    rng = np.random.default_rng(0)
    trunk = Trunk(5, 4, 8, 4, rng=rng, batch_renorm=True, renorm_latent=renorm_latent)
    return Critic(trunk, HistoryAdapter(5, 8, 4, rng=rng))


def quantiles_of_a_grown_phi(critic: Critic, factor: float) -> np.ndarray:
    """Return the quantiles in training where φ's outputs are so many times as large."""
    grown = eqx.tree_at(lambda c: (c.encoder.out.weight, c.encoder.out.bias), critic,
                        (factor * critic.encoder.out.weight, factor * critic.encoder.out.bias))  # fmt: skip
    rng = np.random.default_rng(1)
    history = jnp.asarray(rng.normal(size=(32, 8, 5)), jnp.float32)
    inputs = Inputs(jnp.asarray(rng.normal(size=(32, 3)), jnp.float32), history=history)
    return np.asarray(grown.train(inputs, jnp.asarray(rng.uniform(-1, 1, (32, 2)), jnp.float32))[0])


def test_the_scale_of_phi_does_not_reach_renormalised_critics() -> None:
    large, larger = (quantiles_of_a_grown_phi(make_history_critic(True), factor) for factor in (1e3, 1e5))
    np.testing.assert_allclose(large, larger, rtol=1e-2, atol=1e-2)
    plain, grown = (quantiles_of_a_grown_phi(make_history_critic(False), factor) for factor in (1e0, 1e2))
    assert not np.allclose(plain, grown, rtol=0.1, atol=0.1)  # without it, decisions follow φ alone


def test_the_running_moments_of_a_latent_follow_its_batches() -> None:
    critic = make_history_critic(True)
    inputs = Inputs(jnp.ones((8, 3)), history=jnp.asarray(RNG.normal(size=(8, 8, 5)), jnp.float32))
    _, moments = critic.train(inputs, jnp.zeros((8, 2)))
    before, after = critic.trunk.latent_norm, critic.follow(moments).trunk.latent_norm
    assert before is not None and after is not None
    z = np.asarray(critic.encoder(inputs))
    np.testing.assert_allclose(after.running.mean, (1 - MOMENTUM) * z.mean(axis=0), rtol=1e-4, atol=1e-7)
    gradient = jax.grad(lambda c: jnp.sum(c.train(inputs, jnp.zeros((8, 2)))[0] ** 2))(critic)
    assert all(float(jnp.abs(leaf).max()) == 0.0 for leaf in gradient.trunk.latent_norm.running)
