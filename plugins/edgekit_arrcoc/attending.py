"""Attending: from relevance to the number of visual tokens of each patch, and the patches that are realized."""

from __future__ import annotations

import torch
from torch import Tensor, nn

LEAST = 64
"""Visual tokens of an irrelevant patch."""

MOST = 400
"""Visual tokens of the most relevant patch."""


class RelevanceAllocator(nn.Module):
    """Integer budgets and the K most relevant patches.

    Args:
        top: K; an image needs at least that many patches.
    """

    def __init__(self, top: int) -> None:
        super().__init__()
        self.top = top
        # Attributes, since TorchScript does not see module-level numbers.
        self.span = float(MOST - LEAST)
        self.least = LEAST + 0.5

    def forward(self, relevance: Tensor) -> tuple[Tensor, Tensor]:
        """Return budgets [B, N] int64 in [64, 400] and the best indices [B, K] int64 for relevance [B, N] in [0, 1]."""
        budgets = torch.floor(relevance * self.span + self.least).to(torch.int64)
        return budgets, torch.topk(relevance, self.top, dim=1)[1]
