"""Pictures as bytes in one size, and the photographs that ship with edgekit for every model of pictures.

Their authors and licences are in `photographs/sources.json`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.model.spec import Array, Fit
from edgekit.storage.files import load_json

if TYPE_CHECKING:
    from PIL import Image

FOLDER = Path(__file__).parent / "photographs"
# Grey of a letterbox's borders, as YOLO's.
BORDER = 114 / 255


def photographs(folder: Path = FOLDER) -> dict[str, Array]:
    """Return a folder's pictures by name, [3, H, W] float32, RGB in [0, 1]; its sources.json lists them."""
    from PIL import Image

    rows = load_json((folder / "sources.json").read_text(encoding="utf-8"))["photographs"]
    by_name = {}
    for row in rows:
        with Image.open(folder / row["file"]) as picture:
            pixels = np.asarray(picture.convert("RGB"), np.float32) / np.float32(255)
        by_name[Path(row["file"]).stem] = np.ascontiguousarray(pixels.transpose(2, 0, 1))
    return by_name


def pixels_of(picture: Image.Image) -> Array:
    """Return RGB bytes [H, W, 3] of an opened picture: upright by its EXIF, transparency on white, 16 bits as 8.

    Raises:
        ValueError: If its pixels are 32-bit numbers, which have no defined white.
    """
    from PIL import Image, ImageOps

    upright = ImageOps.exif_transpose(picture)
    # Pillow clips values above 255 instead of scaling them.
    if upright.mode.startswith("I;16"):
        grey = np.asarray(upright, np.float64) / 257
        return np.repeat(np.floor(grey + 0.5).astype(np.uint8)[..., None], 3, 2)
    if upright.mode in ("I", "F"):
        raise ValueError("its pixels are 32-bit numbers, and only 8 or 16 bits are read")
    if upright.has_transparency_data:
        ground = Image.new("RGBA", upright.size, "white")
        upright = Image.alpha_composite(ground, upright.convert("RGBA"))
    return np.array(upright if upright.mode == "RGB" else upright.convert("RGB"))


def resize(pictures: Array, height: int, width: int) -> Array:
    """Return pictures [..., H, W] at another size: bilinear, half-pixel centres, antialiased if they shrink.

    Sums are in fp32, or of pictures in fp64 in that.
    """
    if pictures.shape[-2] != height:
        pictures = _rows(pictures, height)
    if pictures.shape[-1] != width:
        pictures = _rows(np.ascontiguousarray(np.swapaxes(pictures, -1, -2)), width).swapaxes(-1, -2)
    return np.ascontiguousarray(pictures, np.result_type(pictures, np.float32))


def mosaic(pictures: Sequence[Array]) -> Array:
    """Return a square number of pictures of one size [C, H, W] as one, [C, H, W], row by row."""
    side = math.isqrt(len(pictures))
    _, height, width = pictures[0].shape
    downs, acrosses = (np.arange(side + 1) * edge // side for edge in (height, width))
    whole = np.empty_like(pictures[0])
    for number, picture in enumerate(pictures):
        down, across = divmod(number, side)
        rows, columns = slice(downs[down], downs[down + 1]), slice(acrosses[across], acrosses[across + 1])
        part = resize(picture, int(downs[down + 1] - downs[down]), int(acrosses[across + 1] - acrosses[across]))
        whole[:, rows, columns] = part
    return whole


def seen_part(picture: tuple[int, int], height: int, width: int, fit: Fit) -> tuple[float, float, float, float]:
    """Return the part of a picture that `fit_picture` puts into a size: top, left, height, width in its pixels.

    For a letterbox it is larger than the picture, by the borders.
    """
    high, wide = picture
    if fit == "stretch":
        return 0.0, 0.0, high, wide
    wider = wide * height > high * width
    if fit == "crop":
        edges = (high, _share(high, width, height)) if wider else (_share(wide, height, width), wide)
        return (high - edges[0]) // 2, (wide - edges[1]) // 2, *edges
    edges = (_share(width, high, wide), width) if wider else (height, _share(height, wide, high))
    down, across = high / edges[0], wide / edges[1]
    return -((height - edges[0]) // 2) * down, -((width - edges[1]) // 2) * across, height * down, width * across


def fit_picture(picture: Array, height: int, width: int, fit: Fit = "stretch", border: float = BORDER) -> Array:
    """Return a picture [C, H, W] in a model's size, by an input's `fit`; `border` fills letterboxes.

    Every library places it alike (`tests/golden/README.md`): a part's edge is rounded half up, and the margin before it
    is rounded down.
    """
    if fit == "stretch":
        return resize(picture, height, width)
    high, wide = picture.shape[1:]
    wider = wide * height > high * width
    if fit == "crop":
        edges = (high, _share(high, width, height)) if wider else (_share(wide, height, width), wide)
        top, left_edge = (high - edges[0]) // 2, (wide - edges[1]) // 2
        return resize(picture[:, top : top + edges[0], left_edge : left_edge + edges[1]], height, width)
    edges = (_share(width, high, wide), width) if wider else (height, _share(height, wide, high))
    top, left_edge = (height - edges[0]) // 2, (width - edges[1]) // 2
    canvas = np.full((len(picture), height, width), border, np.result_type(picture, np.float32))
    canvas[:, top : top + edges[0], left_edge : left_edge + edges[1]] = resize(picture, *edges)
    return canvas


def in_size(pixels: Array, height: int, width: int, fit: Fit = "stretch") -> Array:
    """Return bytes [H, W, 3] in a model's size, as every library computes them: rounded once, half up."""
    if pixels.shape[:2] == (height, width):
        return pixels
    channels = (pixels[None, ..., channel].astype(np.float64) for channel in range(pixels.shape[2]))
    # One channel at a time: a large picture in floats takes twelve times its bytes.
    planes = np.concatenate([fit_picture(channel, height, width, fit, 255 * BORDER) for channel in channels])
    resized = np.floor(planes + 0.5).clip(0, 255).astype(np.uint8)
    return np.ascontiguousarray(resized.transpose(1, 2, 0))


def _share(edge: int, part: int, of: int) -> int:
    """Return an edge in the proportion of two others, rounded half up, at least one pixel."""
    return max(1, (2 * edge * part + of) // (2 * of))


def _rows(pictures: Array, after: int) -> Array:
    """Return another number of rows by a triangle filter as wide as the coarser grid."""
    before = pictures.shape[-2]
    scale = before / after
    centres = (np.arange(after) + 0.5) * scale - 0.5
    first = np.floor(centres - max(scale, 1.0)).astype(int) + 1
    taps = first[None, :] + np.arange(int(2 * max(scale, 1.0)) + 1)[:, None]
    weights = np.maximum(1.0 - np.abs(taps - centres) / max(scale, 1.0), 0.0) * ((taps >= 0) & (taps < before))
    kind = np.result_type(pictures, np.float32)
    weights = (weights / weights.sum(0)).astype(kind)
    result = np.zeros((*pictures.shape[:-2], after, pictures.shape[-1]), kind)
    # Allocated once: to get their memory takes longer than to fill it.
    source_row, part = np.empty_like(result, pictures.dtype), np.empty_like(result, np.result_type(pictures, weights))
    for places, weight in zip(taps.clip(0, before - 1), weights, strict=True):
        pictures.take(places, -2, out=source_row, mode="clip")
        # Tap by tap, so that every sum has the same order in every library.
        result += np.multiply(weight[:, None], source_row, out=part)
    return result
