"""Builds that are exported once, and broken copies of them judged by the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest

from edgekit.artifact.store import MANIFEST
from edgekit.model.sources import resolve_model
from tests.builds import unjudged, without_report
from tests.command import exit_code
from tests.core.judge.seeded.graph import Graph
from tests.manifests import resealed

ROOT = Path(__file__).parents[4]
MODELS = "tests.core.judge.broken.models"
PLACES = {"fp32": "onnx", "fp16": "onnx-fp16", "int8": "onnx-int8-dynamic"}
"""Precision -> the target by whose limits a graph is judged."""
Change = Callable[[Graph], object]


@dataclass(frozen=True)
class Said:
    """What `edgekit verify --json` said of one artifact, and its exit code."""

    status: str
    reasons: list[dict[str, Any]]
    notes: list[dict[str, Any]]
    code: int

    @property
    def sentences(self) -> str:
        return "\n".join(reason["sentence"] for reason in self.reasons)


class Shell:
    """The command line in this process, and a build of each model."""

    def __init__(self, folder: Path, capsys: Callable[[], str]) -> None:
        self.folder, self.printed = folder, capsys

    def run(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        trusted = ("--trust-build",) if arguments[0] == "verify" else ()  # the models are of the tests
        code, out = exit_code(*arguments, *trusted, "--json"), self.printed()
        return code, json.loads(out) if out.strip().startswith("{") else {}

    def built(self, model: str) -> Path:
        """A model's build with its ONNX artifact, which is judged in copies."""
        build = self.folder / "builds" / model
        if not build.is_dir():
            assert unjudged(resolve_model(f"{MODELS}:{model}"), build.parent, ("onnx",)) == build
        return build

    def judged(self, model: str, change: Change | None = None, precision: str = "fp32", *options: str) -> Said:
        """The verdict on a model's graph after a change, by the limits of a precision."""
        copy = self.folder / "copy" / model
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.built(model), copy)
        home = copy / PLACES[precision]
        if precision != "fp32":  # the source stays, since it is timed beside what was made from it; it is not judged
            shutil.copytree(copy / "onnx", home)
            (copy / "onnx" / MANIFEST).unlink()
        if change is not None:
            graph = Graph(onnx.load(home / "model.onnx"))
            change(graph)
            (home / "model.onnx").write_bytes(graph.finish())
        resealed(home, target=PLACES[precision], precision=precision)
        with without_report():
            code, found = self.run("verify", str(copy), *options)
        (artifact,) = found["artifacts"]
        assert not {"runtime failed", "no answer"} & {reason["code"] for reason in artifact["reasons"]}
        return Said(artifact["status"], artifact["reasons"], artifact["notes"], code)


def recommit(home: Path, target: str) -> None:
    """Make the manifest name the files as they are."""
    resealed(home, target=target)


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broken")


@pytest.fixture
def shell(builds: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.syspath_prepend(str(ROOT))
    return Shell(builds, lambda: capsys.readouterr().out)
