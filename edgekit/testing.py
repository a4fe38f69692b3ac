"""The test suite that every target inherits, and the small model that it is run on.

A target's own test is a class of a few lines::

    class TestOnnx(TargetContract):
        name = "onnx"

It is shipped, so that targets of third parties are held to the same.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edgekit import artifact, pipeline, registry
from edgekit.errors import DependencyError, UsageError
from edgekit.model import Array, Axis, Evaluation, Input, ModelSpec, Output
from edgekit.pipeline import Outcome, Row
from edgekit.target import Need

if TYPE_CHECKING:
    import torch

SMALL = "edgekit.testing:small_model"
HEAVY = ("torch", "onnx", "onnxruntime", "onnxscript", "coremltools", "executorch", "matplotlib", "playwright", "scipy")
IMAGES, PATCH, WIDTH, TOP = 6, 16, 32, 8


class Silence:
    """An audience that remembers how each target ended and says nothing."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def progress(self, name: str, done: float, text: str) -> None:
        """Not told."""

    def done(self, name: str) -> None:
        """Not told."""

    def finished(self, row: Row) -> None:
        """Remembered."""
        self.rows.append(row)


def small_model() -> ModelSpec:
    """A seeded model with ARR-COC's interface in miniature: 36 to 100 patches, the best 8, a second to export."""
    return ModelSpec(
        name="small",
        module=_small_module().eval(),
        inputs=(
            Input("images", ("batch", 3, "height", "width"), kind="image"),
            Input("queries", ("batch", 16), low=-1.0, high=1.0, kind="query"),
        ),
        outputs=(
            Output("relevance", role="scores"),
            Output("budgets", role="counts", of="relevance", dtype="int64", low=64, high=400),
            Output("indices", role="ranking", of="relevance", dtype="int64"),
            Output("tokens", role="features", of="indices"),
        ),
        axes={"batch": Axis(1, 1, 8), "height": Axis(96, 96, 160, PATCH), "width": Axis(96, 96, 160, PATCH)},
        evaluation=lambda: _pictures(IMAGES, seed=1),
        calibration=lambda n: _pictures(n, seed=2),
        licence="Apache-2.0",
        author="edgekit",
        description="A small model for tests.",
    )


class TargetContract:
    """What every target must hold.

    Attributes:
        name: The target.
        statuses: The verdict that each place must reach on the small model where all libraries are there.
        options: Options to export with.
    """

    name: str
    statuses: Mapping[str, str] = {}
    options: Mapping[str, str] = {}

    @pytest.fixture(scope="class")
    @classmethod
    def builds(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A folder with the small model's build for this target."""
        if missing := registry.missing(registry.find(cls.name)):
            pytest.skip(f"needs {missing[0].module}: pip install 'edgekit[{missing[0].extra}]'")
        folder = tmp_path_factory.mktemp(cls.name)
        cls._export(folder)
        return folder

    def test_is_declared_completely(self) -> None:
        """Every place has a tolerance, every default is possible, the summary says something."""
        target = registry.find(self.name)
        assert target.summary
        assert target.places
        assert all(place in target.tolerance or "" in target.tolerance for place in target.places)
        assert all(not option.choices or option.default in option.choices for option in target.options)
        known = (*registry.BASIC_SOURCES, *registry.available())
        assert target.source in known

    def test_imports_nothing_heavy(self) -> None:
        """Listing targets must stay quick."""
        module = registry.available()[self.name].module
        code = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"

    def test_is_judged_as_expected(self, builds: Path) -> None:
        """The small model reaches the expected verdict in every place."""
        found = artifact.read(builds / "small" / self.name)
        expected = dict.fromkeys(registry.find(self.name).places, "verified") | dict(self.statuses)
        assert {v.place: v.status for v in found.verdicts} == expected, [v.reason for v in found.verdicts]

    def test_advertises_only_what_was_proved(self, builds: Path) -> None:
        """A dynamic axis was run at more than one size."""
        found = artifact.read(builds / "small" / self.name)
        if any(v.status == "not verified here" for v in found.verdicts):
            pytest.skip("not verified here: nothing was proved")
        for name, axis in found.axes.items():
            assert not axis.dynamic or len({sizes[name] for sizes in found.proof}) > 1

    def test_unchanged_does_no_work(self, builds: Path) -> None:
        """The second export finds the first."""
        outcome = self._export(builds)
        assert next(row for row in outcome.rows if row.target == self.name).reused

    def test_is_byte_identical(self, builds: Path, tmp_path: Path) -> None:
        """Another folder, the same bytes."""
        self._export(tmp_path)
        one, other = (artifact.read(folder / "small" / self.name) for folder in (builds, tmp_path))
        assert one.files == other.files

    def test_damage_is_refused(self, builds: Path, tmp_path: Path) -> None:
        """One flipped bit, and the artifact is not run."""
        copy = tmp_path / "small"
        shutil.copytree(builds / "small", copy)
        victim = copy / self.name / artifact.read(copy / self.name).files[0].path
        damaged = bytearray(victim.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        victim.write_bytes(bytes(damaged))
        rows = {row.target: row for row in pipeline.verify(copy, Silence()).rows}
        assert rows[self.name].status == "failed"
        assert "damaged" in rows[self.name].sentences[0]

    def test_missing_library_is_named(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """A need that is not there gives the sentence that mends it."""
        needs = registry.find(self.name).needs
        if not needs:
            pytest.skip("needs nothing beyond the core")
        monkeypatch.setattr(registry, "missing", lambda target: (Need(needs[0].module, needs[0].extra),))
        with pytest.raises(DependencyError, match=rf"needs {needs[0].module}: pip install 'edgekit\["):
            self._export(tmp_path)

    def test_unknown_option_is_refused(self, tmp_path: Path) -> None:
        """No option is ignored."""
        with pytest.raises(UsageError, match="has no option 'colour'"):
            pipeline.export(SMALL, (self.name,), tmp_path, {self.name: {"colour": "red"}}, Silence())

    @classmethod
    def _export(cls, folder: Path) -> Outcome:
        given = {cls.name: dict(cls.options)} if cls.options else {}
        return pipeline.export(SMALL, (cls.name,), folder, given, Silence())


def _small_module() -> torch.nn.Module:
    import torch
    from torch import nn

    class Small(nn.Module):
        """Patches -> features -> relevance by a query, budgets, the best patches and their features."""

        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
            self.norm = nn.LayerNorm(WIDTH)
            self.hidden = nn.Linear(WIDTH, 4 * WIDTH)
            self.features = nn.Linear(4 * WIDTH, WIDTH)
            self.question = nn.Linear(16, WIDTH)

        def forward(self, images: torch.Tensor, queries: torch.Tensor) -> tuple[torch.Tensor, ...]:
            x = self.patches(images).flatten(2).transpose(1, 2)
            x = x + self.features(nn.functional.gelu(self.hidden(self.norm(x))))
            match = (x @ self.question(queries).unsqueeze(-1)).squeeze(-1)
            relevance = torch.sigmoid(match)
            budgets = torch.floor(64 + 336 * relevance + 0.5).to(torch.int64)
            indices = torch.topk(relevance, TOP, dim=1).indices
            tokens = torch.gather(x, 1, indices.unsqueeze(-1).expand(-1, -1, WIDTH))
            return relevance, budgets, indices, tokens

    generator = torch.Generator().manual_seed(5)
    module = Small()
    with torch.no_grad():
        for parameter in module.parameters():
            fan = max(parameter[0].numel(), 1) if parameter.dim() > 1 else 100
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * (1.5 / fan**0.5))
        module.norm.weight.fill_(1.0)
    return module


def _pictures(count: int, seed: int) -> Evaluation:
    """Coloured blobs on gradients with random queries; truth is a blob's share of each patch."""
    generator = np.random.Generator(np.random.PCG64(seed))
    rows, columns = np.mgrid[0:96, 0:96] / 96
    images, truth = np.empty((count, 3, 96, 96), np.float32), np.empty((count, 36), np.float32)
    for number in range(count):
        slope = generator.uniform(-0.5, 0.5, (3, 2))
        plain = 0.5 + slope[:, :1, None] * rows + slope[:, 1:, None] * columns
        middle, radius = generator.uniform(0.2, 0.8, 2), generator.uniform(0.1, 0.3)
        blob = (rows - middle[0]) ** 2 + (columns - middle[1]) ** 2 < radius**2
        painted = np.where(blob, generator.uniform(0, 1, 3)[:, None, None], plain)
        images[number] = np.round(np.clip(painted, 0, 1) * 255) / 255
        truth[number] = blob.reshape(6, PATCH, 6, PATCH).mean(axis=(1, 3)).ravel()
    queries = generator.uniform(-1, 1, (count, 16)).astype(np.float32)
    names = tuple(f"blob {number}" for number in range(count))
    return Evaluation({"images": images, "queries": queries}, names, truth=truth, metric=_found, metric_name="found@8")


def _found(outputs: Mapping[str, Array], truth: Array) -> Array:
    """Share of the blob that the chosen patches cover, of what eight patches could cover, float64 [n]."""
    chosen = np.take_along_axis(truth.astype(np.float64), outputs["indices"], axis=1).sum(axis=1)
    best = np.sort(truth.astype(np.float64), axis=1)[:, -TOP:].sum(axis=1)
    return np.asarray(chosen / np.maximum(best, 1e-9))
