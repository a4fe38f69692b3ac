"""A model's inputs as a user gives them to a library: a picture of bytes and a query.

Raw tensors alone would say nothing about the library's own preprocessing and how it reads the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.artifact.manifest import TensorInfo
from edgekit.model.image_input import pixels_of
from edgekit.model.spec import Array

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


def user_input(declared: Sequence[TensorInfo], inputs: Mapping[str, Array]) -> UserInput | None:
    """What a user would give for one run's inputs; None where there is no such thing.

    A library takes one picture at a time, whose values are bytes, and a query where the model has one.

    Args:
        declared: The model's inputs.
        inputs: Arrays by name.
    """
    if sorted(one.kind for one in declared) not in (["image"], ["image", "query"]):
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
