"""Weights beside several graphs: each value once, the same answers, and no other file is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from edgekit.errors import ArtifactError
from edgekit.model.onnx_write import LEAST
from edgekit.runtime.ort import OrtRuntime, check_file
from edgekit.runtime.ort_session import OrtSession
from edgekit_targets.onnx.passes.graph import SharedWeights
from tests.targets.onnx.passes.graphs import model, rounded

LARGE = rounded(32, 16)


def graph(rows: int) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Add", ["z", "b"], ["y"])]
    return model(nodes, {"x": [rows, 32]}, {"y": [rows, 16]}, {"w": LARGE, "b": rounded(16, 1).ravel()})


def written(folder: Path) -> SharedWeights:
    weights = SharedWeights("weights.bin")
    for rows in (2, 5):
        one = graph(rows)
        weights.move(one)
        (folder / f"{rows}.onnx").write_bytes(one.SerializeToString())
    (folder / "weights.bin").write_bytes(weights.data)
    return weights


def test_each_value_lies_there_once_and_the_answers_are_the_same(tmp_path: Path) -> None:
    assert len(written(tmp_path).data) == LARGE.nbytes >= LEAST
    for rows in (2, 5):
        (tmp_path / "whole.onnx").write_bytes(graph(rows).SerializeToString())
        x = np.random.default_rng(rows).random((rows, 32), np.float32)
        right = OrtRuntime(tmp_path / "whole.onnx").run({"x": x})["y"]
        beside = OrtSession(tmp_path / f"{rows}.onnx")
        np.testing.assert_array_equal(beside.run({"x": x})["y"], right)
    with pytest.raises(ArtifactError, match="in another file"):
        OrtRuntime(tmp_path / "2.onnx")


def entry(key: str, value: str) -> Callable[[onnx.TensorProto], None]:
    def change(tensor: onnx.TensorProto) -> None:
        next(one for one in tensor.external_data if one.key == key).value = value

    return change


def twice(tensor: onnx.TensorProto) -> None:
    tensor.external_data.add(key="location", value="weights.bin")


def unknown(tensor: onnx.TensorProto) -> None:
    tensor.external_data.add(key="checksum", value="0")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (entry("location", "other.bin"), "in another file"),
        (entry("location", "../weights.bin"), "in another file"),
        (entry("offset", "64"), "in another file"),
        (entry("offset", "-64"), "in another file"),
        (entry("length", "1024"), "in another file"),
        (twice, "external-data keys for the tensor 'w'"),
        (unknown, "external-data keys for the tensor 'w'"),
    ],
)
def test_a_tensor_elsewhere_is_refused(change: Callable[[onnx.TensorProto], None], said: str, tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "other.bin").write_bytes((tmp_path / "weights.bin").read_bytes())
    wrong = onnx.load(tmp_path / "2.onnx", load_external_data=False)
    change(next(tensor for tensor in wrong.graph.initializer if tensor.external_data))
    (tmp_path / "2.onnx").write_bytes(wrong.SerializeToString())
    with pytest.raises(ArtifactError, match=said):
        check_file(tmp_path / "2.onnx", "weights.bin")


def test_a_link_in_the_place_of_the_weights_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "weights.bin").rename(tmp_path / "elsewhere.bin")
    (tmp_path / "weights.bin").symlink_to(tmp_path / "elsewhere.bin")
    with pytest.raises(ArtifactError, match="in another file"):
        check_file(tmp_path / "2.onnx", "weights.bin")
