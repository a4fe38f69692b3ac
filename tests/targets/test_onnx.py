from pathlib import Path

import onnx
import pytest

import edgekit
from edgekit.artifact.store import read_artifact
from edgekit.errors import UsageError
from edgekit.testing import SMALL, TargetContract, small_model


class TestOnnx(TargetContract):
    name = "onnx"


def test_fixed_shapes_in_an_old_opset_are_judged_as_they_are(tmp_path: Path) -> None:
    options = {"onnx": {"shapes": "static", "opset": 17}}
    build = edgekit.export(SMALL, targets=["onnx"], options=options, output=tmp_path, progress="none")
    made = read_artifact(build["onnx"].path)
    assert build["onnx"].status == "verified", build["onnx"].sentences
    assert made.static
    graph = onnx.load(build["onnx"].path / "model.onnx")
    assert [(o.domain, o.version) for o in graph.opset_import] == [("", 17)]
    assert not {"Shape", "Gelu"} & {node.op_type for node in graph.graph.node}
    sizes = [d.dim_value for value in graph.graph.input for d in value.type.tensor_type.shape.dim]
    assert sizes == [1, 3, 96, 96, 1, 16]
    with edgekit.load(build["onnx"].path) as loaded, pytest.raises(UsageError, match="must be 1"):
        loaded.run(small_model().random(0, {"batch": 2}))
