"""A convolutional detector with anchors and seeded weights, on drawn scenes, and non-maximum suppression behind it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from edgekit import Axis, Detector, EvaluationSet, Input, ModelSpec

CELLS, STRIDE, CLASSES = 4, 8, 2
SIDES = (12.0, 20.0)
"""Pixels: of the anchors of each cell."""
SIZE, ROWS, MOST = CELLS * STRIDE, 24, 4
CHANNELS = len(SIDES) * (4 + CLASSES)


class Anchors(nn.Module):
    """Pictures -> boxes around anchors [batch, 32, 4] and scores [batch, 32, 2], few of them sure."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        strides = [nn.Conv2d(before, after, 3, 2, 1) for before, after in ((3, 8), (8, 16), (16, 32))]
        self.body = nn.Sequential(*[layer for one in strides for layer in (one, nn.ReLU())])
        self.head = nn.Linear(32, CHANNELS)
        places = (torch.arange(CELLS) + 0.5) * STRIDE
        down, across = torch.meshgrid(places, places, indexing="ij")
        middle = torch.stack([across, down], -1).reshape(-1, 1, 2).expand(-1, len(SIDES), 2)
        self.register_buffer("middle", middle.reshape(1, -1, 2))
        self.register_buffer("sides", torch.tensor(SIDES).repeat(CELLS**2).reshape(1, -1, 1))
        self._scale()

    @torch.no_grad()
    def _scale(self) -> None:
        """Let each channel spread by 2 over scenes, as one does that was trained."""
        seen = self.cells(torch.tensor(scenes(8, 1).inputs["images"])).flatten(0, 1)
        by = 2 / seen.std(0)
        scored = torch.tensor([0.0] * 4 + [-4.0] * CLASSES).repeat(len(SIDES))
        self.head.bias.copy_((self.head.bias - seen.mean(0)) * by + scored)
        self.head.weight.mul_(by[:, None])

    def cells(self, images: Tensor) -> Tensor:
        """What each cell says of its anchors: [batch, cells, CHANNELS]."""
        return torch.as_tensor(self.head(self.body(images).flatten(2).transpose(1, 2)))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        cells = self.cells(images).reshape(images.shape[0], CELLS**2 * len(SIDES), 4 + CLASSES)
        middle = self.get_buffer("middle") + 3 * torch.tanh(cells[:, :, :2])
        half = self.get_buffer("sides") * torch.exp(0.3 * torch.tanh(cells[:, :, 2:4])) / 2
        return torch.cat([middle - half, middle + half], 2), torch.sigmoid(cells[:, :, 4:])


def scenes(count: int, seed: int) -> EvaluationSet:
    """Rectangles on noise."""
    draw = np.random.default_rng(seed)
    images = 0.3 * draw.random((count, 3, SIZE, SIZE), dtype=np.float32)
    for image in images:
        for _ in range(4):
            left, top, width, height = (*draw.integers(0, SIZE - 10, 2), *draw.integers(5, 14, 2))
            image[:, top : top + height, left : left + width] = draw.random((3, 1, 1))
    return EvaluationSet({"images": images}, tuple(f"scene {number}" for number in range(count)))


def detections() -> ModelSpec:
    """The detector with its suppression, for one or two pictures at a time."""
    module = Detector(Anchors(), most=MOST, threshold=0.3, candidates=CELLS**2 * len(SIDES) * CLASSES).eval()
    inputs = (Input("images", ("batch", 3, SIZE, SIZE)),)
    axes = {"batch": Axis(1, 1, 2)}
    return ModelSpec("detections", module, inputs, module.outputs, axes, evaluation=lambda: scenes(ROWS, 3))
