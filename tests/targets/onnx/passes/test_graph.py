"""Writing a graph: the same bytes for the same graph, and nothing that breaks ONNX's rules."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgekit.artifact.store import external_files
from edgekit.errors import ArtifactError, ExportError
from edgekit.runtime.ort import OrtRuntime
from edgekit_targets.onnx.passes.dynamic import quantize_dynamic
from edgekit_targets.onnx.passes.graph import PASSES, save_graph
from edgekit_targets.onnx.passes.smoothquant import round_weights
from tests.targets.onnx.passes.graphs import model, rounded


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


@pytest.mark.parametrize("columns", [1, 4, 30, 5000, 600_000])
def test_a_file_is_the_whole_graph_whatever_the_sizes_of_its_weights(tmp_path: Path, columns: int) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    made = model([node], {"x": [2, 3]}, {"y": [2, columns]}, {"w": rounded(3, columns), "unused": rounded(2, columns)})
    made.metadata_props.add(key="a", value="1")
    made.producer_name = "edgekit"
    save_graph(made, tmp_path / "model.onnx")
    assert onnx.load(tmp_path / "model.onnx") == made


def test_weights_that_are_too_large_for_one_file_lie_next_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {"w": rounded(3, 300), "v": rounded(300, 40), "small": rounded(2, 40)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "v"], ["g"])]
    nodes.append(helper.make_node("Add", ["g", "small"], ["y"]))
    made = model(nodes, {"x": [2, 3]}, {"y": [2, 40]}, weights)
    monkeypatch.setattr("edgekit.model.onnx_write.LARGEST", (1 << 26) + 1000)
    save_graph(made, tmp_path / "model.onnx")
    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx", "model.onnx.data", "passes.json"}
    assert external_files(tmp_path / "model.onnx") == ("model.onnx.data",)
    read = onnx.load(tmp_path / "model.onnx")
    for weight in read.graph.initializer:
        np.testing.assert_array_equal(numpy_helper.to_array(weight), weights[weight.name])
    x = rounded(2, 3)
    answer = OrtRuntime(tmp_path / "model.onnx").run({"x": x})["y"]
    np.testing.assert_allclose(answer, x @ weights["w"] @ weights["v"] + weights["small"], rtol=1e-5)
    with (tmp_path / "model.onnx.data").open("r+b") as stream:
        stream.truncate(1000)
    with pytest.raises(ArtifactError, match="does not contain it"):
        OrtRuntime(tmp_path / "model.onnx")


def test_a_graph_that_breaks_the_rules_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"^the graph violates ONNX's rules: [^\n]+$"):
        save_graph(graph(rows=5), tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_passes_are_named_beside_a_graph_and_not_in_it(tmp_path: Path) -> None:
    """Each with what it did itself: what a pass does that another one calls is that pass's."""
    plain = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [2, 64]}, {"y": [2, 64]}, {"w": rounded(64, 64)}
    )
    rewritten = quantize_dynamic(round_weights(plain, {"x": np.eye(64)}))
    save_graph(rewritten, tmp_path / "model.onnx")
    passes = {one["name"]: one for one in json.loads((tmp_path / PASSES).read_text())}
    assert [*passes] == ["rounding.round_weights", "dynamic.quantize_dynamic"]
    assert (passes["rounding.round_weights"]["made"], passes["rounding.round_weights"]["removed"]) == ({}, {})
    assert passes["dynamic.quantize_dynamic"]["made"]["MatMulInteger"] == 1
    assert passes["dynamic.quantize_dynamic"]["removed"] == {"MatMul": 1}
    assert [one.key for one in onnx.load(tmp_path / "model.onnx").metadata_props] == ["onnx.infer"]  # ONNX Runtime's
    assert not plain.metadata_props
