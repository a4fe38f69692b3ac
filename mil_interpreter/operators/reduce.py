"""Reductions: MIL's `reduction` module, and `cumsum`.

Definitions: https://apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html (iOS15, iOS17).
Sums of floats accumulate in fp64, sums of integers in int64; the interpreter stores the result as declared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from mil_interpreter.operators.arguments import Operator, integer, text
from mil_interpreter.operators.arguments import axes as chosen
from mil_interpreter.records import Array, Value

Reduction = Callable[[Array, tuple[int, ...]], Array]


def reduce_argmax(
    x: Array, axis: Value | int = -1, keep_dims: Array | bool = False, output_dtype: Value = "int32"
) -> Array:
    """Index of the largest value along an axis; of equal ones the first."""
    text(output_dtype, "int32", "uint16")
    return np.asarray(np.argmax(x, axis=integer(axis), keepdims=bool(keep_dims)))


def reduce_argmin(
    x: Array, axis: Value | int = -1, keep_dims: Array | bool = False, output_dtype: Value = "int32"
) -> Array:
    """Index of the smallest value along an axis; of equal ones the first."""
    text(output_dtype, "int32", "uint16")
    return np.asarray(np.argmin(x, axis=integer(axis), keepdims=bool(keep_dims)))


def cumsum(x: Array, axis: Value | int = 0, exclusive: Array | bool = False, reverse: Array | bool = False) -> Array:
    """Running sum along an axis; without the element itself if exclusive, from the end if reversed."""
    along_axis = integer(axis)
    values = np.flip(x, along_axis) if reverse else x
    total = np.cumsum(values, axis=along_axis, dtype=_wide(x))
    if exclusive:
        total = total - values
    return np.flip(total, along_axis) if reverse else total


def _over(reduction: Reduction) -> Operator:
    def operator(x: Array, axes: Value | None = None, keep_dims: Array | bool = False) -> Array:
        over = chosen(axes, x.ndim)
        reduced = reduction(x, over)  # keeps the axes with size 1
        return reduced if keep_dims else np.squeeze(reduced, axis=over)

    return operator


def _wide(x: Array) -> np.dtype[np.generic]:
    return np.dtype(np.float64) if x.dtype.kind == "f" else np.dtype(np.int64)


def _sum(x: Array, over: tuple[int, ...]) -> Array:
    return np.asarray(x.sum(axis=over, keepdims=True, dtype=_wide(x)))


def _log_sum_exp(x: Array, over: tuple[int, ...]) -> Array:
    largest = x.max(axis=over, keepdims=True)
    return np.asarray(np.log(_sum(np.exp(x - largest), over)) + largest)


TABLE: Mapping[str, Operator] = {
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
