"""Attention in ONNX as five plain operators, where PyTorch's exporter takes eight.

    before: keys [B, heads, N, d] -> Reshape [B * heads, N, d] -> Transpose -> Reshape [B, heads, d, N] -> Mul (root of
        the scale); queries -> Mul; both -> MatMul [B, heads, N, N] -> Softmax -> MatMul with values [B, heads, N, d]
    after: keys -> Transpose [B, heads, d, N]; queries, keys -> MatMul [B, heads, N, N] -> Mul (scale) -> Softmax
        -> MatMul with values [B, heads, N, d]

    with a mask of booleans: Where before the softmax and after it, in place of Where, Add, IsNaN and Where

A row that is masked from end to end (an empty text of a batch) is zeros in PyTorch. The exporter's own graph gives it
the mean of all values: it looks for the NaN of a row of -inf, and masks by the least finite number.

ONNX Runtime folds the scale and the transposition of the keys into its MatMul when a session starts, so that nothing
that is only one runtime's has to be in the file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


def translations() -> dict[Any, Callable[..., Any]]:
    """The `custom_translation_table` of `torch.onnx.export`."""
    import torch

    return {torch.ops.aten.scaled_dot_product_attention.default: _attention}


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(Q K^T / sqrt(d)) V (Vaswani et al., 2017), each [B, heads, N, d]; any other kind is the exporter's.

    A mask of booleans is [..., N, N], true where a key is read.
    """
    import onnx_ir as ir
    from onnxscript import opset20
    from onnxscript.function_libs.torch_lib.ops import nn

    added = attn_mask is not None and attn_mask.dtype != ir.DataType.BOOL
    if added or is_causal or enable_gqa or dropout_p or len(query.shape) != 4:
        return nn.aten_scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
        )
    op: Any = opset20
    factor = op.Constant(value_float=1.0 / math.sqrt(query.shape[-1]) if scale is None else scale)
    scores = op.Mul(op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2])), op.CastLike(factor, query))
    if attn_mask is None:
        return op.MatMul(op.Softmax(scores, axis=-1), value)
    least, zero = (op.Constant(value=ir.tensor(number, dtype=query.dtype)) for number in (query.dtype.min, 0.0))
    weights = op.Softmax(op.Where(attn_mask, scores, least), axis=-1)
    return op.MatMul(op.Where(attn_mask, weights, zero), value)
