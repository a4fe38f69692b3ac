"""Normalisations: MIL's `normalization` module.

Definitions: https://apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html (iOS15, iOS17).
Each is one operator to Core ML, so its inside runs in fp32 (means and sums in fp64) and only its result is rounded.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mil_interpreter.operators.arguments import Operator, along, axes, integer
from mil_interpreter.records import Array, Value


def batch_norm(
    x: Array,
    mean: Array,
    variance: Array,
    gamma: Array | None = None,
    beta: Array | None = None,
    epsilon: Array | float = 1e-5,
) -> Array:
    """`gamma * (x - mean) / sqrt(variance + epsilon) + beta`, one of each a channel (axis 1)."""
    scale = 1 / np.sqrt(variance + np.float32(epsilon))
    return _scaled((x - along(mean, 1, x.ndim)) * along(scale, 1, x.ndim), gamma, beta)


def instance_norm(
    x: Array, gamma: Array | None = None, beta: Array | None = None, epsilon: Array | float = 1e-5
) -> Array:
    """Mean 0 and variance 1 over the spatial axes of each image and channel, then scaled a channel."""
    return _scaled(_standardised(x, tuple(range(2, x.ndim)), epsilon), gamma, beta)


def layer_norm(
    x: Array,
    axes: Value | None = None,
    gamma: Array | None = None,
    beta: Array | None = None,
    epsilon: Array | float = 1e-5,
) -> Array:
    """`gamma * (x - mean) / sqrt(variance + epsilon) + beta` over the given axes; gamma and beta have their shape."""
    chosen = _axes(axes, x.ndim)
    shape = [n if d in chosen else 1 for d, n in enumerate(x.shape)]
    result = _standardised(x, chosen, epsilon)
    if gamma is not None:
        result *= gamma.reshape(shape)
    if beta is not None:
        result += beta.reshape(shape)
    return result


def l2_norm(x: Array, epsilon: Array | float = 1e-6) -> Array:
    """`x / sqrt(sum(x^2) + epsilon)` over the last three axes."""
    total = np.square(x).sum(axis=(-3, -2, -1), keepdims=True, dtype=np.float64)
    return np.asarray(x / np.sqrt(total + np.float32(epsilon)))


def local_response_norm(
    x: Array,
    size: Value,
    alpha: Array | float = 1e-4,
    beta: Array | float = 0.75,
    k: Array | float = 1.0,
) -> Array:
    """`x / (k + alpha / size * sum of squares of the `size` channels around it) ^ beta`.

    The window is that of `torch.nn.LocalResponseNorm`: `size // 2` channels before, the rest after.
    """
    n = integer(size)
    padding = [(0, 0), (n // 2, (n - 1) // 2), *[(0, 0)] * (x.ndim - 2)]
    squares = np.pad(np.square(x), padding)
    total = np.sum([squares[:, i : i + x.shape[1]] for i in range(n)], axis=0)
    return np.asarray(x / np.power(k + np.float32(alpha) * total / n, beta))


def _standardised(x: Array, over: tuple[int, ...], epsilon: Array | float) -> Array:
    centred = x - x.mean(axis=over, keepdims=True, dtype=np.float64).astype(np.float32)
    variance = np.square(centred).mean(axis=over, keepdims=True, dtype=np.float64)
    centred *= (1 / np.sqrt(variance + np.float32(epsilon))).astype(np.float32)
    return np.asarray(centred)


def _scaled(x: Array, gamma: Array | None, beta: Array | None) -> Array:
    if gamma is not None:
        x = x * along(gamma, 1, x.ndim)
    if beta is not None:
        x = x + along(beta, 1, x.ndim)
    return x


_axes = axes  # `layer_norm` has a parameter of this name

TABLE: Mapping[str, Operator] = {
    f.__name__: f for f in (batch_norm, instance_norm, layer_norm, l2_norm, local_response_norm)
}
