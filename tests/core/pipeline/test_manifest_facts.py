"""What a manifest says of the model is asked of the model: a change under a whole seal is refused, or exported anew."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

from edgekit.artifact.manifest import Manifest
from edgekit.artifact.store import read_artifact
from edgekit.model.sources import resolve_model
from edgekit.pipeline import run
from edgekit.testing import SMALL, QuietListener
from tests.manifests import resealed, unchecked
from tests.plugins.apps import toy

Change = Callable[[Manifest], Mapping[str, Any]]


def of_input(**facts: Any) -> Change:
    return lambda made: {"inputs": (made.inputs[0].model_copy(update=facts), *made.inputs[1:])}


def of_output(**facts: Any) -> Change:
    return lambda made: {"outputs": (made.outputs[0].model_copy(update=facts), *made.outputs[1:])}


def of_axis(name: str, **facts: Any) -> Change:
    return lambda made: {"axes": {**made.axes, name: made.axes[name].model_copy(update=facts)}}


CHANGES: dict[str, Change] = {
    "high of input 'images' = 255.0, but the model says 1.0": of_input(high=255.0),
    "fit of input 'images' = letterbox, but the model says stretch": of_input(fit="letterbox"),
    "classes of output 'relevance' = ('cat', 'dog'), but the model says ()": of_output(classes=("cat", "dog")),
    "threshold of output 'relevance' = 0.1, but the model says None": of_output(threshold=0.1),
    "role of output 'relevance' = tensor, but the model says scores": of_output(role="tensor"),
    "maximum of axis 'height' = 4096, but the model says 160": of_axis("height", maximum=4096),
    "maximum of axis 'batch' = 64, but the model says 8": of_axis("batch", maximum=64),
    "multiple_of of axis 'width' = 1, but the model says 16": of_axis("width", multiple_of=1),
    "inputs = ['queries', 'images'], but the model says ['images', 'queries']": lambda made: {
        "inputs": made.inputs[::-1]
    },
    "self_quantized = True, but the model says False": lambda made: {
        "export": made.export.model_copy(update={"self_quantized": True})
    },
}


@pytest.mark.parametrize("said", CHANGES)
def test_a_changed_fact_under_a_whole_seal_is_refused(said: str, small_build: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(small_build, tmp_path / "small", ignore=shutil.ignore_patterns("onnx-fp16")))
    resealed(root / "onnx", **CHANGES[said](unchecked(root / "onnx")))
    outcome = run.verify(root, QuietListener(), only=("onnx",), trust_build=True)["onnx"]
    assert (outcome.status, outcome.error) == (
        "failed",
        f"the manifest of 'onnx' says {said}: it was changed after the export. Export it again",
    )


def test_a_changed_copy_of_a_models_file_is_refused(tmp_path: Path) -> None:
    """The words of queries: artifacts are asked with vectors, so no output shows that two words changed places."""
    root = toy.build(tmp_path / "toy")
    words = json.loads((toy.GOLDEN / "vocabulary.json").read_text())
    words["words"] = words["words"][::-1]
    files = {"model.onnx": toy.onnx_model(0.0), "vocabulary.json": json.dumps(words).encode()}
    toy.commit(root / "onnx", "onnx", files)
    outcome = run.verify(root, QuietListener(), only=("onnx",), trust_build=True)["onnx"]
    assert outcome.error == (
        "'vocabulary.json' of 'onnx' is not the model's: it was changed after the export. Export it again"
    )


def test_a_precision_that_the_limits_contradict_is_refused(tmp_path: Path) -> None:
    root = toy.build(tmp_path / "toy")
    toy.commit(root / "onnx-int8-dynamic", "onnx-int8-dynamic", {"model.onnx": toy.onnx_model(0.0)})
    resealed(root / "onnx-int8-dynamic", precision="fp32")
    outcome = run.verify(root, QuietListener(), only=("onnx-int8-dynamic",), trust_build=True)["onnx-int8-dynamic"]
    assert outcome.error == (
        "the manifest of 'onnx-int8-dynamic' says precision = fp32, but 'cpu' judges it by the limits of int8: it was "
        "changed after the export. Export it again"
    )


def test_a_graph_with_its_outputs_in_another_order_is_rejected(small_build: Path, tmp_path: Path) -> None:
    """By name its answers are right, and callers by position get another output."""
    root = Path(shutil.copytree(small_build, tmp_path / "small", ignore=shutil.ignore_patterns("onnx-fp16")))
    graph = onnx.load(root / "onnx" / "model.onnx")
    outputs = list(graph.graph.output)
    del graph.graph.output[:]
    graph.graph.output.extend(outputs[::-1])
    onnx.save(graph, root / "onnx" / "model.onnx")
    resealed(root / "onnx")
    outcome = run.verify(root, QuietListener(), only=("onnx",), trust_build=True)["onnx"]
    assert outcome.status == "rejected"
    assert "has the outputs in the order ['tokens', 'indices'" in " ".join(outcome.sentences)


def test_the_next_export_makes_a_changed_artifact_again(small_build: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(small_build, tmp_path / "small", ignore=shutil.ignore_patterns("onnx-fp16")))
    resealed(root / "onnx", **of_input(high=255.0)(unchecked(root / "onnx")))
    outcome = run.export(resolve_model(SMALL), ("onnx",), root, {}, QuietListener())["onnx"]
    assert (outcome.status, outcome.reused) == ("verified", False)
    assert read_artifact(root / "onnx").inputs[0].high == 1.0
