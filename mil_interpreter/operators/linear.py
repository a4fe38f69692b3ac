"""Matrix products: MIL's `linear` module and iOS18's attention.

Definitions: https://apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html (iOS15 `linear`,
iOS18 `transformers`). Sums run in fp32 from the stored inputs; only the result is rounded to its declared type.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mil_interpreter.operators.activation import softmax
from mil_interpreter.operators.arguments import Operator
from mil_interpreter.records import Array, Value


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """`x @ weight.T + bias`; x [..., D_in], weight [D_out, D_in], bias [D_out]."""
    flat = x.reshape(-1, x.shape[-1]) @ weight.T
    if bias is not None:
        flat += bias
    return flat.reshape(*x.shape[:-1], weight.shape[0])


def matmul(x: Array, y: Array, transpose_x: Array | bool = False, transpose_y: Array | bool = False) -> Array:
    """`x @ y` over the last two axes, either transposed first; the leading axes broadcast."""
    left = x.swapaxes(-1, -2) if transpose_x and x.ndim > 1 else x
    right = y.swapaxes(-1, -2) if transpose_y and y.ndim > 1 else y
    return np.asarray(np.matmul(left, right))


def einsum(values: tuple[Array, ...], equation: Value) -> Array:
    """Einstein summation of two tensors; a repeated letter is summed over."""
    if not isinstance(equation, str):
        raise ValueError("the equation is not a text")
    return np.asarray(np.einsum(equation, *values, optimize=True))


def scaled_dot_product_attention(query: Array, key: Array, value: Array, attn_mask: Array | None = None) -> Array:
    """`softmax(query @ key.T / sqrt(E) + mask) @ value`; a boolean mask takes part where it is true."""
    scores = np.matmul(query, key.swapaxes(-1, -2)) / np.float32(np.sqrt(query.shape[-1]))
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, -np.inf) if attn_mask.dtype == np.bool_ else scores + attn_mask
    return np.asarray(np.matmul(softmax(scores), value))


TABLE: Mapping[str, Operator] = {f.__name__: f for f in (linear, matmul, einsum, scaled_dot_product_attention)}
