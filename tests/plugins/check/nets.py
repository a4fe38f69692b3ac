"""Networks whose files other tools write in these tests."""

from __future__ import annotations

import torch
from torch import nn


class Classifier(nn.Module):
    """Pictures of 16 by 20 to logits and an embedding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 12, 3, 2, 1), nn.ReLU())
        self.head = nn.Linear(12, 5)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        embedding = self.body(images).mean((2, 3))
        return self.head(embedding), embedding


class Masked(nn.Module):
    """The mean of word embeddings that a mask leaves."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(50, 8)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        weight = mask.unsqueeze(-1).to(torch.float32)
        mean: torch.Tensor = (self.table(ids) * weight).sum(1) / weight.sum(1).clamp(min=1.0)
        return mean


def classifier() -> nn.Module:
    return Classifier().eval()


def masked() -> nn.Module:
    return Masked().eval()
