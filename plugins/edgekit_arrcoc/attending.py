"""Attending: relevance -> how many visual tokens each patch gets, and which patches are realized at all."""

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
        # Attributes, because TorchScript sees no module-level numbers.
        self.span = float(MOST - LEAST)
        self.least = LEAST + 0.5

    def forward(self, relevance: Tensor) -> tuple[Tensor, Tensor]:
        """Relevance [B, N] in [0, 1] -> budgets [B, N] int64 in [64, 400] and indices [B, K] int64, best first."""
        budgets = torch.floor(relevance * self.span + self.least).to(torch.int64)
        return budgets, torch.topk(relevance, self.top, dim=1)[1]
