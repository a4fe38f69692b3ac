from __future__ import annotations

import math
import re

import onnx
import pytest

from edgekit.model.sources import resolve_model
from edgekit.onnxgraph import weight_only
from edgekit.pipeline import run
from edgekit.pipeline.outcome import Build
from edgekit.testing import TargetContract
from tests.quantization.listening import Silent

NAME = "onnx-int8-dynamic"
FLOAT = onnx.TensorProto.FLOAT


class TestOnnxInt8Dynamic(TargetContract):
    name = NAME


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return run.export(
        resolve_model("edgekit.testing:small_model"),
        (NAME,),
        tmp_path_factory.mktemp("build") / "small",
        {},
        Silent(),
    )


def test_every_weight_of_size_is_stored_in_int8(outcome: Build) -> None:
    graph = onnx.load(outcome[NAME].path / "model.onnx")
    large = [i.name for i in graph.graph.initializer if i.data_type == FLOAT and math.prod(i.dims) >= weight_only.LEAST]
    assert not large


def test_a_group_that_is_not_there_is_named(outcome: Build) -> None:
    options = {NAME: {"float": "nowhere"}}
    root = outcome.path.parent
    failed = run.export(resolve_model("edgekit.testing:small_model"), (NAME,), root / "small", options, Silent())[NAME]
    assert failed.status == "failed"
    assert "no group 'nowhere' to leave in float: possible are" in failed.sentences[0]


def test_int8_that_is_slower_is_not_recommended(outcome: Build) -> None:
    """A model of 5,000 weights takes longer to round its activations than it saves: three times as many nodes."""
    found = outcome[NAME]
    assert found.slower
    assert any(re.match(r"cpu: Warning: 0\.\d\dx the speed of onnx$", text) for text in found.sentences), (
        found.sentences
    )


def test_what_processors_without_vnni_answer_is_told(outcome: Build) -> None:
    made = outcome[NAME].manifest
    assert made is not None
    assert any(note.startswith("on x86 without VNNI the noise is ") for note in made.notes)
