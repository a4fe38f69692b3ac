"""A model that INT8 destroys: one input feature is a thousand times the others, and the ranking hangs on the others."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.model.spec import Axis, EvaluationSet, Input, ModelSpec, Output

PATCHES, WIDTH, TOP = 48, 32, 8


class Outliers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(WIDTH, 1)
        nn.init.constant_(self.score.weight, 0.05)
        nn.init.zeros_(self.score.bias)
        with torch.no_grad():
            self.score.weight[0, 0] = 1e-5

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        scores = torch.sigmoid(self.score(rows).squeeze(-1))
        return scores, torch.topk(scores, TOP, dim=1).indices


def spec() -> ModelSpec:
    def shown(count: int, seed: int) -> EvaluationSet:
        draw = np.random.default_rng(seed)
        rows = draw.normal(0, 1, (count, PATCHES, WIDTH)).astype(np.float32)
        rows[..., 0] *= 1000.0
        return EvaluationSet(inputs={"rows": rows}, names=tuple(f"{seed}-{n}" for n in range(count)))

    return ModelSpec(
        name="outliers",
        module=Outliers().eval(),
        inputs=(Input("rows", ("batch", PATCHES, WIDTH), low=-1000.0, high=1000.0),),
        outputs=(Output("scores", role="scores"), Output("indices", role="ranking", of="scores", dtype="int64")),
        axes={"batch": Axis(1, 1, 8)},
        factory=f"{__name__}:spec",
        evaluation=lambda: shown(16, 1),
        calibration=lambda count: shown(count, 2),
    )
