"""One case through the whole way: a changed file in a copy of a build, its hash entered, `edgekit verify --json`.

The exports and the judging run in this process: a worker of its own would load PyTorch again for each, which takes 3
of a case's 3.5 seconds. What the worker runs is the same function with the same arguments, as
`tests/tools/test_exam.py` compares.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from edgekit.artifact.store import MANIFEST
from edgekit.errors import EdgekitError, ExportError
from edgekit.hosts import process
from edgekit.storage.limits import Limits
from edgekit.target import silent
from tests.builds import without_report
from tests.command import exit_code
from tests.core.judge.broken.conftest import recommit
from tools.exam.case import PRECISIONS, Case, Paper
from tools.exam.models import SPECS

ROOT = Path(__file__).parents[2]
ENTRY = "model.onnx"
SETTINGS = {"EDGEKIT_THREADS": "1", "EDGEKIT_TIMED_SECONDS": "0.01"}
"""Latency is not the point: the shortest timing that there is."""


@dataclass(frozen=True)
class Said:
    """What `edgekit verify --json` said.

    Attributes:
        status: "verified", "rejected", "not verified here" or "failed".
        reasons: Its sentences.
        code: The exit code.
    """

    status: str
    reasons: tuple[str, ...]
    code: int


class Room:
    """Where cases are judged: a build of each model, and of each artifact a copy whose file each case replaces.

    Args:
        folder: Holds the builds and the copies; what is there is used again where it is current.
        workers: Whether exports and judging run in workers, as for a user.
        targets: What each model is exported to.
    """

    def __init__(self, folder: Path, workers: bool = False, targets: Sequence[str] = tuple(PRECISIONS)) -> None:
        self.folder, self.workers, self.targets = folder, workers, targets
        self._built: dict[str, dict[str, str]] = {}
        self._manifests: dict[Path, bytes] = {}

    def built(self, model: str) -> dict[str, str]:
        """Exports a model where that was not done yet; the status of each of its targets."""
        if model not in self._built:
            targets = [word for target in self.targets for word in ("-t", target)]
            where = str(self.folder / "builds")
            _, found = self.run("export", f"tools.exam.models:{model}", *targets, "-o", where)
            self._built[model] = {one["target"]: one["status"] for one in found["artifacts"]}
        return self._built[model]

    def paper(self, model: str, target: str) -> Paper:
        """The cases of one of a model's targets, which must be verified: of another one nothing can be asked."""
        status = self.built(model)[target]
        if status != "verified":
            raise ValueError(f"the unbroken {target} of '{model}' is {status}: it cannot be examined")
        return Paper(SPECS[model](), target, onnx.load(self.folder / "builds" / model / target / ENTRY))

    def judged(self, case: Case) -> Said:
        """The verdict on a case."""
        home = self.home(case.model, case.target)
        (home / ENTRY).write_bytes(case.graph)
        return self.verdict(case, home)

    def verdict(self, case: Case, home: Path) -> Said:
        """The verdict on the files in an artifact's folder, which its manifest names as they are."""
        (home / MANIFEST).write_bytes(self._manifests[home])
        recommit(home, case.target)
        code, found = self.run("verify", str(home.parent), "--trust-build", threads=case.threads)
        (artifact,) = found["artifacts"]
        if artifact["status"] == "failed":
            raise RuntimeError(f"{case.title}: {artifact['reasons']}")
        return Said(artifact["status"], tuple(reason["sentence"] for reason in artifact["reasons"]), code)

    def run(self, *arguments: str, threads: int = 1) -> tuple[int, dict[str, Any]]:
        """The command line; its exit code and what it prints as JSON."""
        here = contextlib.nullcontext() if self.workers else called_here()
        said = io.StringIO()
        settings = environment({**SETTINGS, "EDGEKIT_THREADS": str(threads)})
        with (
            here,
            settings,
            without_report(),
            contextlib.redirect_stdout(said),
            warnings.catch_warnings(action="ignore"),
        ):
            code = exit_code(*arguments, "--json")
        return code, json.loads(said.getvalue())

    def home(self, model: str, target: str) -> Path:
        """An artifact's folder in a copy of its build, where it alone is judged; what is timed beside it stays."""
        copy = self.folder / "copies" / f"{model}-{target}"
        if copy / target not in self._manifests:
            self.built(model)
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(self.folder / "builds" / model, copy)
            for other in self.targets:
                if other != target:
                    (copy / other / MANIFEST).unlink(missing_ok=True)
            self._manifests[copy / target] = (copy / target / MANIFEST).read_bytes()
        return copy / target


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def called_here() -> Iterator[None]:
    """What edgekit calls in a worker is called in this process."""
    before = process.call
    process.call = _called
    try:
        yield
    finally:
        process.call = before


def _called(
    function: Callable[..., Mapping[str, object]],
    arguments: Mapping[str, object],
    progress: process.Progress = silent,
    limits: Limits | None = None,
    modules: Sequence[str] = (),
) -> dict[str, object]:
    try:
        result = function(**json.loads(json.dumps(dict(arguments))), progress=progress)
        return dict(json.loads(json.dumps(dict(result))))
    except EdgekitError:
        raise
    except Exception as error:
        raise ExportError(f"the worker met a bug:\n{traceback.format_exc()}") from error
