"""The emulation against the definition, element by element."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.quantization import saturation
from edgekit.runtime.ort import OrtRuntime

ROWS, DEEP, WIDE = 5, 7, 6


def quantized(weight: np.ndarray) -> onnx.ModelProto:
    """A linear layer in QDQ form whose scales are 1, so that its answers are the sums themselves."""
    scale, zero = np.array(1, np.float32), np.array(0, np.uint8)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "one", "zero"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "one", "zero"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ones", "zeros"], ["wd"], axis=1),
        helper.make_node("Gemm", ["xd", "wd"], ["y"], name="layer/Gemm"),
    ]
    weights = [
        numpy_helper.from_array(scale, "one"),
        numpy_helper.from_array(zero, "zero"),
        numpy_helper.from_array(weight, "w"),
        numpy_helper.from_array(np.ones(WIDE, np.float32), "ones"),
        numpy_helper.from_array(np.zeros(WIDE, np.int8), "zeros"),
    ]
    made = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, DEEP])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [ROWS, WIDE])],
        weights,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def maddubs(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """PMADDUBSW and exact sums of its results."""
    sums = np.zeros((len(rows), weight.shape[1]), np.int64)
    for first in range(0, len(weight), 2):
        pair = sum(
            rows[:, i, None].astype(np.int64) * weight[None, i] for i in range(first, min(first + 2, len(weight)))
        )
        sums += np.clip(pair, -32768, 32767)
    return sums


@pytest.mark.parametrize("seed", range(5))
def test_sums_saturate_pair_by_pair(seed: int, tmp_path: Path) -> None:
    draw = np.random.default_rng(seed)
    weight = draw.integers(-127, 128, (DEEP, WIDE), dtype=np.int8)
    weight[:2] = 127 * np.sign(weight[:2, :1] + 0.5).astype(np.int8)  # pairs that do saturate
    rows = draw.integers(100, 256, (ROWS, DEEP)).astype(np.float32)
    graph = saturation.emulated(quantized(weight))
    onnx.checker.check_model(graph, full_check=True)
    (tmp_path / "model.onnx").write_bytes(graph.SerializeToString())
    answers = OrtRuntime(tmp_path / "model.onnx").run({"x": rows})["y"]
    right = maddubs(rows.astype(np.int64), weight.astype(np.int64))
    assert (right != rows.astype(np.int64) @ weight.astype(np.int64)).any()
    np.testing.assert_array_equal(answers, right)


def test_seven_bit_weights_cannot_saturate() -> None:
    graph = quantized(np.full((DEEP, WIDE), 63, np.int8))
    assert saturation.emulated(graph) == graph


def test_this_host_is_named() -> None:
    assert saturation.processor().name
