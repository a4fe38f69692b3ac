from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from edgekit.errors import NeedlessExportError
from edgekit.model.folder import save_model
from edgekit.model.sources import resolve_model
from edgekit.pipeline import run
from edgekit.pipeline.outcome import Build
from edgekit.target import Job
from edgekit.testing import SMALL, QuietListener, TargetContract
from edgekit_targets.onnx import int8_dynamic
from edgekit_targets.onnx.passes import weight_only
from tests.targets.onnx.passes.graphs import Shape, convolutions, model, recurrent, rounded

NAME = "onnx-int8-dynamic"
FLOAT = onnx.TensorProto.FLOAT


class TestOnnxInt8Dynamic(TargetContract):
    name = NAME

    @pytest.fixture(scope="class")
    @classmethod
    def outcome(cls, builds: Path) -> Build:
        return cls._export(builds)

    def test_every_weight_of_size_is_stored_in_int8(self, builds: Path) -> None:
        initializers = onnx.load(builds / "small" / NAME / "model.onnx").graph.initializer
        floats = [i.name for i in initializers if i.data_type == FLOAT and math.prod(i.dims) >= weight_only.LEAST]
        assert not floats

    def test_int8_that_is_slower_and_no_other_has_a_warning(self, outcome: Build) -> None:
        """A model of 5,000 weights may take longer to round its activations than it saves, by the host and its load."""
        found = outcome[NAME]
        warning = re.compile(r"cpu: Warning: 0\.\d\dx the speed of onnx$")
        assert found.slower == any(warning.match(text) for text in found.sentences), found.sentences

    def test_what_processors_without_vnni_answer_is_told(self, outcome: Build) -> None:
        made = outcome[NAME].manifest
        assert made is not None
        assert any(note.startswith("on x86 without VNNI the noise is ") for note in made.notes)


def test_a_group_that_is_not_there_is_named(build: Path) -> None:
    options = {NAME: {"float": "nowhere"}}
    failed = run.export(resolve_model(SMALL), (NAME,), build, options, QuietListener())[NAME]
    assert failed.status == "failed"
    assert "no group 'nowhere' to leave in float" in failed.sentences[0]


def uneven(head: bool) -> onnx.ModelProto:
    """Convolutions whose weights differ by inputs and by outputs ten thousandfold, which the layers around even out."""
    draw = np.random.default_rng(0)
    inputs, outputs = (10 ** draw.uniform(-2, 2, (size, 1, 1, 1)).astype(np.float32) for size in (32, 128))
    held = {
        "first": rounded(32, 4, 1, 1) / inputs,
        "coarse": rounded(128, 32, 1, 1, seed=1) * inputs.reshape(1, 32, 1, 1) * outputs,
        "last": rounded(4, 128, 1, 1, seed=2) / outputs.reshape(1, 128, 1, 1),
    }
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"]),
        helper.make_node("Conv", ["a", "coarse"], ["b"]),
        helper.make_node("Conv", ["b", "last"], ["c"]),
    ]
    if head:
        held["head"] = rounded(8, 8, seed=3)
        nodes.append(helper.make_node("MatMul", ["c", "head"], ["y"]))
    else:
        nodes.append(helper.make_node("Identity", ["c"], ["y"]))
    return model(nodes, {"x": ["batch", 4, 8, 8]}, {"y": ["batch", 4, 8, 8]}, held)


@pytest.mark.nightly
@pytest.mark.parametrize("head", [True, False], ids=["with a linear layer", "convolutions alone"])
def test_convolutions_that_lose_too_much_in_int8_are_stored_in_fp16(tmp_path: Path, head: bool) -> None:
    """Without calibration: as of the convolutions of silero's and PaddleOCR's files."""
    path = tmp_path / "uneven.onnx"
    onnx.save(uneven(head), path)
    made = run.export(resolve_model(str(path)), (NAME,), tmp_path / "build", {}, QuietListener())[NAME]
    if not head:
        assert made.status == "failed"
        assert "lose too much in INT8 (" in made.sentences[0]
        assert made.sentences[0].endswith("use onnx-int8-static, onnx or onnx-fp16")
        return
    assert made.status != "rejected", made.sentences
    assert made.manifest is not None
    assert any("lose too much in INT8 and are stored in fp16: " in note for note in made.manifest.notes)
    kept = {i.name: i.data_type for i in onnx.load(tmp_path / "build" / NAME / "model.onnx").graph.initializer}
    assert onnx.TensorProto.FLOAT16 in kept.values()


def three_lstms() -> onnx.ModelProto:
    """Three LSTMs: the first reads inputs of very different sizes, the second has two directions, and states."""
    spread = 10 ** np.linspace(-2, 2, 8, dtype=np.float32)
    held: dict[str, np.ndarray] = {"spread": spread, "flat": np.array([0, 0, -1])}
    for number, (directions, inputs) in enumerate(((1, 8), (2, 32), (1, 64))):
        held[f"w{number}"] = rounded(directions, 128, inputs, seed=number, deviation=0.5)
        held[f"r{number}"] = rounded(directions, 128, 32, seed=10 + number, deviation=0.1)
    held["w0"] = 4 * held["w0"] / spread
    held["head"] = rounded(32, 8, seed=3)

    def lstm(number: int, read: str, states: tuple[str, ...], written: list[str], **attributes: str) -> onnx.NodeProto:
        inputs = [read, f"w{number}", f"r{number}", "", "", *states]
        return helper.make_node("LSTM", inputs, written, name=f"rnn/LSTM_{number}", hidden_size=32, **attributes)

    nodes = [
        helper.make_node("Mul", ["x", "spread"], ["spread_x"]),
        helper.make_node("Transpose", ["spread_x"], ["steps"], perm=[1, 0, 2]),
        lstm(0, "steps", (), ["y0"]),
        helper.make_node("Squeeze", ["y0", "one"], ["z0"]),
        lstm(1, "z0", ("h", "c"), ["y1", "next_h", "next_c"], direction="bidirectional"),
        helper.make_node("Transpose", ["y1"], ["t1"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["t1", "flat"], ["z1"]),
        lstm(2, "z1", (), ["", "y2"]),
        helper.make_node("Squeeze", ["y2", "zero"], ["z2"]),
        helper.make_node("MatMul", ["z2", "head"], ["y"], name="head/MatMul"),
    ]
    held |= {"one": np.array([1]), "zero": np.array([0])}
    states: dict[str, Shape] = dict.fromkeys(("h", "c"), (2, 1, 32))
    following: dict[str, Shape] = {f"next_{name}": shape for name, shape in states.items()}
    return model(nodes, {"x": (1, 12, 8), **states}, {"y": (1, 8), **following}, held)


@pytest.mark.nightly
def test_the_lstm_that_loses_most_stays_in_float(tmp_path: Path) -> None:
    path = tmp_path / "recurrent.onnx"
    onnx.save(three_lstms(), path)
    artifact = run.export(resolve_model(str(path)), (NAME,), tmp_path / "build", {}, QuietListener())[NAME]
    assert artifact.status != "rejected", artifact.sentences
    assert artifact.manifest is not None
    assert "in float arithmetic: rnn/LSTM" in artifact.manifest.notes
    nodes = onnx.load(tmp_path / "build" / NAME / "model.onnx").graph.node
    operators = Counter(node.op_type for node in nodes)
    assert (operators["LSTM"], operators["DynamicQuantizeLSTM"], operators["MatMulInteger"]) == (1, 2, 1)


@pytest.mark.parametrize("kind", ["Conv", "GRU"])
def test_int8_that_saves_no_time_is_exported_only_if_selected(tmp_path: Path, kind: str) -> None:
    graph, path = convolutions() if kind == "Conv" else recurrent("GRU", gates=3), tmp_path / "net.onnx"
    onnx.save(graph, path)
    save_model(resolve_model(str(path)), tmp_path / "model")
    job = Job(model=tmp_path / "model", entry=path, selected=False)
    with pytest.raises(NeedlessExportError, match=rf"are in {kind}\b.* -t onnx-int8-dynamic$"):
        int8_dynamic.export(tmp_path, tmp_path, job)
    result = int8_dynamic.export(tmp_path, tmp_path, replace(job, selected=True))
    assert any(note.startswith("weights only: smaller, not faster") for note in result.notes), result.notes
    assert weight_only.count_stored(onnx.load(tmp_path / "model.onnx")) == 2


@pytest.mark.nightly
def test_layers_in_a_branch_alone_are_named(tmp_path: Path) -> None:
    info = helper.make_tensor_value_info
    bodies = {
        name: helper.make_graph([helper.make_node(kind, ["x", "w"], ["z"])], name, [], [info("z", FLOAT, None)])
        for name, kind in (("then_branch", "MatMul"), ("else_branch", "Add"))
    }
    nodes = [helper.make_node("If", ["yes"], ["y"], **bodies)]
    held = {"w": rounded(4, 4), "yes": np.array(True)}
    path = tmp_path / "branches.onnx"
    onnx.save(model(nodes, {"x": ["batch", 4]}, {"y": ["batch", 4]}, held), path)
    failed = run.export(resolve_model(str(path)), (NAME,), tmp_path / "build", {}, QuietListener())[NAME]
    assert "dynamic INT8 could hold outside of its branches and loops, which stay unchanged" in failed.sentences[0]
