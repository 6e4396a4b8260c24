"""The convolution of φ against brute force, against XLA's own, and its gradients against XLA's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from sparc.methods.convolution import Geometry, convolve, windows

SHAPES = [(50, 8, 4), (13, 5, 1), (13, 13, 13), (50, 1, 1), (7, 8, 4), (2, 5, 1), (1, 8, 4), (1, 5, 1)]


def drawn(length: int, kernel: int) -> tuple[Array, Array, Array]:
    """Return an input (3, length, 2), a weight (kernel·3, 4) and a bias (4,)."""
    rng = np.random.default_rng(length)
    shapes = (3, length, 2), (kernel * 3, 4), (4,)
    x, weight, bias = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes)
    return x, weight, bias


def xlas_own(x: Array, weight: Array, bias: Array, stride: int) -> Array:
    """Return the same convolution as XLA has it, and differentiates it."""
    channels, length, _ = x.shape
    _, left, right, _ = Geometry.of(length, len(weight) // channels, stride)
    padded = jnp.pad(x, ((0, 0), (left, right), (0, 0)), mode="edge")
    kernel = weight.reshape(-1, channels, weight.shape[1])
    layout = ("CWN", "WIO", "CWN")  # channels, time, batch
    return (
        jax.lax.conv_general_dilated(padded, kernel, (stride,), "VALID", dimension_numbers=layout) + bias[:, None, None]
    )


@pytest.mark.parametrize(("length", "kernel", "stride"), SHAPES)
def test_windows_are_those_of_edge_padding(length: int, kernel: int, stride: int) -> None:
    x, _, _ = drawn(length, kernel)
    steps, left, _, _ = Geometry.of(length, kernel, stride)
    brute = np.zeros((kernel, 3, steps, 2), np.float32)
    for step in range(steps):
        for k in range(kernel):
            brute[k, :, step] = x[:, min(max(step * stride + k - left, 0), length - 1)]  # beyond an edge, the edge
    np.testing.assert_array_equal(windows(x, kernel, stride), brute.reshape(kernel * 3, steps, 2))


@pytest.mark.parametrize(("length", "kernel", "stride"), SHAPES)
def test_values_and_gradients_are_those_of_a_convolution(length: int, kernel: int, stride: int) -> None:
    arrays = drawn(length, kernel)
    out = convolve(*arrays, stride)
    assert out.shape == (4, -(-length // stride), 2)
    np.testing.assert_allclose(out, xlas_own(*arrays, stride), rtol=1e-4, atol=1e-5)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=out.shape), jnp.float32)

    def gradients(of: object) -> tuple[Array, ...]:
        return jax.grad(lambda arrays: jnp.sum(weights * of(*arrays, stride)))(arrays)  # type: ignore[operator]

    for found, expected in zip(gradients(convolve), gradients(xlas_own), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
