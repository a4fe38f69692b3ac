from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit_apps.android import HEAD, required_operators

INFO = helper.make_tensor_value_info


def written(path: Path, graph: onnx.GraphProto, *opsets: onnx.OperatorSetIdProto) -> Path:
    onnx.save(helper.make_model(graph, opset_imports=opsets or [helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def fused(folder: Path) -> Path:
    """MatMul and Add: ONNX Runtime makes a Gemm of them when it loads the model."""
    weights = [
        numpy_helper.from_array(np.ones((3, 2), np.float32), "w"),
        numpy_helper.from_array(np.ones(2, np.float32), "b"),
    ]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])]
    x, y = INFO("x", TensorProto.FLOAT, [4, 3]), INFO("y", TensorProto.FLOAT, [4, 2])
    return written(folder / "fused.onnx", helper.make_graph(nodes, "fused", [x], [y], weights))


def branching(folder: Path) -> Path:
    """If, with an operator in each of its branches."""
    y = INFO("y", TensorProto.FLOAT, [2])

    def branch(kind: str) -> onnx.GraphProto:
        return helper.make_graph([helper.make_node(kind, ["x"], ["y"])], kind, [], [y])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("Softplus"), else_branch=branch("Softsign"))
    inputs = [INFO("c", TensorProto.BOOL, []), INFO("x", TensorProto.FLOAT, [2])]
    opset = helper.make_opsetid("", 19)
    return written(folder / "branching.onnx", helper.make_graph([node], "branching", inputs, [y]), opset)


def lines(config: str) -> dict[str, set[str]]:
    assert config.startswith(HEAD)
    found = (line.rpartition(";") for line in config.removeprefix(HEAD).splitlines())
    return {key: set(names.split(",")) for key, _, names in found}


def test_operators_are_those_of_the_file_and_those_that_they_are_fused_into(tmp_path: Path) -> None:
    assert lines(required_operators([fused(tmp_path)]))["ai.onnx;20"] == {"MatMul", "Add", "Gemm"}


def test_operators_of_branches_are_found(tmp_path: Path) -> None:
    assert lines(required_operators([branching(tmp_path)]))["ai.onnx;19"] == {"If", "Softplus", "Softsign"}


def test_models_of_different_opsets_have_a_line_each(tmp_path: Path) -> None:
    config = required_operators([fused(tmp_path), branching(tmp_path)])
    assert {"ai.onnx;19", "ai.onnx;20"} <= set(lines(config))
    assert config.splitlines()[1:] == sorted(config.splitlines()[1:])
    assert config == required_operators([branching(tmp_path), fused(tmp_path)])
