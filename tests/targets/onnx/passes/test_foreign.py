"""Graphs of other exporters: named as edgekit's own, weights as initializers, batch norms folded, answers the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgekit.errors import ExportError
from edgekit_targets.onnx.passes import groups, patterns
from tests.targets.onnx.passes.graphs import answers, model, operators, rounded, weights


def theirs() -> onnx.ModelProto:
    """As PyTorch's older exporter writes it: paths with slashes, numbers as names, a weight in a Constant."""
    held = {"w1": rounded(16, 3, 3, 3, deviation=0.2), "scale": rounded(16, seed=1) + 2, "shift": rounded(16, seed=2)}
    held |= {"mean": rounded(16, seed=3), "variance": np.abs(rounded(16, seed=4)) + 0.5}
    constant = numpy_helper.from_array(rounded(16, 16, 3, 3, seed=5, deviation=0.1))
    nodes = [
        helper.make_node("Conv", ["input.1", "w1"], ["7"], name="/stem/stem.0/Conv"),
        helper.make_node(
            "BatchNormalization", ["7", "scale", "shift", "mean", "variance"], ["8"], name="/stem/norm/BN"
        ),
        helper.make_node("Constant", [], ["w2"], value=constant),
        helper.make_node("Conv", ["8", "w2"], ["9"], name="/head/Conv"),
        helper.make_node("Sigmoid", ["9"], ["495"]),
    ]
    return model(nodes, {"input.1": ("N", 3, 12, 12)}, {"495": ("N", 16, 8, 8)}, held)


def test_a_foreign_graph_gets_names_weights_and_folded_batch_norms() -> None:
    graph = theirs()
    made = patterns.normalize_foreign(graph, ["input.1"], ["tensor_495"])
    assert operators(made) == {"Conv": 2, "Sigmoid": 1}
    assert [node.name for node in made.graph.node] == ["stem.norm/Conv", "head/Conv", "Sigmoid"]
    assert len([w for w in weights(made).values() if w.ndim == 4]) == 2
    assert groups.convolutions(made) == ("stem.norm/Conv", "head/Conv")
    x = rounded(2, 3, 12, 12)
    right, got = answers(graph, **{"input.1": x})["495"], answers(made, **{"input.1": x})["tensor_495"]
    np.testing.assert_allclose(got, right, atol=1e-5)


def test_an_old_opset_is_brought_up_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"w": rounded(4, 3)}
    graph = model([helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)], {"x": ("n", 3)}, {"y": ("n", 4)}, held)
    graph.opset_import[0].version = 11
    made = patterns.normalize_foreign(graph, ["x"], ["y"])
    assert made.opset_import[0].version >= patterns.OLDEST
    graph.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(ExportError, match="cannot convert opset 11 to 13"):
        patterns.normalize_foreign(graph, ["x"], ["y"])
