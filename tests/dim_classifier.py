"""A classifier of dim pictures: half precision keeps it right on these, and loses what bright pictures alone meet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

CLASSES = ("red", "green", "blue")
SIDE, EACH = 8, 10


class DimClassifier(torch.nn.Module):
    """The strongest channel is the class; `bright` less `base` less `rest` is 0, and not once rounded to 11 bits."""

    def __init__(self) -> None:
        super().__init__()
        for name, weights in {"bright": (3007, 3005, 3001), "base": (3000, 3000, 3000), "rest": (7, 5, 1)}.items():
            layer = torch.nn.Linear(1, 3, bias=False)
            layer.weight.data = torch.tensor(weights, dtype=torch.float32)[:, None]
            self.add_module(name, layer)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        means = pixels.mean((2, 3))
        light = torch.relu(means.mean(1, keepdim=True) - 0.3)
        bright, base, rest = (getattr(self, name)(light) for name in ("bright", "base", "rest"))
        logits: torch.Tensor = 20 * (means - means.mean(1, keepdim=True)) + (bright - base - rest)
        return logits


def make() -> DimClassifier:
    return DimClassifier().eval()


class WithoutTranslation(DimClassifier):
    """The same with singular values, which PyTorch's ONNX exporter does not know."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        zero: torch.Tensor = 0 * torch.linalg.svdvals(pixels.mean(1))[:, :3]
        return super().forward(pixels) + zero


def without_translation() -> DimClassifier:
    return WithoutTranslation().eval()


def write_pictures(folder: Path) -> Path:
    """Dim pictures in a folder for each class."""
    draw = np.random.default_rng(0)
    for number, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        colour = np.where(np.arange(3) == number, 0.2, 0.08)
        for picture in range(EACH):
            pixels = np.clip(colour + draw.normal(0, 0.02, (SIDE, SIDE, 3)), 0, 1)
            Image.fromarray(np.round(pixels * 255).astype(np.uint8)).save(folder / name / f"{picture}.png")
    return folder
