from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from edgekit.errors import ArtifactError, DependencyError, install_command
from edgekit.runtime import ort
from tests.targets.onnx.passes import graphs


def graph() -> onnx.ModelProto:
    """y = relu(2 x) + 1, with the product and the rectified product inside."""
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["product"]),
        helper.make_node("Relu", ["product"], ["rectified"]),
        helper.make_node("Add", ["rectified", "one"], ["y"]),
    ]
    held = {"two": np.array(2, np.float32), "one": np.array(1, np.float32)}
    return graphs.model(nodes, {"x": ["batch", 3]}, {"y": ["batch", 3]}, held)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(graph(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_answers_by_name(model: Path) -> None:
    runtime = ort.OrtRuntime(model)
    answer = runtime.run({"x": np.array([[-1, 0, 2]], np.float32)})
    assert list(answer) == ["y"]
    np.testing.assert_array_equal(answer["y"], [[1, 1, 5]])
    runtime.close()


def test_arrays_in_another_memory_layout_are_answered_alike(model: Path) -> None:
    turned = np.arange(12, dtype=np.float32).reshape(3, 4).T - 6
    assert not turned.flags.c_contiguous
    runtime = ort.OrtRuntime(model)
    np.testing.assert_array_equal(runtime.run({"x": turned})["y"], np.maximum(2 * turned, 0) + 1)


def test_the_device_names_version_provider_and_threads(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_THREADS", "3")
    version = metadata.version("onnxruntime")
    assert ort.OrtRuntime(model).device == f"ONNX Runtime {version}, CPUExecutionProvider, 3 threads"


def test_a_file_that_is_no_model_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    with pytest.raises(ArtifactError, match=r"bad\.onnx' is not a usable ONNX file") as refused:
        ort.OrtRuntime(tmp_path / "bad.onnx")
    assert "\n" not in str(refused.value)


def test_a_graph_that_it_refuses_is_named(tmp_path: Path) -> None:
    node = onnx.helper.make_node("NoSuchOperator", ["x"], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 20)])
    onnx.save(model, tmp_path / "bad.onnx")
    with pytest.raises(ArtifactError, match=r"ONNX Runtime refuses 'bad\.onnx': [^\n]*NoSuchOperator"):
        ort.OrtRuntime(tmp_path / "bad.onnx")


def test_a_setting_reaches_the_session(model: Path) -> None:
    options = ort.OrtRuntime(model, {"session.x64quantprecision": "1"})._session.get_session_options()
    assert options.get_session_config_entry("session.x64quantprecision") == "1"
    assert options.get_session_config_entry("session.force_spinning_stop") == "1"


def test_inner_tensors_can_be_seen_and_the_graph_is_not_changed() -> None:
    given = graph()
    before = given.SerializeToString()
    answer = ort.open_with_taps(given, ["product", "rectified", "x", "y"]).run(
        {"x": np.array([[-1, 0, 2]], np.float32)}
    )
    assert given.SerializeToString() == before
    np.testing.assert_array_equal(answer["product"], [[-2, 0, 4]])
    np.testing.assert_array_equal(answer["rectified"], [[0, 0, 4]])
    assert set(answer) == {"y", "product", "rectified"}


@pytest.mark.parametrize(
    ("installed", "sentence"),
    [
        ((), re.escape(f"ONNX Runtime is not installed. Run {install_command('cpu')}, or {install_command('gpu')}")),
        (("onnxruntime", "onnxruntime-gpu"), r"overwrite each other. Run pip uninstall onnxruntime onnxruntime-gpu"),
    ],
)
def test_exactly_one_build_must_be_installed(
    installed: tuple[str, ...], sentence: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(DependencyError, match=sentence):
        ort.OrtRuntime(model)


@pytest.mark.parametrize("name", ["onnxruntime", "onnxruntime-gpu"])
def test_either_build_will_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "_is_installed", lambda asked: asked == name)
    ort.require_onnxruntime()
