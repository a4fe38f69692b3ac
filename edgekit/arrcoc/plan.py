"""What a training does: its steps, its settings, and the learning rate along it."""

from __future__ import annotations

import math
from dataclasses import dataclass

SHARES = (55, 4), (70, 12)
"""Of a hundred scenes, how many have a photograph, and how many of these no object: at first, and in the finish."""


@dataclass(frozen=True)
class Plan:
    """What a run does. The defaults train from nothing; the model card has those of the shipped weights.

    Attributes:
        steps: Optimizer steps.
        finish: Steps after them, from the averaged weights on: activations rounded to `FEWER` steps, other `SHARES`.
        batch: Scenes of 224 x 224 a step.
        queries: Queries a scene.
        chunks: Chunks of scenes in each pool.
        chunk: Scenes a chunk; a quarter of it for large ones.
        every: Steps between new chunks.
        rate: Highest learning rate; a fifth of it in the finish.
        warmup: Steps to reach it, a third of them in the finish; a cosine leads down to a hundredth of it.
        decay: Weight decay of matrices.
        average: Decay of the exponential moving average of the weights, which is what is kept.
        seed: Of everything.
        only: Prefix of the names of the parameters that are trained; the others stay as they are.
    """

    steps: int = 20000
    finish: int = 6000
    batch: int = 512
    queries: int = 8
    chunks: int = 48
    chunk: int = 2048
    every: int = 160
    rate: float = 2e-3
    warmup: int = 1000
    decay: float = 0.05
    average: float = 0.9995
    seed: int = 7
    only: str = ""


def schedule(step: int, plan: Plan) -> float:
    """Share of the highest learning rate at a step."""
    if step < plan.steps:
        return _arc(step, plan.steps, plan.warmup)
    return 0.2 * _arc(step - plan.steps, plan.finish, plan.warmup // 3)


def _arc(step: int, steps: int, warmup: int) -> float:
    """A line up to 1 and a cosine down to 0.01."""
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(steps - warmup, 1)
    return 0.01 + 0.99 * 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))
