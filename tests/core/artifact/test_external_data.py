"""Weights outside an ONNX file are opened by ONNX Runtime wherever they lie, so that the manifest must name them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.artifact.store import commit, external_files, read_artifact, write_manifest
from edgekit.errors import ArtifactError
from tests.manifests import manifest


def outside(name: str, location: str) -> TensorProto:
    tensor = numpy_helper.from_array(np.zeros(4, np.float32), name)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="length", value="16")
    return tensor


def graph(*initializers: TensorProto, nodes: tuple[onnx.NodeProto, ...] = ()) -> onnx.GraphProto:
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    return helper.make_graph(list(nodes), "g", [], [value], list(initializers))


def written(folder: Path, made: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_every_place_of_a_tensor_is_looked_at(tmp_path: Path) -> None:
    constant = helper.make_node("Constant", [], ["y"], value=outside("c", "constant.bin"))
    inner = graph(outside("i", "inner.bin"), nodes=(constant,))
    branch = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=graph(outside("e", "else.bin")))
    made = helper.make_model(graph(outside("w", "w.bin"), outside("v", "w.bin"), nodes=(branch,)))
    sparse = made.graph.sparse_initializer.add()
    sparse.values.CopyFrom(outside("s", "sparse.bin"))
    function = made.functions.add(name="f", domain="d")
    function.node.add(op_type="Constant").attribute.add(name="v", t=outside("f", "function.bin"))
    training = made.training_info.add()
    training.algorithm.CopyFrom(graph(outside("t", "training.bin")))
    listed = helper.make_node("Odd", [], [])
    listed.attribute.add(name="many", type=onnx.AttributeProto.TENSORS).tensors.append(outside("m", "many.bin"))
    made.graph.node.append(listed)
    assert set(external_files(written(tmp_path, made))) == {
        f"{name}.bin" for name in ("w", "constant", "inner", "else", "sparse", "function", "training", "many")
    }


def test_weights_inside_are_no_files(tmp_path: Path) -> None:
    made = helper.make_model(graph(numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")))
    assert external_files(written(tmp_path, made)) == ()


@pytest.mark.parametrize("content", [b"not a model", b"\x3a\xff\xff\x7f", b"\x3b", b"\x80" * 12, b"\x3d\x00"])
def test_what_is_no_protobuf_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"'.*model.onnx' is not an ONNX file \(.*\)"):
        external_files(tmp_path / "model.onnx")


def test_graphs_in_graphs_end(tmp_path: Path) -> None:
    inner = b""
    for number in range(399):
        field = (6, 5, 1)[number % 3]  # a graph in an attribute in a node in a graph
        length = len(inner)
        inner = bytes([field << 3 | 2]) + _varint(length) + inner
    (tmp_path / "model.onnx").write_bytes(b"\x3a" + _varint(len(inner)) + inner)
    with pytest.raises(ArtifactError, match="nested more than 64 deep"):
        external_files(tmp_path / "model.onnx")


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


@pytest.mark.parametrize("location", ["secret.bin", "../secret.bin", "/etc/passwd", "w.bin\0", "inner/../w.bin", "./x"])
def test_weights_that_the_manifest_does_not_name_are_refused(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    written(folder, helper.make_model(graph(outside("w", "w.bin"))))
    (folder / "w.bin").write_bytes(bytes(16))
    made = commit(folder, manifest())
    assert [file.path for file in made.files] == ["model.onnx", "w.bin"]
    written(folder, helper.make_model(graph(outside("w", location))))
    with pytest.raises(ArtifactError, match="which is not in the manifest"):
        commit(folder, manifest())
    (folder / "secret.bin").hardlink_to(tmp_path / "secret.bin")
    write_manifest(folder, made.model_copy(update={"files": tuple(f for f in made.files if f.path == "model.onnx")}))
    with pytest.raises(ArtifactError, match="damaged"):
        read_artifact(folder)
