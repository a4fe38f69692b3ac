from __future__ import annotations

import math

import onnx
import pytest

from edgekit.model.source import resolve_model
from edgekit.onnxgraph import weight_only
from edgekit.pipeline import run
from edgekit.testing import TargetContract
from tests.quantization.listening import Silent

FLOAT = onnx.TensorProto.FLOAT


class TestOnnxInt8Dynamic(TargetContract):
    name = "onnx-int8-dynamic"


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> run.Outcome:
    return run.export(
        resolve_model("edgekit.testing:small_model"),
        ("onnx-int8-dynamic",),
        tmp_path_factory.mktemp("build"),
        {},
        Silent(),
    )


def test_every_weight_of_size_is_stored_in_int8(outcome: run.Outcome) -> None:
    graph = onnx.load(outcome.outcomes[-1].folder / "model.onnx")
    large = [i.name for i in graph.graph.initializer if i.data_type == FLOAT and math.prod(i.dims) >= weight_only.LEAST]
    assert not large


def test_a_group_that_is_not_there_is_named(outcome: run.Outcome) -> None:
    options = {"onnx-int8-dynamic": {"float": "nowhere"}}
    root = outcome.report.parent.parent
    failed = run.export(
        resolve_model("edgekit.testing:small_model"), ("onnx-int8-dynamic",), root, options, Silent()
    ).outcomes[-1]
    assert failed.status == "failed"
    assert "no group 'nowhere' to leave in float: possible are" in failed.sentences[0]


def test_int8_that_is_slower_is_not_recommended(outcome: run.Outcome) -> None:
    """A model of 5,000 weights takes longer to round its activations than it saves: three times as many nodes."""
    found = outcome.outcomes[-1]
    assert found.slower
    assert any(text.startswith("cpu: slower: not recommended (0.") for text in found.sentences), found.sentences


def test_what_processors_without_vnni_answer_is_told(outcome: run.Outcome) -> None:
    assert any(note.startswith("on x86 without VNNI the noise is ") for note in outcome.outcomes[-1].notes)
