"""Dynamic INT8: near the float graph, in the groups that are asked for, with a scale for each token."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from edgekit_targets.onnx.passes import dynamic
from edgekit_targets.onnx.passes.dynamic import quantize_dynamic, scale_tokens
from edgekit_targets.onnx.quantization.calibration import Samples
from tests.targets.onnx.passes.graphs import WIDTH, Shape, answers, attended, model, noise, rounded


def test_dynamic_is_near_and_leaves_groups_in_float(graph: onnx.ModelProto, samples: Samples) -> None:
    assert 1e-4 < noise(graph, dynamic.quantize_dynamic(graph), **samples.inputs) < 0.06
    made = dynamic.quantize_dynamic(graph, ("blocks.0.mlp",))
    assert sum(n.op_type == "MatMulInteger" for n in made.graph.node) == 1
    assert not any(n.op_type in ("Gemm", "MatMul") for n in dynamic.quantize_dynamic(graph).graph.node)


def test_a_transposed_weight_is_quantized_dynamically() -> None:
    made = attended(biased=False)
    gemm = next(node for node in made.graph.node if node.op_type == "Gemm")
    gemm.attribute.extend(helper.make_attribute(name, value) for name, value in (("transA", 0), ("transB", 1)))
    drawn = np.random.default_rng(3).normal(0, 1, (8, 4, WIDTH)).astype(np.float32)
    shown = Samples({"x": drawn}, tuple(map(str, range(8))))
    result = dynamic.quantize_dynamic(made)
    assert sum(n.op_type == "MatMulInteger" for n in result.graph.node) == 2
    assert noise(made, result, **shown.inputs) < 0.06


def layer(inputs: int, outputs: int, opset: int = 18) -> onnx.ModelProto:
    weight = np.random.default_rng(3).standard_normal((inputs, outputs)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="mlp.2/MatMul")]
    sizes: dict[str, Shape] = {name: ["batch", "tokens", size] for name, size in (("x", inputs), ("y", outputs))}
    graph = model(nodes, {"x": sizes["x"]}, {"y": sizes["y"]}, {"w": weight})
    graph.opset_import[0].version = opset
    return graph


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
    made = quantize_dynamic(graph, token_scales=True)
    off = np.abs(answers(made, x=x)["y"] - expected)[0, 1:].max()
    assert off < 0.02 * np.abs(expected[0, 1:]).max()
    # Nor does an answer depend on what else is in the batch.
    np.testing.assert_allclose(answers(made, x=x[1:])["y"][0], answers(made, x=x)["y"][1], rtol=0.02, atol=0.05)


def test_layers_that_write_as_many_channels_as_they_read_are_left_alone() -> None:
    graph = layer(8, 8)
    graph = scale_tokens(graph, {"mlp.2/MatMul"})
    assert [node.op_type for node in graph.graph.node] == ["MatMul"]


def test_what_only_a_branch_reads_is_kept() -> None:
    """A constant of the outer graph, read by the bodies of an If alone."""
    weight = np.ones((4, 4), np.float32)
    info = helper.make_tensor_value_info
    body = [helper.make_node("Add", ["y", "shift"], ["z"])]
    branch = helper.make_graph(body, "branch", [], [info("z", onnx.TensorProto.FLOAT, None)])
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["y"], name="matmul"),
        helper.make_node("If", ["yes"], ["answer"], then_branch=branch, else_branch=branch),
    ]
    held = {"weight": weight, "shift": np.full(4, 5, np.float32), "yes": np.array(True)}
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", onnx.TensorProto.FLOAT, [2, 4])],
        [info("answer", onnx.TensorProto.FLOAT, [2, 4])],
        [onnx.numpy_helper.from_array(value, name) for name, value in held.items()],
    )
    made = quantize_dynamic(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10),
        floats=(),
        reduce_range=False,
    )
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {"x": np.ones((2, 4), np.float32)})
    np.testing.assert_allclose(answer, 9.0, atol=0.1)


def test_a_branch_stays_behind_what_it_reads() -> None:
    """The quantizer orders nodes by their own inputs alone; what a branch reads from outside is none of them."""
    info = helper.make_tensor_value_info
    body = [helper.make_node("Add", ["late", "x"], ["z"])]
    branch = helper.make_graph(body, "branch", [], [info("z", onnx.TensorProto.FLOAT, None)])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="matmul"),
        helper.make_node("Relu", ["product"], ["late"], name="relu"),
        helper.make_node("If", ["yes"], ["y"], name="if", then_branch=branch, else_branch=branch),
    ]
    held = {"w": np.ones((4, 4), np.float32), "yes": np.array(True)}
    made = quantize_dynamic(model(nodes, {"x": [2, 4]}, {"y": [2, 4]}, held))
    onnx.checker.check_model(made)
    np.testing.assert_allclose(answers(made, x=np.ones((2, 4), np.float32))["y"], 5.0, atol=0.1)


@pytest.mark.parametrize("floats", [(), ("shared.rnn/LSTM",)], ids=["both in INT8", "one in float"])
def test_lstms_that_share_their_weights_are_quantized(floats: tuple[str, ...]) -> None:
    """As of a network that reads two voices with one layer."""
    held = {"one": np.array([1]), **{n: rounded(1, 128, 32, seed=ord(n), deviation=0.2) for n in "wr"}}
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["a"], name="shared.rnn/LSTM", hidden_size=32),
        helper.make_node("Squeeze", ["a", "one"], ["b"]),
        helper.make_node("LSTM", ["b", "w", "r"], ["y"], name="shared.rnn/LSTM_2", hidden_size=32),
    ]
    graph = model(nodes, {"x": (5, 1, 32)}, {"y": (5, 1, 1, 32)}, held)
    quantized = quantize_dynamic(graph, floats)
    assert sum(node.op_type == "DynamicQuantizeLSTM" for node in quantized.graph.node) == 2 - len(floats)
    assert noise(graph, quantized, x=rounded(5, 1, 32)) < 0.05
