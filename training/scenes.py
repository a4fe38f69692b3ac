"""Scenes: objects among distractors on backgrounds, rendered from a seed, with what is visible where.

Training, calibration and evaluation images come from here. A seed gives the same bytes on every platform, device and
library version: random numbers are hashes (`counter_rng`) and all arithmetic on pixels is integer. With a bank of
photographs, most scenes have one behind, among and in front of their objects, and all may be badly exposed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgekit_arrcoc.counter_rng import Chance
from edgekit_arrcoc.queries import ATTRIBUTES
from training import exposure
from training.background import KINDS, backdrop, clouds, soften
from training.objects import (
    COLOURS,
    EDGE,
    FEWEST_OBJECTS,
    MARGIN,
    MOST_OBJECTS,
    Frame,
    arrange,
    draw,
    paste,
    scatter,
    tones,
)
from training.photographs import cut
from training.sprites import Sprites, choose, facts, show

__all__ = [
    "ATTRIBUTES",
    "CELL",
    "COLOURS",
    "EDGE",
    "FEWEST_OBJECTS",
    "MOST_OBJECTS",
    "Frame",
    "Scenes",
    "count_pixels",
    "find_outline",
    "render",
]

CELL = 16
"""Edge of a patch in pixels."""

CLUTTER = 10
"""Out-of-focus objects behind a photograph-like scene."""

EMPTY = 4
"""Of a hundred scenes with a photograph, how many have no object at all, where nothing else is said."""

BEHIND, GRAIN, FRONT = 30, 40, 25
"""Of a hundred scenes with a photograph, in how many pieces of a second one lie behind the objects, the texture of one
lies on the objects, and pieces of one lie in front of them."""


@dataclass(frozen=True)
class Scenes:
    """B scenes with at most P objects and N patches (12 and 196 in a frame of 224 x 224).

    Attributes:
        images: [B, 3, H, W] uint8, RGB.
        attributes: [B, P, 4] int64, indices into `ATTRIBUTES`; -1 where there is no object.
        visible: [B, P, N] int16, pixels of each patch in which the object is the topmost, in [0, 256].
        outline: [B, N] int16, pixels of each patch on the visible outline of an object.
        area: [B, P] int16, least visible pixels for an object to be asked about.
        grey: [B] bool, scenes without colours.
        nouns: [B, P] int64, index into `NOUNS` of an object that is a sprite; -1 of what has none.
        unclear: [B, concepts] bool, what nobody can say of a scene, because of its sprites.
    """

    images: Tensor
    attributes: Tensor
    visible: Tensor
    outline: Tensor
    area: Tensor
    grey: Tensor
    nouns: Tensor
    unclear: Tensor


def render(
    seeds: Tensor,
    frame: Frame | None = None,
    bank: Tensor | None = None,
    share: int = 100,
    bare: int = EMPTY,
    sprites: Sprites | None = None,
) -> Scenes:
    """Render one scene for each seed, on the device of the seeds.

    Args:
        seeds: [B] int64 in [0, 2^32).
        frame: Height and width; 224 x 224 by default.
        bank: Photographs [n, 3, s, s] uint8; None for scenes without any.
        share: Of a hundred scenes, how many have a photograph, where there is a bank.
        bare: Of a hundred scenes with a photograph, how many have no object at all.
        sprites: Pictures of things with names, which most of the objects are then; None for drawn shapes only.
    """
    frame = frame or Frame()
    chance = Chance(seeds)
    kind = chance.below(len(KINDS))
    palette = _palette(chance)
    high, wide = frame.canvas
    canvas = backdrop(chance, kind, palette, max(high, wide))[:, :, :high, :wide].contiguous()
    photograph = empty = None
    if bank is not None:
        photograph = chance.bernoulli(share)
        empty = photograph & chance.bernoulli(bare)
        _photographed(chance, canvas, bank, photograph)
    rows = torch.nonzero((kind == KINDS.index("photograph")) | chance.bernoulli(20))[:, 0]
    if photograph is not None:
        _pieces(chance, canvas, bank, photograph & chance.bernoulli(BEHIND))
        rows = torch.nonzero(chance.bernoulli(12))[:, 0]
    canvas[rows] = _behind(chance.branch(rows), frame, canvas[rows])
    cast = None if sprites is None else chance.branch(torch.arange(len(seeds), device=seeds.device))
    things = arrange(chance, frame, empty, cast)
    chosen = torch.full_like(things.radius, -1)
    if cast is not None and sprites is not None:
        chosen = choose(cast, sprites, things.attributes[:, :, 0] >= 0)
    layers = draw(chance, things, chosen)
    if cast is not None and sprites is not None:
        layers = sorted(layers + show(cast, sprites, chosen, things), key=lambda layer: layer.slot)
    owners = paste(canvas, layers, chance.between(0, 18))
    if photograph is not None:
        _grained(chance, canvas, owners, bank, photograph & chance.bernoulli(GRAIN))
        covered = _pieces(chance, canvas, bank, photograph & chance.bernoulli(FRONT))
        owners = torch.where(covered, 0, owners)
    images = exposure.expose(chance, canvas, MARGIN)
    grey = torch.zeros(len(seeds), dtype=torch.bool, device=seeds.device)
    if photograph is not None:
        images, grey = exposure.spoil(chance, images)
    owner = owners[:, MARGIN:-MARGIN, MARGIN:-MARGIN]
    visible = torch.stack([count_pixels(owner == slot + 1) for slot in range(frame.most)], 1)
    least = (things.radius * things.radius // 32).to(torch.int16)
    attributes, nouns, unclear = facts(sprites, chosen, things.attributes)
    return Scenes(images, attributes, visible, count_pixels(find_outline(owner)), least, grey, nouns, unclear)


def _palette(chance: Chance) -> Tensor:
    """Three background colours a scene, [B, 3, 3] int32: any colour, a greyish one, or one that objects have."""
    free = chance.below(256, 3, 3)
    grey = chance.between(30, 225, 3, 1) + chance.between(-20, 20, 3, 3)
    known = tones(free.device)[chance.below(len(COLOURS), 3), 0] + chance.between(-25, 25, 3, 3)
    which = chance.below(3, 3, 1)
    mixed = torch.where(which == 0, free, torch.where(which == 1, grey, known))
    return mixed.clamp(0, 255).to(torch.int32)


def _behind(chance: Chance, frame: Frame, canvas: Tensor) -> Tensor:
    """The backdrop with objects of any kind in it, out of focus."""
    paste(canvas, draw(chance, scatter(chance, frame, CLUTTER)), None)
    return soften(canvas, 4)


def _photographed(chance: Chance, canvas: Tensor, bank: Tensor | None, chosen: Tensor) -> None:
    """Replace the chosen backdrops by photographs."""
    rows = torch.nonzero(chosen)[:, 0]
    if bank is not None:
        canvas[rows] = cut(chance.branch(rows), bank, canvas.shape[2], canvas.shape[3])


def _pieces(chance: Chance, canvas: Tensor, bank: Tensor | None, chosen: Tensor) -> Tensor:
    """Put cloud-shaped pieces of photographs onto the chosen scenes: where, [B, h, w] bool."""
    covered = torch.zeros_like(canvas[:, 0], dtype=torch.bool)
    rows = torch.nonzero(chosen)[:, 0]
    branch = chance.branch(rows)
    high, wide = canvas.shape[2:]
    least = branch.between(168, 215).view(-1, 1, 1)
    mask = clouds(branch, max(high, wide))[:, :high, :wide] > least
    if bank is not None:
        other = cut(branch, bank, high, wide)
        canvas[rows] = torch.where(mask.unsqueeze(1), other, canvas[rows])
        covered[rows] = mask
    return covered


def _grained(chance: Chance, canvas: Tensor, owners: Tensor, bank: Tensor | None, chosen: Tensor) -> None:
    """Lay the fine texture of photographs on the objects of the chosen scenes."""
    rows = torch.nonzero(chosen)[:, 0]
    branch = chance.branch(rows)
    strength = branch.between(64, 320).to(torch.int32).view(-1, 1, 1, 1)
    if bank is not None:
        luma = exposure.luma(cut(branch, bank, canvas.shape[2], canvas.shape[3]))
        fine = ((luma - soften(luma, 4)) * strength >> 8).clamp(-48, 48) * (owners[rows] > 0).unsqueeze(1)
        canvas[rows] = (canvas[rows] + fine).clamp(0, 255)


def find_outline(owner: Tensor) -> Tensor:
    """Pixels whose owner differs from that of the right or the lower neighbour: [B, H, W] bool."""
    edge = torch.zeros_like(owner, dtype=torch.bool)
    edge[:, :, :-1] |= owner[:, :, :-1] != owner[:, :, 1:]
    edge[:, :-1] |= owner[:, :-1] != owner[:, 1:]
    return edge


def count_pixels(pixels: Tensor) -> Tensor:
    """Pixels of each patch that are set: [B, H, W] bool -> [B, N] int16."""
    rows, columns = pixels.shape[1] // CELL, pixels.shape[2] // CELL
    return pixels.reshape(-1, rows, CELL, columns, CELL).sum((2, 4), dtype=torch.int16).flatten(1)
