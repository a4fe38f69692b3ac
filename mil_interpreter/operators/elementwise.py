"""Element-wise operators: MIL's `elementwise_unary` and `elementwise_binary`.

Definitions: https://apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html (iOS15 and iOS17,
modules of the same names). Binary operators broadcast as NumPy does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from mil_interpreter.operators.arguments import Operator, text
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
_ERFC_NEAR: tuple[float, ...] = (  # powers of 1 / x^2, for x in [1, 2)
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
_ERFC_FAR: tuple[float, ...] = (  # the same, for x >= 2
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


def erf(x: Array) -> Array:
    """Gauss error function, by the rational approximation of Eigen and XLA for fp32 (error below 5e-7 on [-4, 4]).

    Source: Eigen `generic_fast_erf_float`; NumPy has none, and `math.erf` takes 100 ns an element.
    """
    clamped = np.clip(x, np.float32(-4), np.float32(4))
    square = clamped * clamped
    return np.asarray(clamped * _horner(square, _ERF_P) / _horner(square, _ERF_Q))


def erfc(x: Array) -> Array:
    """`1 - erf(x)`, without the cancellation of that difference where `erf(x)` is near 1 (relative error below 1e-6).

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
    """`min(max(x, alpha), beta)`."""
    return np.minimum(np.maximum(x, alpha), beta)


def inverse(x: Array, epsilon: Array | float = 1e-4) -> Array:
    """`1 / (x + epsilon)`."""
    return np.asarray(1 / (x + np.float32(epsilon)))


def log(x: Array, epsilon: Array | float = 1e-45) -> Array:
    """`log(x + epsilon)`."""
    return np.log(x + np.float32(epsilon))


def rsqrt(x: Array, epsilon: Array | float = 1e-12) -> Array:
    """`1 / sqrt(x + epsilon)`."""
    return np.asarray(1 / np.sqrt(x + np.float32(epsilon)))


def threshold(x: Array, alpha: Array) -> Array:
    """`max(x, alpha)`."""
    return np.maximum(x, alpha)


def cast(x: Array, dtype: Value) -> Array:
    """The same values as another type; a fraction is cut off, as in NumPy and C.

    Rounding to fp16 is the interpreter's, which stores every result as its declared type.
    """
    return np.asarray(x).astype(WORKING_DTYPES[text(dtype, *_CASTS)])


def select(cond: Array, a: Array, b: Array) -> Array:
    """`a` where `cond` is true, else `b` (MIL `control_flow.select`)."""
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


TABLE: Mapping[str, Operator] = {
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
    "floor_div": _binary(np.floor_divide),  # towards minus infinity
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
    "mod": _binary(np.mod),  # the sign of the divisor
    "mul": _binary(np.multiply),
    "not_equal": _binary(np.not_equal),
    "pow": _binary(np.power),
    "real_div": _binary(np.true_divide),
    "round": _unary(np.round),  # halves to even
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
