"""Small models of six more families: points, a temperature, padded text, pairs, tables, and audio."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit.model.spec import Array, Axis, Input, ModelSpec, Output
from tools.exam.pictures import CHANNELS, TOKENS, TRUTH, evaluation, pictures, sequences

ROWS = 96
"""Inputs of each evaluation set."""
BATCH = Axis(1, 1, 8)
CLASSES = (Output("logits", role="logits"), Output("label", role="labels", of="logits", dtype="int64"))
WORDS, LENGTH = 300, 16
"""Rows of the text model's table, and its default length."""
SAMPLES = 1024
"""Of a waveform."""
LEVELS = (7, 5, 9)
"""Categories of each column of ids that occur."""


class Points(nn.Module):
    """Pictures of 32 x 32 -> 68 points in pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.ReLU()
        )
        self.hidden, self.points = nn.Linear(24 * 16, 64), nn.Linear(64, 136)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.avg_pool2d(self.trunk(images - 0.5), 2).flatten(1)
        moved: Tensor = self.points(functional.gelu(self.hidden(x)))
        return 16 + 4 * moved.reshape(-1, 68, 2)


class Kelvin(nn.Module):
    """Sequences of twelve vectors -> a temperature near 290 K for each of three places."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.norm, self.places = nn.Linear(TOKENS * CHANNELS, 48), nn.LayerNorm(48), nn.Linear(48, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        x = functional.gelu(self.norm(self.hidden(tokens.flatten(1))))
        return 290 + 1.5 * torch.tanh(self.places(x))


class Text(nn.Module):
    """Word ids and a mask of any length -> an embedding of length one."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.before, self.wide, self.narrow = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)
        self.query, self.key, self.value = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.before(self.words(ids))
        hidden = (1.0 - mask.to(x.dtype))[:, None, :] * -1e4
        x = x + torch.softmax(self.query(x) @ self.key(x).transpose(1, 2) / 32**0.5 + hidden, 2) @ self.value(x)
        x = x + self.narrow(functional.gelu(self.wide(x)))
        share = mask.to(x.dtype)[:, :, None]
        return functional.normalize((x * share).sum(1) / share.sum(1).clamp(min=1.0), dim=1)


class Pair(nn.Module):
    """Two signatures -> how alike they are, 0 to 1."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 48), nn.Linear(48, 24)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        a, b = (self.second(functional.relu(self.first(x))) for x in (left, right))
        return torch.sigmoid(3 * functional.cosine_similarity(a, b, dim=1) - 1)[:, None]


class Table(nn.Module):
    """A row of twelve numbers and three categories -> logits and the class."""

    def __init__(self) -> None:
        super().__init__()
        self.levels = nn.ModuleList(nn.Embedding(max(LEVELS), 6) for _ in LEVELS)
        self.hidden, self.norm, self.classes = nn.Linear(12 + 18, 48), nn.LayerNorm(48), nn.Linear(48, 5)

    def forward(self, numbers: Tensor, categories: Tensor) -> tuple[Tensor, Tensor]:
        parts = [table(categories[:, place]) for place, table in enumerate(self.levels)]
        x = functional.gelu(self.norm(self.hidden(torch.cat([numbers, *parts], 1))))
        logits = self.classes(x)
        return logits, logits.argmax(1)


class Audio(nn.Module):
    """A waveform -> logits of ten classes and the class."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(1, 16, 16, stride=8), nn.Conv1d(16, 24, 5, stride=2)
        self.hidden, self.classes = nn.Linear(48, 32), nn.Linear(32, 10)

    def forward(self, waveform: Tensor) -> tuple[Tensor, Tensor]:
        x = functional.relu(self.second(functional.relu(self.first(waveform[:, None]))))
        x = torch.cat([x.mean(2), x.amax(2)], 1)
        logits = self.classes(functional.gelu(self.hidden(x)))
        return logits, logits.argmax(1)


@dataclass(frozen=True)
class Family:
    """A model and the draw of its real inputs.

    Attributes:
        make: Makes the module, whose weights are seeded later.
        inputs: Of the model.
        outputs: Of the model.
        draw: (count, seed, length) -> inputs by name; `length` is the size of its open axis, if it has one.
        length: The open axis besides the batch, if any.
    """

    make: Callable[[], nn.Module]
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    draw: Callable[[int, int, int], dict[str, Array]]
    length: Axis | None = None

    def spec(self, name: str, module: nn.Module) -> ModelSpec:
        """Return the model with its evaluation and calibration sets."""
        default = self.length.default if self.length is not None else 0
        return ModelSpec(
            name,
            module,
            self.inputs,
            self.outputs,
            {"batch": BATCH} | ({"length": self.length} if self.length is not None else {}),
            evaluation=lambda: evaluation(self.draw(ROWS, TRUTH, default)),
            calibration=lambda n: evaluation(self.draw(n, TRUTH + 1, default)),
        )


def _padded_texts(count: int, seed: int, length: int) -> dict[str, Array]:
    """Texts of two words to the whole length, then padding: half of them as long as they may be."""
    draw = np.random.Generator(np.random.PCG64(seed + 3000))
    sizes = np.where(draw.random(count) < 0.5, length, draw.integers(2, length + 1, count))
    mask = np.arange(length) < sizes[:, None]
    return {"ids": np.where(mask, draw.integers(1, WORDS, mask.shape), 0), "mask": mask.astype(np.int64)}


def _pairs(count: int, seed: int, length: int) -> dict[str, Array]:
    """Two noisy views of one signature, and in every second row of two."""
    draw = np.random.Generator(np.random.PCG64(seed + 4000))
    left, other = draw.uniform(-1, 1, (2, count, 64))
    right = np.where(np.arange(count)[:, None] % 2, other, left) + draw.normal(0, 0.1, left.shape)
    return {"left": left.astype(np.float32), "right": np.clip(right, -1, 1).astype(np.float32)}


def _rows_of_a_table(count: int, seed: int, length: int) -> dict[str, Array]:
    draw = np.random.Generator(np.random.PCG64(seed + 5000))
    categories = np.stack([draw.integers(0, levels, count) for levels in LEVELS], 1)
    return {"numbers": draw.uniform(-1, 1, (count, 12)).astype(np.float32), "categories": categories}


def _waveforms(count: int, seed: int, length: int) -> dict[str, Array]:
    """Two tones with noise, at volumes of 0.05 to 0.9, float32 in -1 to 1."""
    draw = np.random.Generator(np.random.PCG64(seed + 6000))
    tones = draw.uniform(0.01, 0.8, (count, 2, 1)) * np.arange(SAMPLES) + draw.uniform(0, 6.28, (count, 2, 1))
    waves = np.sin(tones).mean(1) + draw.normal(0, 0.05, (count, SAMPLES))
    return {"waveform": np.clip(waves * draw.uniform(0.05, 0.9, (count, 1)), -1, 1).astype(np.float32)}


FAMILIES: dict[str, Family] = {
    "points": Family(
        Points,
        (Input("images", ("batch", 3, 32, 32), kind="image"),),
        (Output("points", axes=("batch", "points", "channels")),),
        lambda count, seed, length: {"images": pictures(count, seed, 32, 32)},
    ),
    "kelvin": Family(
        Kelvin,
        (Input("tokens", ("batch", TOKENS, CHANNELS), low=-1.0),),
        (Output("kelvin"),),
        lambda count, seed, length: {"tokens": sequences(count, seed)},
    ),
    "text": Family(
        Text,
        (
            Input("ids", ("batch", "length"), dtype="int64", high=WORDS - 1),
            Input("mask", ("batch", "length"), dtype="int64"),
        ),
        (Output("embedding", role="embedding"),),
        _padded_texts,
        Axis(LENGTH, 2, 24),
    ),
    "pair": Family(
        Pair,
        tuple(Input(name, ("batch", 64), low=-1.0) for name in ("left", "right")),
        (Output("alike"),),
        _pairs,
    ),
    "table": Family(
        Table,
        (
            Input("numbers", ("batch", 12), low=-1.0),
            Input("categories", ("batch", 3), dtype="int64", high=max(LEVELS) - 1),
        ),
        CLASSES,
        _rows_of_a_table,
    ),
    "audio": Family(Audio, (Input("waveform", ("batch", SAMPLES), low=-1.0),), CLASSES, _waveforms),
}
