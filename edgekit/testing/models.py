"""Small model of the contract suite: ARR-COC's interface in miniature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from edgekit.model.spec import Array, Axis, EvaluationSet, Input, ModelSpec, Output

if TYPE_CHECKING:
    import torch

SMALL = "edgekit.testing:small_model"
IMAGES, PATCH, WIDTH, TOP = 6, 16, 32, 8


def small_model() -> ModelSpec:
    """Return a seeded model with ARR-COC's interface in miniature: 36 to 100 patches, the best 8, fast to export."""
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
            # Weights are scaled so that outputs spread enough to be judged.
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * (1.5 / fan**0.5))
        module.norm.weight.fill_(1.0)
    return module


def _pictures(count: int, seed: int) -> EvaluationSet:
    """Return coloured blobs on gradients with random queries; the truth is a blob's share of each patch."""
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
    return EvaluationSet(
        {"images": images, "queries": queries}, names, truth=truth, metric=_coverage, metric_name="found@8"
    )


def _coverage(outputs: Mapping[str, Array], truth: Array) -> Array:
    """Return the share of the blob that the chosen patches cover, of the best possible, float64 [n]."""
    masses = np.take_along_axis(truth.astype(np.float64), outputs["indices"], axis=1).sum(axis=1)
    best = np.sort(truth.astype(np.float64), axis=1)[:, -TOP:].sum(axis=1)
    return np.asarray(masses / np.maximum(best, 1e-9))
