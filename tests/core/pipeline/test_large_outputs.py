"""A metric reads whole outputs, however large: the reference holds sketches of those, and the metric's values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn

import edgekit
from edgekit import Axis, EvaluationSet, Input, ModelSpec, Output
from edgekit.judge.rows import SUFFIX
from edgekit.model.spec import Array
from edgekit.reference.store import read_reference
from tests.builds import without_report

ROWS, EDGE, CLASSES = 80, 64, 4
"""More than 4 MiB of outputs together, which a reference does not keep whole."""


class Segmenter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Conv2d(3, CLASSES, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layer(images)
        return logits


def share_of_places(outputs: Mapping[str, Array], truth: Array) -> Array:
    """The share of places with the true class; any other shape than that of whole outputs is a fault of the caller."""
    logits = outputs["logits"]
    assert logits.shape[1:] == (CLASSES, EDGE, EDGE), logits.shape
    share: Array = (logits.argmax(1) == truth).mean((1, 2))
    return share


def segmenter() -> ModelSpec:
    module = Segmenter().eval()
    images = np.random.default_rng(1).random((ROWS, 3, EDGE, EDGE)).astype(np.float32)
    with torch.no_grad():
        truth = module(torch.from_numpy(images)).numpy().argmax(1)
    names = tuple(f"{number:02d}" for number in range(ROWS))
    evaluation = EvaluationSet({"images": images}, names, truth=truth, metric=share_of_places, metric_name="places")
    outputs = (Output("logits", role="logits", axes=("batch", "channels", "height", "width")),)
    inputs = (Input("images", ("batch", 3, EDGE, EDGE)),)
    return ModelSpec("segmenter", module, inputs, outputs, {"batch": Axis(1, 1, 4)}, evaluation=lambda: evaluation)


def test_the_task_metric_never_gets_sketches(tmp_path: Path) -> None:
    with without_report():
        build = edgekit.export(f"{__name__}:segmenter", targets=["onnx"], output=tmp_path, progress="none")
    reference = read_reference(build.path / "reference")
    [batch] = [b for b in reference.batches if b.name == "evaluation"]
    assert "logits" + SUFFIX in batch.outputs
    assert reference.info.evaluation.values == (1.0,) * ROWS
    assert build["onnx"].verdict == "verified", build["onnx"].reasons
    drops = {m.batch: m.value for m in build["onnx"].metrics if m.metric == "places drop"}
    assert drops == {"evaluation": 0.0, "evaluation in batches": 0.0}
