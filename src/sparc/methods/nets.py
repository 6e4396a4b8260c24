"""The paper's networks: every one is an encoder next to a trunk (architecture table of the paper's appendix).

An actor is a trunk on o, a critic a trunk on (o, a); what they know of the context comes from their encoder:
nothing, the raw context, ψ(c) or φ(h). All of them work on a batch, the leading axis is B.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sparc.methods.convolution import convolve
from sparc.methods.normalization import BatchRenorm, Moments, RunningNorm
from sparc.methods.spec import Reads

LOG_STD_RANGE = (-5.0, 2.0)  # the head's tanh is stretched to this range for the log standard deviation
FILTERS = 32  # of each convolution in φ
CONVOLUTIONS = ((8, 4), (5, 1), (5, 1))  # kernel and stride of each convolution in φ


class Inputs(NamedTuple):
    """What a network may look at: o always, c and h only where its encoder reads them."""

    # NumPy arrays from outside, traced ones inside a compiled function
    obs: Any  # (B, O)
    context: Any = None  # (B, C) in the environment's units
    history: Any = None  # (B, H, O+A), oldest first


def normalized(inputs: Inputs, norm: RunningNorm | None) -> Inputs:
    """Return the inputs with standardised observations, in the history as well."""
    if norm is None:
        return inputs
    history = None if inputs.history is None else norm.history(inputs.history)
    return inputs._replace(obs=norm(inputs.obs), history=history)


def joined(first: Inputs, second: Inputs) -> Inputs:
    """Return two batches of inputs as one, of what both have."""
    pairs = zip(first, second, strict=True)
    return Inputs(*(None if a is None or b is None else jnp.concatenate([a, b]) for a, b in pairs))


class Linear(eqx.Module):
    """An affine layer, initialised uniformly in ±1/√fan-in."""

    weight: Array  # (in, out)
    bias: Array  # (out,)

    def __init__(self, fan_in: int, fan_out: int, *, rng: np.random.Generator):
        limit = 1.0 / max(fan_in, 1) ** 0.5
        # drawn by NumPy: JAX would first compile a program for each shape, seconds before every run
        self.weight = jnp.asarray(rng.uniform(-limit, limit, (fan_in, fan_out)), jnp.float32)
        self.bias = jnp.asarray(rng.uniform(-limit, limit, fan_out), jnp.float32)

    def __call__(self, x: Array) -> Array:
        return x @ self.weight + self.bias


class Mlp(eqx.Module):
    """Affine layers, each followed by a ReLU, with batch renormalisation between the two where asked for."""

    layers: tuple[Linear, ...]
    norms: tuple[BatchRenorm, ...] | None = None

    def __init__(self, sizes: tuple[int, ...], *, rng: np.random.Generator, batch_renorm: bool = False):
        self.layers = tuple(Linear(fan_in, fan_out, rng=rng) for fan_in, fan_out in pairwise(sizes))
        self.norms = tuple(BatchRenorm(size) for size in sizes[1:]) if batch_renorm else None

    def __call__(self, x: Array) -> Array:
        for i, layer in enumerate(self.layers):
            x = layer(x)
            x = jax.nn.relu(x if self.norms is None else self.norms[i](x))
        return x

    def train(self, x: Array) -> tuple[Array, tuple[Moments, ...]]:
        """Normalise by the batch's own moments, and return them layer by layer."""
        if self.norms is None:
            return self(x), ()
        moments = []
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x, batch = norm.train(layer(x))
            x = jax.nn.relu(x)
            moments.append(batch)
        return x, tuple(moments)

    def follow(self, moments: tuple[Moments, ...]) -> Mlp:
        """Return the layers with their running moments moved towards a batch's."""
        if self.norms is None:
            return self
        norms = tuple(norm.follow(batch) for norm, batch in zip(self.norms, moments, strict=True))
        return eqx.tree_at(lambda mlp: mlp.norms, self, norms)


class Nothing(eqx.Module):
    """The encoder of a policy that knows only the observation: no latent at all."""

    reads: ClassVar[Reads] = "nothing"

    def __call__(self, inputs: Inputs) -> Array:
        return jnp.zeros((len(inputs.obs), 0))


class RawContext(eqx.Module):
    """The Oracle's encoder: the context itself, scaled by the training region."""

    reads: ClassVar[Reads] = "context"
    centre: tuple[float, ...] = eqx.field(static=True)
    half_range: tuple[float, ...] = eqx.field(static=True)

    def __call__(self, inputs: Inputs) -> Array:
        return (inputs.context - jnp.asarray(self.centre)) / jnp.asarray(self.half_range)


class ContextEncoder(eqx.Module):
    """ψ(c): two layers on the scaled context."""

    reads: ClassVar[Reads] = "context"
    scale: RawContext
    mlp: Mlp

    def __init__(self, scale: RawContext, latent: int, *, rng: np.random.Generator):
        self.scale = scale
        self.mlp = Mlp((len(scale.centre), latent, latent), rng=rng)

    def __call__(self, inputs: Inputs) -> Array:
        return self.mlp(self.scale(inputs))


class HistoryAdapter(eqx.Module):
    """φ(h): a layer per time step, three convolutions over time (50 → 13 → 13 → 13), a layer on what they give."""

    reads: ClassVar[Reads] = "history"
    embed: Linear
    convolutions: tuple[Linear, ...]
    out: Linear

    def __init__(self, width: int, length: int, latent: int, *, rng: np.random.Generator):
        self.embed = Linear(width, latent, rng=rng)
        channels, layers = latent, []
        for kernel, stride in CONVOLUTIONS:
            layers.append(Linear(kernel * channels, FILTERS, rng=rng))
            channels, length = FILTERS, -(-length // stride)
        self.convolutions = tuple(layers)
        self.out = Linear(length * FILTERS, latent, rng=rng)

    def __call__(self, inputs: Inputs, last: Callable[[Array], Array] = jax.nn.relu) -> Array:
        x = jnp.transpose(inputs.history, (2, 1, 0))  # (O+A, H, B)
        x = jax.nn.relu(convolve(x, self.embed.weight, self.embed.bias, 1))  # (Z, H, B)
        for layer, (_, stride) in zip(self.convolutions, CONVOLUTIONS, strict=True):
            x = jax.nn.relu(convolve(x, layer.weight, layer.bias, stride))  # (FILTERS, ⌈H/stride⌉, B)
        x = convolve(x, self.out.weight, self.out.bias, x.shape[1])  # (Z, 1, B): all steps in one window
        return last(x[:, 0].T)  # (B, Z)


@jax.custom_vjp
def reviving_relu(x: Array) -> Array:
    """ReLU whose gradient can raise a unit that is off, though not lower it further: φ's last one in its regression.

    φ chases ψ(c) ≥ 0 while ψ still moves. With the plain gradient, an output of φ that is off for all histories can
    never follow when its counterpart in ψ comes on, and the policy reads a zero there for good.
    """
    return jax.nn.relu(x)


reviving_relu.defvjp(
    lambda x: (jax.nn.relu(x), x > 0),
    lambda on, gradient: (jnp.where(on | (gradient < 0), gradient, 0.0),),
)


Encoder = Nothing | RawContext | ContextEncoder | HistoryAdapter


class Trunk(eqx.Module):
    """Input encoder and decision layers; the latent z joins between them, renormalised where asked for."""

    observe: Mlp
    decide: Mlp
    head: Linear
    latent_norm: BatchRenorm | None

    def __init__(self, size_in: int, latent: int, width: int, size_out: int, *, rng: np.random.Generator,
                 batch_renorm: bool = False, renorm_latent: bool = False):  # fmt: skip
        self.observe = Mlp((size_in, width, width), rng=rng, batch_renorm=batch_renorm)
        self.decide = Mlp((width + latent, width, width), rng=rng, batch_renorm=batch_renorm)
        self.head = Linear(width, size_out, rng=rng)
        self.latent_norm = BatchRenorm(latent) if renorm_latent else None

    def __call__(self, x: Array, z: Array) -> Array:
        z = z if self.latent_norm is None else self.latent_norm(z)
        return self.head(self.decide(jnp.concatenate([self.observe(x), z], axis=-1)))

    def train(self, x: Array, z: Array) -> tuple[Array, tuple[Any, Any, Any]]:
        """Normalise the layers by this batch, and return its moments too, for `follow`."""
        x, observed = self.observe.train(x)
        z, joined = (z, ()) if self.latent_norm is None else self.latent_norm.train(z)
        x, decided = self.decide.train(jnp.concatenate([x, z], axis=-1))
        return self.head(x), (observed, decided, joined)

    def follow(self, moments: tuple[Any, Any, Any]) -> Trunk:
        """Return the trunk with its running moments moved towards a batch's."""
        observed, decided, joined = moments
        norm = None if self.latent_norm is None else self.latent_norm.follow(joined)
        parts = self.observe.follow(observed), self.decide.follow(decided), norm
        return eqx.tree_at(
            lambda trunk: (trunk.observe, trunk.decide, trunk.latent_norm), self, parts, is_leaf=lambda x: x is None
        )


class Actor(eqx.Module):
    """π(o, z): a tanh-squashed Gaussian over actions in [−1, 1]; z comes from the encoder.

    With a norm it takes observations as the environment gives them; without one, as they are.
    """

    trunk: Trunk
    encoder: Encoder
    norm: RunningNorm | None = None

    def latent(self, inputs: Inputs) -> Array:
        """Return z (B, Z)."""
        return self.encoder(normalized(inputs, self.norm))

    def distribution(self, inputs: Inputs) -> tuple[Array, Array]:
        """Return mean and log standard deviation before squashing, (B, A) each."""
        inputs = normalized(inputs, self.norm)
        mean, log_std = jnp.split(self.trunk(inputs.obs, self.encoder(inputs)), 2, axis=-1)
        low, high = LOG_STD_RANGE
        return mean, low + 0.5 * (high - low) * (jnp.tanh(log_std) + 1.0)

    def mode(self, inputs: Inputs) -> Array:
        """Act without noise."""
        return jnp.tanh(self.distribution(inputs)[0])

    def sample(self, inputs: Inputs, key: Array) -> tuple[Array, Array]:
        """Draw actions (B, A) and give their log-probabilities (B,)."""
        mean, log_std = self.distribution(inputs)
        noise = jax.random.normal(key, mean.shape)
        before = mean + jnp.exp(log_std) * noise
        gaussian = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
        # log(1 − tanh²x) without cancellation
        squash = 2.0 * (jnp.log(2.0) - before - jax.nn.softplus(-2.0 * before))
        return jnp.tanh(before), jnp.sum(gaussian - squash, axis=-1)


class Critic(eqx.Module):
    """Z(o, a, z): the quantiles of the return, (B, N)."""

    trunk: Trunk
    encoder: Encoder

    def __call__(self, inputs: Inputs, action: Array) -> Array:
        return self.trunk(jnp.concatenate([inputs.obs, action], axis=-1), self.encoder(inputs))

    def train(self, inputs: Inputs, action: Array) -> tuple[Array, tuple[Any, Any, Any]]:
        """Return the quantiles with the trunk's layers normalised by this batch, and its moments for `follow`."""
        return self.trunk.train(jnp.concatenate([inputs.obs, action], axis=-1), self.encoder(inputs))

    def follow(self, moments: tuple[Any, Any, Any]) -> Critic:
        """Return the critic with its running moments moved towards a batch's."""
        return eqx.tree_at(lambda critic: critic.trunk, self, self.trunk.follow(moments))
