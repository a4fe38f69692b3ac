"""The shipped pictures: the evaluation set, the calibration set, and the task metric.

Both sets hold rendered scenes, scenes on photographs that training never saw, and unchanged photographs, as lossless
WebP files; the sha256 of each picture's pixels is recorded with its name. `training/sets.py` of the repository renders
them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from edgekit.errors import CalibrationError, CheckpointError
from edgekit.model.spec import Array, EvaluationSet
from edgekit.storage.files import load_json
from edgekit_arrcoc import queries
from edgekit_arrcoc.counter_rng import Chance

CALIBRATION_PICTURES = 150
CALIBRATION_SIZE = 2 * CALIBRATION_PICTURES
"""Samples of the calibration set: its pictures, then the same ones mirrored left to right."""


def evaluation_set(folder: Path) -> EvaluationSet:
    """Read the evaluation set: images, queries and truth, without a metric.

    Args:
        folder: Has `evaluation.json`, `truth.npy` ([n, 196], NaN for unchanged photographs) and a file per image.

    Raises:
        CheckpointError: If a file is missing or damaged.
    """
    try:
        record = load_json((folder / "evaluation.json").read_text(encoding="utf-8"))["images"]
        pictures = _pictures(folder, record)
        truth = np.load(folder / "truth.npy", allow_pickle=False)
        texts = [entry["query"] for entry in record]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"the evaluation set in '{folder}' cannot be read ({error}). Reinstall edgekit"
        ) from error
    return replace(_encode(pictures, texts, tuple(Path(entry["file"]).stem for entry in record)), truth=truth)


def calibration_set(folder: Path, count: int = CALIBRATION_SIZE) -> EvaluationSet:
    """Read the first samples of the calibration set, one query each.

    Args:
        folder: Has `calibration.json` and a file per image.
        count: Samples, at most `CALIBRATION_SIZE`.

    Raises:
        CalibrationError: If the count is not positive, or too large.
        CheckpointError: If a file is missing or damaged.
    """
    if not 1 <= count <= CALIBRATION_SIZE:
        raise CalibrationError(f"the calibration set has from 1 to {CALIBRATION_SIZE} samples, not '{count}'")
    try:
        record = load_json((folder / "calibration.json").read_text(encoding="utf-8"))["images"][:count]
        pictures = _pictures(folder, record)
        texts = [entry["query"] for entry in record]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"the calibration set in '{folder}' cannot be read ({error}). Reinstall edgekit"
        ) from error
    mirrored = count - len(pictures)
    pictures = np.concatenate([pictures, pictures[:mirrored, :, :, ::-1]])
    return _encode(pictures, texts + texts[:mirrored], tuple(f"calibration-{index:03d}" for index in range(count)))


def with_wide_queries(make: Callable[[], EvaluationSet], width: int) -> EvaluationSet:
    """Return a set for ARR-COC 0.1: the same pictures, and queries [n, width].

    The queries are projected by a fixed matrix of signs, which replaces a language model's token embeddings; the
    divisor keeps them within the declared [-1, 1].
    """
    base = make()
    signs = 2 * Chance(torch.arange(width)).below(2, base.inputs["queries"].shape[1]) - 1
    projected = base.inputs["queries"] @ (signs.numpy().T.astype(np.float32) / np.float32(80.0))
    inputs = {"images": base.inputs["images"], "queries": projected.astype(np.float32)}
    return EvaluationSet(inputs, base.names, base.captions)


def coverage(outputs: Mapping[str, Array], truth: Array) -> npt.NDArray[np.float64]:
    """Return the task metric of the family, coverage@K: `covered_share` of the patches in the output `indices`."""
    return covered_share(outputs["indices"], truth)


def covered_share(indices: Array, truth: Array) -> npt.NDArray[np.float64]:
    """Return truth [n, N] in the chosen patches ([n, K] integers), relative to the best K patches: [n] in [0, 1]."""
    relevance = np.nan_to_num(truth.astype(np.float64), nan=0.0)
    masses = np.take_along_axis(relevance, indices.astype(np.int64), 1).sum(1)
    best = np.sort(relevance, 1)[:, ::-1][:, : indices.shape[1]].sum(1)
    # If nothing answers the query, or the answer is unknown (NaN), all choices are equally good.
    return np.where(best > 0, masses / np.where(best > 0, best, 1.0), 1.0)


def read_picture(path: Path) -> Array:
    """Return the RGB pixels [h, w, 3] uint8 of a file."""
    from PIL import Image

    with path.open("rb") as stream, Image.open(stream) as image:
        return np.asarray(image.convert("RGB"))


def digest(pixels: Array) -> str:
    """Return the sha256 of a picture's pixels [h, w, 3] uint8."""
    return hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest()


def _pictures(folder: Path, record: list[dict[str, str]]) -> Array:
    """Return the recorded pictures, [n, 3, h, w] uint8."""
    pictures = [read_picture(folder / entry["file"]) for entry in record]
    for entry, pixels in zip(record, pictures, strict=True):
        if digest(pixels) != entry["sha256"]:
            raise ValueError(f"'{entry['file']}' does not hold the recorded pixels")
    return np.stack(pictures).transpose(0, 3, 1, 2)


def _encode(pictures: Array, texts: list[str], names: tuple[str, ...]) -> EvaluationSet:
    """Return pictures [n, 3, h, w] uint8 and queries in words as a model's inputs."""
    vocabulary = queries.vocabulary()
    inputs = {
        "images": np.divide(pictures, np.float32(255.0), dtype=np.float32),
        "queries": np.stack([vocabulary.encode(text) for text in texts]),
    }
    return EvaluationSet(inputs, names, tuple(texts))
