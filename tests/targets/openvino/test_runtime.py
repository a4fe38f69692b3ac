from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgekit_targets.openvino.runtime import OpenvinoRuntime
from tests.targets.onnx.passes.graphs import model

pytest.importorskip("openvino", reason="no openvino: pip install -e '.[openvino]'")


def test_an_output_behind_a_cast_keeps_its_name(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Div", ["wide", "three"], ["div"]),
        helper.make_node("Cast", ["div"], ["output"], to=TensorProto.FLOAT),
    ]
    path = tmp_path / "model.onnx"
    onnx.save(model(nodes, {"x": [2]}, {"output": [2]}, {"three": np.array(3.0)}), path)
    runtime = OpenvinoRuntime(path)
    answers = runtime.run({"x": np.array([3, 6], np.float32)})
    runtime.close()
    assert {name: array.tolist() for name, array in answers.items()} == {"output": [1.0, 2.0]}
