"""The ARR-COC front-end: texture -> knowing -> balancing -> attending -> realizing.

Realizing means gating the features of the chosen patches.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from edgekit_arrcoc.attending import RelevanceAllocator
from edgekit_arrcoc.balancing import TensionBalancer
from edgekit_arrcoc.knowing import InformationScorer, QueryContentScorer, SalienceScorer
from edgekit_arrcoc.texture import PatchEncoder


class RelevanceRealizer(nn.Module):
    """Gathers the chosen patches and gates their features by content and relevance."""

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

    def realize(self, tensor: Tensor, relevance: Tensor) -> Tensor:
        """Gate features [B, K, D] of patches with relevance [B, K]: tokens [B, K, D]."""
        gate = torch.sigmoid(self.gate(tensor) + relevance.unsqueeze(-1) * self.pull)
        tokens: Tensor = self.value(tensor) * gate
        return tokens


@dataclass(frozen=True)
class Size:
    """Hyperparameters of one size of the family.

    Attributes:
        width: Features of a patch, D.
        heads: Attention heads.
        depth: Transformer blocks.
        top: Number of realized patches, K.
    """

    width: int
    heads: int
    depth: int
    top: int = 32


TINY = Size(width=192, heads=3, depth=6)
BASE = Size(width=768, heads=12, depth=12)


class ArrCoc(nn.Module):
    """Adaptive relevance realization over the patches of an image.

    Args:
        size: Width, heads, depth and K.
    """

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.texture = PatchEncoder(size.width, size.heads, size.depth)
        self.information = InformationScorer(size.width)
        self.salience = SalienceScorer(size.width)
        self.query_content = QueryContentScorer(size.width)
        self.balancing = TensionBalancer()
        self.attending = RelevanceAllocator(size.top)
        self.realizing = RelevanceRealizer(size.width)

    def forward(self, images: Tensor, queries: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Answer one query per image.

        Args:
            images: [B, 3, H, W] float32, RGB in [0, 1]; H and W multiples of 16, at least 96.
            queries: [B, 768] float32.

        Returns:
            Relevance [B, N] in [0, 1], budgets [B, N] int64 in [64, 400], indices [B, K] int64 and tokens [B, K, D].
        """
        features, rows, columns = self.texture(images)
        relevance, _, _ = self.weigh(features, rows, columns, queries.unsqueeze(1))
        relevance = relevance.squeeze(1)
        budgets, indices = self.attending(relevance)
        return relevance, budgets, indices, self.realizing(features, relevance, indices)

    def weigh(self, features: Tensor, rows: int, columns: int, queries: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Run knowing and balancing for Q queries per image, whose features are computed once.

        Args:
            features: [B, N, D].
            rows: Rows of the patch grid.
            columns: Columns of the patch grid.
            queries: [B, Q, 768].

        Returns:
            Relevance [B, Q, N], the squashed maps [B, Q, 3, N] and the weights [B, Q, 3] of information, salience and
            query-content.
        """
        query_scores = self.query_content(features, queries)
        information = self.information(features).unsqueeze(1).expand_as(query_scores)
        salience = self.salience(features, rows, columns).unsqueeze(1).expand_as(query_scores)
        balanced: tuple[Tensor, Tensor, Tensor] = self.balancing(
            torch.stack([information, salience, query_scores], 2), queries
        )
        return balanced

    @torch.no_grad()
    def explain(self, images: Tensor, queries: Tensor) -> Explanation:
        """Return each scorer's map and its weight, for one query per image; shapes as in `forward`."""
        features, rows, columns = self.texture(images)
        relevance, maps, weights = self.weigh(features, rows, columns, queries.unsqueeze(1))
        return Explanation(relevance.squeeze(1), maps.squeeze(1), weights.squeeze(1))


@dataclass(frozen=True)
class Explanation:
    """Reasons for the relevance of a patch.

    Attributes:
        relevance: [B, N] in [0, 1].
        maps: [B, 3, N] in [0, 1]: information, salience, query-content.
        weights: [B, 3], which sum to 1.
    """

    relevance: Tensor
    maps: Tensor
    weights: Tensor


def initialize(model: nn.Module, seed: int, *, fan_in: bool = False) -> None:
    """Set seeded weights: normal for matrices and positions, zero for biases; other vectors stay unchanged.

    Args:
        model: Changed in place.
        seed: Seed of the generator.
        fan_in: True for deviations of `1 / sqrt(inputs)` instead of 0.02, the value of the ViT paper's public code.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            deviation = parameter[0].numel() ** -0.5 if fan_in else 0.02
            nn.init.normal_(parameter, std=deviation, generator=generator)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
