"""Seeded inputs of the exam's models: pictures of blobs on gradients, and short sequences of vectors."""

from __future__ import annotations

import numpy as np

from edgekit.model.spec import Array, EvaluationSet

QUERY, TOKENS, CHANNELS = 16, 12, 16
"""Size of a query; length and width of a sequence."""
TRUTH = 1
"""Seed of the evaluation sets. The calibration sets have 2 and the exam's fresh inputs 3 and more."""


def pictures(count: int, seed: int, height: int, width: int, waves: float = 0.0) -> Array:
    """Coloured blobs on gradients in 256 steps, float32 [count, 3, height, width] in 0 to 1.

    Args:
        count: Of pictures.
        seed: Of all that is drawn.
        height: In pixels.
        width: In pixels.
        waves: Height of waves of 5 to 20 pixels over the whole picture, which leave no two patches equal.
    """
    draw = np.random.Generator(np.random.PCG64(seed))
    rows, columns = np.mgrid[0:height, 0:width] / np.array([height, width])[:, None, None]
    made = np.empty((count, 3, height, width), np.float32)
    for number in range(count):
        slope = draw.uniform(-0.5, 0.5, (3, 2))
        canvas = draw.uniform(0.2, 0.8, (3, 1, 1)) + slope[:, :1, None] * rows + slope[:, 1:, None] * columns
        for _ in range(3):
            middle, radius = draw.uniform(0.1, 0.9, 2), draw.uniform(0.1, 0.35)
            blob = (rows - middle[0]) ** 2 + (columns - middle[1]) ** 2 < radius**2
            canvas = np.where(blob, draw.uniform(0, 1, 3)[:, None, None], canvas)
        if waves:
            lengths, angles = draw.uniform(5, 20, (3, 1, 1)), draw.uniform(0, 6.28, (3, 1, 1))
            along = np.cos(angles) * rows * height + np.sin(angles) * columns * width
            canvas = canvas + waves * np.sin(6.28 * along / lengths)
        made[number] = np.round(np.clip(canvas, 0, 1) * 255) / 255
    return made


def queries(count: int, seed: int) -> Array:
    """Queries, float32 [count, QUERY] in -1 to 1."""
    return np.random.Generator(np.random.PCG64(seed + 1000)).uniform(-1, 1, (count, QUERY)).astype(np.float32)


def sequences(count: int, seed: int) -> Array:
    """Noisy waves of seeded frequency and phase, float32 [count, TOKENS, CHANNELS] in -1 to 1."""
    draw = np.random.Generator(np.random.PCG64(seed + 2000))
    time = np.arange(TOKENS)[:, None]
    made = np.empty((count, TOKENS, CHANNELS), np.float32)
    for number in range(count):
        wave = np.sin(time * draw.uniform(0.2, 2.0, CHANNELS) + draw.uniform(0, 6.28, CHANNELS))
        made[number] = np.clip(wave * draw.uniform(0.2, 0.9) + draw.normal(0, 0.05, wave.shape), -1, 1)
    return made


def evaluation(inputs: dict[str, Array]) -> EvaluationSet:
    """An evaluation or calibration set without truth."""
    return EvaluationSet(inputs, tuple(f"sample {row}" for row in range(len(next(iter(inputs.values()))))))
