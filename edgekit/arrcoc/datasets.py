"""Data sets: the committed evaluation set, the calibration set that is made again, and held-out scenes.

Seeds are 32-bit numbers. Training draws from the lower half; the sets below have ranges of their own in the upper half.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from edgekit.arrcoc import queries, questions, scenes
from edgekit.errors import CalibrationError, CheckpointError
from edgekit.model.spec import Array, Evaluation

TRAINING = 0x80000000
"""Training seeds are below."""

HELD_OUT = 0xA0000000
"""First seed of the scenes that training is measured on."""

CALIBRATION = 0xC0000000
"""First seed of the calibration set."""

EVALUATION = 0xE0000000
"""First seed of the evaluation set."""

CALIBRATION_SIZE = 300
CALIBRATION_SHA256 = "f5e4c64d08ec8e6f03c43129636e90b5bab164f29688a2def59d2ffa38e6b722"
"""Of the 300 images' bytes and the queries' texts, one a line."""

_BATCH = 16


def evaluation_set(folder: Path) -> Evaluation:
    """Read the committed evaluation set: images, queries and truth, without a metric.

    Args:
        folder: Has `evaluation.json`, `truth.npy` and one PNG a scene.

    Raises:
        CheckpointError: A file is missing or damaged.
    """
    try:
        record = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))["scenes"]
        pictures = [_picture(folder / scene["file"]) for scene in record]
        truth = np.load(folder / "truth.npy", allow_pickle=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"the evaluation set in '{folder}' cannot be read ({error}): reinstall edgekit"
        ) from error
    vocabulary = queries.vocabulary()
    inputs = {
        "images": np.stack(pictures).transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255.0),
        "queries": np.stack([vocabulary.encode(scene["query"]).vector for scene in record]),
    }
    names = tuple(Path(scene["file"]).stem for scene in record)
    return Evaluation(inputs, names, tuple(scene["query"] for scene in record), truth)


def _picture(path: Path) -> Array:
    """RGB pixels [h, w, 3] uint8 of a file."""
    from PIL import Image

    with path.open("rb") as stream, Image.open(stream) as image:
        return np.asarray(image.convert("RGB"))


def calibration_set(count: int = CALIBRATION_SIZE) -> Evaluation:
    """Render the first scenes of the calibration set again, one query each.

    Raises:
        CalibrationError: The count is not positive, or the standard set of 300 differs from the one that was hashed.
    """
    if count < 1:
        raise CalibrationError(f"calibration needs at least one sample, not '{count}'.")
    pictures, texts = picture(CALIBRATION, count)
    if count == CALIBRATION_SIZE and digest(pictures, texts) != CALIBRATION_SHA256:
        raise CalibrationError(
            "the calibration scenes rendered here differ from the recorded ones (sha256 "
            f"'{digest(pictures, texts)}'); this build of torch computes integers differently."
        )
    vocabulary = queries.vocabulary()
    inputs = {
        "images": pictures.astype(np.float32) / np.float32(255.0),
        "queries": np.stack([vocabulary.encode(text).vector for text in texts]),
    }
    return Evaluation(inputs, tuple(f"calibration-{index:03d}" for index in range(count)), tuple(texts))


def digest(pictures: Array, texts: list[str]) -> str:
    """sha256 of pictures [n, 3, 224, 224] uint8 and their queries."""
    return hashlib.sha256(np.ascontiguousarray(pictures).tobytes() + "\n".join(texts).encode()).hexdigest()


def picture(first: int, count: int) -> tuple[Array, list[str]]:
    """So many scenes from a seed on: pictures [n, 3, 224, 224] uint8 and one query each."""
    pictures, texts = [], []
    for rendered, asked in _rendered(first, count):
        pictures.append(rendered.images.numpy())
        texts += [questions.describe(row) for row in asked.concepts[:, 0]]
    return np.concatenate(pictures), texts


def _rendered(first: int, count: int) -> Iterator[tuple[scenes.Scenes, questions.Questions]]:
    """Scenes from a seed on, in batches, with one query each."""
    before = torch.get_num_threads()
    # The tensors are small: a second thread gains nothing, and spins where other work needs the core.
    torch.set_num_threads(1)
    try:
        for start in range(first, first + count, _BATCH):
            seeds = torch.arange(start, min(start + _BATCH, first + count))
            rendered = scenes.render(seeds)
            yield rendered, questions.ask(rendered, seeds, 1)
    finally:
        torch.set_num_threads(before)


def as_textures(make: Callable[[], Evaluation], width: int) -> Evaluation:
    """A set for ARR-COC 0.1: texture arrays [n, 13, 32, 32] of its images, and queries [n, width].

    The queries are projected by a fixed matrix of signs, which stands in for a language model's token embeddings; the
    divisor keeps them within the declared [-1, 1].
    """
    from edgekit.arrcoc.counter_rng import Chance
    from edgekit.arrcoc.texture import texture_array

    base = make()
    images = torch.from_numpy(np.array(base.inputs["images"]))
    textures = torch.cat([texture_array(images[start : start + _BATCH]) for start in range(0, len(images), _BATCH)])
    signs = 2 * Chance(torch.arange(width)).below(2, base.inputs["queries"].shape[1]) - 1
    projected = base.inputs["queries"] @ (signs.numpy().T.astype(np.float32) / np.float32(80.0))
    return Evaluation(
        {"textures": textures.numpy(), "queries": projected.astype(np.float32)}, base.names, base.captions
    )


def write_evaluation(folder: Path, count: int) -> None:
    """Render the evaluation set and write it; `evaluation_set` reads it."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    record: list[dict[str, str | int]] = []
    truths = []
    for rendered, asked in _rendered(EVALUATION, count):
        truths.append(asked.truth[:, 0].numpy())
        for row, pixels in enumerate(rendered.images.permute(0, 2, 3, 1).numpy()):
            number, kind = len(record), questions.KINDS[int(asked.kind[row, 0])]
            Image.fromarray(pixels).save(folder / f"{number:03d}.png", optimize=True)
            query = questions.describe(asked.concepts[row, 0])
            record.append({"file": f"{number:03d}.png", "seed": EVALUATION + number, "query": query, "kind": kind})
    np.save(folder / "truth.npy", np.concatenate(truths))
    (folder / "evaluation.json").write_text(json.dumps({"scenes": record}, indent=1) + "\n", encoding="utf-8")
