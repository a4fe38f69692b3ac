"""What dynamic axes cost in ONNX Runtime: the same graph with open sizes, and fixed at the size that is asked.

    python -m tools.bench.axes                  # arr-coc-tiny and a ResNet of 18 layers, made here
    python -m tools.bench.axes --rounds 12

The fixed graph is that of `-t onnx-buckets`: sizes put in, and what was computed of shapes folded. Processes in turn,
every second round in the other order; a ratio is the dynamic graph's median over the fixed one's in the same round.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn

from edgekit.cli.console import print_table
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit_arrcoc import presets
from edgekit_targets.onnx.passes.graph import fix_shapes
from tools.bench.plain import export_own
from tools.bench.turns import in_turn, ratio

SIZES: Mapping[str, tuple[Mapping[str, int], ...]] = {
    "arr-coc-tiny": ({}, {"height": 96, "width": 96}),
    "resnet18": ({}, {"height": 96, "width": 96}),
}
"""The default size, and a small one, at which what is computed of shapes weighs more."""


def main() -> None:
    """Make, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="processes of each graph")
    parser.add_argument("--seconds", type=float, default=2.0, help="that each process times, at least")
    chosen = parser.parse_args()
    rows = []
    for spec in (presets.arr_coc_tiny(), resnet()):
        with tempfile.TemporaryDirectory() as folder:
            rows += _rows(spec, Path(folder), chosen.rounds, chosen.seconds)
    heads = ("model", "size", "nodes, dynamic", "fixed", "p50 ms, dynamic", "fixed", "ratio", "least", "most")
    print("\t".join(heads))
    print_table(heads, rows)


def _rows(spec: ModelSpec, place: Path, rounds: int, seconds: float) -> list[tuple[str, ...]]:
    dynamic = export_own(spec, place)
    graph = onnx.load(dynamic)
    found = []
    for sizes in SIZES[spec.name]:
        still = fix_shapes(graph, {i.name: spec.shape(i.name, sizes) for i in spec.inputs})
        graph.save_graph(still, place / "fixed.onnx")
        np.savez(place / "input.npz", **spec.random(0, sizes))  # type: ignore[arg-type]  # numpy's stub
        models = {"dynamic": ("ort", dynamic), "fixed": ("ort", place / "fixed.onnx")}
        timed = in_turn(models, place / "input.npz", rounds, seconds)
        medians = (f"{float(np.median(timed[name])):.2f}" for name in models)
        counts = (str(len(graph.graph.node)), str(len(still.graph.node)))
        size = "x".join(map(str, spec.shape(spec.inputs[0].name, sizes)[2:]))
        shares = (f"{value:.3f}" for value in ratio(timed["dynamic"], timed["fixed"]))
        found.append((spec.name, size, *counts, *medians, *shares))
    return found


def resnet() -> ModelSpec:
    """A ResNet of 18 layers with seeded weights (He et al., 2015, https://arxiv.org/abs/1512.03385)."""
    torch.manual_seed(0)
    edge = Axis(224, 96, 512, 32)
    return ModelSpec(
        name="resnet18",
        module=_ResNet().eval(),
        inputs=(Input("images", ("batch", 3, "height", "width"), kind="image"),),
        outputs=(Output("logits"),),
        axes={"batch": Axis(1, 1, 8), "height": edge, "width": edge},
        factory="tools.bench.axes:resnet",
    )


class _ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
        self.blocks = nn.Sequential(*(_Block(a, b) for a, b in itertools.pairwise(widths)))
        self.head = nn.Linear(512, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.blocks(self.pool(self.stem(images))).mean((2, 3)))
        return logits


class _Block(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        step = 1 if before == after else 2
        self.one = nn.Sequential(nn.Conv2d(before, after, 3, step, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU())
        self.two = nn.Sequential(nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after))
        self.past = nn.Sequential(nn.Conv2d(before, after, 1, step, bias=False), nn.BatchNorm2d(after))
        self.plain = step == 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.two(self.one(x)) + (x if self.plain else self.past(x)))


if __name__ == "__main__":
    main()
