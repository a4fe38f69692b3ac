from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.runtime.openvino import OpenvinoRuntime

pytest.importorskip("openvino", reason="no openvino: pip install 'edgekit[openvino]'")


def test_an_output_behind_a_cast_keeps_its_name(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Div", ["wide", "three"], ["div"]),
        helper.make_node("Cast", ["div"], ["output"], to=TensorProto.FLOAT),
    ]
    three = numpy_helper.from_array(np.array(3.0), "three")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "output")]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], [three])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    runtime = OpenvinoRuntime(path)
    answers = runtime.run({"x": np.array([3, 6], np.float32)})
    runtime.close()
    assert {name: array.tolist() for name, array in answers.items()} == {"output": [1.0, 2.0]}
