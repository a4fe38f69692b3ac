"""Fresh inputs: a sound artifact holds every limit, and a fault outside of what is recorded is found."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import edgekit
from edgekit.artifact.fact import Code
from edgekit.artifact.store import read_artifact
from edgekit.model.folder import load_model
from edgekit.pipeline.fresh_inputs import fresh_batches
from edgekit.reference.batches import Batch, inputs_digest, same_inputs
from tests.command import exit_code
from tests.core.judge.seeded.graph import Graph
from tests.manifests import resealed

pytestmark = pytest.mark.usefixtures("no_report")

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of pictures and queries with its ONNX artifact."""
    folder = tmp_path_factory.mktemp("fresh")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        return edgekit.export("tests.core.judge.broken.models:looking", targets=["onnx"], output=folder).path


@pytest.fixture
def copy(build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(ROOT))
    shutil.copytree(build, tmp_path / "looking")
    return tmp_path / "looking"


def inverted_at(graph: Graph, colour: float) -> None:
    """Relevance is inverted in pictures of one narrow band of colour: their mean blue is within 0.004 of a value."""
    blue = graph.add("Gather", "images", np.array([2]), axis=1)
    mean = graph.add("Unsqueeze", graph.add("ReduceMean", blue, np.array([1, 2, 3]), keepdims=0), np.array([1]))
    away = graph.add("Abs", graph.add("Sub", mean, np.float32(colour)))
    near = graph.add("Less", away, np.float32(0.004))
    graph.wrap("relevance", lambda x: graph.add("Where", near, graph.add("Sub", np.float32(1), x), x))


@pytest.mark.nightly
def test_a_sound_artifact_holds_every_limit(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("verify", copy, "--minutes", "0.01", "--seed", "7", "--trust-build", "--json") == 0
    (artifact,) = json.loads(capsys.readouterr().out)["artifacts"]
    (note,) = (note for note in artifact["notes"] if note["code"] == Code.FRESH_INPUTS)
    assert (artifact["status"], note["details"]["seed"]) == ("verified", 7)
    assert note["details"]["rows"] >= note["details"]["runs"] > 0
    assert note["details"]["seconds"] >= 0.6


def test_the_same_seed_asks_the_same_and_no_input_twice(copy: Path) -> None:
    spec, manifest = load_model(copy / "model"), read_artifact(copy / "onnx")

    def draw(seed: int) -> tuple[Batch, ...]:
        return tuple(itertools.islice(fresh_batches(spec, manifest, seed), 8))

    assert same_inputs(draw(7), draw(7))
    assert len({inputs_digest((batch,)) for batch in (*draw(7), *draw(8))}) == 16
    assert {batch.sizes["batch"] == 1 for batch in draw(7)} == {True, False}


def test_a_fault_outside_of_what_is_recorded_is_found_and_stays_rejected(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = Graph(onnx.load(copy / "onnx" / "model.onnx"))
    inverted_at(graph, 0.531)
    (copy / "onnx" / "model.onnx").write_bytes(graph.finish())
    resealed(copy / "onnx")
    assert exit_code("verify", str(copy), "--trust-build", "-q") == 0  # no recorded picture is of that colour
    capsys.readouterr()
    assert exit_code("verify", copy, "--minutes", "5", "--seed", "1", "--trust-build", "--json") == 3  # ends when found
    (artifact,) = json.loads(capsys.readouterr().out)["artifacts"]
    assert artifact["status"] == "rejected"
    assert any(reason["batch"].startswith("fresh ") for reason in artifact["reasons"])
    assert Code.FRESH_INPUTS in {note["code"] for note in artifact["notes"]}
    assert {place.status for place in read_artifact(copy / "onnx").verdicts} == {"rejected"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--minutes", "inf"), "cannot run fresh inputs for inf minutes"),
        (("--seed", "1"), "a seed needs minutes"),
        (("--minutes", "1", "--place", "openvino"), "Leave out further places"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(
    copy: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str
) -> None:
    assert exit_code("verify", str(copy), "--trust-build", *arguments) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


@pytest.mark.nightly
def test_code_that_changed_since_the_export_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = tmp_path / "code_of_then.py"
    code.write_text("from tests.models import Plain\n\n\ndef factory():\n    return Plain().eval()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    words = {"x": "shape=1,3"}
    root = str(edgekit.export("code_of_then:factory", targets=["onnx"], output=tmp_path / "build", inputs=words).path)
    assert edgekit.verify(root, trust_build=True).note == ""
    code.write_text(code.read_text() + "\n# changed\n")
    capsys.readouterr()
    assert exit_code("verify", root, "--trust-build") == 0
    assert "the code behind 'code_of_then:factory'" in capsys.readouterr().out
    assert exit_code("verify", root, "--trust-build", "--minutes", "0.001", "--json") == 0
    assert json.loads(capsys.readouterr().out)["note"].endswith("from today's code. Export again")
