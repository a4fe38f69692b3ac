"""Fixing sizes: the same answers, and nothing left that is computed of shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from edgekit.onnxgraph.graph import save_graph
from edgekit.onnxgraph.optimizer import fixed
from edgekit.runtime.ort import OrtRuntime


def test_what_is_computed_of_shapes_becomes_a_constant(tmp_path: Path) -> None:
    """x [batch, n, 4] -> its rows in one line, by its own shape."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["line"], axis=0),
        helper.make_node("Reshape", ["x", "line"], ["y"]),
    ]
    graph = helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "n", 4])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "4*n"])],
            [
                helper.make_tensor("first", TensorProto.INT64, [1], [0]),
                helper.make_tensor("rest", TensorProto.INT64, [1], [-1]),
            ],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=10,
    )
    made = fixed(graph, {"x": (2, 3, 4)})
    save_graph(made, tmp_path / "fixed.onnx")
    assert [node.op_type for node in made.graph.node] == ["Reshape"]
    assert [d.dim_value for d in made.graph.output[0].type.tensor_type.shape.dim] == [2, 12]
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(OrtRuntime(tmp_path / "fixed.onnx").run({"x": x})["y"], x.reshape(2, 12))
    assert graph.graph.node[0].op_type == "Shape", "the graph that was given is as it was"
