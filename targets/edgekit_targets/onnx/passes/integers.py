"""Division of integers: PyTorch's ONNX exporter divides them in fp32, which is wrong beyond 2^24."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def translations() -> dict[Any, Callable[..., Any]]:
    """Return entries of `torch.onnx.export`'s `custom_translation_table`."""
    import torch

    aten = torch.ops.aten
    return {aten.div.Tensor_mode: _divide, aten.floor_divide.default: _floor_divide}


def _floor_divide(x: Any, y: Any) -> Any:
    return _divide(x, y, "floor")


def _divide(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    """Return the rounded quotient. Types that ONNX Runtime cannot divide, and floats, use the exporter's own."""
    import onnx_ir as ir
    from onnxscript import opset20
    from onnxscript.function_libs.torch_lib.ops import core

    op: Any = opset20
    is_whole = isinstance(y, int) or getattr(y, "dtype", None) == x.dtype
    if rounding_mode is None or x.dtype not in (ir.DataType.INT32, ir.DataType.INT64) or not is_whole:
        return core.aten_div_mode(x, y, rounding_mode)
    if isinstance(y, int):
        y = op.Constant(value=ir.tensor(y, dtype=x.dtype))
    # ONNX rounds towards zero.
    quotient = op.Div(x, y)
    if rounding_mode == "trunc":
        return quotient
    zero = op.Constant(value=ir.tensor(0, dtype=x.dtype))
    rest = op.Sub(x, op.Mul(quotient, y))
    is_above = op.And(op.Not(op.Equal(rest, zero)), op.Xor(op.Less(rest, zero), op.Less(y, zero)))
    return op.Sub(quotient, op.Cast(is_above, to=x.dtype))
