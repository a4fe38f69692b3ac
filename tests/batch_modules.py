"""Models with inputs that have no batch axis, or have it elsewhere than first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.model.spec import Axis, EvaluationSet, Input, ModelSpec, Output


class Shared(nn.Module):
    """Pictures beside what is the same for all of them: a table of anchors and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 4)

    def forward(self, images: Tensor, anchors: Tensor, scale: Tensor) -> Tensor:
        seen: Tensor = self.head(torch.relu(self.conv(images)).mean((2, 3)))
        return (seen[:, :, None] * scale + 1.0) * anchors[None]


def shared() -> ModelSpec:
    torch.manual_seed(0)
    image = Input("images", ("batch", 3, "height", 16), kind="image")
    table = Input("anchors", (4, 1), low=0.5, high=2.0)
    axes = {"batch": Axis(1, 1, 4), "height": Axis(16, 8, 24, 8)}
    number = Input("scale", (), low=0.5, high=2.0)
    return with_sets(ModelSpec("shared", Shared().eval(), (image, table, number), (Output("boxes"),), axes))


class TimeFirst(nn.Module):
    """Sequences [time, batch, 6] with a state [2, batch, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.keeps = nn.Linear(6, 8), nn.Linear(8, 8)

    def forward(self, frames: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        found = torch.tanh(self.keeps(before) + self.reads(frames).mean(0))
        return self.reads(frames) + found.sum(0), found


def time_first() -> ModelSpec:
    torch.manual_seed(0)
    frames, before = Input("frames", ("time", "batch", 6), low=-1.0), Input("before", (2, "batch", 8), low=-1.0)
    outputs = (Output("y", axes=("time", "batch", "width")), Output("next", "state", axes=("layers", "batch", "width")))
    axes = {"batch": Axis(1, 1, 4), "time": Axis(5, 2, 8)}
    return with_sets(ModelSpec("time-first", TimeFirst().eval(), (frames, before), outputs, axes))


def with_sets(whole: ModelSpec) -> ModelSpec:
    """The model with random evaluation and calibration sets: each input of the runs one after the other."""

    def made(count: int, first: int = 500) -> EvaluationSet:
        runs = [whole.random(first + number, {"batch": 1}) for number in range(count)]
        inputs = {i.name: np.concatenate([np.atleast_1d(run[i.name]) for run in runs]) for i in whole.inputs}
        return EvaluationSet(inputs, tuple(f"run {number}" for number in range(count)))

    return replace(whole, evaluation=lambda: made(6, 100), calibration=made)


def fixed_batch(whole: ModelSpec) -> ModelSpec:
    """The same for a batch of one only."""
    return replace(whole, axes={**whole.axes, "batch": Axis(1, 1, 1)})


def shared_one() -> ModelSpec:
    return fixed_batch(shared())


def time_first_one() -> ModelSpec:
    return fixed_batch(time_first())
