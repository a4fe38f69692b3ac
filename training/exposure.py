"""Exposure: what happens between a scene and its image, in integers: light, blur, noise, tones and JPEG."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from edgekit_arrcoc.counter_rng import Chance

REFERENCE_EDGE = 224
"""Pixels over which the light across a scene is given."""

BLOCK = 8
"""Edge of JPEG's blocks in pixels."""

SHIFT = 12
"""Bits after the point of the cosines."""

_COSINES = [
    [
        round(2**SHIFT * math.sqrt((1 if row == 0 else 2) / 8) * math.cos((2 * at + 1) * row * math.pi / 16))
        for at in range(8)
    ]
    for row in range(8)
]

_LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
"""Quantization steps of ITU-T T.81, annex K, table K.1; colour differences use them too, which is gentler than K.2."""


def expose(chance: Chance, canvas: Tensor, margin: int) -> Tensor:
    """Light across the scene, slight blur and sensor noise in some scenes, and the crop.

    Args:
        chance: Draws for B scenes.
        canvas: [B, 3, H + 2 margin, W + 2 margin] int32 in [0, 255].
        margin: Pixels to cut off on each side.

    Returns:
        [B, 3, H, W] uint8.
    """
    inner = canvas[:, :, margin - 1 : 1 - margin, margin - 1 : 1 - margin]
    rows = inner[:, :, :-2] + 2 * inner[:, :, 1:-1] + inner[:, :, 2:]
    smooth = (rows[..., :-2] + 2 * rows[..., 1:-1] + rows[..., 2:] + 8) >> 4
    soft = chance.bernoulli(35).view(-1, 1, 1, 1)
    image = torch.where(soft, smooth, inner[:, :, 1:-1, 1:-1])
    down, across = (_line(edge, canvas.device) for edge in image.shape[2:])
    tilt = chance.between(-48, 48, 2).to(torch.int32).view(-1, 2, 1, 1)
    level = chance.between(215, 285).to(torch.int32).view(-1, 1, 1)
    light = level + ((across.view(1, 1, -1) * tilt[:, 0] + down.view(1, -1, 1) * tilt[:, 1]) >> 7)
    image = image * light.unsqueeze(1) >> 8
    amount = (chance.between(1, 12) * chance.bernoulli(25)).view(-1, 1, 1)
    bits = chance.bits(*image.shape[2:])
    noise = [((((bits >> place) & 255) - 128) * amount >> 7).to(torch.int32) for place in (0, 8, 16)]
    return (image + torch.stack(noise, 1)).clamp(0, 255).to(torch.uint8)


def _line(edge: int, device: torch.device) -> Tensor:
    """Places from the middle of an edge, as if it were 224 pixels long: [edge] int32."""
    line = torch.arange(edge, dtype=torch.int32, device=device) - edge // 2
    return line * REFERENCE_EDGE // edge


def spoil(chance: Chance, images: Tensor) -> tuple[Tensor, Tensor]:
    """Low contrast, light and dark, colour casts, grey and JPEG, each in some of the images.

    Args:
        chance: Draws for B images.
        images: [B, 3, H, W] uint8.

    Returns:
        The images, and which of them are grey, [B] bool.
    """
    grey = chance.bernoulli(3)
    toned = tone(chance, images.to(torch.int32), grey, contrast=12, level=12, cast=12, least=120)
    rows = torch.nonzero(chance.bernoulli(22))[:, 0]
    quality = chance.between(35, 92)[rows]
    toned[rows] = jpeg(toned[rows], quality)
    return toned.to(torch.uint8), grey


def tone(chance: Chance, images: Tensor, grey: Tensor, *, contrast: int, level: int, cast: int, least: int) -> Tensor:
    """Change tones.

    Args:
        chance: Draws for B images.
        images: [B, 3, H, W] int32 in [0, 255].
        grey: [B] bool, which of them lose their colours.
        contrast: Of a hundred images, how many lose contrast.
        level: How many become darker or lighter.
        cast: How many get a colour cast.
        least: Smallest contrast and level that remain, in 1/256.
    """
    shape = (-1, 1, 1, 1)
    middle = chance.between(70, 180).view(shape).to(torch.int32)
    kept = torch.where(chance.bernoulli(contrast), chance.between(least, 256), 256).view(shape).to(torch.int32)
    gain = torch.where(chance.bernoulli(level), chance.between(least, 360), 256).view(-1, 1)
    channels = torch.where(chance.bernoulli(cast).view(-1, 1), chance.between(212, 292, 3), 256)
    gains = (gain * channels >> 8).to(torch.int32).view(-1, 3, 1, 1)
    images = torch.where(grey.view(shape), luma(images), images)
    # A cast on a grey image would give it a colour again.
    gains = torch.where(grey.view(shape), gains[:, :1], gains)
    return ((middle + ((images - middle) * kept >> 8)) * gains >> 8).clamp(0, 255)


def luma(images: Tensor) -> Tensor:
    """Brightness (ITU-R BT.601): [B, 3, H, W] int32 -> [B, 1, H, W] int32."""
    return (77 * images[:, :1] + 150 * images[:, 1:2] + 29 * images[:, 2:]) >> 8


def jpeg(images: Tensor, quality: Tensor) -> Tensor:
    """What JPEG loses at a quality ([B] int64 in [1, 100], as libjpeg scales its tables): [B, 3, H, W] int32.

    Products are of integers in float64, whose sums stay far below 2^53: exact in any order, on every device.
    """
    y = luma(images)
    planes = torch.cat([y - 128, (images[:, 2:] - y) * 144 >> 8, (images[:, :1] - y) * 183 >> 8], 1)
    count, _, high, wide = planes.shape
    blocks = planes.view(count, 3, high // BLOCK, BLOCK, wide // BLOCK, BLOCK).transpose(3, 4).to(torch.float64)
    cosines = torch.tensor(_COSINES, dtype=torch.float64, device=images.device)
    scale = torch.where(quality < 50, 5000 // quality, 200 - 2 * quality).view(-1, 1, 1)
    steps = torch.tensor(_LUMINANCE, device=images.device)
    steps = ((steps * scale + 50) // 100).clamp(1, 255).view(count, 1, 1, 1, BLOCK, BLOCK)
    found = (cosines @ blocks @ cosines.t()).to(torch.int64)
    whole = steps << 2 * SHIFT
    kept = torch.div(found + (whole >> 1), whole, rounding_mode="floor") * steps
    back = (cosines.t() @ kept.to(torch.float64) @ cosines).to(torch.int64)
    planes = ((back + (1 << 2 * SHIFT - 1)) >> 2 * SHIFT).to(torch.int32).transpose(3, 4).reshape(planes.shape)
    y, blue, red = (planes[:, at : at + 1] for at in range(3))
    y = y + 128
    first, last = y + (red * 359 >> 8), y + (blue * 454 >> 8)
    return torch.cat([first, y - ((red * 183 + blue * 88) >> 8), last], 1).clamp(0, 255)
