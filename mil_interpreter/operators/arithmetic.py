"""Operators that compute values: element-wise ones, activations, matrix products, normalisations and reductions.

They are MIL's modules `elementwise_unary`, `elementwise_binary`, `activation`, `linear`, `normalization` and
`reduction`, and iOS18's attention. Definitions:
https://apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html (iOS15 and iOS17; `transformers`
is iOS18's).

- Binary operators broadcast as NumPy does.
- Sums of a matrix product run in fp32 from the stored inputs. Only the result is rounded to its declared type.
- A normalisation is one operator to Core ML, so its inside runs in fp32 (means and sums in fp64) and only its result is
  rounded.
- Reductions of floats accumulate in fp64, of integers in int64. The interpreter stores the result as declared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from mil_interpreter.operators.arguments import Operator, along, axes, integer, text
from mil_interpreter.operators.arguments import axes as chosen
from mil_interpreter.records import WORKING_DTYPES, Array, Value

_ERF_P: tuple[float, ...] = (
    -1.60960333262415e-02,
    -2.95459980854025e-03,
    -7.34990630326855e-04,
    -5.69250639462346e-05,
    -2.10102402082508e-06,
    2.77068142495902e-08,
    -2.72614225801306e-10,
)
_ERF_Q: tuple[float, ...] = (
    -1.42647390514189e-02,
    -7.37332916720468e-03,
    -1.68282697438203e-03,
    -2.13374055278905e-04,
    -1.45660718464996e-05,
)
# Powers of 1 / x^2, for x in [1, 2).
_ERFC_NEAR: tuple[float, ...] = (
    5.638259427386472e-01,
    -2.741127028184656e-01,
    3.404879937665872e-01,
    -4.944515323274145e-01,
    6.210004621745983e-01,
    -5.824733027278666e-01,
    3.687424674597105e-01,
    -1.387039388740657e-01,
    2.326819970068386e-02,
)
# The same, for x >= 2.
_ERFC_FAR: tuple[float, ...] = (
    5.641895067754075e-01,
    -2.820767439740514e-01,
    4.218463358204948e-01,
    -1.015265279202700e00,
    2.921019019210786e00,
    -7.495518717768503e00,
    1.297719955372516e01,
    -1.047766399936249e01,
)
_CASTS = tuple(WORKING_DTYPES)
# `layer_norm` has a parameter of this name.
_axes = axes
Reduction = Callable[[Array, tuple[int, ...]], Array]


def erf(x: Array) -> Array:
    """Return the Gauss error function, by the rational approximation of Eigen and XLA for fp32.

    Its error is below 5e-7 on [-4, 4]. Source: Eigen `generic_fast_erf_float`. NumPy has none, and `math.erf` takes 100
    ns per element.
    """
    clamped = np.clip(x, np.float32(-4), np.float32(4))
    square = clamped * clamped
    return np.asarray(clamped * _horner(square, _ERF_P) / _horner(square, _ERF_Q))


def erfc(x: Array) -> Array:
    """Return `1 - erf(x)`, without cancellation where `erf(x)` is near 1 (relative error below 1e-6).

    Source: Cephes `ndtrf.c`, as in XLA: `exp(-x^2) / x` times a polynomial in `1 / x^2`.
    """
    result = np.asarray(1 - erf(x))
    far = x >= 1
    tail = x[far].astype(np.float64)
    power = 1 / np.square(tail)
    polynomial = np.where(tail < 2, _horner(power, _ERFC_NEAR), _horner(power, _ERFC_FAR))
    result[far] = np.exp(-np.square(tail)) / tail * polynomial
    return result


def clip(x: Array, alpha: Array, beta: Array) -> Array:
    """Return `min(max(x, alpha), beta)`."""
    return np.minimum(np.maximum(x, alpha), beta)


def inverse(x: Array, epsilon: Array | float = 1e-4) -> Array:
    """Return `1 / (x + epsilon)`."""
    return np.asarray(1 / (x + np.float32(epsilon)))


def log(x: Array, epsilon: Array | float = 1e-45) -> Array:
    """Return `log(x + epsilon)`."""
    return np.log(x + np.float32(epsilon))


def rsqrt(x: Array, epsilon: Array | float = 1e-12) -> Array:
    """Return `1 / sqrt(x + epsilon)`."""
    return np.asarray(1 / np.sqrt(x + np.float32(epsilon)))


def threshold(x: Array, alpha: Array) -> Array:
    """Return `max(x, alpha)`."""
    return np.maximum(x, alpha)


def cast(x: Array, dtype: Value) -> Array:
    """Return the same values as another type. A fraction is cut off, as in NumPy and C.

    The interpreter rounds to fp16, since it stores every result as its declared type.
    """
    return np.asarray(x).astype(WORKING_DTYPES[text(dtype, *_CASTS)])


def select(cond: Array, a: Array, b: Array) -> Array:
    """Return `a` where `cond` is true, else `b` (MIL `control_flow.select`)."""
    return np.where(cond, a, b)


def _horner(x: Array, coefficients: tuple[float, ...]) -> Array:
    total = np.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total *= x
        total += x.dtype.type(c)
    return total


def _unary(function: Callable[[Array], Array]) -> Operator:
    def operator(x: Array) -> Array:
        return np.asarray(function(x))

    return operator


def _binary(function: Callable[[Array, Array], Array]) -> Operator:
    def operator(x: Array, y: Array) -> Array:
        return np.asarray(function(x, y))

    return operator


ELEMENTWISE_OPERATORS: Mapping[str, Operator] = {
    "abs": _unary(np.abs),
    "acos": _unary(np.arccos),
    "add": _binary(np.add),
    "asin": _unary(np.arcsin),
    "atan": _unary(np.arctan),
    "atanh": _unary(np.arctanh),
    "cast": cast,
    "ceil": _unary(np.ceil),
    "clip": clip,
    "cos": _unary(np.cos),
    "cosh": _unary(np.cosh),
    "equal": _binary(np.equal),
    "erf": erf,
    "exp": _unary(np.exp),
    "exp2": _unary(np.exp2),
    "floor": _unary(np.floor),
    # Towards minus infinity.
    "floor_div": _binary(np.floor_divide),
    "greater": _binary(np.greater),
    "greater_equal": _binary(np.greater_equal),
    "inverse": inverse,
    "less": _binary(np.less),
    "less_equal": _binary(np.less_equal),
    "log": log,
    "logical_and": _binary(np.logical_and),
    "logical_not": _unary(np.logical_not),
    "logical_or": _binary(np.logical_or),
    "logical_xor": _binary(np.logical_xor),
    "maximum": _binary(np.maximum),
    "minimum": _binary(np.minimum),
    # The sign of the divisor.
    "mod": _binary(np.mod),
    "mul": _binary(np.multiply),
    "not_equal": _binary(np.not_equal),
    "pow": _binary(np.power),
    "real_div": _binary(np.true_divide),
    # Halves to even.
    "round": _unary(np.round),
    "rsqrt": rsqrt,
    "select": select,
    "sign": _unary(np.sign),
    "sin": _unary(np.sin),
    "sinh": _unary(np.sinh),
    "sqrt": _unary(np.sqrt),
    "square": _unary(np.square),
    "sub": _binary(np.subtract),
    "tan": _unary(np.tan),
    "tanh": _unary(np.tanh),
    "threshold": threshold,
}


def relu(x: Array) -> Array:
    """Return `max(x, 0)`."""
    return np.maximum(x, 0)


def relu6(x: Array) -> Array:
    """Return `min(max(x, 0), 6)`."""
    return np.clip(x, 0, 6)


def clamped_relu(x: Array, alpha: Array, beta: Array) -> Array:
    """Return `min(beta, x)` where `x >= 0`, else `min(beta, alpha * x)`."""
    return np.minimum(np.where(x >= 0, x, alpha * x), beta)


def leaky_relu(x: Array, alpha: Array) -> Array:
    """Return `x` where `x >= 0`, else `alpha * x`."""
    return np.where(x >= 0, x, alpha * x)


def prelu(x: Array, alpha: Array) -> Array:
    """Return `x` where positive, else `alpha[c] * x` with the slope of its channel (axis 1)."""
    return np.where(x > 0, x, along(alpha, 1, x.ndim) * x)


def elu(x: Array, alpha: Array) -> Array:
    """Return `x` where positive, else `alpha * (exp(x) - 1)`."""
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def thresholded_relu(x: Array, alpha: Array) -> Array:
    """Return `x` where `x >= alpha`, else 0."""
    return np.where(x >= alpha, x, np.float32(0))


def gelu(x: Array, mode: Value = "EXACT") -> Array:
    """Return the Gaussian error linear unit, exact or by its tanh or sigmoid approximation."""
    variant = text(mode, "EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION")
    if variant == "EXACT":
        # 1 + erf would cancel below zero.
        return np.asarray(0.5 * x * erfc(x * np.float32(-math.sqrt(0.5))))
    if variant == "TANH_APPROXIMATION":
        return np.asarray(0.5 * x * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + 0.044715 * x * x * x))))
    return np.asarray(x * sigmoid(1.702 * x))


def sigmoid(x: Array) -> Array:
    """Return `1 / (1 + exp(-x))`, computed so that neither end overflows."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))


def sigmoid_hard(x: Array, alpha: Array, beta: Array) -> Array:
    """Return `min(max(alpha * x + beta, 0), 1)`."""
    return np.asarray(np.clip(alpha * x + beta, 0, 1))


def silu(x: Array) -> Array:
    """Return `x * sigmoid(x)`."""
    return np.asarray(x * sigmoid(x))


def softplus(x: Array) -> Array:
    """Return `log(1 + exp(x))`."""
    return np.asarray(np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0))


def softplus_parametric(x: Array, alpha: Array, beta: Array) -> Array:
    """Return `alpha[c] * log(1 + exp(beta[c] * x))` with the parameters of its channel (axis 1)."""
    return np.asarray(along(alpha, 1, x.ndim) * softplus(along(beta, 1, x.ndim) * x))


def softsign(x: Array) -> Array:
    """Return `x / (1 + |x|)`."""
    return np.asarray(x / (1 + np.abs(x)))


def scaled_tanh(x: Array, alpha: Array, beta: Array) -> Array:
    """Return `alpha * tanh(beta * x)`."""
    return np.asarray(alpha * np.tanh(beta * x))


def linear_activation(x: Array, alpha: Array, beta: Array) -> Array:
    """Return `alpha * x + beta`."""
    return np.asarray(alpha * x + beta)


def softmax(x: Array, axis: Value | int = -1) -> Array:
    """Return `exp(x) / sum(exp(x))` along an axis, shifted by the maximum so that nothing overflows."""
    along_axis = integer(axis)
    powers = np.exp(x - x.max(axis=along_axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=along_axis, keepdims=True))


ACTIVATION_OPERATORS: Mapping[str, Operator] = {
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


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Return `x @ weight.T + bias` with x [..., D_in], weight [D_out, D_in], bias [D_out]."""
    flat = x.reshape(-1, x.shape[-1]) @ weight.T
    if bias is not None:
        flat += bias
    return flat.reshape(*x.shape[:-1], weight.shape[0])


def matmul(x: Array, y: Array, transpose_x: Array | bool = False, transpose_y: Array | bool = False) -> Array:
    """Return `x @ y` over the last two axes, either transposed first. The leading axes broadcast."""
    first = x.swapaxes(-1, -2) if transpose_x and x.ndim > 1 else x
    right = y.swapaxes(-1, -2) if transpose_y and y.ndim > 1 else y
    return np.asarray(np.matmul(first, right))


def einsum(values: tuple[Array, ...], equation: Value) -> Array:
    """Return the Einstein summation of two tensors, which sums over a repeated letter."""
    if not isinstance(equation, str):
        raise ValueError("the equation is not a text")
    return np.asarray(np.einsum(equation, *values, optimize=True))


def scaled_dot_product_attention(query: Array, key: Array, value: Array, attn_mask: Array | None = None) -> Array:
    """Return `softmax(query @ key.T / sqrt(E) + mask) @ value`. A boolean mask takes part where it is true."""
    scores = np.matmul(query, key.swapaxes(-1, -2)) / np.float32(np.sqrt(query.shape[-1]))
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, -np.inf) if attn_mask.dtype == np.bool_ else scores + attn_mask
    return np.asarray(np.matmul(softmax(scores), value))


LINEAR_OPERATORS: Mapping[str, Operator] = {
    f.__name__: f for f in (linear, matmul, einsum, scaled_dot_product_attention)
}


def batch_norm(
    x: Array,
    mean: Array,
    variance: Array,
    gamma: Array | None = None,
    beta: Array | None = None,
    epsilon: Array | float = 1e-5,
) -> Array:
    """Return `gamma * (x - mean) / sqrt(variance + epsilon) + beta`, with one of each per channel (axis 1)."""
    scale = 1 / np.sqrt(variance + np.float32(epsilon))
    return _scale((x - along(mean, 1, x.ndim)) * along(scale, 1, x.ndim), gamma, beta)


def instance_norm(
    x: Array, gamma: Array | None = None, beta: Array | None = None, epsilon: Array | float = 1e-5
) -> Array:
    """Return the spatial axes of each image and channel with mean 0 and variance 1, then scaled per channel."""
    return _scale(_standardise(x, tuple(range(2, x.ndim)), epsilon), gamma, beta)


def layer_norm(
    x: Array,
    axes: Value | None = None,
    gamma: Array | None = None,
    beta: Array | None = None,
    epsilon: Array | float = 1e-5,
) -> Array:
    """Return `gamma * (x - mean) / sqrt(variance + epsilon) + beta` over axes, whose shape gamma and beta have."""
    normalized_axes = _axes(axes, x.ndim)
    shape = [n if d in normalized_axes else 1 for d, n in enumerate(x.shape)]
    result = _standardise(x, normalized_axes, epsilon)
    if gamma is not None:
        result *= gamma.reshape(shape)
    if beta is not None:
        result += beta.reshape(shape)
    return result


def l2_norm(x: Array, epsilon: Array | float = 1e-6) -> Array:
    """Return `x / sqrt(sum(x^2) + epsilon)` over the last three axes."""
    total = np.square(x).sum(axis=(-3, -2, -1), keepdims=True, dtype=np.float64)
    return np.asarray(x / np.sqrt(total + np.float32(epsilon)))


def local_response_norm(
    x: Array,
    size: Value,
    alpha: Array | float = 1e-4,
    beta: Array | float = 0.75,
    k: Array | float = 1.0,
) -> Array:
    """Return `x / (k + alpha / size * sum of squares of the `size` channels around it) ^ beta`.

    The window is that of `torch.nn.LocalResponseNorm`: `size // 2` channels before, the rest after.
    """
    n = integer(size)
    padding = [(0, 0), (n // 2, (n - 1) // 2), *[(0, 0)] * (x.ndim - 2)]
    squares = np.pad(np.square(x), padding)
    total = np.sum([squares[:, i : i + x.shape[1]] for i in range(n)], axis=0)
    return np.asarray(x / np.power(k + np.float32(alpha) * total / n, beta))


def _standardise(x: Array, over: tuple[int, ...], epsilon: Array | float) -> Array:
    centred = x - x.mean(axis=over, keepdims=True, dtype=np.float64).astype(np.float32)
    variance = np.square(centred).mean(axis=over, keepdims=True, dtype=np.float64)
    centred *= (1 / np.sqrt(variance + np.float32(epsilon))).astype(np.float32)
    return np.asarray(centred)


def _scale(x: Array, gamma: Array | None, beta: Array | None) -> Array:
    if gamma is not None:
        x = x * along(gamma, 1, x.ndim)
    if beta is not None:
        x = x + along(beta, 1, x.ndim)
    return x


NORM_OPERATORS: Mapping[str, Operator] = {
    f.__name__: f for f in (batch_norm, instance_norm, layer_norm, l2_norm, local_response_norm)
}


def reduce_argmax(
    x: Array, axis: Value | int = -1, keep_dims: Array | bool = False, output_dtype: Value = "int32"
) -> Array:
    """Return the index of the largest value along an axis, the first of equal ones."""
    text(output_dtype, "int32", "uint16")
    return np.asarray(np.argmax(x, axis=integer(axis), keepdims=bool(keep_dims)))


def reduce_argmin(
    x: Array, axis: Value | int = -1, keep_dims: Array | bool = False, output_dtype: Value = "int32"
) -> Array:
    """Return the index of the smallest value along an axis, the first of equal ones."""
    text(output_dtype, "int32", "uint16")
    return np.asarray(np.argmin(x, axis=integer(axis), keepdims=bool(keep_dims)))


def cumsum(x: Array, axis: Value | int = 0, exclusive: Array | bool = False, reverse: Array | bool = False) -> Array:
    """Return the running sum along an axis, without the element itself if exclusive, from the end if reversed."""
    along_axis = integer(axis)
    values = np.flip(x, along_axis) if reverse else x
    total = np.cumsum(values, axis=along_axis, dtype=_wide(x))
    if exclusive:
        total = total - values
    return np.flip(total, along_axis) if reverse else total


def _over(reduction: Reduction) -> Operator:
    def operator(x: Array, axes: Value | None = None, keep_dims: Array | bool = False) -> Array:
        over = chosen(axes, x.ndim)
        # Keeps the axes with size 1.
        reduced = reduction(x, over)
        return reduced if keep_dims else np.squeeze(reduced, axis=over)

    return operator


def _wide(x: Array) -> np.dtype[np.generic]:
    return np.dtype(np.float64) if x.dtype.kind == "f" else np.dtype(np.int64)


def _sum(x: Array, over: tuple[int, ...]) -> Array:
    return np.asarray(x.sum(axis=over, keepdims=True, dtype=_wide(x)))


def _log_sum_exp(x: Array, over: tuple[int, ...]) -> Array:
    largest = x.max(axis=over, keepdims=True)
    return np.asarray(np.log(_sum(np.exp(x - largest), over)) + largest)


REDUCE_OPERATORS: Mapping[str, Operator] = {
    "cumsum": cumsum,
    "reduce_argmax": reduce_argmax,
    "reduce_argmin": reduce_argmin,
    "reduce_l1_norm": _over(lambda x, over: _sum(np.abs(x), over)),
    "reduce_l2_norm": _over(lambda x, over: np.sqrt(_sum(np.square(x, dtype=_wide(x)), over))),
    "reduce_log_sum": _over(lambda x, over: np.log(_sum(x, over))),
    "reduce_log_sum_exp": _over(_log_sum_exp),
    "reduce_max": _over(lambda x, over: np.asarray(x.max(axis=over, keepdims=True))),
    "reduce_mean": _over(lambda x, over: np.asarray(x.mean(axis=over, keepdims=True, dtype=np.float64))),
    "reduce_min": _over(lambda x, over: np.asarray(x.min(axis=over, keepdims=True))),
    "reduce_prod": _over(lambda x, over: np.asarray(x.prod(axis=over, keepdims=True, dtype=_wide(x)))),
    "reduce_sum": _over(_sum),
    "reduce_sum_square": _over(lambda x, over: _sum(np.square(x, dtype=_wide(x)), over)),
}
