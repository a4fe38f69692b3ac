"""Balancing: from three score maps and a query to one relevance map."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgekit_arrcoc.knowing import QUERY_WIDTH

HIDDEN = 128
"""Hidden width of the balancer."""


SCALE = (-4.0, 4.0, 1.0)
"""Initial slopes of the squashing, per nat, per unit of gradient and per nat: low entropy means information."""

CENTRE = (5.0, 0.5, 1.0)
"""Initial scores that map to one half; the largest entropy is log 192 = 5.26."""


class TensionBalancer(nn.Module):
    """Weighs the three kinds of knowing for each image and query.

    Each map is squashed at a fixed, learned scale: `sigmoid(scale * (score - centre))`. Min-max scaling would turn the
    rounding noise of a flat map into signal. Mean, maximum and standard deviation of the squashed maps and the query go
    through an MLP to three softmax weights; relevance is the weighted sum.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(SCALE))
        self.centre = nn.Parameter(torch.tensor(CENTRE))
        self.weigh = nn.Sequential(nn.Linear(9 + QUERY_WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, 3))

    def forward(self, scores: Tensor, queries: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Balance the scores of Q queries per image.

        Args:
            scores: [B, Q, 3, N]: information, salience, query-content.
            queries: [B, Q, 768].

        Returns:
            Relevance [B, Q, N] in [0, 1], the squashed maps [B, Q, 3, N] and the weights [B, Q, 3].
        """
        maps = torch.sigmoid(self.scale.view(1, 1, 3, 1) * (scores - self.centre.view(1, 1, 3, 1)))
        weights = torch.softmax(self.weigh(torch.cat([summarize(maps), queries], -1)), -1)
        relevance = (weights.unsqueeze(-1) * maps).sum(2).clamp(0.0, 1.0)
        return relevance, maps, weights


def summarize(maps: Tensor) -> Tensor:
    """Return mean, maximum and standard deviation of each map: [B, Q, 3, N] -> [B, Q, 9]."""
    mean = maps.mean(-1)
    spread = maps - mean.unsqueeze(-1)
    # 1e-6 keeps the gradient of the root finite on flat maps; it reads as a deviation of 0.001.
    deviation = torch.sqrt((spread * spread).mean(-1) + 1e-6)
    return torch.cat([mean, maps.amax(-1), deviation], -1)
