"""Three small classifiers, trained in seconds on pictures of two colours and two widths of stripes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from edgekit.model.spec import Array
from edgekit.reference.plausibility import IMAGENET

CLASSES = ("red_fine", "red_coarse", "blue_fine", "blue_coarse")
SIDE = 32


class Classifier(nn.Module):
    """A body, the mean over all places, and logits; `last` is a sigmoid where probabilities are asked."""

    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.body, self.head, self.last = body, nn.Linear(width, len(CLASSES)), nn.Identity()

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.last(self.head(self.body(pixels).mean((2, 3))))
        return logits


def convolutions() -> nn.Module:
    layers = (nn.Conv2d(3, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU())
    return Classifier(nn.Sequential(*layers), 16).eval()


def normed() -> nn.Module:
    layers = (nn.Conv2d(3, 16, 5, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU())
    return Classifier(nn.Sequential(*layers), 16).eval()


def patches() -> nn.Module:
    layers = (nn.Conv2d(3, 32, 8, stride=4), nn.GELU(), nn.Conv2d(32, 32, 1), nn.GELU())
    return Classifier(nn.Sequential(*layers), 32).eval()


def with_sigmoid(name: str) -> nn.Module:
    network: nn.Module = globals()[name]()
    network.last = nn.Sigmoid()
    return network


def draw(count: int, seed: int) -> tuple[Array, Array]:
    """Pictures [n, 3, side, side] from 0 to 1, as bytes have them, and their classes."""
    random = np.random.default_rng(seed)
    truth = np.arange(count) % len(CLASSES)
    wave = np.where(truth % 2 == 0, 4, 8)[:, None]
    stripes = np.sin(2 * np.pi * np.arange(SIDE) / wave + random.uniform(0, 2 * np.pi, (count, 1)))
    colours = np.where(truth[:, None] < 2, (0.8, 0.4, 0.2), (0.2, 0.4, 0.8))
    pictures = (
        colours[:, :, None, None] + 0.15 * stripes[:, None, None, :] + random.normal(0, 0.03, (count, 3, SIDE, SIDE))
    )
    return np.round(np.clip(pictures, 0, 1) * 255).astype(np.float32) / 255, truth


def train(network: nn.Module, normalized: bool = False) -> None:
    """Train on 128 pictures until all are right; `normalized` as torchvision's models are."""
    torch.manual_seed(0)
    pictures, truth = draw(128, 0)
    inputs, classes = torch.from_numpy(pictures), torch.from_numpy(truth)
    if normalized:
        mean, std = (torch.tensor(values)[:, None, None] for values in IMAGENET)
        inputs = (inputs - mean) / std
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.reset_parameters()
    optimizer = torch.optim.Adam(network.train().parameters(), 0.01)
    for _ in range(60):
        loss = nn.functional.cross_entropy(network(inputs), classes)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
    with torch.no_grad():
        assert (network.eval()(inputs).argmax(1) == classes).float().mean() > 0.95


def write_pictures(folder: Path, shuffled: bool = False) -> Path:
    """Forty pictures in a folder for each class, or in that of another."""
    pictures, truth = draw(40, 1)
    truth = np.random.default_rng(2).permutation(truth) if shuffled else truth
    for number, (picture, label) in enumerate(zip(pictures, truth, strict=True)):
        (folder / CLASSES[label]).mkdir(parents=True, exist_ok=True)
        pixels = np.round(picture.transpose(1, 2, 0) * 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / CLASSES[label] / f"{number:02d}.png")
    return folder


sigmoid_convolutions, sigmoid_normed, sigmoid_patches = (
    partial(with_sigmoid, name) for name in ("convolutions", "normed", "patches")
)
