"""The networks against the architecture table of the paper, and their parts against brute force."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparc.methods.convolution import windows
from sparc.methods.nets import (
    CONVOLUTIONS,
    FILTERS,
    LOG_STD_RANGE,
    Actor,
    ContextEncoder,
    Critic,
    HistoryAdapter,
    Inputs,
    Linear,
    Mlp,
    Nothing,
    RawContext,
    Trunk,
    reviving_relu,
)

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
UNSCALED = RawContext((0.0, 0.0), (1.0, 1.0))


def shapes(make: Callable[[jax.Array], Any]) -> Any:
    """Build a network without allocating it."""
    return jax.eval_shape(lambda: make(np.random.default_rng(0)))


def filled(make: Callable[[jax.Array], Any], seed: int = 0) -> Any:
    """Build a network with numbers from NumPy, which saves compiling its initialisation."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.uniform(-0.3, 0.7, leaf.shape), leaf.dtype), shapes(make))


def parameters(network: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(network))


def fc(*sizes: int) -> int:
    """Count the parameters of affine layers between these sizes."""
    return sum(a * b + b for a, b in pairwise(sizes))


@pytest.mark.parametrize(
    ("width", "latent", "obs", "action", "context"), [(256, 32, 17, 6, 2), (2048, 64, 40, 2, 7)], ids=["mujoco", "gt"]
)
def test_parameter_counts_follow_the_papers_table(width: int, latent: int, obs: int, action: int, context: int) -> None:
    scale = RawContext((0.0,) * context, (1.0,) * context)
    encoder = shapes(lambda rng: ContextEncoder(scale, latent, rng=rng))
    assert parameters(encoder) == fc(context, latent, latent)
    actor = shapes(lambda rng: Actor(Trunk(obs, latent, width, 2 * action, rng=rng), encoder))
    decision = fc(width + latent, width, width)  # 2112 = 2048 + 64 inputs in the table
    assert parameters(actor) == fc(obs, width, width) + fc(context, latent, latent) + decision + fc(width, 2 * action)
    critic = shapes(lambda rng: Critic(Trunk(obs + action, latent, width, 32, rng=rng), encoder))
    expected = fc(obs + action, width, width) + fc(context, latent, latent) + decision + fc(width, 32)
    assert parameters(critic) == expected
    adapter = shapes(lambda rng: HistoryAdapter(obs + action, 50, latent, rng=rng))
    convolutions = fc(8 * latent, 32) + fc(5 * 32, 32) + fc(5 * 32, 32)  # a kernel sees all channels of its steps
    assert parameters(adapter) == fc(obs + action, latent) + convolutions + fc(416, latent)


def test_parameter_counts_for_half_cheetah_by_hand() -> None:
    # 17·256+256 + 256·256+256 + 2·32+32 + 32·32+32 + 288·256+256 + 256·256+256 + 256·12+12
    expert = shapes(lambda rng: Actor(Trunk(17, 32, 256, 12, rng=rng), ContextEncoder(UNSCALED, 32, rng=rng)))
    assert parameters(expert) == 4608 + 65792 + 96 + 1056 + 73984 + 65792 + 3084 == 214_412
    # 23·32+32 + (8·32)·32+32 + 2 · ((5·32)·32+32) + 416·32+32
    adapter = shapes(lambda rng: HistoryAdapter(23, 50, 32, rng=rng))
    assert parameters(adapter) == 768 + 8224 + 2 * 5152 + 13344 == 32_640
    # 23·256+256 + 256·256+256 + 96 + 1056 + 288·256+256 + 256·256+256 + 256·32+32
    critic = shapes(lambda rng: Critic(Trunk(23, 32, 256, 32, rng=rng), ContextEncoder(UNSCALED, 32, rng=rng)))
    assert parameters(critic) == 6144 + 65792 + 96 + 1056 + 73984 + 65792 + 8224 == 221_088


def test_the_adapters_time_axis_is_50_13_13_13() -> None:
    assert CONVOLUTIONS == ((8, 4), (5, 1), (5, 1)) and FILTERS == 32
    length, lengths = 50, [50]
    for kernel, stride in CONVOLUTIONS:
        cut = jax.eval_shape(lambda x, k=kernel, s=stride: windows(x, k, s), jnp.zeros((2, length, 1)))
        length = cut.shape[1]
        assert cut.shape[0] == 2 * kernel
        lengths.append(length)
    assert lengths == [50, 13, 13, 13]
    assert shapes(lambda rng: HistoryAdapter(23, 50, 32, rng=rng)).out.weight.shape == (416, 32)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 49, 51, 200])
def test_any_history_length_works(length: int) -> None:
    def latent(rng: np.random.Generator) -> jax.Array:
        return HistoryAdapter(5, length, 4, rng=rng)(Inputs(jnp.zeros((3, 3)), history=jnp.zeros((3, length, 5))))

    assert jax.eval_shape(lambda: latent(np.random.default_rng(0))).shape == (3, 4)


def test_the_adapter_is_its_layers_in_the_papers_order() -> None:
    phi = filled(lambda rng: HistoryAdapter(3, 6, 2, rng=rng))
    history = np.random.default_rng(1).normal(size=(2, 6, 3)).astype(np.float32)

    def layer(linear: Linear, x: np.ndarray) -> np.ndarray:
        return np.maximum(x @ np.asarray(linear.weight) + np.asarray(linear.bias), 0)

    x = layer(phi.embed, history)
    for linear, (kernel, stride) in zip(phi.convolutions, CONVOLUTIONS, strict=True):
        x = layer(linear, np.asarray(windows(jnp.asarray(x.T), kernel, stride)).T)
    expected = layer(phi.out, x.reshape(2, -1))
    assert expected.any()
    np.testing.assert_allclose(phi(Inputs(jnp.zeros((2, 1)), history=history)), expected, rtol=1e-5)


def test_a_reviving_relu_is_a_relu_that_can_come_on_again() -> None:
    x = jnp.array([2.0, 2.0, -1.0, -1.0])
    np.testing.assert_array_equal(reviving_relu(x), [2.0, 2.0, 0.0, 0.0])
    # On: the gradient as it is. Off: only one that descending would follow upwards, a negative one.
    gradient = jax.grad(lambda x: jnp.sum(reviving_relu(x) * jnp.array([3.0, -3.0, 3.0, -3.0])))(x)
    np.testing.assert_array_equal(gradient, [3.0, -3.0, 0.0, -3.0])


def test_linear_begins_within_one_over_the_root_of_its_inputs() -> None:
    linear = Linear(16, 64, rng=RNG)
    for array in (linear.weight, linear.bias):
        assert 0.2 < float(jnp.abs(array).max()) <= 0.25
        assert float(array.min()) < 0 < float(array.max())
    assert Linear(0, 3, rng=RNG)(jnp.zeros((2, 0))).shape == (2, 3)


def test_contexts_are_scaled_by_the_training_region() -> None:
    raw = RawContext((1.0, 10.0), (2.0, 5.0))  # trained on [-1, 3] × [5, 15]
    contexts = jnp.array([[1.0, 10.0], [3.0, 5.0], [-3.0, 20.0]])  # the centre, a corner, outside
    inputs = Inputs(jnp.zeros((3, 1)), context=contexts)
    np.testing.assert_allclose(raw(inputs), [[0.0, 0.0], [1.0, -1.0], [-2.0, 2.0]])
    psi = filled(lambda rng: ContextEncoder(raw, 4, rng=rng))
    assert psi(inputs).shape == (3, 4) and psi(inputs).any()
    np.testing.assert_array_equal(psi(inputs), psi.mlp(raw(inputs)))


def test_only_the_encoders_that_need_it_read_context_or_history() -> None:
    reads = {encoder: encoder.reads for encoder in (Nothing, RawContext, ContextEncoder, HistoryAdapter)}
    assert reads == {Nothing: "nothing", RawContext: "context", ContextEncoder: "context", HistoryAdapter: "history"}
    assert Nothing()(Inputs(jnp.zeros((5, 3)))).shape == (5, 0)


def test_mlp_ends_in_a_relu_and_a_trunk_does_not() -> None:
    x = jnp.linspace(-3, 3, 40).reshape(20, 2)
    mlp = filled(lambda rng: Mlp((2, 3, 3), rng=rng), seed=3)
    assert float(mlp(x).min()) == 0.0
    trunk = filled(lambda rng: Trunk(2, 1, 4, 2, rng=rng))
    shifted = eqx.tree_at(lambda t: t.head.bias, trunk, jnp.full(2, -1e3))
    assert float(shifted(x, jnp.zeros((20, 1))).max()) < 0  # quantiles and means may be negative


# The policy's distribution


def fixed(mean: list[float], raw_log_std: list[float]) -> Actor:
    """Make a policy that always gives the same distribution."""
    out = jnp.array(mean + raw_log_std)
    return Actor(lambda obs, z: jnp.broadcast_to(out, (len(obs), len(out))), Nothing())  # type: ignore[arg-type]


def raw_of(log_std: float) -> float:
    """Invert the stretched tanh of the head."""
    low, high = LOG_STD_RANGE
    return float(np.arctanh(2 * (log_std - low) / (high - low) - 1))


def with_noise(actor: Actor, noise: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    """Sample with this noise in the place of random numbers."""
    monkeypatch.setattr(jax.random, "normal", lambda key, shape: jnp.asarray(noise, jnp.float32).reshape(shape))
    action, log_prob = actor.sample(Inputs(jnp.zeros((len(noise), 1))), KEY)
    return np.asarray(action, np.float64), np.asarray(log_prob, np.float64)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -0.5), (-1.0, -2.0)])
def test_the_density_of_actions_integrates_to_one(mean: float, log_std: float, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.linspace(-6, 6, 4001)
    action, log_prob = with_noise(fixed([mean], [raw_of(log_std)]), noise, monkeypatch)
    density, action = np.exp(log_prob), action[:, 0]
    assert np.sum((density[1:] + density[:-1]) / 2 * np.diff(action)) == pytest.approx(1.0, abs=2e-3)
    # The same by the change of variables p(a) |da| = p(noise) |dnoise|, with the derivative by central differences.
    inside = slice(1000, -1000)
    slope = ((action[2:] - action[:-2]) / (noise[2:] - noise[:-2]))[inside]
    gaussian = (np.exp(-(noise**2) / 2) / np.sqrt(2 * np.pi))[1:-1][inside]
    np.testing.assert_allclose(density[1:-1][inside], gaussian / slope, rtol=0.02)


def test_log_probabilities_add_up_over_actions_and_stay_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = raw_of(-0.5)
    noise = np.array([[0.3, -1.2], [2.0, 0.1], [0.0, 0.0]])
    action, log_prob = with_noise(fixed([0.7, -0.4], [raw, raw]), noise, monkeypatch)
    before = np.array([0.7, -0.4]) + np.exp(-0.5) * noise
    np.testing.assert_allclose(action, np.tanh(before), rtol=1e-5)
    gaussian = -(noise**2) / 2 + 0.5 - np.log(2 * np.pi) / 2
    np.testing.assert_allclose(log_prob, (gaussian - np.log(1 - np.tanh(before) ** 2)).sum(axis=1), rtol=1e-4)
    # So far out that 1 - tanh² is zero in float32.
    action, log_prob = with_noise(fixed([60.0], [raw]), np.array([[0.0]]), monkeypatch)
    # -log(1 - tanh²(60)) = 2 · (60 - log 2) to within rounding
    assert action == 1.0
    assert log_prob[0] == pytest.approx(0.5 - np.log(2 * np.pi) / 2 + 2 * (60 - np.log(2)), rel=1e-5)


def test_the_spread_stays_in_its_range_and_the_mode_has_no_noise() -> None:
    actor = fixed([0.5, 0.5, 0.5], [-100.0, 0.0, 100.0])
    mean, log_std = actor.distribution(Inputs(jnp.zeros((1, 1))))
    np.testing.assert_allclose(mean, [[0.5, 0.5, 0.5]])
    np.testing.assert_allclose(log_std, [[-5.0, -1.5, 2.0]])
    np.testing.assert_allclose(actor.mode(Inputs(jnp.zeros((1, 1)))), np.tanh([[0.5, 0.5, 0.5]]), rtol=1e-6)


def test_samples_follow_the_distribution() -> None:
    actions, _ = fixed([0.3], [raw_of(-1.0)]).sample(Inputs(jnp.zeros((20_000, 1))), KEY)
    before = np.arctanh(np.asarray(actions, np.float64))
    assert before.mean() == pytest.approx(0.3, abs=0.02)  # standard error 0.0026
    assert before.std() == pytest.approx(np.exp(-1.0), rel=0.03)
