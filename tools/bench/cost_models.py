"""Plain modules of a number of parameters with seeded weights, for `python -m tools.bench.cost`."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

TOKENS, VOCABULARY, EDGE = 16, 30522, 64


class Encoder(nn.Module):
    """A text encoder like BERT (Devlin et al., 2018), as wide as models of its size are."""

    def __init__(self, millions: int) -> None:
        super().__init__()
        width = 256 if millions < 50 else 768 if millions < 200 else 1024 if millions < 600 else 1792
        depth = max(1, round((millions * 1e6 - VOCABULARY * width) / (12 * width * width)))
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, "gelu", batch_first=True)
        self.table = nn.Embedding(VOCABULARY, width)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 2)

    def forward(self, ids: Tensor) -> Tensor:
        """[batch, TOKENS] -> [batch, 2]."""
        logits: Tensor = self.head(self.layers(self.table(ids)).mean(1))
        return logits


def encoder(millions: int) -> nn.Module:
    """Return a text encoder, [batch, TOKENS] -> [batch, 2]."""
    torch.manual_seed(0)
    return Encoder(millions).eval()


def mlp(millions: int) -> nn.Module:
    """Return eight square layers, [batch, width] -> [batch, width]."""
    torch.manual_seed(0)
    width = mlp_width(millions)
    layers = [part for _ in range(8) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers[:-1]).eval()


def mlp_width(millions: int) -> int:
    """Return the width of its layers."""
    return round(math.sqrt(millions * 1e6 / 8))


def cnn(millions: int) -> nn.Module:
    """Return convolutions like VGG's (Simonyan and Zisserman, 2014), [batch, 3, EDGE, EDGE] -> [batch, 10]."""
    torch.manual_seed(0)
    # 9 weights a pair of channels; the pairs of all layers are 85 times the square of the first width.
    width = round((millions * 1e6 / 9 / 101) ** 0.5)
    layers: list[nn.Module] = []
    channels = 3
    for factor in (1, 2, 4, 8):
        layers += [nn.Conv2d(channels, factor * width, 3, 2, 1), nn.ReLU()]
        layers += [nn.Conv2d(factor * width, factor * width, 3, 1, 1), nn.ReLU()]
        channels = factor * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)).eval()


def line(millions: int) -> nn.Module:
    """Return one linear layer, whatever its size is said to be."""
    torch.manual_seed(0)
    return nn.Linear(16, 8).eval()


def example(kind: str, millions: int) -> Tensor:
    """Return inputs of one row."""
    if kind == "encoder":
        return torch.ones(1, TOKENS, dtype=torch.int64)
    shapes = {"mlp": (1, mlp_width(millions)), "cnn": (1, 3, EDGE, EDGE), "line": (1, 16)}
    return torch.zeros(shapes[kind])
