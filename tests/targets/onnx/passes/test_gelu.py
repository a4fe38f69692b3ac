from __future__ import annotations

import math

import numpy as np
from onnx import helper

from edgekit_targets.onnx.passes import patterns
from tests.targets.onnx.passes.graphs import answers, model

VALUES = np.concatenate((np.linspace(-12, 12, 20001), [-1e4, -100, -30, 30, 100, 1e4])).astype(np.float32)
EXACT = np.array([x * 0.5 * math.erfc(-x / math.sqrt(2)) for x in VALUES.astype(float)])


def test_is_the_exact_one_to_few_millionths() -> None:
    graph = model([helper.make_node("Gelu", ["x"], ["y"])], {"x": ["n"]}, {"y": ["n"]}, {})
    rewritten = patterns.gelu_by_sigmoid(graph)
    assert "Gelu" not in {node.op_type for node in rewritten.graph.node}
    assert np.abs(answers(rewritten, x=VALUES)["y"] - EXACT).max() <= patterns.LARGEST_ERROR


def test_several_share_their_constants_and_tanh_stays() -> None:
    nodes = [
        helper.make_node("Gelu", ["x"], ["a"], name="first"),
        helper.make_node("Gelu", ["a"], ["b"], name="second"),
        helper.make_node("Gelu", ["b"], ["y"], approximate="tanh"),
    ]
    graph = model(nodes, {"x": ["n"]}, {"y": ["n"]}, {})
    rewritten = patterns.gelu_by_sigmoid(graph)
    assert [node.op_type for node in rewritten.graph.node].count("Gelu") == 1
    assert len(rewritten.graph.initializer) == len(patterns.COEFFICIENTS)
    assert np.abs(answers(rewritten, x=VALUES)["y"] - answers(graph, x=VALUES)["y"]).max() <= 1e-5
    assert len(graph.graph.node) == 3
