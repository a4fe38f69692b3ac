"""Pictures and words in a client's form, and answers for people."""

from __future__ import annotations

import io
import json
import math
import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgekit.artifact.manifest import Manifest, TensorInfo
from edgekit.model.spec import Array
from edgekit.pipeline.loaded import picture_size, prepare_input
from edgekit.reference.pictures import pixels_of, seen_part
from edgekit.reference.vocabulary import Vocabulary
from edgekit_serve.protocol import RefusedError, TooLargeError

FIELDS = {"image": "image", "query": "query"}
"""Kind of an input -> another field name for it, in addition to its own name."""
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
CLASSIFYING = ("logits", "probabilities")
"""Roles of outputs whose largest value is the answer."""
MOST_CLASSES = 5
SHOWN = 4096
"""Largest output that is returned with its values; for a larger one only the shape."""


def inputs_of(
    manifest: Manifest, form: Mapping[str, bytes], vocabulary: Vocabulary | None, pixels: int
) -> tuple[dict[str, Array], tuple[int, int]]:
    """Return inputs from a form's fields, and height and width of its picture (0, 0 without one).

    Args:
        manifest: The artifact's manifest.
        form: Fields by name.
        vocabulary: The model's vocabulary.
        pixels: Largest number of pixels of a picture.

    Raises:
        RefusedError: Naming the field and its expected value.
        TooLargeError: If the picture has more pixels.
    """
    inputs: dict[str, Array] = {}
    size = (0, 0)
    unused = set(form)
    for tensor in manifest.inputs:
        name = next((n for n in (tensor.name, FIELDS.get(tensor.kind, "")) if n in form), None)
        if name is None:
            raise RefusedError(
                f"the field '{FIELDS.get(tensor.kind, tensor.name)}' is missing. Send {_expected_fields(tensor)}"
            )
        unused.discard(name)
        if tensor.kind == "image":
            picture = _picture(form[name], name, pixels)
            size = picture.shape[0], picture.shape[1]
            # A waiting request holds the picture at the model's size only.
            inputs[tensor.name] = prepare_input(manifest, tensor, picture)
        elif tensor.kind == "query" and vocabulary is not None:
            inputs[tensor.name] = vocabulary.encode(_text(form[name], name))[None]
        else:
            try:
                inputs[tensor.name] = np.asarray(json.loads(form[name]), np.dtype(tensor.dtype))
            except (ValueError, TypeError, OverflowError, RecursionError) as error:
                raise RefusedError(f"the field '{name}' must be {_expected_fields(tensor)}") from error
    if unused:
        possible = ", ".join(FIELDS.get(tensor.kind, tensor.name) for tensor in manifest.inputs)
        raise RefusedError(f"unknown field '{min(unused)[:80]}'. '{manifest.name}' takes: {possible}")
    return inputs, size


def answer_of(manifest: Manifest, answers: Mapping[str, Array], size: tuple[int, int]) -> dict[str, Any]:
    """Return the answer to one picture: the best patches with their boxes, whether anything is present, and outputs."""
    record: dict[str, Any] = {"model": manifest.name, "target": manifest.target}
    image = next((tensor for tensor in manifest.inputs if tensor.kind == "image"), None)
    for tensor in manifest.outputs:
        values = answers[tensor.name]
        if tensor.role == "scores" and tensor.threshold is not None:
            record["present"] = bool(values.max() >= tensor.threshold)
        if tensor.role in CLASSIFYING or tensor.classes:
            record.setdefault("top", _top(tensor, values))
        if tensor.role == "ranking" and tensor.of in answers and image is not None:
            record["patches"] = _patches(answers[tensor.of][0], values[0], size, image, manifest)
    record["outputs"] = {
        name: {"shape": [*values.shape], "data": _plain(values)} if values.size <= SHOWN else {"shape": [*values.shape]}
        for name, values in answers.items()
    }
    return record


def _top(tensor: TensorInfo, values: Array) -> list[dict[str, Any]]:
    """Return the likeliest classes of one row, best first: number, name where it is known, and probability."""
    row = np.asarray(values, np.float64).reshape(-1)
    # Several positions, such as a segmentation's pixels, have no one best class.
    if values.ndim > 2 or (values.ndim == 2 and len(values) != 1) or not np.isfinite(row).all():
        return []
    if tensor.role != "probabilities":
        row = np.exp(row - row.max())
        row /= row.sum()
    best = np.argsort(-row, kind="stable")[:MOST_CLASSES].tolist()
    names = tensor.classes
    return [
        {"class": index, **({"name": names[index]} if index < len(names) else {}), "probability": float(row[index])}
        for index in best
    ]


def _patches(
    scores: Array, ranking: Array, picture: tuple[int, int], image: TensorInfo, manifest: Manifest
) -> list[dict[str, Any]]:
    """Return patches, best first: row, column, score, and left, top, right, bottom in the picture; they are square."""
    height, width = picture_size(manifest, image.picture_size, picture)
    rows = max(round(math.sqrt(scores.size * height / width)), 1)
    columns = scores.size // rows
    if rows * columns != scores.size:
        return []
    top, left_edge, high, wide = seen_part(picture, height, width, image.fit)
    across = [round(min(max(left_edge + edge * wide / columns, 0.0), picture[1]), 2) for edge in range(columns + 1)]
    down = [round(min(max(top + edge * high / rows, 0.0), picture[0]), 2) for edge in range(rows + 1)]
    patches = []
    for index in ranking.tolist():
        row, column = divmod(index, columns)
        box = [across[column], down[row], across[column + 1], down[row + 1]]
        patches.append({"row": row, "column": column, "score": float(scores[index]), "box": box})
    return patches


def _plain(values: Array) -> list[Any]:
    """Return values for JSON: null in place of NaN and infinity."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        return [value if math.isfinite(value) else None for value in values.ravel().tolist()]
    plain: list[Any] = values.ravel().tolist()
    return plain


def _picture(data: bytes, name: str, pixels: int) -> Array:
    """Return RGB bytes [H, W, 3], upright, with transparent parts on white."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opened = Image.open(io.BytesIO(data), formats=FORMATS)
            if opened.width * opened.height > pixels:
                raise TooLargeError(f"the picture has {opened.width} x {opened.height} pixels. The limit is {pixels}")
            if opened.mode in ("I", "F"):
                raise RefusedError(f"the field '{name}' is a picture of 32-bit numbers. Send one of 8 or 16 bits")
            return pixels_of(opened)
    except RefusedError:
        raise
    # Pillow has its own limit, which it checks before it reports the size.
    except Image.DecompressionBombError as error:
        most = min(pixels, 2 * (Image.MAX_IMAGE_PIXELS or pixels))
        raise TooLargeError(f"the field '{name}' is a picture of too many pixels. The limit is {most}") from error
    # Pillow's decoders may raise anything.
    except Exception as error:
        raise RefusedError(f"the field '{name}' is not a picture, or is damaged. Send PNG, JPEG or WebP") from error


def _text(data: bytes, name: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise RefusedError(f"the field '{name}' is not UTF-8 text") from error
    if len(text) > 1000 or not re.search(r"\w", text):
        raise RefusedError(f"the field '{name}' must have 1 to 1000 characters and contain a word")
    return text


def _expected_fields(tensor: TensorInfo) -> str:
    if tensor.kind == "image":
        return "a picture (PNG, JPEG, WebP ...)"
    if tensor.kind == "query":
        return "words"
    return f"numbers in JSON, {tensor.dtype} {list(tensor.shape)}"
