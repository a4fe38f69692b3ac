from pathlib import Path

import onnx
import pytest
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor, make_tensor_value_info

from edgekit.errors import ExportError
from edgekit_targets.openvino.export import read_model
from tests.targets.damage_contract import OpenvinoContract


class TestOpenvino(OpenvinoContract):
    name, named = "openvino", "'relevance'"


@pytest.mark.parametrize(
    ("operator", "why"),
    [
        ("STFT", r"does not take the ONNX operator 'STFT' in this form \(Shape of signal input must be static"),
        ("Det", "has no rule for the ONNX operator 'Det'. Replace 'Det'"),
        ("QLinearGlobalAveragePool", "has no rule for .* 'QLinearGlobalAveragePool'.*QDQ"),
    ],
)
def test_the_first_operator_that_is_refused_is_named(operator: str, why: str, tmp_path: Path) -> None:
    steps = [
        make_tensor("step", 7, [], [4]),
        make_tensor("window", 1, [8], [1.0] * 8),
        make_tensor("axes", 7, [1], [-1]),
    ]
    values = {"STFT": ["x", "step", "window"], "Det": ["x"]}.get(operator, ["x", *["step"] * 4])
    domain = "com.microsoft" if operator.startswith("QLinear") else ""
    nodes = [make_node(operator, values, ["y"], domain=domain), make_node("ReduceL2", ["y", "axes"], ["z"], keepdims=0)]
    sizes = make_tensor_value_info("x", 1, ["batch", 32, 1])
    opsets = [make_opsetid("", 20), make_opsetid("com.microsoft", 1)]
    graph = make_graph(nodes, "graph", [sizes], [make_tensor_value_info("z", 1, None)], steps)
    onnx.save(make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "net.onnx")
    with pytest.raises(ExportError, match=rf"OpenVINO cannot convert 'net': it {why}") as refused:
        read_model(tmp_path / "net.onnx", "net")
    assert "\n" not in str(refused.value)
