"""Test suite that every target inherits, and the build of its small model.

A target's own test is a class of a few lines::

    class TestOnnx(TargetContract):
        name = "onnx"

It is shipped, so that third parties' targets meet the same contract.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from edgekit import registry
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.run_record import CACHE, MODEL, PROGRAM, REFERENCE
from edgekit.artifact.store import read_artifact
from edgekit.errors import DependencyError, UsageError
from edgekit.model.folder import load_model, save_model
from edgekit.model.program import Capture, save_program
from edgekit.model.records import WEIGHTS, model_digest, recorded_weights
from edgekit.model.sources import resolve_model
from edgekit.model.spec import ModelSpec
from edgekit.pipeline import plan, run
from edgekit.pipeline.context import Listener, RunContext
from edgekit.pipeline.export_step import make
from edgekit.pipeline.loaded import load
from edgekit.pipeline.outcome import Build, TargetOutcome
from edgekit.reference.adopt import obtain
from edgekit.reference.store import reference_of
from edgekit.storage.files import lock
from edgekit.target import Need
from edgekit.testing.models import SMALL

HEAVY = (
    "torch",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "coremltools",
    "executorch",
    "MNN",
    "iree.runtime",
    "iree.compiler",
    "jax",
    "torchax",
    "openvino",
    "nncf",
    "coreai",
    "matplotlib",
    "playwright",
    "scipy",
)
IMPORTS = f"""
import importlib, json, sys
first = {{}}
for module in sys.argv[1:]:
    before = set(sys.modules)
    try:
        importlib.import_module(module)
    except ImportError:
        pass  # another package's target, which breaks only itself
    first[module] = [name for name in {HEAVY!r} if name in sys.modules.keys() - before]
print(json.dumps(first))
"""


class TargetContract:
    """Contract of every target.

    The sources of a target are exported once for all classes of a session (`small_build`); a separate class tests each
    of them.

    Attributes:
        name: The target.
        model: Factory of the model, `package.module:function`. Set your own if the target lacks operators of the small
            model; it is called "small" in the builds.
        statuses: The expected verdict of each place on the small model, if all libraries are installed.
        options: Options to export with.
    """

    name: str
    model: str = SMALL
    statuses: Mapping[str, str] = {}
    options: Mapping[str, object] = {}

    @pytest.fixture(scope="class")
    @classmethod
    def builds(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Return a folder with the small model's build for this target."""
        if missing := registry.missing(registry.find(cls.name)):
            pytest.skip(f"needs {missing[0].module}: {missing[0].install}")
        folder = tmp_path_factory.mktemp(cls.name)
        if cls.model == SMALL:
            shutil.copytree(small_build(tmp_path_factory.getbasetemp(), cls._sources()), folder / "small")
        # PyTorch's trace, of hundreds of lines, would hide the error that pytest shows.
        logging.getLogger("torch.__trace").propagate = False
        outcome = cls._export(folder)[cls.name]
        # Without an artifact every test would fail by the missing file, not by the exporter's own error.
        if outcome.manifest is None:
            pytest.fail(f"the export of '{cls.name}' {outcome.status}: {'; '.join(outcome.sentences)}", pytrace=False)
        return folder

    def test_is_declared_completely(self) -> None:
        """Check that place names are unique, defaults are possible, and summary and help are not empty."""
        target = registry.find(self.name)
        assert target.summary
        assert target.places
        assert len({place.name for place in target.places}) == len(target.places)
        assert all(option.help for option in target.options)
        assert all(option.parse(self.name, option.default) == option.default for option in target.options)
        possible = (*registry.BASIC_SOURCES, *registry.available())
        assert target.source in possible

    def test_imports_nothing_heavy(self) -> None:
        """Check that listing targets stays fast."""
        module = registry.available()[self.name].module
        assert heavy_imports()[module] == []

    def test_is_judged_as_expected(self, builds: Path) -> None:
        """Check that the small model reaches the expected verdict in every place."""
        artifact = read_artifact(builds / "small" / self.name)
        places = [place.name for place in registry.find(self.name).places_of(artifact)]
        expected = dict.fromkeys(places, "verified") | dict(self.statuses)
        assert {v.place: v.status for v in artifact.verdicts} == expected, [v.reason for v in artifact.verdicts]

    def test_advertises_only_what_was_proved(self, builds: Path) -> None:
        """Check that a dynamic axis was run at more than one size."""
        artifact = read_artifact(builds / "small" / self.name)
        verdicts = [v for v in artifact.verdicts if v.status != "not verified here"]
        assert all(v.proof == () for v in artifact.verdicts if v not in verdicts)
        if not verdicts:
            return
        for name, axis in artifact.axes.items():
            assert not axis.dynamic or len({sizes[name] for sizes in verdicts[0].proof}) > 1

    def test_an_answer_outlives_the_next_run(self, builds: Path) -> None:
        """Check that a returned output is not a buffer that the next run overwrites."""
        folder, spec = builds / "small" / self.name, resolve_model(self.model)
        for place in [v.place for v in read_artifact(folder).verdicts if v.status != "not verified here"][:1]:
            with load(folder, place=place, trust_build=True) as loaded:
                first = loaded.run(spec.random(1))
                copies = {name: array.copy() for name, array in first.items()}
                loaded.run(spec.random(2))
                assert all(np.array_equal(first[name], copies[name]) for name in copies)

    def test_unchanged_does_no_work(self, builds: Path) -> None:
        """Check that the second export reuses the first."""
        assert self._export(builds)[self.name].reused

    def test_is_byte_identical(self, builds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Check that another folder and another hash seed give the same bytes."""
        # Another hash seed changes the order of sets in worker processes.
        monkeypatch.setenv("PYTHONHASHSEED", "7")
        assert (
            self._export_again(builds / "small", tmp_path / "small").files
            == read_artifact(builds / "small" / self.name).files
        )

    def test_damage_is_refused(self, builds: Path, tmp_path: Path) -> None:
        """Check that an artifact with one flipped bit is not run."""
        copy = tmp_path / "small"
        shutil.copytree(builds / "small", copy)
        victim = copy / self.name / read_artifact(copy / self.name).files[0].path
        damaged = bytearray(victim.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        victim.write_bytes(bytes(damaged))
        outcome = run.verify(copy, QuietListener(), only=(self.name,), trust_build=True)[self.name]
        assert outcome.status == "failed"
        assert "damaged" in outcome.error

    def test_missing_library_is_named(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Check that the error for a missing library has the command to install it."""
        need = next(iter(registry.find(self.name).needs), Need("a_library", hint="pip install a-library"))
        monkeypatch.setattr(registry, "missing", lambda target: (need,))
        with pytest.raises(DependencyError, match=re.escape(f"needs {need.module}: {need.install}")):
            self._export(tmp_path)

    def test_unknown_option_is_refused(self, tmp_path: Path) -> None:
        """Check that no option is ignored."""
        with pytest.raises(UsageError, match="has no option 'colour'"):
            run.export(
                resolve_model(self.model),
                (self.name,),
                tmp_path / "small",
                {self.name: {"colour": "red"}},
                QuietListener(),
            )

    @classmethod
    def _export_again(cls, first: Path, root: Path) -> Manifest:
        """Export the artifact again from its source, without judging it."""
        targets, _ = registry.loadable()
        _, options, _ = plan.plan_run(targets, (cls.name,), {cls.name: dict(cls.options)})
        shutil.copytree(first, root)
        for folder in (cls.name, CACHE):
            shutil.rmtree(root / folder)
        spec = load_model(root / MODEL)
        reference = reference_of(root / REFERENCE, recorded_weights(root / MODEL))
        context = RunContext(spec, root, targets, reference, QuietListener(), fresh=False)
        return make(context, cls.name, options[cls.name])

    @classmethod
    def _sources(cls) -> tuple[str, ...]:
        """Return the sources of this target, in order of export."""
        targets, _ = registry.loadable()
        source = targets[cls.name].source
        return registry.sources_first((source,), targets) if source in targets else ()

    @classmethod
    def _export(cls, folder: Path) -> Build:
        options = {cls.name: dict(cls.options)} if cls.options else {}
        return run.export(resolve_model(cls.model), (cls.name,), folder / "small", options, QuietListener())


@functools.cache
def heavy_imports() -> dict[str, list[str]]:
    """Return the heavy libraries that each target's module imports first, all in one new process."""
    modules = [target.module for target in registry.available().values()]
    process = subprocess.run([sys.executable, "-c", IMPORTS, *modules], capture_output=True, text=True, check=True)
    imports: dict[str, list[str]] = json.loads(process.stdout)
    return imports


@functools.cache
def small_build(session: Path, targets: tuple[str, ...]) -> Path:
    """Return the small model's build with its reference and some targets, exported once per session.

    Args:
        session: The session's temporary folder; the processes of pytest-xdist share its parent.
        targets: Names, sources first.
    """
    shared = session.parent if "PYTEST_XDIST_WORKER" in os.environ else session
    root = shared / "-".join(("builds", *targets)) / "small"
    build = root.with_name("made")
    # Workers of pytest-xdist export into one folder, one at a time.
    with lock(root.parent, lambda: None):
        if build.exists():
            return root
        if targets:
            shutil.copytree(small_build(session, targets[:-1]), root)
            run.export(resolve_model(SMALL), targets[-1:], root, {}, QuietListener())
        else:
            obtain(write_small_model(root), root / REFERENCE, lambda _done, _text: None)
        build.touch()
        return root


def write_small_model(root: Path) -> ModelSpec:
    """Write the small model and its program into a build."""
    captured = Capture(resolve_model(SMALL))
    save_model(captured.spec, root / MODEL, captured)
    save_program(captured.program(), root / PROGRAM, model_digest(root / MODEL), root / MODEL / WEIGHTS)
    return captured.spec


class QuietListener(Listener):
    """Listener that only stores outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[TargetOutcome] = []

    def finished(self, outcome: TargetOutcome) -> None:
        """Store an outcome."""
        self.outcomes.append(outcome)
