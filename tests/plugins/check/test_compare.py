"""`edgekit compare`: two files on the same inputs, in any two formats."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper

import edgekit_check
from edgekit.errors import EdgekitError
from tests.command import exit_code
from tests.plugins.check.test_check import write_onnx, write_openvino, write_torchscript

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*torch.jit")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_onnx(tmp_path_factory.mktemp("files") / "net.onnx")


@pytest.fixture
def changed(file: Path, tmp_path: Path) -> Path:
    """The same graph with one weight of its last layer doubled."""
    graph = onnx.load(file)
    for tensor in graph.graph.initializer:
        if list(tensor.dims)[:1] == [5]:
            weights = numpy_helper.to_array(tensor).copy()
            weights[0] *= 2
            tensor.CopyFrom(numpy_helper.from_array(weights, tensor.name))
    onnx.save(graph, tmp_path / "changed.onnx")
    return tmp_path / "changed.onnx"


def test_a_file_does_not_differ_from_itself(file: Path) -> None:
    result = edgekit_check.compare(file, file, seconds=0)
    assert (result.worst, result.first_layer, result.speed) == (0.0, None, None)
    assert [output.same_largest for output in result.outputs] == [1.0, 1.0]
    assert len(result.layers) > 3
    assert result.notes == ()


def test_the_first_differing_tensor_is_named(file: Path, changed: Path) -> None:
    result = edgekit_check.compare(file, changed, seconds=0.05)
    by_name = {output.name: output for output in result.outputs}
    assert by_name["b"].largest == 0.0
    assert by_name["a"].relative > 0.01
    last = [node.output[0] for node in onnx.load(file).graph.node if node.op_type == "Gemm"]
    assert result.first_layer is not None
    assert [result.first_layer[0]] == last
    assert result.speed is not None
    assert result.sizes[0] == file.stat().st_size


def test_other_formats_are_compared_by_position(file: Path, tmp_path: Path) -> None:
    for write in (write_openvino, write_torchscript):
        result = edgekit_check.compare(file, write(tmp_path), seconds=0)
        # The IR has weights in fp16.
        assert result.worst < 0.01
        assert len(result.outputs) == 2
        assert not result.layers


def test_the_command_writes_a_page_and_exits_by_the_largest_difference(
    file: Path, changed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert exit_code("compare", file, changed, "--seconds", "0", "--html", page, "--most", "0.001") == 3
    assert "the graphs first differ at" in capsys.readouterr().out
    assert 'class="changed"' in page.read_text()
    assert exit_code("compare", file, changed, "--seconds", "0", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["outputs"][0]["name"] == "a"
    assert record["worst"] > 0.001


def test_files_that_do_not_fit_are_one_sentence(file: Path, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"no graph")
    with pytest.raises(EdgekitError, match=r"net\.onnx"):
        edgekit_check.compare(file, tmp_path / "net.onnx")
    with pytest.raises(EdgekitError, match="declares no inputs"):
        edgekit_check.compare(write_torchscript(tmp_path), file)
