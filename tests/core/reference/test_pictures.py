"""Pictures as every reader of them sees them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.reference.pictures import pixels_of


def opened(picture: Image.Image, kind: str, **options: Any) -> Image.Image:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return Image.open(file)


def test_a_picture_is_upright_on_white_and_of_8_bits() -> None:
    deep = np.arange(0, 65536, 8191, dtype=np.uint16).reshape(3, 3)
    grey = pixels_of(opened(Image.fromarray(deep), "PNG"))
    assert np.array_equal(grey[..., 1], np.round(deep / 257))  # not white from 255 on

    turned = Image.Exif()
    turned[0x0112] = 6  # a phone that was held upright
    colours = np.zeros((8, 16, 3), np.uint8)
    colours[:, :8, 0] = 255
    upright = pixels_of(opened(Image.fromarray(colours), "JPEG", exif=turned))
    assert upright.shape == (16, 8, 3)
    assert upright[:4, :, 0].min() > 200
    assert upright[-4:, :, 0].max() < 55

    assert pixels_of(opened(Image.new("RGBA", (4, 4), (0, 0, 0, 0)), "PNG")).min() == 255

    with pytest.raises(ValueError, match="32-bit numbers"):
        pixels_of(Image.fromarray(np.ones((2, 2), np.float32)))
