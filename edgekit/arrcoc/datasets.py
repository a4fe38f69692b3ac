"""Data sets: the committed evaluation set, and the calibration set that is made again.

Both hold rendered scenes, scenes on photographs that training never saw, and photographs as they are. Seeds are 32-bit
numbers. Training draws from the lower half; the sets below have ranges of their own in the upper half.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from edgekit.arrcoc import photographs, queries, questions, scenes
from edgekit.arrcoc.counter_rng import Chance
from edgekit.errors import CalibrationError, CheckpointError
from edgekit.model.spec import Array, Evaluation

TRAINING = 0x80000000
"""Training seeds are below."""

TUNING = 0x90000000
"""First seed of the scenes that the presence threshold is chosen on."""

HELD_OUT = 0xA0000000
"""First seed of the scenes that training is measured on."""

CALIBRATION = 0xC0000000
"""First seed of the calibration set."""

EVALUATION = 0xE0000000
"""First seed of the evaluation set."""

CALIBRATION_SIZE = 300
CALIBRATION_SHA256 = "a4cd349edb50aa48f1d729bce9203c89dfba924884fe7565d68269a1f36d829d"
"""Of the 300 images' bytes and the queries' texts, one a line."""

SORTS = ("rendered", "composite", "photograph")
"""Rendered scenes, scenes on photographs, and photographs as they are."""

_PATTERN = (0, 0, 1, 0, 0, 2)
"""Indices into `SORTS` of calibration samples, over and over: a third have photographs, wherever one stops."""

_BATCH = 16


def evaluation_set(folder: Path) -> Evaluation:
    """Read the committed evaluation set: images, queries and truth, without a metric.

    Args:
        folder: Has `evaluation.json`, `truth.npy` ([n, 196], NaN for photographs as they are) and one PNG an image.

    Raises:
        CheckpointError: A file is missing or damaged.
    """
    try:
        record = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))["images"]
        pictures = [photographs.picture(folder / one["file"]) for one in record]
        truth = np.load(folder / "truth.npy", allow_pickle=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"the evaluation set in '{folder}' cannot be read ({error}): reinstall edgekit"
        ) from error
    names = tuple(Path(one["file"]).stem for one in record)
    made = _asked(np.stack(pictures).transpose(0, 3, 1, 2), [one["query"] for one in record], names)
    return replace(made, truth=truth)


def _asked(pictures: Array, texts: list[str], names: tuple[str, ...]) -> Evaluation:
    """Pictures [n, 3, h, w] uint8 and queries in words, as a model takes them."""
    vocabulary = queries.vocabulary()
    inputs = {
        "images": pictures.astype(np.float32) / np.float32(255.0),
        "queries": np.stack([vocabulary.encode(text).vector for text in texts]),
    }
    return Evaluation(inputs, names, tuple(texts))


def calibration_set(count: int = CALIBRATION_SIZE) -> Evaluation:
    """Make the first samples of the calibration set again, one query each.

    Raises:
        CalibrationError: The count is not positive, or the standard set of 300 differs from the one that was hashed.
    """
    if count < 1:
        raise CalibrationError(f"calibration needs at least one sample, not '{count}'.")
    pictures, texts = calibration_pictures(count)
    if count == CALIBRATION_SIZE and digest(pictures, texts) != CALIBRATION_SHA256:
        raise CalibrationError(
            "the calibration scenes rendered here differ from the recorded ones (sha256 "
            f"'{digest(pictures, texts)}'); this build of torch computes integers differently."
        )
    return _asked(pictures, texts, tuple(f"calibration-{index:03d}" for index in range(count)))


def digest(pictures: Array, texts: list[str]) -> str:
    """sha256 of pictures [n, 3, 224, 224] uint8 and their queries."""
    return hashlib.sha256(np.ascontiguousarray(pictures).tobytes() + "\n".join(texts).encode()).hexdigest()


def calibration_pictures(count: int) -> tuple[Array, list[str]]:
    """The first calibration pictures, [n, 3, 224, 224] uint8, and their queries."""
    bank = photographs.held_out("calibration")
    sorts = np.resize(_PATTERN, count)
    pictures = np.empty((count, 3, scenes.EDGE, scenes.EDGE), np.uint8)
    texts = [""] * count
    for sort in np.unique(sorts):
        rows = np.flatnonzero(sorts == sort)
        found, said = _pictures(SORTS[sort], torch.from_numpy(CALIBRATION + rows), bank)
        pictures[rows] = found
        for row, text in zip(rows, said, strict=True):
            texts[row] = text
    return pictures, texts


def _pictures(sort: str, seeds: Tensor, bank: Tensor) -> tuple[Array, list[str]]:
    """Pictures of one sort [n, 3, 224, 224] uint8 and a query each; a photograph gets that of the scene on it."""
    found, texts = [], []
    before = torch.get_num_threads()
    # The tensors are small: a second thread gains nothing, and spins where other work needs the core.
    torch.set_num_threads(1)
    try:
        for part in torch.split(seeds, _BATCH):
            rendered = scenes.render(part, bank=None if sort == SORTS[0] else bank)
            asked = questions.ask(rendered, part, 1)
            images = rendered.images if sort != SORTS[2] else photograph(part, bank)
            found.append(images.numpy())
            texts += [questions.describe(row) for row in asked.concepts[:, 0]]
    finally:
        torch.set_num_threads(before)
    return np.concatenate(found), texts


def photograph(seeds: Tensor, bank: Tensor) -> Tensor:
    """Parts of photographs as they are, one for each seed ([B] int64): [B, 3, 224, 224] uint8."""
    chance = Chance(seeds)
    size, top, left = chance.between(140, 256), chance.bits(), chance.bits()
    still = torch.zeros_like(size, dtype=torch.bool)
    edge = scenes.EDGE
    return photographs.view(bank, seeds % len(bank), size, top, left, still, edge, edge).to(torch.uint8)


def with_wide_queries(make: Callable[[], Evaluation], width: int) -> Evaluation:
    """A set for ARR-COC 0.1: the same pictures, and queries [n, width].

    The queries are projected by a fixed matrix of signs, which stands in for a language model's token embeddings; the
    divisor keeps them within the declared [-1, 1].
    """
    base = make()
    signs = 2 * Chance(torch.arange(width)).below(2, base.inputs["queries"].shape[1]) - 1
    projected = base.inputs["queries"] @ (signs.numpy().T.astype(np.float32) / np.float32(80.0))
    inputs = {"images": base.inputs["images"], "queries": projected.astype(np.float32)}
    return Evaluation(inputs, base.names, base.captions)
