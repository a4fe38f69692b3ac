"""4-bit weights: an artifact that holds INT8's limits, 8 bits for the layers that need them, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import edgekit
from edgekit.pipeline.outcome import Build
from edgekit.testing import TargetContract

NAME = "onnx-int4"


def bits(path: Path) -> dict[str, int]:
    """Bits of the weights of each product that has packed ones, by name."""
    nodes = [node for node in onnx.load(path).graph.node if node.op_type == "MatMulNBits"]
    return {node.name: next(a.i for a in node.attribute if a.name == "bits") for node in nodes}


class TestOnnxInt4(TargetContract):
    """The small model has layers of 32 channels with weights by chance: no mix of 4 and 8 bits holds INT8's limits."""

    name = NAME
    statuses = {"cpu": "rejected"}  # noqa: RUF012 - the contract's own way

    @pytest.fixture(scope="class")
    @classmethod
    def outcome(cls, builds: Path) -> Build:
        return cls._export(builds)

    def test_every_large_linear_layer_is_packed(self, builds: Path) -> None:
        path = builds / "small" / NAME / "model.onnx"
        assert sorted(set(bits(path).values())) == [4, 8]
        floats = [i for i in onnx.load(path).graph.initializer if i.data_type == onnx.TensorProto.FLOAT]
        assert max(math.prod(i.dims) for i in floats) < 4096

    def test_what_was_not_held_is_said(self, outcome: Build) -> None:
        assert "no choice holds the gate's limits on samples held back from calibration" in outcome[NAME].sentences[0]


class Encoder(nn.Module):
    """An embedding of 64 numbers, through layers of 256."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.middle, self.last = nn.Linear(64, 256), nn.Linear(256, 256), nn.Linear(256, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.last(torch.relu(self.middle(torch.relu(self.first(x)))))
        return answer


def exported(module: nn.Module, folder: Path) -> edgekit.Build:
    rows = np.random.default_rng(1).normal(0, 1, (64, 64)).astype(np.float32)
    shown = edgekit.EvaluationSet({"x": rows}, tuple(map(str, range(64))))
    return edgekit.export(module.eval(), example=(torch.randn(2, 64),), targets=[NAME], evaluation=shown, output=folder)


@pytest.mark.nightly
def test_wide_layers_are_verified_at_a_quarter_of_the_size(tmp_path: Path) -> None:
    build = exported(Encoder(), tmp_path)
    assert build[NAME].verdict.startswith("verified"), build[NAME].sentences
    made = build[NAME].manifest
    assert made is not None
    assert made.precision == "int4"
    found = bits(build.path / NAME / "model.onnx")
    assert len(found) == 3
    assert 4 in found.values()
    finer = sorted(name.partition("/")[0] for name, count in found.items() if count == 8)
    assert [note for note in made.notes if "bits" in note] == ([f"in 8 bits: {', '.join(finer)}"] if finer else [])
    sizes = [(build.path / name / "model.onnx").stat().st_size for name in (NAME, "onnx")]
    assert sizes[0] < 0.27 * sizes[1]


@pytest.mark.nightly
def test_a_net_without_large_linear_layers_is_refused(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 4))
    build = edgekit.export(net.eval(), example=(torch.randn(2, 3, 8, 8),), targets=[NAME], output=tmp_path)
    assert "has no linear layer of 4096 weights or more, which 4 bits need" in build[NAME].sentences[0]
