"""Weights stored in INT8: as near as a step, and only where they are weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgekit.onnxgraph import saturation, weight_only
from edgekit.runtime.ort import OrtRuntime
from tests.onnxgraph.graphs import answers, model, rounded, weights


def test_stored_weights_are_within_half_a_step(graph: onnx.ModelProto) -> None:
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    right = {i.name: numpy_helper.to_array(i) for i in graph.graph.initializer}
    weight_only.quantize_weights(copy)
    held = {i.name: numpy_helper.to_array(i) for i in copy.graph.initializer}
    got = held["w1_int8"] * held["w1_scale"][None, :]
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
    after = onnx.ModelProto()
    after.CopyFrom(before)
    weight_only.quantize_weights(after)
    held = weights(after)
    assert (held["w_int8"].dtype.name, held["w_scale"].shape) == ("int8", (scales,))
    assert "w" not in held
    x = rounded(*rows, seed=1)
    right, got = (np.moveaxis(answers(g, x=x)["y"], 1, 0).reshape(scales, -1) for g in (before, after))
    errors = np.abs(right - got).max(axis=1) / np.abs(right).max(axis=1)
    assert 0 < errors.max() < 0.2


def _shape(kind: str) -> tuple[int | str, ...]:
    return ("batch", 48, "high", "wide") if kind == "Conv" else ("rows", 80)


def test_a_weight_that_is_read_otherwise_too_stays_in_float() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="layer"),
        helper.make_node("MatMul", ["w", "turned"], ["z"], name="first input"),
    ]
    shapes = {"w": (64, 80), "turned": (80, 64)}
    graph = model(nodes, {"x": [2, 64]}, {"y": [2, 80], "z": [64, 64]}, {n: rounded(*s) for n, s in shapes.items()})
    weight_only.quantize_weights(graph)
    assert {n for n, v in weights(graph).items() if v.dtype == np.int8} == {"turned_int8", "turned_zero"}


def test_zero_points_are_written_for_exact_sums(tmp_path: Path) -> None:
    """Without them ONNX Runtime refuses a scale for each channel under `session.x64quantprecision`."""
    held = {"w": rounded(48, 16, 3, 3), "u": rounded(48, 24, 2, 2)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("ConvTranspose", ["c", "u"], ["y"], strides=[2, 2]),
    ]
    graph = model(nodes, {"x": (1, 16, 8, 8)}, {"y": (1, 24, 12, 12)}, held)
    right = answers(graph, x=rounded(1, 16, 8, 8))["y"]
    weight_only.quantize_weights(graph)
    assert weight_only.stored(graph) == 2
    assert {n: v.shape for n, v in weights(graph).items() if n.endswith("_zero")} == {"w_zero": (48,), "u_zero": (24,)}
    path = tmp_path / "stored.onnx"
    path.write_bytes(graph.SerializeToString())
    got = OrtRuntime(path, saturation.EXACT).run({"x": rounded(1, 16, 8, 8)})["y"]
    assert 0 < np.abs(right - got).max() < 0.05 * np.abs(right).max()
