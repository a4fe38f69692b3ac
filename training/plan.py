"""What a training does: its steps, its settings, and the learning rate along it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """What differs between the two parts of a training.

    Attributes:
        shares: Of a hundred scenes that are not flat, how many have a photograph, and how many of these no object.
        flat: Of a hundred scenes, how many are flat pictures, half of them with sprites.
        named: Of a hundred scenes, how many others have sprites.
        twins: Whether each scene is seen twice a step, exactly and with coarse arithmetic, half as many scenes a step.
        levels: Steps of an activation's grid: 255 for 8 bits. What answers the same on a grid twice as coarse has room
            on the real one.
        rate: Share of the plan's learning rate.
        presence: Weight of the loss of the highest relevance, against 1 for relevance itself.
        dimmed: Share of the images that are darkened, in float and not in steps of 1/255 as `exposure.tone` does it.
    """

    shares: tuple[int, int]
    flat: int
    named: int
    twins: bool
    levels: int
    rate: float
    presence: float
    dimmed: float


FIRST = Part(shares=(55, 4), flat=26, named=38, twins=False, levels=255, rate=1.0, presence=0.15, dimmed=0.0)
FINISH = Part(shares=(75, 12), flat=24, named=32, twins=True, levels=127, rate=0.3, presence=0.8, dimmed=0.1)


@dataclass(frozen=True)
class Plan:
    """What a run does. The defaults train from nothing; the model card has those of the shipped weights.

    Attributes:
        steps: Optimizer steps.
        finish: Steps after them, from the averaged weights on, as `FINISH` says.
        batch: Scenes of 224 x 224 a step.
        queries: Queries a scene.
        chunks: Chunks of scenes in each pool.
        chunk: Scenes a chunk; a quarter of it for large ones.
        every: Steps between new chunks.
        rate: Highest learning rate.
        warmup: Steps to reach it, a third of them in the finish; a cosine leads down to a hundredth of it.
        decay: Weight decay of matrices.
        average: Decay of the exponential moving average of the weights, which is what is kept.
        seed: Of everything.
        only: Prefix of the names of the parameters that are trained; the others stay as they are.
    """

    steps: int = 20000
    finish: int = 12000
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

    def part(self, step: int) -> Part:
        """Which part a step belongs to."""
        return FIRST if step < self.steps else FINISH


def schedule(step: int, plan: Plan) -> float:
    """Share of the highest learning rate at a step."""
    if step < plan.steps:
        return FIRST.rate * _arc(step, plan.steps, plan.warmup)
    return FINISH.rate * _arc(step - plan.steps, plan.finish, plan.warmup // 3)


def _arc(step: int, steps: int, warmup: int) -> float:
    """A line up to 1 and a cosine down to 0.01."""
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(steps - warmup, 1)
    return 0.01 + 0.99 * 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))
