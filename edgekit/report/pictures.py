"""A few evaluation images to look at: the picture, the reference's map, each artifact's map and their difference.

Which images: the worst one of each row, rejected rows first, and two typical ones. A map is a PNG of one pixel a patch,
laid over the picture by the page, so that dozens of maps weigh a few kilobytes.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.artifact.metric import plain, share
from edgekit.model.spec import Array
from edgekit.reference.info import ReferenceInfo
from edgekit.report import plots
from edgekit.report.study import ReportRow, Study

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_WORST = 4  # images
TYPICAL = 2  # images
MOST_ROWS = 10  # maps an image; the numbers of the others are in the tables
LARGEST_SIDE = 336  # pixels of an embedded picture
JPEG_QUALITY = 86

# Dark violet to pale yellow, even in lightness (after matplotlib's inferno), and blue - nothing - orange.
HEAT = ((10, 7, 34), (64, 10, 103), (133, 32, 107), (196, 60, 78), (240, 112, 32), (251, 182, 26), (252, 255, 164))
LOWER, HIGHER = (37, 99, 235), (234, 88, 12)
LOST = (255, 0, 255, 255)  # not finite


@dataclass(frozen=True)
class Tile:
    """One artifact's answer to one image."""

    row: ReportRow
    overlay: str
    difference: str
    peak: str
    lost: bool
    box: tuple[int, int, int, int] | None
    patch: int
    worst: bool


@dataclass(frozen=True)
class Card:
    """One image with the reference's map and every artifact's."""

    anchor: str
    name: str
    caption: str
    why: tuple[str, ...]
    output: str
    picture: str
    width: int
    height: int
    overlay: str
    span: tuple[str, str]
    tiles: tuple[Tile, ...]
    metric: str


def cards(study: Study, recorded: Mapping[str, Array]) -> tuple[Card, ...]:
    """Choose the images and draw them; nothing where there are no images, no maps or no grid of patches."""
    tensor = study.reference.image_input()
    errors = {row: values for row in study.rows if (values := plots.errors(row.scores, recorded)) is not None}
    if not tensor or not errors:
        return ()
    drawn = (_card(index, why, list(errors), recorded, study.reference, tensor) for index, why in _chosen(errors))
    return tuple(card for card in drawn if card)


def _chosen(errors: Mapping[ReportRow, Array]) -> list[tuple[int, tuple[str, ...]]]:
    """Indices of images and why each was chosen."""
    table = np.nan_to_num(np.stack(list(errors.values())), nan=np.inf)
    reasons: dict[int, list[str]] = {}
    for row, values in sorted(zip(errors, table, strict=True), key=lambda pair: pair[0].status != "rejected"):
        reasons.setdefault(int(values.argmax()), []).append(f"worst image of {row.label}")
    chosen = list(reasons.items())[:MOST_WORST]
    ranks = table.argsort(1).argsort(1).mean(0)  # typical for all rows, whatever the size of their errors
    middle = np.abs(ranks - (table.shape[1] - 1) / 2).argsort(kind="stable").tolist()
    typical = [index for index in middle if index not in dict(chosen)][:TYPICAL]
    return [(index, tuple(why)) for index, why in chosen] + [(index, ("a typical image",)) for index in typical]


def _card(
    index: int,
    why: tuple[str, ...],
    rows: Sequence[ReportRow],
    recorded: Mapping[str, Array],
    reference: ReferenceInfo,
    tensor: str,
) -> Card | None:
    picture = reference.picture(tensor, index)
    output = next(name for row in rows for name in row.scores if name in recorded)
    if picture is None:
        return None
    height, width = picture.shape[:2]
    grid = _grid(height, width, recorded[output].shape[1])
    if grid is None:
        return None
    right = np.asarray(recorded[output][index], np.float64).reshape(grid)
    low, high = float(np.nanmin(right)), float(np.nanmax(right))
    shown = [row for row in rows if output in row.scores and row.scores[output].shape == recorded[output].shape]
    shown.sort(key=lambda row: row.status != "rejected")
    maps = [(row, np.asarray(row.scores[output][index], np.float64).reshape(grid)) for row in shown[:MOST_ROWS]]
    values = reference.evaluation.values
    return Card(
        anchor=f"image-{index}",
        name=reference.name(index),
        caption=reference.caption(index),
        why=why,
        output=output,
        picture=_jpeg(picture),
        width=width,
        height=height,
        overlay=_png(_heat(right, low, high)),
        span=(plain(low), plain(high)),
        tiles=tuple(_tile(row, mine, right, (low, high), (width, height), why) for row, mine in maps),
        metric=f"{reference.evaluation.metric} {share(values[index])}" if index < len(values) else "",
    )


def _grid(height: int, width: int, patches: int) -> tuple[int, int] | None:
    """Rows and columns of square patches, where the picture divides into that many."""
    side = round((height * width / patches) ** 0.5)
    if side < 1 or height % side or width % side or (height // side) * (width // side) != patches:
        return None
    return height // side, width // side


def _tile(
    row: ReportRow, mine: Array, right: Array, scale: tuple[float, float], size: tuple[int, int], why: tuple[str, ...]
) -> Tile:
    off = mine - right
    lost = ~np.isfinite(off)
    patch = int(lost.argmax()) if lost.any() else int(np.abs(off).argmax())
    peak = 0.0 if lost.all() else float(np.abs(off[~lost]).max())
    width, height = size[0] // right.shape[1], size[1] // right.shape[0]
    box = (patch % right.shape[1] * width, patch // right.shape[1] * height, width, height)
    # Blue where the artifact is lower, orange where it is higher, clear where both agree. RGBA uint8.
    share = np.clip(np.where(np.isfinite(off), off, 0.0) / (peak or 1.0), -1, 1)
    pixels = np.where((share < 0)[..., None], np.array([*LOWER, 0.0]), np.array([*HIGHER, 0.0]))
    pixels[..., 3] = 255 * np.abs(share)
    pixels[~np.isfinite(off)] = LOST
    signed = np.asarray((pixels + 0.5).astype(np.uint8))
    return Tile(
        row=row,
        overlay=_png(_heat(mine, *scale)),
        difference=_png(signed),
        peak=f"{int(lost.sum())} patches are not finite" if lost.any() else plain(peak),
        lost=bool(lost.any()),
        box=box if peak or lost.any() else None,
        patch=patch,
        worst=f"worst image of {row.label}" in why,
    )


def _heat(values: Array, low: float, high: float) -> Array:
    """Colours of a map; what is not finite is magenta. RGBA uint8."""
    share = np.clip((np.where(np.isfinite(values), values, low) - low) / ((high - low) or 1.0), 0, 1)
    stops = np.linspace(0, 1, len(HEAT))
    channels = [np.interp(share, stops, [colour[i] for colour in HEAT]) for i in range(3)]
    pixels = np.stack([*channels, 255 * veil(share)], -1)
    pixels[~np.isfinite(values)] = LOST
    return np.asarray((pixels + 0.5).astype(np.uint8))


def veil(share: Any) -> Any:
    """Opacity of a map over its picture: where little is relevant the picture shows through."""
    return np.round(0.18 + 0.74 * share**0.6, 3)


def _png(pixels: Array) -> str:
    from PIL import Image

    return _address(Image.fromarray(pixels), "png")


def _jpeg(pixels: Array) -> str:
    from PIL import Image

    picture = Image.fromarray(pixels)
    picture.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    return _address(picture, "jpeg", quality=JPEG_QUALITY)


def _address(picture: Image, form: str, **options: int) -> str:
    stream = io.BytesIO()
    picture.save(stream, form, optimize=True, **options)
    return f"data:image/{form};base64,{base64.b64encode(stream.getvalue()).decode()}"
