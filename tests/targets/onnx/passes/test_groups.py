"""Which linear layers are quantized together."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from edgekit_targets.onnx.passes.groups import group_of, groups, nodes_of
from tests.targets.onnx.passes.graphs import WIDTH


def test_groups_are_modules(graph: onnx.ModelProto) -> None:
    assert groups(graph) == {"blocks.0.mlp": ("blocks.0.mlp.0/Gemm", "blocks.0.mlp.2/Gemm"), "head": ("head/MatMul",)}
    assert group_of("texture.blocks.11.attention.qkv/Gemm_2") == "texture.blocks.11.attention"
    assert group_of("query_content.question.0/Gemm") == "query_content.question"
    assert group_of("MatMul_7") == "MatMul_7"


def test_weights_of_another_rank_are_no_linear_layers(graph: onnx.ModelProto) -> None:
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    held = next(i for i in copy.graph.initializer if i.name == "w3")
    held.CopyFrom(numpy_helper.from_array(np.zeros((2, WIDTH, WIDTH), np.float32), "w3"))
    assert "head" not in groups(copy)


def test_groups_that_stay_in_float_are_left_out(graph: onnx.ModelProto) -> None:
    assert nodes_of(groups(graph), ("blocks.0.mlp",)) == ["head/MatMul"]
    assert nodes_of(groups(graph), ()) == ["blocks.0.mlp.0/Gemm", "blocks.0.mlp.2/Gemm", "head/MatMul"]
