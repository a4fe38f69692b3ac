"""StableHLO: open axes, named weights, and what a damaged or foreign file is told."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgekit
from edgekit import Axis, Input, ModelSpec, Output
from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError
from edgekit.testing import TargetContract
from tests.builds import unjudged
from tests.targets import tampering

pytest.importorskip("jax", reason="no JAX: pip install -e '.[xla]'")
pytest.importorskip("safetensors", reason="no safetensors: pip install safetensors")

from edgekit_targets.stablehlo import session
from edgekit_targets.stablehlo.compat import GONE

ENTRY = "model.jax"


class TestStablehlo(TargetContract):
    name = "stablehlo"

    def test_says_what_made_it(self, builds: Path) -> None:
        made = read_artifact(builds / "small" / self.name)
        assert {"jax", "torchax"} <= set(made.export.tools)
        assert all(axis.dynamic for axis in made.axes.values())

    def test_its_weights_have_their_names(self, builds: Path) -> None:
        from safetensors import safe_open

        with safe_open(builds / "small" / self.name / session.WEIGHTS, framework="np") as file:
            names = set(file.keys())
        with safe_open(builds / "small" / "model" / "model.safetensors", framework="np") as file:
            assert set(file.keys()) <= names

    def test_one_changed_weight_is_rejected(self, builds: Path, tmp_path: Path) -> None:
        row = self._judged(builds, tmp_path, lambda folder: tampering.one_weight(folder / session.WEIGHTS))
        assert row.status == "rejected"
        assert "jax-cpu: " in row.sentences[0]

    @pytest.mark.parametrize("file", [ENTRY, session.WEIGHTS])
    def test_half_a_file_is_a_sentence(self, builds: Path, tmp_path: Path, file: str) -> None:
        row = self._judged(builds, tmp_path, lambda folder: tampering.cut(folder / file))
        assert row.status == "rejected"
        assert f"JAX refuses '{ENTRY}': " in row.sentences[0]

    @staticmethod
    def _judged(builds: Path, tmp_path: Path, change: Callable[[Path], None]) -> Any:
        return tampering.judged(builds / "small", "stablehlo", change, tmp_path / "small")


class Half(nn.Module):
    """torchax computes the new size as a number, which a symbol is not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.interpolate(x[:, None], scale_factor=0.5).sum((1, 2))


def test_an_axis_whose_shapes_are_undecided_is_fixed_and_said_so(tmp_path: Path) -> None:
    axes = {"batch": Axis(1, 1, 4), "time": Axis(12, 8, 24)}
    spec = ModelSpec("half", Half().eval(), (Input("x", ("batch", "time")),), (Output("y"),), axes)
    folder = unjudged(spec, tmp_path, ("stablehlo",)) / "stablehlo"
    made = read_artifact(folder)
    assert [name for name, axis in made.axes.items() if axis.dynamic] == ["batch"]
    assert made.notes[0].startswith("fixed: time 12, since JAX cannot decide a shape (")
    x = np.arange(36, dtype=np.float32).reshape(3, 12)
    with edgekit.load(folder) as loaded:
        assert np.allclose(loaded.run({"x": x})["y"], x[:, ::2].sum(1))


@pytest.mark.nightly
def test_a_user_runs_it_with_jax_alone(tmp_path: Path) -> None:
    spec = ModelSpec(
        "line", nn.Linear(4, 2).eval(), (Input("x", ("batch", 4)),), (Output("y"),), {"batch": Axis(1, 1, 8)}
    )
    folder = unjudged(spec, tmp_path, ("stablehlo",)) / "stablehlo"
    code = """
import json, sys, numpy, jax.export
from safetensors.flax import load_file
program = jax.export.deserialize(bytearray(open("model.jax", "rb").read()))
outputs = program.call(load_file("model.safetensors"), {"x": numpy.ones((5, 4), numpy.float32)})
print(json.dumps(numpy.asarray(outputs["y"]).tolist()))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    with torch.no_grad():
        assert np.allclose(json.loads(done.stdout), spec.module(torch.ones(5, 4)).numpy(), atol=1e-6)


def test_weights_of_another_program_are_refused(tmp_path: Path) -> None:
    def line(name: str, width: int) -> Path:
        inputs, outputs = (Input("x", ("batch", width)),), (Output("y"),)
        module = nn.Sequential(nn.Linear(width, 2), nn.Linear(2, 2)) if width == 4 else nn.Linear(width, 2)
        spec = ModelSpec(name, module.eval(), inputs, outputs, {"batch": Axis(1, 1, 8)})
        return unjudged(spec, tmp_path, ("stablehlo",)) / "stablehlo"

    one, other = line("one", 4), line("other", 3)
    shutil.copyfile(other / session.WEIGHTS, one / session.WEIGHTS)
    with pytest.raises(ArtifactError, match=r"does not hold the weights of 'model\.jax'"):
        session.JaxSession(one / ENTRY)


@pytest.mark.nightly
def test_torchax_still_names_operators_that_pytorch_lacks() -> None:
    """When this fails, `edgekit_targets/stablehlo/compat.py` can go."""
    done = subprocess.run([sys.executable, "-c", "import torchax"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert any(part in done.stderr.splitlines()[-1].lower() for part in GONE)
