"""A scale for each token of what a linear layer reads."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.onnxgraph.dynamic import quantize_dynamic, scale_tokens
from tests.onnxgraph.graphs import answers


def layer(inputs: int, outputs: int, opset: int = 18) -> onnx.ModelProto:
    weight = np.random.default_rng(3).standard_normal((inputs, outputs)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="mlp.2/MatMul")]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "tokens", size])
        for name, size in (("x", inputs), ("y", outputs))
    ]
    graph = helper.make_graph(nodes, "layer", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def tokens(inputs: int) -> np.ndarray:
    drawn = np.random.default_rng(4).standard_normal((2, 5, inputs)).astype(np.float32)
    drawn[0, 0] *= 100.0
    drawn[1, 2] = 0.0
    return drawn


@pytest.mark.parametrize("opset", [17, 18])
def test_the_graph_computes_the_same(opset: int) -> None:
    graph, x = layer(32, 8, opset), tokens(32)
    expected = answers(graph, x=x)["y"]
    graph = scale_tokens(graph, {"mlp.2/MatMul"})
    assert len(graph.graph.node) == 6
    found = answers(graph, x=x)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert not found[1, 2].any()


def test_a_large_token_does_not_make_the_others_coarse() -> None:
    graph, x = layer(32, 8), tokens(32)
    expected = answers(graph, x=x)["y"]
    made = quantize_dynamic(graph)
    off = np.abs(answers(made, x=x)["y"] - expected)[0, 1:].max()
    assert off < 0.02 * np.abs(expected[0, 1:]).max()
    # Nor does an answer depend on what else is in the batch.
    np.testing.assert_allclose(answers(made, x=x[1:])["y"][0], answers(made, x=x)["y"][1], rtol=0.02, atol=0.05)


def test_layers_that_write_as_many_channels_as_they_read_are_left_alone() -> None:
    graph = layer(8, 8)
    graph = scale_tokens(graph, {"mlp.2/MatMul"})
    assert [node.op_type for node in graph.graph.node] == ["MatMul"]
