"""Weights in INT8, as near as a step and only where they are weights; other tables in fp16, where that is near."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from edgekit.model.spec import Array
from edgekit.runtime.ort import OrtRuntime
from edgekit_targets.onnx.passes import weight_only
from edgekit_targets.onnx.passes.dynamic import FLOAT_LAYERS
from edgekit_targets.onnx.passes.weight_only import EXACT
from edgekit_targets.openvino.runtime import OpenvinoRuntime
from tests.targets.onnx.passes.graphs import answers, convolutions, linear_in_qdq, model, recurrent, rounded, weights


def test_stored_weights_are_within_half_a_step(graph: onnx.ModelProto) -> None:
    right = {i.name: numpy_helper.to_array(i) for i in graph.graph.initializer}
    copy = weight_only.quantize_weights(graph)
    held = {i.name: numpy_helper.to_array(i) for i in copy.graph.initializer}
    got = held["w1_int8"] * held["w1_scale"]
    assert np.abs(got - right["w1"]).max() <= held["w1_scale"].max() / 2 * 1.001
    assert "shift" in held  # too small to be worth a node


@pytest.mark.parametrize(
    ("kind", "rows", "weight", "scales", "attributes"),
    [
        ("MatMul", (2, 64), (64, 80), 80, {}),
        ("Gemm", (2, 64), (64, 80), 80, {}),
        ("Gemm", (2, 64), (80, 64), 80, {"transB": 1}),
        ("Conv", (1, 16, 8, 8), (48, 16, 3, 3), 48, {}),
    ],
    ids=["MatMul", "Gemm", "Gemm transposed", "Conv"],
)
def test_each_output_channel_has_a_scale(
    kind: str, rows: tuple[int, ...], weight: tuple[int, ...], scales: int, attributes: dict[str, int]
) -> None:
    """One channel is a thousand times the others: with one scale, these would be rounded to nothing."""
    values, axis = rounded(*weight, deviation=0.05), weight.index(scales)
    np.moveaxis(values, axis, 0)[0] *= 1000
    layer = helper.make_node(kind, ["x", "w"], ["y"])
    layer.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    before = model([layer], {"x": rows}, {"y": _shape(kind)}, {"w": values})
    after = weight_only.quantize_weights(before)
    held = weights(after)
    assert (held["w_int8"].dtype.name, held["w_scale"].size) == ("int8", scales)
    assert "w" not in held
    x = rounded(*rows, seed=1)
    right, got = (np.moveaxis(answers(g, x=x)["y"], 1, 0).reshape(scales, -1) for g in (before, after))
    errors = np.abs(right - got).max(axis=1) / np.abs(right).max(axis=1)
    assert 0 < errors.max() < 0.2


def _shape(kind: str) -> tuple[int | str, ...]:
    return ("batch", 48, "high", "wide") if kind == "Conv" else ("rows", 80)


def test_a_weight_that_is_read_otherwise_too_is_not_stored_in_int8() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="layer"),
        helper.make_node("MatMul", ["w", "turned"], ["z"], name="first input"),
    ]
    shapes = {"w": (64, 80), "turned": (80, 64)}
    graph = model(nodes, {"x": [2, 64]}, {"y": [2, 80], "z": [64, 64]}, {n: rounded(*s) for n, s in shapes.items()})
    graph = weight_only.quantize_weights(graph)
    assert {n for n, v in weights(graph).items() if v.dtype == np.int8} == {"turned_int8"}
    assert weights(graph)["w_fp16"].dtype == np.float16


def test_a_table_in_fp16_is_cast_before_it_is_read() -> None:
    table = rounded(64, 80, deviation=0.2) / np.float32(3)
    graph = model([helper.make_node("Add", ["x", "t"], ["y"])], {"x": (64, 80)}, {"y": (64, 80)}, {"t": table})
    x = rounded(64, 80, seed=1)
    right = answers(graph, x=x)["y"]
    graph = weight_only.quantize_weights(graph)
    assert {n: v.dtype.name for n, v in weights(graph).items()} == {"t_fp16": "float16"}
    got = answers(graph, x=x)["y"]
    assert 0 < np.abs(right - got).max() <= np.abs(table).max() / 1024
    assert weight_only.count_stored(graph) == 0  # in INT8


@pytest.mark.parametrize(
    "table",
    [
        np.linspace(0, 100, 5120, dtype=np.float32),  # such as angles: an error of 0.03 turns them
        np.where(np.arange(5120) % 2, 0, -np.inf).astype(np.float32),  # such as a mask
        np.full(5120, 1e5, np.float32),  # beyond what fp16 holds
        np.linspace(0, 1e-6, 5120, dtype=np.float32),  # below what fp16 tells apart
        np.linspace(0, 1, 1000, dtype=np.float32),  # too small to be worth a node
    ],
    ids=["angles", "mask", "beyond", "below", "small"],
)
def test_a_table_that_fp16_does_not_hold_stays_as_it_is(table: Array) -> None:
    nodes = [helper.make_node("Add", ["x", "t"], ["y"])]
    graph = model(nodes, {"x": table.shape}, {"y": table.shape}, {"t": table})
    graph = weight_only.quantize_weights(graph)
    assert np.array_equal(weights(graph)["t"], table)


@pytest.mark.parametrize("kind", ["convolutions", "GRU", "RNN"])
def test_stored_weights_cost_no_time_in_a_run(kind: str, tmp_path: Path) -> None:
    """ONNX Runtime computes them once, as it opens the file, and exact sums need nothing else."""
    if kind == "convolutions":
        graph, inputs = convolutions(), {"x": rounded(1, 16, 8, 8)}
    else:
        graph = recurrent(kind, 3 if kind == "GRU" else 1)
        inputs = {"x": rounded(5, 1, 64), "h": rounded(2, 1, 64)}
    right = answers(graph, **inputs)["y"]
    graph = weight_only.quantize_weights(graph, FLOAT_LAYERS)
    assert weight_only.count_stored(graph) == 2
    path, opened = tmp_path / "stored.onnx", tmp_path / "opened.onnx"
    path.write_bytes(graph.SerializeToString())
    got = OrtRuntime(path, EXACT).run(inputs)["y"]
    assert 0 < np.abs(right - got).max() < 0.05 * np.abs(right).max()
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(opened)
    onnxruntime.InferenceSession(path, options)
    kinds = {node.op_type for node in onnx.load(opened).graph.node}
    assert kinds.isdisjoint({"Cast", "Mul", "DequantizeLinear"}), kinds


def test_inputs_have_the_scales_where_their_weights_differ_most() -> None:
    """One input is a thousand times the others: a scale for each output would round these to nothing."""
    values = rounded(64, 80, deviation=0.05)
    values[0] *= 1000
    before = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (2, 64)}, {"y": (2, 80)}, {"w": values})
    after = weight_only.quantize_weights(before)
    assert weights(after)["w_scale"].shape == (64, 1, 1)
    x = rounded(2, 64, seed=1)
    x[:, 0] = 0
    right, got = (answers(graph, x=x)["y"] for graph in (before, after))
    assert 0 < np.abs(right - got).max() < 0.02 * np.abs(right).max()


@pytest.mark.parametrize(("kind", "shape"), [("MatMul", (64, 80)), ("Gemm", (192, 192)), ("Gemm transposed", (80, 64))])
def test_openvino_takes_the_scales_of_inputs_as_onnx_runtime_does(
    kind: str, shape: tuple[int, int], tmp_path: Path
) -> None:
    pytest.importorskip("openvino", reason="no openvino: pip install -e '.[openvino]'")
    values = rounded(*shape, deviation=0.05)
    inputs = 1 if "transposed" in kind else 0
    np.moveaxis(values, inputs, 0)[0] *= 1000
    layer = helper.make_node(kind.split()[0], ["x", "w"], ["y"], transB=1 if inputs else None)
    rows, outputs = shape[inputs], shape[1 - inputs]
    graph = model([layer], {"x": ("rows", rows)}, {"y": ("rows", outputs)}, {"w": values})
    graph = weight_only.quantize_weights(graph)
    assert weights(graph)["w_scale"].size == rows
    x = rounded(1, rows, seed=1)
    x[:, 0] *= 0.001
    right = answers(graph, x=x)["y"]
    path = tmp_path / "stored.onnx"
    path.write_bytes(graph.SerializeToString())
    np.testing.assert_allclose(
        OpenvinoRuntime(path).run({"x": x})["y"], right, rtol=1e-3, atol=1e-3 * np.abs(right).max()
    )


def test_a_grouped_transposed_convolution_is_stored_too() -> None:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], group=2, strides=[2, 2])
    graph = model([node], {"x": (1, 48, 4, 4)}, {"y": (1, 64, 8, 8)}, {"w": rounded(48, 32, 2, 2)})
    x = rounded(1, 48, 4, 4, seed=1)
    right = answers(graph, x=x)["y"]
    graph = weight_only.quantize_weights(graph)
    assert weight_only.count_stored(graph) == 1
    assert 0 < np.abs(right - answers(graph, x=x)["y"]).max() < 0.05 * np.abs(right).max()


def test_what_no_node_of_the_graph_itself_reads_stays_as_it_is() -> None:
    """Such as a table that only a branch reads: nothing says that it is a weight there."""
    tables = {"w": rounded(64, 80), "elsewhere": rounded(64, 80)}
    graph = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (2, 64)}, {"y": (2, 80)}, tables)
    graph = weight_only.quantize_weights(graph)
    assert np.array_equal(weights(graph)["elsewhere"], tables["elsewhere"])


@pytest.mark.parametrize("attributes", [{}, {"axis": 0}], ids=["usual axis", "axis 0"])
def test_a_large_table_that_is_looked_up_has_a_scale_a_row(attributes: dict[str, int]) -> None:
    """One word is a thousand times the others, and one is all zeros."""
    table = rounded(1024, 64)
    table[3], table[4] = table[3] * 1000, 0.0
    nodes = [
        helper.make_node("Gather", ["table", "first"], ["y"], name="words/Gather"),
        helper.make_node("Gather", ["table", "second"], ["z"], name="words/Gather_1"),
    ]
    nodes[0].attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    types = dict.fromkeys(("first", "second"), int(onnx.TensorProto.INT64))
    outputs = {"y": ("n", "m", 64), "z": ("n", 64)}
    before = model(nodes, {"first": ("n", "m"), "second": ("n",)}, outputs, {"table": table}, types)
    after = weight_only.quantize_weights(before)
    held = weights(after)
    assert (held["table_int8"].dtype.name, held["table_scale"].shape, "table" in held) == ("int8", (1024, 1), False)
    asked = {"first": np.array([[0, 3], [4, -1]]), "second": np.array([3, 7])}
    right, got = answers(before, **asked), answers(after, **asked)
    for name in ("y", "z"):
        peaks = np.abs(right[name]).max(-1, keepdims=True)
        assert (np.abs(right[name] - got[name]) <= peaks / 254 * 1.001).all()


@pytest.mark.parametrize("other", ["another axis", "another reader", "a small one"])
def test_other_tables_stay_as_they_were(other: str) -> None:
    table = rounded(1024, 32 if other == "a small one" else 64)
    axis = int(other == "another axis")
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"], name="words/Gather", axis=axis)]
    outputs: dict[str, tuple[int | str, ...]] = {"y": (1024, "n") if axis else ("n", table.shape[1])}
    if other == "another reader":
        nodes.append(helper.make_node("Transpose", ["table"], ["z"], perm=[1, 0]))
        outputs["z"] = (64, 1024)
    before = model(nodes, {"ids": ("n",)}, outputs, {"table": table}, {"ids": onnx.TensorProto.INT64})
    assert "table_int8" not in weights(weight_only.quantize_weights(before))


def test_scales_of_a_layer_with_thousands_of_outputs_stay_as_they_are() -> None:
    graph = linear_in_qdq(np.ones((8, 5000), np.int8))
    stored = weights(weight_only.quantize_weights(graph))
    assert stored["ones"].dtype == np.float32
    assert sorted(stored) == sorted(weights(graph))
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    emulated = weight_only.emulate_without_vnni(weight_only.quantize_weights(graph))
    np.testing.assert_array_equal(answers(emulated, x=x)["y"], np.repeat(x.sum(1, keepdims=True), 5000, 1))


def test_weights_in_fp16_are_computed_with_in_fp32() -> None:
    values = rounded(64, 80, deviation=0.05)
    layer = helper.make_node("MatMul", ["x", "w"], ["y"])
    before = model([layer], {"x": (2, 64)}, {"y": (2, 80)}, {"w": values})
    after = weight_only.halve_weights(before)
    assert [node.op_type for node in after.graph.node] == ["Cast", "MatMul"]
    assert after.ByteSize() < 0.55 * before.ByteSize()
    x = rounded(2, 64, deviation=1.0)
    exact = x.astype(np.float64) @ values.astype(np.float16).astype(np.float64)
    assert np.abs(answers(after, x=x)["y"] - exact).max() < 1e-6


@pytest.mark.parametrize("values", [np.full((64, 80), 1e6, np.float32), np.full((4, 8), 0.5, np.float32)])
def test_weights_that_fp16_cannot_hold_and_small_ones_stay(values: Array) -> None:
    layer = helper.make_node("MatMul", ["x", "w"], ["y"])
    before = model([layer], {"x": (2, len(values))}, {"y": (2, values.shape[1])}, {"w": values})
    assert weight_only.halve_weights(before).graph == before.graph
