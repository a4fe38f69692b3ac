"""Compressed constants and affine quantization, from disk, against coremltools' own decompression."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mil_interpreter.errors import PackageError, UnsupportedError
from mil_interpreter.records import Array
from tests.mil_interpreter.programs import builder as mb

DTYPES = pytest.mark.parametrize("dtype", ["fp32", "fp16"])
EXAMPLES = settings(max_examples=5, deadline=None)
SEEDS = st.integers(0, 2**31)


def plus(saved: Any, make: Any, shape: tuple[int, ...], dtype: str, ios: int = 17) -> Array:
    """A compressed constant, added to an input of zeros so that the program computes something."""
    zeros = {"x": np.zeros(shape, np.float32)}
    got = saved.run(zeros, lambda v: mb.add(x=v["x"], y=make()), dtype, ios)
    return np.asarray(got[0])


def scales(seed: int, count: int, dtype: str) -> Array:
    drawn = np.random.default_rng(seed).uniform(0.01, 2, count)
    return drawn.astype(np.float16 if dtype == "fp16" else np.float32)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@DTYPES
@EXAMPLES
@given(rows=st.integers(1, 5), columns=st.integers(1, 5), axis=st.integers(0, 1), seed=SEEDS)
def test_affine_dequantize(saved: Any, kind: type, dtype: str, rows: int, columns: int, axis: int, seed: int) -> None:
    limits = np.iinfo(kind)
    random = np.random.default_rng(seed)
    data: Array = random.integers(limits.min, limits.max + 1, (rows, columns)).astype(kind)
    zero: Array = random.integers(limits.min, limits.max + 1, (rows, columns)[axis]).astype(kind)
    scale = scales(seed, (rows, columns)[axis], dtype)

    def make() -> Any:
        return mb.constexpr_affine_dequantize(quantized_data=data, zero_point=zero, scale=scale, axis=np.int32(axis))

    shape = (-1, 1) if axis == 0 else (1, -1)
    wanted = scale.astype(np.float64).reshape(shape) * (data.astype(int) - zero.astype(int).reshape(shape))
    got = plus(saved, make, (rows, columns), dtype)
    np.testing.assert_allclose(got, wanted.astype(scale.dtype), rtol=1e-6)


@DTYPES
@EXAMPLES
@given(rows=st.integers(1, 3), blocks=st.integers(1, 3), size=st.integers(1, 4), seed=SEEDS)
def test_blockwise_shift_scale(saved: Any, dtype: str, rows: int, blocks: int, size: int, seed: int) -> None:
    data = np.random.default_rng(seed).integers(-128, 128, (rows, blocks * size)).astype(np.int8)
    offset = np.random.default_rng(seed + 1).integers(-128, 128, (rows, blocks)).astype(np.int8)
    scale = scales(seed, rows * blocks, dtype).reshape(rows, blocks)
    wanted = scale.repeat(size, 1).astype(np.float64) * (data.astype(int) - offset.repeat(size, 1).astype(int))

    def make() -> Any:
        return mb.constexpr_blockwise_shift_scale(data=data, scale=scale, offset=offset)

    got = plus(saved, make, data.shape, dtype, ios=18)
    np.testing.assert_allclose(got, wanted.astype(scale.dtype), rtol=1e-6)


@pytest.mark.parametrize("bits", [1, 2, 4, 6, 8])
@DTYPES
@EXAMPLES
@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=3), seed=SEEDS)
def test_lookup_table(saved: Any, bits: int, dtype: str, shape: list[int], seed: int) -> None:
    from coremltools.optimize._utils import pack_elements_into_bits

    table = scales(seed, 2**bits, dtype)
    chosen = np.random.default_rng(seed).integers(0, 2**bits, shape).astype(np.uint8)
    packed = pack_elements_into_bits(chosen, bits)

    def make() -> Any:
        return mb.constexpr_lut_to_dense(indices=packed, lut=table, shape=np.array(shape, np.uint32))

    np.testing.assert_array_equal(plus(saved, make, tuple(shape), dtype), table[chosen].astype(np.float32))


@DTYPES
@EXAMPLES
@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=3), seed=SEEDS)
def test_sparse(saved: Any, dtype: str, shape: list[int], seed: int) -> None:
    dense = scales(seed, int(np.prod(shape)), dtype).reshape(shape)
    dense[np.random.default_rng(seed).random(shape) < 0.5] = 0
    mask = np.packbits((dense != 0).reshape(-1), bitorder="little")

    def make() -> Any:
        return mb.constexpr_sparse_to_dense(nonzero_data=dense[dense != 0], mask=mask, shape=np.array(shape, np.uint32))

    if np.any(dense):
        np.testing.assert_array_equal(plus(saved, make, tuple(shape), dtype), dense.astype(np.float32))


def test_the_table_of_ios_18_is_not_misread(saved: Any) -> None:
    table = np.arange(256, dtype=np.float32).reshape(1, 1, 256, 1)
    chosen = np.arange(6, dtype=np.uint8).reshape(2, 3)

    def make() -> Any:
        return mb.constexpr_lut_to_dense(indices=chosen, lut=table)

    with pytest.raises(
        UnsupportedError, match=r"operator 'constexpr_lut_to_dense' .* lacks 'shape' in the opset 'CoreML8'"
    ):
        plus(saved, make, (2, 3), "fp32", ios=18)


def test_constexpr_cast(saved: Any) -> None:
    halves = np.array([0.1, -2.5], np.float16)
    got = plus(saved, lambda: mb.constexpr_cast(source_val=halves, output_dtype="fp32"), (2,), "fp32")
    np.testing.assert_array_equal(got, halves.astype(np.float32))


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@DTYPES
@EXAMPLES
@given(channels=st.integers(1, 4), seed=SEEDS)
def test_quantize_and_dequantize(saved: Any, kind: str, dtype: str, channels: int, seed: int) -> None:
    limits = np.iinfo(kind)
    scale = (2.0 ** -np.arange(channels)).astype(np.float16 if dtype == "fp16" else np.float32)
    zero = np.random.default_rng(seed).integers(limits.min, limits.max + 1, channels).astype(kind)
    x = np.random.default_rng(seed).uniform(-200, 200, (2, channels, 3)).astype(np.float16).astype(np.float32)
    s, z = (a.astype(np.float64).reshape(1, -1, 1) for a in (scale, zero))
    levels = np.clip(np.round(x / s) + z, limits.min, limits.max)
    fixed = {"scale": scale, "zero_point": zero, "axis": 1}

    def both(v: Any) -> Any:
        small = mb.quantize(input=v["x"], output_dtype=kind, **fixed)
        return small, mb.dequantize(input=small, **fixed)

    got = saved.run({"x": x}, both, dtype)
    np.testing.assert_array_equal(got[0], levels)
    np.testing.assert_allclose(got[1], (s * (levels - z)).astype(scale.dtype), rtol=1e-6)


def test_a_scale_of_the_wrong_length_is_a_sentence(saved: Any) -> None:
    data = np.zeros((2, 3), np.int8)
    path = saved.save(
        {"x": np.zeros((2, 3), np.float32)},
        lambda v: mb.add(
            x=v["x"],
            y=mb.constexpr_affine_dequantize(
                quantized_data=data, zero_point=np.int8(0), scale=np.ones(3, np.float32), axis=np.int32(1)
            ),
        ),
    )
    from mil_interpreter import read_package
    from mil_interpreter.interpreter import Interpreter
    from mil_interpreter.package import parse

    file = path / "Data" / "com.apple.CoreML" / "model.mlmodel"
    model = parse(file.read_bytes())
    main = model.mlProgram.functions["main"]
    for operation in main.block_specializations[main.opset].operations:
        if operation.type == "constexpr_affine_dequantize":
            operation.attributes["axis"].immediateValue.tensor.ints.values[0] = 0
    file.write_bytes(model.SerializeToString())
    with pytest.raises(PackageError, match=r"'constexpr_affine_dequantize' .* cannot be computed"):
        Interpreter(read_package(path))
