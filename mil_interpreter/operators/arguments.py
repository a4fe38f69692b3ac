"""Arguments of operators as Python values, and the one limit that keeps damaged parameters from filling the memory.

A parameter arrives as an array (0-d for a scalar) or a text. `ValueError` here becomes one sentence that names the
operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from mil_interpreter.records import LARGEST_TENSOR, Array, Value

Operator = Callable[..., Array | tuple[Array, ...]]
"""Function of arguments by MIL's parameter names. It returns one array, or a tuple for several outputs in MIL."""


def integer(value: Value | int) -> int:
    """Return a scalar parameter."""
    return int(np.asarray(value).reshape(()))


def integers(value: Value | Iterable[int]) -> tuple[int, ...]:
    """Return a vector parameter."""
    return tuple(int(v) for v in np.asarray(value).reshape(-1))


def flags(value: Value | Iterable[bool] | None, count: int) -> tuple[bool, ...]:
    """Return a vector of masks, all False without the parameter."""
    return (False,) * count if value is None else tuple(bool(v) for v in np.asarray(value).reshape(-1))


def text(value: Value, *choices: str) -> str:
    """Return a text parameter that must be one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"'{value}' is unknown. Possible: {', '.join(choices)}")
    return value


def axes(value: Value | None, rank: int) -> tuple[int, ...]:
    """Return axes counted from the front, or every axis without the parameter.

    Raises:
        ValueError: If an axis lies outside the tensor.
    """
    selected = range(rank) if value is None else integers(value)
    if any(not -rank <= a < rank for a in selected):
        raise ValueError(f"the axes {tuple(selected)} lie outside a tensor of rank {rank}")
    return tuple(a % rank for a in selected)


def checked_shape(shape: Iterable[int]) -> tuple[int, ...]:
    """Return a shape that may be allocated.

    Raises:
        ValueError: If it has a negative size or more than `LARGEST_TENSOR` elements.
    """
    sizes = tuple(int(n) for n in shape)
    if any(n < 0 for n in sizes) or math.prod(sizes) > LARGEST_TENSOR:
        raise ValueError(f"a tensor of the sizes {sizes} is too large or has a negative size")
    return sizes


def along(vector: Array, axis: int, rank: int) -> Array:
    """Return a vector shaped to broadcast along one axis of a tensor. A scalar does not change."""
    if vector.ndim == 0:
        return vector
    return vector.reshape([-1 if d == axis % rank else 1 for d in range(rank)])
