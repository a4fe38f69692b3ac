"""Activations: MIL's `activation` module.

Definitions: https://apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html (iOS15 and iOS17).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from mil_interpreter.operators.arguments import Operator, along, integer, text
from mil_interpreter.operators.elementwise import erfc
from mil_interpreter.records import Array, Value


def relu(x: Array) -> Array:
    """`max(x, 0)`."""
    return np.maximum(x, 0)


def relu6(x: Array) -> Array:
    """`min(max(x, 0), 6)`."""
    return np.clip(x, 0, 6)


def clamped_relu(x: Array, alpha: Array, beta: Array) -> Array:
    """`min(beta, x)` where `x >= 0`, else `min(beta, alpha * x)`."""
    return np.minimum(np.where(x >= 0, x, alpha * x), beta)


def leaky_relu(x: Array, alpha: Array) -> Array:
    """`x` where `x >= 0`, else `alpha * x`."""
    return np.where(x >= 0, x, alpha * x)


def prelu(x: Array, alpha: Array) -> Array:
    """`x` where positive, else `alpha[c] * x` with the slope of its channel (axis 1)."""
    return np.where(x > 0, x, along(alpha, 1, x.ndim) * x)


def elu(x: Array, alpha: Array) -> Array:
    """`x` where positive, else `alpha * (exp(x) - 1)`."""
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def thresholded_relu(x: Array, alpha: Array) -> Array:
    """`x` where `x >= alpha`, else 0."""
    return np.where(x >= alpha, x, np.float32(0))


def gelu(x: Array, mode: Value = "EXACT") -> Array:
    """Gaussian error linear unit, exact or by its tanh or sigmoid approximation."""
    chosen = text(mode, "EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION")
    if chosen == "EXACT":
        return np.asarray(0.5 * x * erfc(x * np.float32(-math.sqrt(0.5))))  # 1 + erf would cancel below zero
    if chosen == "TANH_APPROXIMATION":
        return np.asarray(0.5 * x * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + 0.044715 * x * x * x))))
    return np.asarray(x * sigmoid(1.702 * x))


def sigmoid(x: Array) -> Array:
    """`1 / (1 + exp(-x))`, computed so that neither end overflows."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))


def sigmoid_hard(x: Array, alpha: Array, beta: Array) -> Array:
    """`min(max(alpha * x + beta, 0), 1)`."""
    return np.asarray(np.clip(alpha * x + beta, 0, 1))


def silu(x: Array) -> Array:
    """`x * sigmoid(x)`."""
    return np.asarray(x * sigmoid(x))


def softplus(x: Array) -> Array:
    """`log(1 + exp(x))`."""
    return np.asarray(np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0))


def softplus_parametric(x: Array, alpha: Array, beta: Array) -> Array:
    """`alpha[c] * log(1 + exp(beta[c] * x))` with the parameters of its channel (axis 1)."""
    return np.asarray(along(alpha, 1, x.ndim) * softplus(along(beta, 1, x.ndim) * x))


def softsign(x: Array) -> Array:
    """`x / (1 + |x|)`."""
    return np.asarray(x / (1 + np.abs(x)))


def scaled_tanh(x: Array, alpha: Array, beta: Array) -> Array:
    """`alpha * tanh(beta * x)`."""
    return np.asarray(alpha * np.tanh(beta * x))


def linear_activation(x: Array, alpha: Array, beta: Array) -> Array:
    """`alpha * x + beta`."""
    return np.asarray(alpha * x + beta)


def softmax(x: Array, axis: Value | int = -1) -> Array:
    """`exp(x) / sum(exp(x))` along an axis, shifted by the maximum so that nothing overflows."""
    along_axis = integer(axis)
    powers = np.exp(x - x.max(axis=along_axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=along_axis, keepdims=True))


TABLE: Mapping[str, Operator] = {
    f.__name__: f
    for f in (
        relu,
        relu6,
        clamped_relu,
        leaky_relu,
        prelu,
        elu,
        thresholded_relu,
        gelu,
        sigmoid,
        sigmoid_hard,
        silu,
        softplus,
        softplus_parametric,
        softsign,
        scaled_tanh,
        linear_activation,
        softmax,
    )
}
