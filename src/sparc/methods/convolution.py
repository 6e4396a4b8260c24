"""A convolution over time whose passes are matrix products, forward and backward, for φ on a CPU.

Arrays stand as (channels, time, batch): a step is then one contiguous piece per channel, whatever is cut out of the
time axis, and every product is wide. XLA's own convolution takes several times as long on a CPU, and so does its
derivative of the products below, which adds up windows piece by piece.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Geometry(NamedTuple):
    """What a convolution with edge padding makes of T steps: ⌈T/stride⌉ outputs, of `kernel` steps each."""

    steps: int
    left: int
    right: int
    pieces: int  # a window is so many neighbouring blocks of `stride` steps

    @classmethod
    def of(cls, length: int, kernel: int, stride: int) -> Geometry:
        """Return the geometry for inputs of a length."""
        assert kernel % stride == 0, (kernel, stride)
        steps = -(-length // stride)
        padding = (steps - 1) * stride + kernel - length
        return cls(steps, padding // 2, padding - padding // 2, kernel // stride)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def convolve(x: Array, weight: Array, bias: Array, stride: int) -> Array:
    """Return the convolution of x (C, T, B) with weight (kernel·C, F), edge padding: (F, ⌈T/stride⌉, B)."""
    return forward(x, weight, bias, stride)[0]


def forward(x: Array, weight: Array, bias: Array, stride: int) -> tuple[Array, tuple[Array, Array]]:
    """Return the convolution, and what its gradients need."""
    columns = windows(x, len(weight) // len(x), stride)
    y = dot(weight, columns.reshape(len(weight), -1)) + bias[:, None]
    return y.reshape(len(bias), *columns.shape[1:]), (x, weight)


def windows(x: Array, kernel: int, stride: int) -> Array:
    """Cut (C, T, B) into windows of `kernel` steps with edge padding: (kernel·C, ⌈T/stride⌉, B)."""
    steps, left, right, _ = Geometry.of(x.shape[1], kernel, stride)
    x = jnp.pad(x, ((0, 0), (left, right), (0, 0)), mode="edge")
    return jnp.concatenate([x[:, k : k + (steps - 1) * stride + 1 : stride] for k in range(kernel)])


def gradients(stride: int, saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    """Return the gradients of x, weight and bias, from that of the output (F, ⌈T/stride⌉, B)."""
    x, weight = saved
    (channels, length, batch), filters = x.shape, len(gradient)
    steps, left, _, pieces = Geometry.of(length, len(weight) // channels, stride)
    flat = gradient.reshape(filters, -1)
    columns = windows(x, len(weight) // channels, stride).reshape(len(weight), -1)

    # a block of `stride` padded steps is in `pieces` windows, in each as another piece: a convolution, mirrored
    blocks = steps - 1 + pieces
    padded = jnp.pad(gradient, ((0, 0), (pieces - 1, pieces - 1), (0, 0)))
    around = jnp.concatenate([padded[:, i : i + blocks] for i in range(pieces)]).reshape(pieces * filters, -1)
    mirrored = weight.reshape(pieces, stride, channels, filters)[::-1].transpose(0, 3, 1, 2)
    inner = dot(mirrored.reshape(pieces * filters, -1), around).reshape(stride, channels, blocks, batch)
    inner = inner.transpose(1, 2, 0, 3).reshape(channels, blocks * stride, batch)
    of_x = inner[:, left : left + length]
    of_x = of_x.at[:, 0].add(inner[:, :left].sum(1)).at[:, -1].add(inner[:, left + length :].sum(1))
    # as a product with ones, which is vectorised; XLA's own sum over a row is not
    return of_x, columns @ flat.T, flat @ jnp.ones(flat.shape[1], flat.dtype)


def dot(weight: Array, columns: Array) -> Array:
    """Return weightᵀ · columns, without a transposed copy."""
    return jax.lax.dot_general(weight, columns, (((0,), (0,)), ((), ())))


convolve.defvjp(forward, gradients)
