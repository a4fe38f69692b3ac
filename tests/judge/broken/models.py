"""Small models of several kinds with real inputs, which tests export, break on disk and have judged."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.model.spec import Axis, Evaluation, Input, ModelSpec, Output

BATCH = {"batch": Axis(1, 1, 8)}
ROWS = 24


class Network(nn.Module):
    """A small trunk with seeded weights, and a function that makes outputs of its features [B, 24]."""

    def __init__(self, head: Callable[[Tensor], tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 24))
        self.head = head
        generator = torch.Generator().manual_seed(11)
        with torch.no_grad():
            for parameter in self.parameters():
                fan = parameter.shape[-1] if parameter.dim() > 1 else 16
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * (2.0 / fan**0.5))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.head(self.trunk(x))


def real() -> Evaluation:
    draw = np.random.Generator(np.random.PCG64(3))
    x = draw.uniform(-1, 1, (ROWS, 16)).astype(np.float32)
    return Evaluation({"x": x}, tuple(f"sample {row}" for row in range(ROWS)))


def network(name: str, head: Callable[[Tensor], tuple[Tensor, ...]], *outputs: Output) -> ModelSpec:
    inputs = (Input("x", ("batch", 16), low=-1.0),)
    return ModelSpec(name, Network(head).eval(), inputs, outputs, dict(BATCH), evaluation=real)


def axes() -> ModelSpec:
    """Outputs whose batch axis is second, last, or nowhere."""

    def head(y: Tensor) -> tuple[Tensor, ...]:
        return torch.stack([y, -y]), y.T, (y[:, :8] @ y[:, 8:16].T).sum((0, 1), keepdim=True)

    return network("axes", head, Output("second"), Output("last"), Output("one"))


def chosen() -> ModelSpec:
    """Scores, a ranking, and wide features of the chosen places, of more rows than are kept whole."""

    def head(y: Tensor) -> tuple[Tensor, ...]:
        scores = torch.sigmoid(y)
        indices = torch.topk(scores, 6, dim=1).indices
        wide = y.unsqueeze(-1) * torch.linspace(-1, 1, 48)
        features = torch.gather(wide, 1, indices.unsqueeze(-1).expand(-1, -1, 48))
        return scores, indices, features

    return network(
        "chosen",
        head,
        Output("scores", role="scores"),
        Output("places", role="ranking", of="scores", dtype="int64"),
        Output("features", role="features", of="places"),
    )
