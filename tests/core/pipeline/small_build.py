"""A build of the small model whose workers' answers are kept, so that exporting and judging again takes no worker.

What is written, committed and reported is edgekit's own each time; only what a converter wrote and what the judge found
is given again.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgekit.artifact.manifest import Manifest
from edgekit.artifact.store import MANIFEST, read_artifact, result_of
from edgekit.hosts import process
from edgekit.model.sources import resolve_model
from edgekit.model.spec import ModelSpec
from edgekit.pipeline import evaluate_step, run
from edgekit.pipeline.context import RunContext
from edgekit.pipeline.evaluate_step import EvaluationOutcome
from edgekit.pipeline.outcome import Build
from edgekit.target import Place
from edgekit.testing import SMALL, QuietListener
from tools.exam.sitting import called_here

TARGETS = ("onnx", "onnx-fp16")


@dataclass
class Kept:
    """A build folder and what the workers answered."""

    root: Path
    spec: ModelSpec
    answers: Path
    said: dict[str, dict[str, object]] = field(default_factory=dict)
    found: dict[str, EvaluationOutcome] = field(default_factory=dict)

    def export(self, fresh: bool = False) -> Build:
        """Export with the kept answers."""
        with self.given():
            return run.export(self.spec, TARGETS, self.root, {}, QuietListener(), fresh)

    def find(self, context: RunContext, name: str, made: Manifest, place: Place) -> EvaluationOutcome:
        """What was found of an artifact of these very files when it was first judged."""
        if name not in self.found:
            self.found[name] = evaluate_step.evaluate_in_place(context, name, made, place)
        return self.found[name]

    @contextlib.contextmanager
    def given(self) -> Iterator[None]:
        """Workers give the kept answers, and call what has none here."""
        with called_here():
            real = process.call

            def call(function: Any, arguments: Mapping[str, Any], *rest: Any, **more: Any) -> dict[str, object]:
                asked = arguments["request"]
                name = f"{function.__name__} {asked['target']} {asked.get('place', '')}"
                out = Path(asked["out"])
                if name not in self.said:
                    self.said[name] = real(function, arguments, *rest, **more)
                    shutil.copytree(out, self.answers / name)
                else:
                    shutil.copytree(self.answers / name, out, dirs_exist_ok=True)
                return self.said[name]

            process.call = call
            setattr(run, "evaluate_in_place", self.find)  # noqa: B010 - it is imported there, not declared
            try:
                yield
            finally:
                process.call = real
                setattr(run, "evaluate_in_place", evaluate_step.evaluate_in_place)  # noqa: B010 - likewise


def built(folder: Path) -> Kept:
    """Export the small model once."""
    made = Kept(folder / "small", resolve_model(SMALL), folder / "answers")
    assert [one.status for one in made.export().outcomes] == ["verified", "verified"]
    return made


def assert_whole(root: Path) -> None:
    """Every visible artifact is as it was written, and has its verdict and the result of one judgement, or neither."""
    for path in root.glob(f"[!.]*/{MANIFEST}"):
        made = read_artifact(path.parent)
        found = result_of(path.parent, made)
        if found is None:
            assert made.verdicts == ()
            continue
        assert found.artifact_sha256 == made.sha256
        assert [(p.place, p.status) for p in found.places] == [(v.place, v.status) for v in made.verdicts]


def left_behind(root: Path) -> list[Path]:
    """Temporary files and folders in a build."""
    return [path for path in root.rglob(".*") if path.suffix in (".tmp", ".old")]
