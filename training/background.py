"""Backdrop: gradients, clouds, patterns and out-of-focus clutter, in integers."""

from __future__ import annotations

import torch
from torch import Tensor

from edgekit_arrcoc.counter_rng import Chance
from training.drawing import TEXTURES, TURN, Strokes, rotate, weave

KINDS = ("gradient", "clouds", "pattern", "photograph")
"""A photograph is clouds plus objects out of focus, which `scenes` adds."""

OCTAVES = (64, 32, 16, 8)
"""Cell sizes of the value noise in pixels; each octave weighs half of the one before."""


def backdrop(chance: Chance, kind: Tensor, palette: Tensor, size: int) -> Tensor:
    """Paint backgrounds.

    Args:
        chance: Draws for B scenes.
        kind: [B] int64, index into `KINDS`.
        palette: [B, 3, 3] int32, three RGB colours in [0, 255]: two to mix, a third for patches of clouds.
        size: Edge in pixels.

    Returns:
        [B, 3, size, size] int32 in [0, 255].
    """
    mix = torch.zeros(len(kind), size, size, dtype=torch.int32, device=kind.device)
    for number, paint in enumerate((gradient, clouds, pattern, clouds)):
        rows = torch.nonzero(kind == number)[:, 0]
        mix[rows] = paint(chance.branch(rows), size)
    mix = mix.unsqueeze(1)
    first, second, third = palette.unsqueeze(-1).unsqueeze(-1).unbind(1)
    painted = first + ((second - first) * mix >> 8)
    # A second, independent cloud brings a third colour in, except on plain gradients, and unevenness everywhere.
    drift = clouds(chance, size).unsqueeze(1)
    share = (drift - 128).clamp(min=0) * (kind != 0).to(torch.int32).view(-1, 1, 1, 1)
    painted = painted + ((third - painted) * share >> 8)
    return (painted + ((drift - 128) >> 3)).clamp(0, 255)


def gradient(chance: Chance, size: int) -> Tensor:
    """A linear ramp in a random direction: [B, size, size] int32 in [0, 255]."""
    x, y = _places(size, chance)
    ramp, _ = rotate(x, y, chance.below(TURN).view(-1, 1, 1))
    return (128 + ((ramp >> 12) * 128) // (size * 3)).clamp(0, 255)


def clouds(chance: Chance, size: int) -> Tensor:
    """Value noise of four octaves, contrast stretched: [B, size, size] int32 in [0, 255]."""
    # The sum of the octaves spans [0, 255 * 15 / 8] and clusters about its middle, 239.
    total = torch.full((1, size, size), -239, dtype=torch.int32, device=chance.device)
    for level, cell in enumerate(OCTAVES):
        cells = size // cell + 2
        lattice = chance.below(256, cells, cells).to(torch.int32)
        total = total + (_stretch(_stretch(lattice, cell, size).transpose(1, 2), cell, size) >> level)
    return ((total * 3 >> 1) + 128).clamp(0, 255)


def _stretch(lattice: Tensor, cell: int, size: int) -> Tensor:
    """Interpolate the last axis linearly: [B, r, cells] -> [B, r, size]."""
    place = torch.arange(size, device=lattice.device)
    start, part = place // cell, (place % cell).to(torch.int32)
    return (lattice[:, :, start] * (cell - part) + lattice[:, :, start + 1] * part) // cell


def pattern(chance: Chance, size: int) -> Tensor:
    """One of the textures that objects have, over everything: [B, size, size] int32 in [0, 255]."""
    zero = torch.zeros_like(chance.below(2)).to(torch.int32)
    strokes = Strokes(
        shape=zero,
        texture=chance.between(1, len(TEXTURES) - 1).to(torch.int32),
        radius=zero,
        angle=zero,
        grain=chance.below(TURN).to(torch.int32),
        period=chance.between(24, 160).to(torch.int32),
        shift=chance.below(400).to(torch.int32),
    )
    x, y = _places(size, chance)
    contrast = chance.between(70, 255).to(torch.int32).view(-1, 1, 1)
    return weave(strokes, x, y).to(torch.int32) * contrast


def soften(painted: Tensor, radius: int) -> Tensor:
    """Two box blurs: [B, 3, h, w] int32 -> the same. Within 2 * radius of the border values are too dark."""
    width = 2 * radius + 1
    for axis in (2, 3, 2, 3):
        sums = painted.cumsum(axis, dtype=torch.int32)
        place = torch.arange(painted.shape[axis], device=painted.device)
        ahead = sums.index_select(axis, (place + radius).clamp(max=painted.shape[axis] - 1))
        behind = sums.index_select(axis, (place - radius - 1).clamp(min=0))
        painted = (ahead - behind) // width
    return painted


def _places(size: int, chance: Chance) -> tuple[Tensor, Tensor]:
    """Quarter pixels from the middle, [1, 1, size] and [1, size, 1] int32, on the device of the draws."""
    line = 4 * torch.arange(size, dtype=torch.int32, device=chance.device) - 2 * size
    return line.view(1, 1, -1), line.view(1, -1, 1)
