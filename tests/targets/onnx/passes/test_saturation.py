"""The emulation against the definition, element by element."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.runtime import processor
from edgekit.runtime.ort import OrtRuntime
from edgekit_targets.onnx.passes import weight_only
from tests.targets.onnx.passes.graphs import linear_in_qdq, model

ROWS, DEEP, WIDE = 5, 7, 6


def maddubs(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """PMADDUBSW and exact sums of its results."""
    sums = np.zeros((len(rows), weight.shape[1]), np.int64)
    for first in range(0, len(weight), 2):
        pair = sum(
            rows[:, i, None].astype(np.int64) * weight[None, i] for i in range(first, min(first + 2, len(weight)))
        )
        sums += np.clip(pair, -32768, 32767)
    return sums


def answered(graph: onnx.ModelProto, inputs: dict[str, np.ndarray], folder: Path) -> np.ndarray:
    onnx.checker.check_model(graph, full_check=True)
    (folder / "model.onnx").write_bytes(graph.SerializeToString())
    return OrtRuntime(folder / "model.onnx").run(inputs)["y"]


@pytest.mark.parametrize("seed", range(2))
def test_sums_saturate_pair_by_pair(seed: int, tmp_path: Path) -> None:
    draw = np.random.default_rng(seed)
    weight = draw.integers(-127, 128, (DEEP, WIDE), dtype=np.int8)
    weight[:2] = 127 * np.sign(weight[:2, :1] + 0.5).astype(np.int8)  # pairs that do saturate
    rows = draw.integers(100, 256, (ROWS, DEEP)).astype(np.float32)
    answers = answered(weight_only.emulate_without_vnni(linear_in_qdq(weight)), {"x": rows}, tmp_path)
    right = maddubs(rows.astype(np.int64), weight.astype(np.int64))
    assert (right != rows.astype(np.int64) @ weight.astype(np.int64)).any()
    np.testing.assert_array_equal(answers, right)


def test_seven_bit_weights_cannot_saturate() -> None:
    graph = linear_in_qdq(np.full((DEEP, WIDE), 63, np.int8))
    assert weight_only.emulate_without_vnni(graph) == graph


def test_a_weight_that_is_stored_transposed_saturates_the_same(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    weight = draw.integers(-127, 128, (DEEP, WIDE), dtype=np.int8)
    rows = draw.integers(0, 256, (ROWS, DEEP)).astype(np.float32)
    graph = linear_in_qdq(weight)
    layer = graph.graph.node[-1]
    layer.attribute.append(helper.make_attribute("transB", 1))
    held = next(i for i in graph.graph.initializer if i.name == "w")
    held.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(weight.T), "w"))
    graph.graph.node[2].attribute[0].i = 0  # the axis of the scales
    answers = answered(weight_only.emulate_without_vnni(graph), {"x": rows}, tmp_path)
    np.testing.assert_array_equal(answers, maddubs(rows.astype(np.int64), weight.astype(np.int64)))


def test_dynamic_sums_saturate_too(tmp_path: Path) -> None:
    draw = np.random.default_rng(7)
    weight = draw.integers(-127, 128, (DEEP, WIDE), dtype=np.int8)
    rows = draw.integers(100, 256, (2, ROWS, DEEP)).astype(np.uint8)
    nodes = [helper.make_node("MatMulInteger", ["x", "w"], ["y"], name="layer/MatMul")]
    kinds = {"x": TensorProto.UINT8, "y": TensorProto.INT32}
    graph = model(nodes, {"x": ("batch", ROWS, DEEP)}, {"y": ("batch", ROWS, WIDE)}, {"w": weight}, kinds)
    answers = answered(weight_only.emulate_without_vnni(graph), {"x": rows}, tmp_path)
    right = [maddubs(part.astype(np.int64), weight.astype(np.int64)) for part in rows]
    np.testing.assert_array_equal(answers, np.stack(right))


def test_a_processor_is_told_by_its_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"fpu sse2 avx2": "x86 without VNNI", "avx2 avx_vnni": "AVX VNNI", "avx512_vnni amx_int8": "AMX"}
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for flags, name in {**names, "avx2 avx512f avx512_vnni": "AVX-512 VNNI"}.items():
        (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags : {flags}\n")
        assert processor.int8_arithmetic() == name


@pytest.mark.parametrize("static", [True, False])
def test_layers_that_share_a_weight_open_under_exact_sums(static: bool, tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    weight = draw.integers(-127, 128, (DEEP, WIDE), dtype=np.int8)
    rows = draw.integers(100, 256, (ROWS, DEEP))
    if static:
        graph = linear_in_qdq(weight)
    else:
        kinds = {"x": TensorProto.UINT8, "y": TensorProto.INT32}
        nodes = [helper.make_node("MatMulInteger", ["x", "w"], ["y"], name="layer/MatMul")]
        graph = model(nodes, {"x": ("batch", DEEP)}, {"y": ("batch", WIDE)}, {"w": weight}, kinds)
    layer = graph.graph.node[-1]
    again = graph.graph.node.add()
    again.CopyFrom(layer)
    layer.output[0], again.output[0], again.name = "first", "second", "again"
    graph.graph.node.append(helper.make_node("Add", ["first", "second"], ["y"]))
    own = weight_only.unshare_constants(graph)
    given = rows.astype(np.float32 if static else np.uint8)
    for made, right in (
        (own, rows @ weight.astype(np.int64)),
        (weight_only.emulate_without_vnni(own), maddubs(rows, weight.astype(np.int64))),
    ):
        onnx.checker.check_model(made, full_check=True)
        (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
        answers = OrtRuntime(tmp_path / "model.onnx", weight_only.EXACT).run({"x": given})["y"]
        np.testing.assert_array_equal(answers, 2 * right)
