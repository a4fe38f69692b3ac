from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from PIL import Image
from safetensors.numpy import save, save_file

from edgekit.report import page
from edgekit.report.rows import read_study
from tests.core.report.conftest import FP32, GRID, SIDE, ran


def cards(builder: Any) -> tuple[page.Card, ...]:
    return page.picture_cards(read_study(builder.folder), {"relevance": builder.relevance})


def decoded(url: str) -> np.ndarray:
    head, _, data = url.partition(";base64,")
    assert head in ("data:image/png", "data:image/jpeg")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def test_the_worst_images_come_first_and_then_typical_ones(filled: Any) -> None:
    found = cards(filled)
    whys = [card.why for card in found]
    typical = whys.count(("a typical image",))
    assert typical == page.TYPICAL
    assert all(why == ("a typical image",) for why in whys[-typical:])
    assert len(found) - typical <= page.MOST_WORST
    assert "worst image of onnx-int8-static · cpu" in whys[0]  # what was rejected is shown first
    assert found[0].name == filled.names[4]
    assert len({card.anchor for card in found}) == len(found)


def test_a_card_shows_the_picture_the_map_and_each_artifacts_difference(filled: Any) -> None:
    card = cards(filled)[0]
    assert (card.width, card.height) == (SIDE, SIDE)
    assert decoded(card.picture).shape == (SIDE, SIDE, 3)
    assert decoded(card.overlay).shape == (GRID, GRID, 4)
    assert card.caption.split()[0] in ("red", "green", "blue", "yellow")
    assert card.tiles[0].row.target == "onnx-int8-static"
    for tile in card.tiles:
        assert decoded(tile.overlay).shape == decoded(tile.difference).shape == (GRID, GRID, 4)
        assert tile.worst == (f"worst image of {tile.row.label}" in card.why)


def spoilt(builder: Any, row: int, column: int, off: float) -> page.Tile:
    builder.reference()
    builder.artifact("onnx", "fp32")
    maps = builder.relevance.copy()
    maps[0].reshape(GRID, GRID)[row, column] += np.float32(off)
    builder.enter("onnx", {"scores-cpu.safetensors": save({"relevance": maps})})
    builder.judge("onnx", [ran(builder, builder.relevance + np.float32(1e-6), FP32)], 1)
    card = next(card for card in cards(builder) if card.name == builder.names[0])
    (tile,) = card.tiles
    return tile


def test_the_worst_patch_is_framed_where_it_is(builder: Any) -> None:
    tile = spoilt(builder, row=3, column=11, off=0.25)
    patch = SIDE // GRID
    assert tile.patch == 3 * GRID + 11
    assert tile.box == (11 * patch, 3 * patch, patch, patch)
    assert tile.peak == "0.250"
    colours = decoded(tile.difference).copy()
    assert tuple(colours[3, 11]) == (*page.HIGHER, 255)  # higher than the reference
    colours[3, 11] = 0
    assert not colours[..., 3].any()  # all else is clear


def test_what_is_lower_has_the_other_colour(builder: Any) -> None:
    tile = spoilt(builder, row=0, column=0, off=-0.125)
    assert tuple(decoded(tile.difference)[0, 0]) == (*page.LOWER, 255)


def test_what_is_not_finite_is_told_and_stands_out(builder: Any) -> None:
    tile = spoilt(builder, row=5, column=6, off=np.inf)
    assert tile.lost
    assert tile.peak == "1 patches are not finite"
    assert tile.patch == 5 * GRID + 6
    assert tuple(decoded(tile.overlay)[5, 6]) == tuple(decoded(tile.difference)[5, 6]) == page.LOST


def test_patches_that_do_not_divide_the_picture_are_not_drawn(builder: Any) -> None:
    builder.reference()
    builder.relevance = builder.relevance[:, :195]
    save_file({"evaluation/relevance": builder.relevance}, builder.folder / "reference" / "outputs.safetensors")
    builder.artifact("onnx", "fp32")
    builder.enter("onnx", {"scores-cpu.safetensors": save({"relevance": builder.relevance})})
    builder.judge("onnx", [ran(builder, builder.relevance + np.float32(1e-6), FP32)], 1)
    assert cards(builder) == ()


def test_opacity_grows_with_relevance() -> None:
    veils = [float(page.veil(share)) for share in (0.0, 0.25, 0.5, 1.0)]
    assert veils == sorted(veils)
    assert veils[0] > 0
    assert veils[-1] <= 1
