from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper

from edgekit_targets.onnx.passes import patterns
from tests.targets.onnx.passes.graphs import answers, model


def guarded(replaced: float) -> ModelProto:
    nodes = [
        helper.make_node("Softmax", ["x"], ["soft"], axis=-1),
        helper.make_node("IsNaN", ["soft"], ["wrong"]),
        helper.make_node("Where", ["wrong", "replaced", "soft"], ["safe"]),
        helper.make_node("Mul", ["safe", "two"], ["y"]),
    ]
    weights = {"replaced": np.array(replaced, np.float32), "two": np.array(2, np.float32)}
    return model(nodes, {"x": ["n", 4]}, {"y": ["n", 4]}, weights)


def test_a_guard_goes_and_the_answers_stay() -> None:
    graph = guarded(0.0)
    rewritten = patterns.drop_softmax_guards(graph)
    assert [node.op_type for node in rewritten.graph.node] == ["Softmax", "Mul"]
    x = np.array([[1, 2, -np.inf, 0], [3, 0, 0, -1]], np.float32)
    assert np.array_equal(answers(rewritten, x=x)["y"], answers(graph, x=x)["y"])
    assert len(graph.graph.node) == 4


def test_the_models_own_output_keeps_its_name() -> None:
    graph = guarded(0.0)
    del graph.graph.node[3]
    graph.graph.output[0].name = "safe"
    rewritten = patterns.drop_softmax_guards(graph)
    assert [list(node.output) for node in rewritten.graph.node] == [["safe"]]


@pytest.mark.parametrize("change", ["another value", "not of the softmax"])
def test_another_question_stays(change: str) -> None:
    graph = guarded(1.0 if change == "another value" else 0.0)
    if change != "another value":
        graph.graph.node[1].input[0] = "x"
    assert [node.op_type for node in patterns.drop_softmax_guards(graph).graph.node] == [
        "Softmax",
        "IsNaN",
        "Where",
        "Mul",
    ]


@pytest.mark.parametrize("axis", [-1, 1])
def test_a_log_softmax_is_written_as_operators_of_webgpu(axis: int) -> None:
    graph = model([helper.make_node("LogSoftmax", ["x"], ["y"], axis=axis)], {"x": ["n", 3, 4]}, {"y": ["n", 3, 4]}, {})
    rewritten = patterns.log_softmax_by_exponentials(graph)
    assert "LogSoftmax" not in {node.op_type for node in rewritten.graph.node}
    # Exponentials of 200 are infinite in fp32, and those of -200 zero.
    x = np.array([200, -200, 0, 1, 2, 3, -1, 0, 5, 5, 5, 5], np.float32).reshape(1, 3, 4)
    assert np.allclose(answers(rewritten, x=x)["y"], answers(graph, x=x)["y"], rtol=0, atol=3e-5)
