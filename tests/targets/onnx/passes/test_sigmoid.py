from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgekit_targets.onnx import qnn
from edgekit_targets.onnx.passes import patterns
from tests.targets.onnx.passes.graphs import answers, model

X = np.linspace(-30, 30, 1024, dtype=np.float32)[None]
TRUE = 1 / (1 + np.exp(-X.astype(np.float64)))


def graph(kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    nodes = [helper.make_node("Sigmoid", ["x"], ["y"])]
    return model(nodes, {"x": [1, 1024]}, {"y": [1, 1024]}, {}, {"x": kind, "y": kind})


def test_the_answers_stay_far_from_zero_and_far_below_it() -> None:
    rewritten = patterns.sigmoid_by_exponentials(graph())
    assert "Sigmoid" not in {node.op_type for node in rewritten.graph.node}
    found = answers(rewritten, x=X)["y"]
    assert np.abs(found / TRUE - 1).max() < 1e-6
    ends = answers(rewritten, x=np.full_like(X, 1e30))["y"], answers(rewritten, x=np.full_like(X, -1e30))["y"]
    assert (ends[0] == 1).all()
    assert (ends[1] == 0).all()


def test_other_types_stay() -> None:
    assert patterns.sigmoid_by_exponentials(graph(TensorProto.DOUBLE)) == graph(TensorProto.DOUBLE)


@pytest.mark.skipif(not qnn.is_installed(), reason="pip install onnxruntime-qnn")
def test_the_npu_keeps_the_ratio_of_small_answers(tmp_path: Path) -> None:
    def worst(name: str, asked: onnx.ModelProto) -> float:
        onnx.save(asked, tmp_path / name)
        found = qnn.QnnRuntime(tmp_path / name).run({"x": X})["y"]
        return float(np.abs(found / TRUE - 1)[TRUE > 1e-4].max())

    assert worst("own.onnx", graph()) > 1
    assert worst("rewritten.onnx", patterns.sigmoid_by_exponentials(graph())) < 0.01
