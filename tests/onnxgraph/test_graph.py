"""Writing a graph: the same bytes for the same graph, and nothing that breaks ONNX's rules."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper

from edgekit.errors import ExportError
from edgekit.onnxgraph.graph import save_graph
from tests.onnxgraph.graphs import model, rounded


def graph(rows: int = 3) -> onnx.ModelProto:
    made = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [2, 3]}, {"y": [2, 4]}, {"w": rounded(rows, 4)})
    made.metadata_props.add(key="b", value="2")
    made.metadata_props.add(key="a", value="1")
    return made


def test_who_made_a_graph_does_not_change_its_bytes(tmp_path: Path) -> None:
    one, other = graph(), graph()
    one.producer_name, one.producer_version = "pytorch", "2.13.0"
    save_graph(one, tmp_path / "one.onnx")
    save_graph(other, tmp_path / "other.onnx")
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "other.onnx").read_bytes()
    read = onnx.load(tmp_path / "one.onnx")
    assert (read.producer_name, read.producer_version) == ("edgekit", "")
    assert read.graph == graph().graph


def test_a_graph_that_breaks_the_rules_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"^the graph breaks ONNX's rules: [^\n]+$"):
        save_graph(graph(rows=5), tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()
