from __future__ import annotations

import math

import onnx
import pytest

from edgekit import latency, pipeline
from edgekit.quantization import stored
from edgekit.runtime.ort import OrtRuntime
from edgekit.testing import TargetContract, small_model
from tests.quantization.listening import Silent

FLOAT = onnx.TensorProto.FLOAT


class TestOnnxInt8Dynamic(TargetContract):
    name = "onnx-int8-dynamic"


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> pipeline.Outcome:
    return pipeline.export(
        "edgekit.testing:small_model", ("onnx-int8-dynamic",), tmp_path_factory.mktemp("build"), {}, Silent()
    )


def test_every_weight_of_size_is_stored_in_int8(outcome: pipeline.Outcome) -> None:
    graph = onnx.load(outcome.rows[-1].folder / "model.onnx")
    large = [i.name for i in graph.graph.initializer if i.data_type == FLOAT and math.prod(i.dims) >= stored.LEAST]
    assert not large


def test_a_group_that_is_not_there_is_named(outcome: pipeline.Outcome) -> None:
    options = {"onnx-int8-dynamic": {"float": "nowhere"}}
    root = outcome.report.parent.parent
    failed = pipeline.export("edgekit.testing:small_model", ("onnx-int8-dynamic",), root, options, Silent()).rows[-1]
    assert failed.status == "failed"
    assert "no group 'nowhere' to leave in float: possible are" in failed.sentences[0]


def test_int8_that_is_slower_is_not_recommended(outcome: pipeline.Outcome) -> None:
    """A model of 5,000 weights takes longer to round its activations than it saves: three times as many nodes."""
    folder = outcome.rows[-1].folder
    runtimes = {name: OrtRuntime(folder.parent / name / "model.onnx") for name in ("onnx", "onnx-int8-dynamic")}
    timed = latency.measure(runtimes, small_model().random(1), seconds=0.3)
    ratio = latency.ratio(timed, "onnx", "onnx-int8-dynamic")
    assert ratio.value < 1.0
    assert str(ratio).startswith("slower: not recommended")
