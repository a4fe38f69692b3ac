from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from torch import nn

import edgekit
from edgekit import Axis, Input, ModelSpec, Output
from edgekit.artifact.store import read_artifact
from edgekit.testing import TargetContract, small_model
from edgekit_targets.mnn import export, runtime
from tests.builds import unjudged
from tests.networks import lstm
from tests.targets import tampering
from tests.targets.damage_contract import DamageContract
from tests.targets.onnx.passes.graphs import model

pytest.importorskip("MNN", reason="no MNN: pip install -e '.[mnn]'")


class TestMnn(DamageContract):
    name = "mnn"
    weights, place, named = "model.mnn", runtime.CPU, "'relevance'"
    cut = {"model.mnn": "MNN refuses 'model.mnn': "}  # noqa: RUF012 - the contract's own way

    def test_answers_come_in_the_declared_dtypes_at_every_size(self, builds: Path) -> None:
        """MNN has no int64: indices and budgets come in 32 bits."""
        spec = small_model()
        with edgekit.load(builds / "small" / self.name) as loaded, edgekit.load(builds / "small" / "onnx") as source:
            for sizes in ({"batch": 3}, {"height": 160}, {}):
                asked = spec.random(1, sizes)
                found, expected = loaded.run(asked), source.run(asked)
                assert {n: (a.dtype, a.shape) for n, a in found.items()} == {
                    n: (a.dtype, a.shape) for n, a in expected.items()
                }
                assert np.array_equal(found["indices"], expected["indices"])
                assert np.allclose(found["relevance"], expected["relevance"], atol=1e-5)

    def test_the_interface_that_the_kotlin_library_uses_gives_the_same_answers(self, builds: Path) -> None:
        """What mobile/android's MnnRunner does, in Python: a session whose sizes are set anew where they change."""
        import MNN

        spec, made = small_model(), read_artifact(builds / "small" / self.name)
        net = MNN.Interpreter(str(builds / "small" / self.name / made.entry))
        session = net.createSession({"numThread": 1})
        with edgekit.load(builds / "small" / self.name) as loaded:
            for sizes in ({}, {"batch": 2, "height": 128}, {}):
                asked = spec.random(1, sizes)
                for name, array in asked.items():
                    net.resizeTensor(net.getSessionInput(session, name), array.shape)
                net.resizeSession(session)
                for name, array in asked.items():
                    own = net.getSessionInput(session, name)
                    caffe, floats = MNN.Tensor_DimensionType_Caffe, MNN.Halide_Type_Float
                    assert own.getDimensionType() == caffe  # MNN's Java classes write into it as it lies
                    own.copyFrom(MNN.Tensor(array.shape, floats, array, caffe))
                net.runSession(session)
                for name, expected in loaded.run(asked).items():
                    own = net.getSessionOutput(session, name)
                    kind = np.float32 if expected.dtype == np.float32 else np.int32
                    held = np.zeros(expected.shape, kind)
                    host = MNN.Tensor(own.getShape(), own.getDataType(), held, caffe)
                    own.copyToHostTensor(host)
                    assert np.array_equal(host.getNumpyData(), expected)

    def test_gelu_is_not_approximated(self, builds: Path) -> None:
        """The converter's own choice is tanh's: it cost arr-coc-tiny 0.0027 of its relevance."""
        spec = small_model()
        with edgekit.load(builds / "small" / self.name) as loaded, edgekit.load(builds / "small" / "onnx") as source:
            asked = spec.random(3)
            assert np.allclose(loaded.run(asked)["tokens"], source.run(asked)["tokens"], atol=2e-5)

    def test_opening_and_running_prints_nothing(self, builds: Path) -> None:
        code = (
            "import sys, edgekit\nfrom edgekit.testing import TargetContract, small_model\n"
            "with edgekit.load(sys.argv[1]) as loaded: loaded.run(small_model().random(1))\nprint('mine')"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(builds / "small" / self.name)], capture_output=True, text=True, check=True
        )
        assert done.stdout == "mine\n"

    def test_another_models_file_is_refused(self, builds: Path, tmp_path: Path) -> None:
        def change(folder: Path) -> None:
            graph = model([helper.make_node("Neg", ["x"], ["y"])], {"x": [2]}, {"y": [2]}, {})
            onnx.save(graph, tmp_path / "other.onnx")
            export.convert(tmp_path / "other.onnx", folder / export.ENTRY)

        row = tampering.judged(builds / "small", self.name, change, tmp_path / "small")
        assert "'model.mnn' has the inputs ['x'], not ['images', 'queries']" in row.sentences[0]


@pytest.mark.nightly
class TestHalfWeights(TargetContract):
    name = "mnn"
    options = {"precision": "fp16"}  # noqa: RUF012 - likewise

    def test_holds_its_weights_in_two_bytes(self, builds: Path) -> None:
        made = read_artifact(builds / "small" / self.name)
        assert made.precision == "fp16"
        size, of_onnx = ((builds / "small" / file).stat().st_size for file in ("mnn/model.mnn", "onnx/model.onnx"))
        assert size < 0.8 * of_onnx


@pytest.mark.nightly
class TestMnnInt8(DamageContract):
    name = "mnn-int8"
    weights, place, named = "model.mnn", runtime.CPU, "'relevance'"
    cut = {"model.mnn": "MNN refuses 'model.mnn': "}  # noqa: RUF012 - likewise

    def test_holds_its_weights_in_one_byte(self, builds: Path) -> None:
        assert read_artifact(builds / "small" / self.name).precision == "int8"
        size, of_onnx = (
            (builds / "small" / file).stat().st_size for file in (f"{self.name}/model.mnn", "onnx/model.onnx")
        )
        assert size < 0.6 * of_onnx


def test_a_row_that_is_masked_from_end_to_end_is_zeros(tmp_path: Path) -> None:
    """What the guard behind a softmax is left out for."""
    graph = model([helper.make_node("Softmax", ["x"], ["y"], axis=-1)], {"x": [2, 4]}, {"y": [2, 4]}, {})
    onnx.save(graph, tmp_path / "model.onnx")
    export.convert(tmp_path / "model.onnx", tmp_path / export.ENTRY)
    with runtime.capture_output():
        import MNN

        manager = MNN.nn.create_runtime_manager(({"backend": 0, "precision": runtime.PRECISION},))
        opened = MNN.nn.load_module_from_file(str(tmp_path / export.ENTRY), [], [], runtime_manager=manager)
    x = MNN.expr.placeholder([2, 4], MNN.expr.NCHW, MNN.expr.float)
    x.write(np.array([[-np.inf] * 4, [0, 0, -np.inf, -np.inf]], np.float32))
    answer = opened.forward([x])[0].read()
    assert np.allclose(answer, np.array([[0, 0, 0, 0], [0.5, 0.5, 0, 0]]))


class Gru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 3, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gru(x)[0]  # type: ignore[no-any-return]


@pytest.mark.nightly
def test_what_only_its_modules_run_is_said(tmp_path: Path) -> None:
    """MNN's Java classes have sessions alone; should these run loops one day, the note is out of date."""
    spec = ModelSpec("gru", Gru().eval(), (Input("x", ("batch", 5, 4)),), (Output("y"),), {"batch": Axis(1, 1, 4)})
    build = unjudged(spec, tmp_path, ("onnx", "mnn", "mnn-int8"))
    with runtime.capture_output():
        import MNN

        for target in ("mnn", "mnn-int8"):
            assert any(
                "it has GRU. MNN's modules run it. Its sessions" in n for n in read_artifact(build / target).notes
            )
            net = MNN.Interpreter(str(build / target / export.ENTRY))
            session = net.createSession({"numThread": 1})
            net.resizeTensor(net.getSessionInput(session, "x"), (1, 5, 4))
            net.resizeSession(session)
            assert net.getSessionOutput(session, "y").getShape() == (0, 0, 0, 0)


@pytest.mark.nightly
def test_an_lstm_without_its_last_states_is_converted(tmp_path: Path) -> None:
    spec = lstm()
    build = unjudged(spec, tmp_path, ("onnx", "mnn"))
    with edgekit.load(build / "mnn") as loaded, edgekit.load(build / "onnx") as source:
        for sizes in ({}, {"batch": 3}):
            asked = spec.random(1, sizes)
            assert np.allclose(loaded.run(asked)["y"], source.run(asked)["y"], atol=1e-5)


def test_a_converter_that_crashes_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As MNN 3.6 mostly does of an LSTM that names its answers alone: it writes beyond its memory, so not always."""
    monkeypatch.setattr(export, "SCRIPT", "import os; os.abort()")
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=3)
    weights = {"w": np.ones((1, 12, 4), np.float32), "r": np.ones((1, 12, 3), np.float32)}
    onnx.save(model([node], {"x": [5, 1, 4]}, {"y": [5, 1, 1, 3]}, weights), tmp_path / "model.onnx")
    said = export.convert(tmp_path / "model.onnx", tmp_path / export.ENTRY)
    assert not (tmp_path / export.ENTRY).exists()
    assert export.reason(said) == "its converter crashed"


def test_an_operator_that_it_lacks_is_named(tmp_path: Path) -> None:
    graph = model([helper.make_node("Hardmax", ["x"], ["y"])], {"x": [2, 3]}, {"y": [2, 3]}, {})
    onnx.save(graph, tmp_path / "model.onnx")
    said = export.convert(tmp_path / "model.onnx", tmp_path / export.ENTRY)
    assert not (tmp_path / export.ENTRY).exists()
    assert export.reason(said) == "it lacks the operators Hardmax"


def test_a_file_that_it_cannot_read_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"nonsense")
    said = export.convert(tmp_path / "model.onnx", tmp_path / export.ENTRY)
    assert not (tmp_path / export.ENTRY).exists()
    assert "please check your file format" in export.reason(said)
