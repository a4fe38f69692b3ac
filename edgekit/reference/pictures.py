"""Photographs that ship with edgekit: what is asked of any model that takes pictures, next to its own evaluation set.

Their authors and licences stand in `photographs/sources.json`.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from edgekit.model.spec import Array

FOLDER = Path(__file__).parent / "photographs"


def photographs() -> dict[str, Array]:
    """The pictures by name, [3, H, W] float32, RGB in [0, 1]."""
    from PIL import Image

    rows = json.loads((FOLDER / "sources.json").read_text(encoding="utf-8"))["photographs"]
    found = {}
    for row in rows:
        with Image.open(FOLDER / row["file"]) as picture:
            pixels = np.asarray(picture.convert("RGB"), np.float32) / np.float32(255)
        found[Path(row["file"]).stem] = np.ascontiguousarray(pixels.transpose(2, 0, 1))
    return found


def resized(pictures: Array, height: int, width: int) -> Array:
    """Pictures [..., H, W] at another size: bilinear, half-pixel centres, antialiased where they shrink."""
    for axis, size in ((-2, height), (-1, width)):
        if pictures.shape[axis] != size:
            pictures = _along(np.moveaxis(pictures, axis, -1), size)
            pictures = np.moveaxis(pictures, -1, axis)
    return np.ascontiguousarray(pictures, np.float32)


def _along(pictures: Array, after: int) -> Array:
    """The last axis at another size: a triangle as wide as the coarser grid, tap by tap: every sum has an order."""
    before = pictures.shape[-1]
    scale = before / after
    centres = (np.arange(after) + 0.5) * scale - 0.5
    first = np.floor(centres - max(scale, 1.0)).astype(int) + 1
    taps = first[None, :] + np.arange(int(2 * max(scale, 1.0)) + 1)[:, None]
    weights = np.maximum(1.0 - np.abs(taps - centres) / max(scale, 1.0), 0.0) * ((taps >= 0) & (taps < before))
    weights = (weights / weights.sum(0)).astype(np.float32)
    made = np.zeros((*pictures.shape[:-1], after), np.float32)
    for places, weight in zip(taps.clip(0, before - 1), weights, strict=True):
        made += weight * pictures[..., places]
    return made
