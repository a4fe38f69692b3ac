"""A model's inputs as a user gives them to a library: a picture of bytes and a query.

Raw tensors alone would say nothing about the library's own preprocessing and how it reads the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.artifact.manifest import TensorInfo
from edgekit.model.pixels import pixels_of
from edgekit.model.spec import Array

ROLES = ("scores", "counts", "ranking", "features")
"""Of the outputs that the libraries return, at most one of each."""
EXACT = 1e-3
"""Largest difference of a value from a byte, in bytes: float32's rounding is far below."""


@dataclass(frozen=True)
class UserInput:
    """One picture, and the query's vector where the model takes one.

    Attributes:
        pixels: [H, W, 3] uint8, RGB.
        query: [Q] float32, or None.
    """

    pixels: Array
    query: Array | None


def user_input(
    declared: Sequence[TensorInfo], outputs: Sequence[TensorInfo], inputs: Mapping[str, Array]
) -> UserInput | None:
    """What a user would give for one run's inputs; None where there is no such thing.

    A library takes one picture at a time, whose values are bytes, and returns an output of each of `ROLES`.

    Args:
        declared: The model's inputs.
        outputs: Its outputs.
        inputs: Arrays by name.
    """
    kinds = sorted(one.kind for one in declared)
    roles = [one.role for one in outputs]
    if kinds not in (["image"], ["image", "query"]) or "scores" not in roles:
        return None
    if len(set(roles)) != len(roles) or not set(roles) <= set(ROLES):
        return None
    image = next(one for one in declared if one.kind == "image")
    array = inputs[image.name]
    if array.shape[:2] != (1, 3) or array.dtype != np.float32:
        return None
    pixels = pixels_of(array[0], image.low, image.high, EXACT)
    if pixels is None:
        return None
    query = next((inputs[one.name][0] for one in declared if one.kind == "query"), None)
    return UserInput(pixels, query)
