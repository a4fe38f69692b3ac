"""Fresh inputs: a sound artifact holds every limit, and a fault outside of what is recorded is found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import edgekit
from edgekit.artifact.store import read_artifact
from edgekit.pipeline.soak import RUNS
from tests.command import exit_code
from tests.core.judge.seeded.graph import Graph
from tests.manifests import resealed

pytestmark = pytest.mark.usefixtures("no_report")

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of pictures and queries with its ONNX artifact."""
    folder = tmp_path_factory.mktemp("soak")
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


def test_a_sound_artifact_holds_every_limit(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (copy / "onnx" / "manifest.json").read_bytes()
    assert exit_code("verify", str(copy), "--seed", "7", "--trust-build", "--json") == 0
    (artifact,) = json.loads(capsys.readouterr().out)["artifacts"]
    soaked = artifact["soaked"]
    assert (soaked["status"], soaked["runs"], soaked["seed"], artifact["status"]) == ("verified", RUNS, 7, "verified")
    assert soaked["rows"] > RUNS
    assert (copy / "onnx" / "manifest.json").read_bytes() == before  # what differs between runs is not stored
    again = edgekit.soak(copy, seed=7, trust_build=True)["onnx"]
    assert again.soaked is not None
    assert again.soaked.rows == soaked["rows"]  # the same seed asks the same


def test_it_lasts_as_long_as_it_is_told(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("verify", str(copy), "--soak", "0.1s", "--trust-build") == 0
    assert "every limit held on" in capsys.readouterr().out


def test_a_fault_outside_of_what_is_recorded_is_found_and_stays_rejected(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = Graph(onnx.load(copy / "onnx" / "model.onnx"))
    inverted_at(graph, 0.531)
    (copy / "onnx" / "model.onnx").write_bytes(graph.finish())
    resealed(copy / "onnx")
    assert exit_code("verify", str(copy), "--trust-build", "-q") == 0  # no recorded picture is of that colour
    assert exit_code("verify", str(copy), "--seed", "1", "--trust-build") == 3
    printed = capsys.readouterr().out
    assert "rejected after" in printed
    assert "fresh " in printed  # the reason names the run
    assert {place.status for place in read_artifact(copy / "onnx").verdicts} == {"rejected"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--soak", "ten minutes"), "write a number and s, m or h"),
        (("--soak", "0s"), "write a number and s, m or h"),
        (("--soak", "1s", "--place", "openvino"), "leave out --place and --budget"),
    ],
)
def test_what_cannot_be_soaked_is_one_sentence(
    copy: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str
) -> None:
    assert exit_code("verify", str(copy), "--trust-build", *arguments) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_nothing_verified_is_nothing_to_soak(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    resealed(copy / "onnx", results=())
    (copy / "onnx" / "result.json").unlink()
    assert exit_code("verify", str(copy), "--seed", "1", "--trust-build") == 2
    assert "only what is can be asked fresh inputs" in " ".join(capsys.readouterr().err.split())


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
    assert exit_code("verify", root, "--trust-build", "--seed", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["note"].endswith("of that of today; export again")
