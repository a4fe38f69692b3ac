"""Compressed constants and affine quantization: MIL's `constexpr_ops` (iOS16), `compression` and `quantization_ops`.

Definitions: https://apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html. The operators
named `constexpr_...` run once, when a package is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mil_interpreter.operators.arguments import Operator, along, checked_shape, integer, integers, text
from mil_interpreter.records import WORKING_DTYPES, Array, Value


def constexpr_affine_dequantize(quantized_data: Array, zero_point: Array, scale: Array, axis: Value) -> Array:
    """Return `scale * (quantized - zero_point)`, each a scalar or one per slice along an axis."""
    return dequantize(quantized_data, scale, zero_point, axis)


def constexpr_blockwise_shift_scale(data: Array, scale: Array, offset: Array | None = None) -> Array:
    """Return `scale * (data - offset)` with one scale and offset per block. Its size is that of data over scale."""
    sizes = [n // s for n, s in zip(data.shape, scale.shape, strict=True)]
    if tuple(n * s for n, s in zip(sizes, scale.shape, strict=True)) != data.shape:
        raise ValueError(f"scales of the sizes {scale.shape} for data of {data.shape}")
    values = data.astype(np.float32)
    if offset is not None:
        values -= _repeat(offset.astype(np.float32), sizes)
    return np.asarray(_repeat(scale, sizes) * values)


def constexpr_cast(source_val: Array, output_dtype: Value) -> Array:
    """Return the same values as fp32."""
    return source_val.astype(WORKING_DTYPES[text(output_dtype, "fp32")])


def constexpr_lut_to_dense(indices: Array, lut: Array, shape: Value) -> Array:
    """Return `lut[index]` for indices packed into bytes from the least significant bit on, row-major (iOS16)."""
    sizes, bits = checked_shape(integers(shape)), int(np.log2(lut.size))
    stream = np.unpackbits(indices, bitorder="little")
    count = int(np.prod([1, *sizes]))
    digits = stream[: count * bits].reshape(count, bits)
    return lut[digits @ (1 << np.arange(bits))].reshape(sizes)


def constexpr_sparse_to_dense(nonzero_data: Array, mask: Array, shape: Value) -> Array:
    """Return values where the mask's bit is set (least significant first), zeros elsewhere, row-major (iOS16)."""
    sizes = checked_shape(integers(shape))
    nonzero = np.unpackbits(mask, bitorder="little")[: int(np.prod([1, *sizes]))].astype(bool)
    dense = np.zeros(nonzero.size, dtype=nonzero_data.dtype)
    dense[nonzero] = nonzero_data
    return dense.reshape(sizes)


def quantize(
    input: Array,  # noqa: A002 - the name of MIL's parameter
    scale: Array,
    output_dtype: Value,
    zero_point: Array | None = None,
    axis: Value | None = None,
) -> Array:
    """Return `clip(round(input / scale) + zero_point)` as int8 or uint8. Halves round to even."""
    dtype = WORKING_DTYPES[text(output_dtype, "int8", "uint8")]
    over = 0 if axis is None else integer(axis)
    levels = np.round(input / along(scale, over, input.ndim))
    if zero_point is not None:
        levels = levels + along(zero_point.astype(np.float32), over, input.ndim)
    limits = np.iinfo(np.int8 if dtype == np.int8 else np.uint8)
    return np.clip(levels, limits.min, limits.max).astype(dtype)


def dequantize(
    input: Array,  # noqa: A002 - the name of MIL's parameter
    scale: Array,
    zero_point: Array | None = None,
    axis: Value | None = None,
) -> Array:
    """Return `scale * (input - zero_point)`, each a scalar or one per slice along an axis."""
    over = 0 if axis is None else integer(axis)
    values = input.astype(np.float32)
    if zero_point is not None:
        values = values - along(zero_point.astype(np.float32), over, input.ndim)
    return np.asarray(along(scale, over, input.ndim) * values)


def _repeat(blocks: Array, sizes: list[int]) -> Array:
    for axis, size in enumerate(sizes):
        blocks = np.repeat(blocks, size, axis=axis)
    return blocks


CONSTEXPR_OPERATORS: Mapping[str, Operator] = {
    f.__name__: f
    for f in (
        constexpr_affine_dequantize,
        constexpr_blockwise_shift_scale,
        constexpr_cast,
        constexpr_lut_to_dense,
        constexpr_sparse_to_dense,
        quantize,
        dequantize,
    )
}
