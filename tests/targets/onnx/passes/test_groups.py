"""Which linear layers are quantized together."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit_targets.onnx.passes.groups import group_of, groups, multiplications, nodes_of
from tests.targets.onnx.passes.graphs import WIDTH, model, rounded


def test_groups_are_modules(graph: onnx.ModelProto) -> None:
    assert groups(graph) == {"blocks.0.mlp": ("blocks.0.mlp.0/Gemm", "blocks.0.mlp.2/Gemm"), "head": ("head/MatMul",)}
    assert group_of("texture.blocks.11.attention.qkv/Gemm_2") == "texture.blocks.11.attention"
    assert group_of("query_content.question.0/Gemm") == "query_content.question"
    assert group_of("MatMul_7") == "MatMul_7"


def test_each_lstm_of_a_module_is_a_group_of_dynamic_int8_alone() -> None:
    held = {f"{kind}{number}": rounded(1, 16, 4) for kind in "wr" for number in range(2)}
    nodes = [
        helper.make_node("LSTM", ["x", "w0", "r0"], ["y"], name="voice.rnn/LSTM", hidden_size=4),
        helper.make_node("Squeeze", ["y", "one"], ["z"]),
        helper.make_node("LSTM", ["z", "w1", "r1"], ["", "last"], name="voice.rnn/LSTM_2", hidden_size=4),
    ]
    graph = model(nodes, {"x": (5, 1, 4)}, {"last": (1, 1, 4)}, {**held, "one": np.array([1])})
    assert groups(graph, dynamic=True) == {name: (name,) for name in ("voice.rnn/LSTM", "voice.rnn/LSTM_2")}
    assert groups(graph) == {}
    elements = {"x": 20, "z": 20}
    assert multiplications(graph, ["voice.rnn/LSTM_2"], elements) == {"voice.rnn/LSTM_2": 5 * 16 * (4 + 4)}


def test_weights_of_another_rank_are_no_linear_layers(graph: onnx.ModelProto) -> None:
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    held = next(i for i in copy.graph.initializer if i.name == "w3")
    held.CopyFrom(numpy_helper.from_array(np.zeros((2, WIDTH, WIDTH), np.float32), "w3"))
    assert "head" not in groups(copy)


def test_groups_that_stay_in_float_are_left_out(graph: onnx.ModelProto) -> None:
    assert nodes_of(groups(graph), ("blocks.0.mlp",)) == ["head/MatMul"]
    assert nodes_of(groups(graph), ()) == ["blocks.0.mlp.0/Gemm", "blocks.0.mlp.2/Gemm", "head/MatMul"]
