"""ARR-COC 0.1, the public research code: from an image over 13 texture channels to the relevance of its 1,024 cells.

State-dict names are those of the public checkpoints. Two things differ from the research code, on purpose: minima and
maxima are taken per image (there, some span the batch, so an answer depended on its batch mates), and ranges have a
floor (there, 1e-8 turns the rounding noise of a flat map into signal).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgekit_arrcoc.attending import RelevanceAllocator
from edgekit_arrcoc.balancing import HIDDEN
from edgekit_arrcoc.texture import minmax, texture_array

CHANNELS = 13
"""Channels of the texture array."""

SALIENCE_CHANNEL = 7
"""Sobel magnitude, used unchanged as the perspectival score."""

TOP = 200
"""Cells chosen out of 1,024."""

PROJECTED = 64
"""Hidden channels of the projection from textures to the query's space."""


class ParticipatoryScorer(nn.Module):
    """Cosine between each cell's projected channels and the query, moved to [0, 1]."""

    def __init__(self, query_width: int) -> None:
        super().__init__()
        self.texture_proj = nn.Sequential(
            nn.Conv2d(CHANNELS, PROJECTED, 1), nn.ReLU(), nn.Conv2d(PROJECTED, query_width, 1)
        )

    def forward(self, textures: Tensor, queries: Tensor) -> Tensor:
        """Score textures [B, 13, 32, 32] against queries [B, Q]: [B, 1024] in [0, 1]."""
        content = F.normalize(self.texture_proj(textures).flatten(2), dim=1)
        cosine = torch.matmul(F.normalize(queries, dim=1).unsqueeze(1), content).squeeze(1)
        return (cosine + 1.0) / 2.0


class AdaptiveTensionBalancer(nn.Module):
    """Predicts three softmax weights from the query and each map's mean, maximum and deviation: the relevance."""

    def __init__(self, query_width: int) -> None:
        super().__init__()
        self.weight_predictor = nn.Sequential(
            nn.Linear(9 + query_width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 3)
        )

    def forward(self, maps: Tensor, queries: Tensor) -> Tensor:
        """Combine maps [B, 3, N] for queries [B, Q] into relevance [B, N] in [0, 1]."""
        mean = maps.mean(2)
        spread = maps - mean.unsqueeze(2)
        # The sample deviation (N - 1), as in torch.std.
        deviation = torch.sqrt((spread * spread).sum(2) / (maps.shape[2] - 1))
        # Summaries are ordered map by map: mean, maximum and deviation of the first, then of the second ...
        summary = torch.stack([mean, maps.amax(2), deviation], 2).flatten(1)
        weights = torch.softmax(self.weight_predictor(torch.cat([summary, queries], 1)), 1)
        return minmax((weights.unsqueeze(2) * maps).sum(1), (1,))


class ArrCoc01(nn.Module):
    """The front-end of ARR-COC 0.1.

    Args:
        query_width: Hidden size of the language model whose token embeddings make the query: 1536 or 2048.
    """

    def __init__(self, query_width: int) -> None:
        super().__init__()
        self.participatory_scorer = ParticipatoryScorer(query_width)
        self.balancer = AdaptiveTensionBalancer(query_width)
        self.allocator = RelevanceAllocator(TOP)

    def forward(self, images: Tensor, queries: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Answer one query per image: `of_textures` of its texture array.

        Args:
            images: [B, 3, H, W], RGB in [0, 1], of any size.
            queries: [B, query_width].
        """
        return self.of_textures(texture_array(images), queries)

    def of_textures(self, textures: Tensor, queries: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Answer one query per texture array, the input of the research code.

        Args:
            textures: [B, 13, 32, 32] in [0, 1], see `edgekit_arrcoc.texture.texture_array`.
            queries: [B, query_width].

        Returns:
            Relevance [B, 1024] in [0, 1], budgets [B, 1024] int64, indices [B, 200] int64 and tokens [B, 200, 13]: the
            chosen cells' channels, gated by their relevance.
        """
        logs = torch.log_softmax(textures, 1)
        information = minmax(-(torch.exp(logs) * logs).sum(1).flatten(1), (1,))
        salience = textures[:, SALIENCE_CHANNEL].flatten(1)
        scores = self.participatory_scorer(textures, queries)
        relevance = self.balancer(torch.stack([information, salience, scores], 1), queries)
        budgets, indices = self.allocator(relevance)
        places = indices.unsqueeze(-1).expand(-1, -1, CHANNELS)
        tokens = torch.gather(textures.flatten(2).transpose(1, 2), 1, places)
        return relevance, budgets, indices, tokens * torch.gather(relevance, 1, indices).unsqueeze(-1)
