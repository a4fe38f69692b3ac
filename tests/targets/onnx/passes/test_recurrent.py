from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from edgekit_targets.onnx.passes import patterns
from tests.targets.onnx.passes.graphs import answers, model

WEIGHTS = {"w": np.full((1, 12, 4), 0.1, np.float32), "r": np.full((1, 12, 3), 0.2, np.float32)}
X = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 1, 4)


@pytest.mark.parametrize("outputs", [["y"], ["", "y"]], ids=["answers alone", "last state alone"])
def test_an_lstm_gets_its_outputs_and_the_answers_stay(outputs: list[str]) -> None:
    shape = [5, 1, 1, 3] if outputs[0] else [1, 1, 3]
    node = helper.make_node("LSTM", ["x", "w", "r"], outputs, hidden_size=3)
    graph = model([node], {"x": [5, 1, 4]}, {"y": shape}, WEIGHTS)
    made = patterns.add_lstm_states(graph)
    names = list(made.graph.node[0].output)
    assert len(set(names)) == 3
    assert all(names)
    assert np.array_equal(answers(made, x=X)["y"], answers(graph, x=X)["y"])
    assert list(graph.graph.node[0].output) == outputs
