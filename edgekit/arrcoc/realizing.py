"""Realizing: the features of the chosen patches, gated."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RelevanceRealizer(nn.Module):
    """Gathers the chosen patches and gates their features by what they are and how relevant they are."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.value = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        self.pull = nn.Parameter(torch.zeros(width))

    def forward(self, features: Tensor, relevance: Tensor, indices: Tensor) -> Tensor:
        """Realize K patches.

        Args:
            features: [B, N, D].
            relevance: [B, N] in [0, 1].
            indices: [B, K] int64.

        Returns:
            Tokens [B, K, D], in the order of the indices.
        """
        places = indices.unsqueeze(-1).expand(-1, -1, features.shape[2])
        return self.realize(torch.gather(features, 1, places), torch.gather(relevance, 1, indices))

    def realize(self, chosen: Tensor, relevance: Tensor) -> Tensor:
        """Gate features [B, K, D] of patches whose relevance is [B, K]: tokens [B, K, D]."""
        gate = torch.sigmoid(self.gate(chosen) + relevance.unsqueeze(-1) * self.pull)
        tokens: Tensor = self.value(chosen) * gate
        return tokens
