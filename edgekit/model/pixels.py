"""An image input's numbers as the bytes that they were made of."""

from __future__ import annotations

import numpy as np

from edgekit.model.spec import Array


def pixels_of(image: Array, low: float, high: float, exact: float) -> Array | None:
    """The bytes of an image.

    Args:
        image: [3, H, W], of which `low` is the byte 0 and `high` the byte 255.
        low: Smallest value.
        high: Largest value.
        exact: Largest difference of a value from a byte, in bytes.

    Returns:
        [H, W, 3] uint8, or None where a value is no byte.
    """
    scaled = (image.transpose(1, 2, 0).astype(np.float64) - low) / (high - low) * 255
    pixels = np.rint(scaled).clip(0, 255)
    return None if np.abs(scaled - pixels).max() > exact else pixels.astype(np.uint8)
