"""Scenes: objects among distractors on backgrounds, rendered from a seed, with what is visible where.

Training, calibration and evaluation images come from here. A seed gives the same bytes on every platform, device and
library version: random numbers are hashes (`chance`) and all arithmetic on pixels is integer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgekit.arrcoc.background import KINDS, backdrop, soften
from edgekit.arrcoc.counter_rng import Chance
from edgekit.arrcoc.drawing import SHAPES, TEXTURES, TURN, Strokes, stamp

EDGE = 224
"""Edge of a scene in pixels."""

CELL = 16
"""Edge of a patch in pixels."""

MOST_OBJECTS = 12
FEWEST_OBJECTS = 3

CLUTTER = 10
"""Out-of-focus objects behind a photograph-like scene."""

SIZES = {"small": (36, 52, 32), "medium": (64, 88, 52), "large": (112, 152, 88)}
"""Name -> smallest and largest radius in quarter pixels, and the window in pixels that holds every shape."""

COLOURS = {
    "red": ((205, 35, 40), (250, 175, 175), (85, 10, 15)),
    "orange": ((240, 130, 20), (255, 215, 155), (120, 55, 0)),
    "yellow": ((245, 220, 40), (255, 250, 190), (130, 110, 0)),
    "green": ((45, 155, 60), (175, 230, 175), (10, 65, 20)),
    "cyan": ((40, 200, 215), (190, 245, 250), (5, 90, 100)),
    "blue": ((35, 75, 205), (170, 190, 250), (10, 20, 90)),
    "purple": ((125, 45, 170), (215, 180, 240), (50, 10, 75)),
    "pink": ((245, 130, 185), (255, 220, 235), (140, 40, 90)),
    "brown": ((120, 75, 40), (215, 180, 145), (50, 28, 10)),
    "white": ((240, 240, 238), (165, 165, 165), (120, 120, 120)),
    "black": ((25, 25, 28), (100, 100, 100), (75, 75, 75)),
}
"""Name -> the main tone and two second tones, a lighter and a darker (for white and black two greys), in sRGB bytes."""

ATTRIBUTES = (tuple(SIZES), tuple(COLOURS), tuple(TEXTURES), tuple(SHAPES))
"""The values of the four attributes, in the order of `Scenes.attributes` and of words in a query."""

_MARGIN = 52
_CANVAS = EDGE + 2 * _MARGIN


@dataclass(frozen=True)
class Scenes:
    """B scenes with at most P = 12 objects and N = 196 patches.

    Attributes:
        images: [B, 3, 224, 224] uint8, RGB.
        attributes: [B, P, 4] int64, indices into `ATTRIBUTES`; -1 where there is no object.
        visible: [B, P, N] int16, pixels of each patch in which the object is the topmost, in [0, 256].
        outline: [B, N] int16, pixels of each patch on the visible outline of an object.
        area: [B, P] int16, least visible pixels for an object to be asked about.
    """

    images: Tensor
    attributes: Tensor
    visible: Tensor
    outline: Tensor
    area: Tensor


def render(seeds: Tensor) -> Scenes:
    """Render one scene for each seed ([B] int64 in [0, 2^32)), on the device of the seeds."""
    chance = Chance(seeds)
    kind = chance.below(len(KINDS))
    palette = _palette(chance)
    canvas = backdrop(chance, kind, palette, _CANVAS)
    rows = torch.nonzero((kind == KINDS.index("photograph")) | chance.often(20))[:, 0]
    canvas[rows] = _behind(chance.branch(rows), canvas[rows])
    things = _arrange(chance)
    owners = _paste(canvas, _draw(chance, things), chance.between(0, 18))
    images = _expose(chance, canvas)
    owner = owners[:, _MARGIN:-_MARGIN, _MARGIN:-_MARGIN]
    visible = torch.stack([_count(owner == slot + 1) for slot in range(MOST_OBJECTS)], 1)
    least = (things.radius * things.radius // 32).to(torch.int16)
    return Scenes(images, things.attributes, visible, _count(_outline(owner)), least)


@dataclass(frozen=True)
class _Things:
    """Where objects are: every field [B, P], attributes [B, P, 4]; x and y in pixels, radius in quarter pixels."""

    attributes: Tensor
    radius: Tensor
    x: Tensor
    y: Tensor


def _palette(chance: Chance) -> Tensor:
    """Three background colours a scene, [B, 3, 3] int32: any colour, a greyish one, or one that objects have."""
    free = chance.below(256, 3, 3)
    grey = chance.between(30, 225, 3, 1) + chance.between(-20, 20, 3, 3)
    known = _tones(free.device)[chance.below(len(COLOURS), 3), 0] + chance.between(-25, 25, 3, 3)
    which = chance.below(3, 3, 1)
    mixed = torch.where(which == 0, free, torch.where(which == 1, grey, known))
    return mixed.clamp(0, 255).to(torch.int32)


def _tones(device: torch.device) -> Tensor:
    """[colours, 3 tones, RGB] int64."""
    return torch.tensor(list(COLOURS.values()), device=device)


def _attributes(chance: Chance, count: int) -> Tensor:
    """Random attributes, many of them copied from an earlier object, so that distractors share some: [B, count, 4]."""
    size = chance.below(20, count)
    sizes = (size >= 8).to(torch.int64) + (size >= 15).to(torch.int64)
    others = [chance.below(len(values), count) for values in ATTRIBUTES[1:]]
    attributes = torch.stack([sizes, *others], 2)
    shared = chance.often(30, count, 4)
    for slot in range(1, count):
        model = chance.below(slot, 1, 1).expand(-1, 1, 4)
        copied = attributes.gather(1, model)[:, 0]
        attributes[:, slot] = torch.where(shared[:, slot], copied, attributes[:, slot])
    return attributes


def _arrange(chance: Chance) -> _Things:
    """3 to 12 objects, mostly larger ones behind smaller ones, each where it overlaps least among eight places."""
    count = chance.between(FEWEST_OBJECTS, MOST_OBJECTS, 1)
    attributes = _attributes(chance, MOST_OBJECTS)
    exists = torch.arange(MOST_OBJECTS, device=count.device) < count
    key = torch.where(exists, attributes[:, :, 0] * 2 + chance.below(3, MOST_OBJECTS), -1)
    order = torch.sort(key * MOST_OBJECTS + torch.arange(MOST_OBJECTS, device=key.device), descending=True)[1]
    attributes = attributes.gather(1, order.unsqueeze(2).expand(-1, -1, 4))
    attributes = torch.where(exists.unsqueeze(2), attributes, -1)
    radius = torch.where(exists, _radius(chance, attributes[:, :, 0]), 0)
    x, y = torch.zeros_like(radius), torch.zeros_like(radius)
    for slot in range(MOST_OBJECTS):
        x[:, slot], y[:, slot] = _place(chance, radius, x, y, slot)
    return _Things(attributes, radius, x, y)


def _radius(chance: Chance, size: Tensor) -> Tensor:
    """Radius in quarter pixels for size classes [B, P]."""
    ranges = torch.tensor(list(SIZES.values()), device=size.device)[size.clamp(min=0)]
    low, high = ranges[..., 0], ranges[..., 1]
    return low + (chance.bits(size.shape[1]) * (high - low + 1) >> 32)


def _place(chance: Chance, radius: Tensor, x: Tensor, y: Tensor, slot: int) -> tuple[Tensor, Tensor]:
    """The centre in pixels, [B] each, of eight candidates the one that overlaps the earlier objects least."""
    inset = radius[:, slot, None] // 6
    span = EDGE - 2 * inset
    tries = [inset + (chance.bits(8) * span >> 32) for _ in range(2)]
    reach = (radius[:, None, :slot] + radius[:, slot, None, None]) // 4
    gap = (tries[0].unsqueeze(2) - x[:, None, :slot]) ** 2 + (tries[1].unsqueeze(2) - y[:, None, :slot]) ** 2
    overlap = (reach**2 - gap).clamp(min=0).sum(2)
    # The index breaks ties, which argmin may break differently on different devices.
    best = (overlap * 8 + torch.arange(8, device=overlap.device)).argmin(1, keepdim=True)
    return tries[0].gather(1, best)[:, 0], tries[1].gather(1, best)[:, 0]


@dataclass(frozen=True)
class _Layer:
    """Objects of one slot and one size, drawn: each one's scene [n], its window's corner [n, 2] (y, x) and its pixels.

    Colour is [n, 3, w, w] int32 in [0, 255]; alpha is [n, 1, w, w] int32, quarters of the pixel covered.
    """

    slot: int
    scene: Tensor
    corner: Tensor
    colour: Tensor
    alpha: Tensor


def _draw(chance: Chance, things: _Things) -> list[_Layer]:
    """Draw all objects, each in a window that fits its size, ordered from the back to the front."""
    slots = things.radius.shape[1]
    draws = {name: chance.below(limit, slots) for name, limit in _DRAWS.items()}
    jitter, light = chance.between(-14, 14, slots, 3), chance.between(-30, 30, 2)
    layers = []
    for number, (_, _, window) in enumerate(SIZES.values()):
        chosen = things.attributes[:, :, 0] == number
        slot, scene = torch.nonzero(chosen.t(), as_tuple=True)  # ordered by slot
        attributes, radius = things.attributes[scene, slot], things.radius[scene, slot]
        strokes = _strokes(attributes, radius, {name: values[scene, slot] for name, values in draws.items()})
        drawn = stamp(strokes, window)
        colour = _colour(attributes[:, 1], draws["second"][scene, slot], jitter[scene, slot], drawn.tone.unsqueeze(1))
        colour = (colour * _shade(light[scene].to(torch.int32), strokes.radius, window) >> 8).clamp(0, 255)
        corner = torch.stack([things.y[scene, slot], things.x[scene, slot]], 1) + _MARGIN - window // 2
        counts = chosen.sum(0).tolist()
        parts = (torch.split(part, counts) for part in (scene, corner, colour, drawn.alpha.unsqueeze(1)))
        layers += [_Layer(index, *fields) for index, fields in enumerate(zip(*parts, strict=True))]
    return sorted(layers, key=lambda layer: layer.slot)


_DRAWS = {"angle": TURN, "grain": TURN, "period": 1024, "shift": 400, "second": 2}


def _strokes(attributes: Tensor, radius: Tensor, draws: dict[str, Tensor]) -> Strokes:
    """Strokes of n objects; textures are coarser on larger objects: a period of 5.5 to 14 pixels."""
    least = 20 + radius // 14 + 2 * attributes[:, 0]
    period = least + (draws["period"] * (least // 2 + 4 * attributes[:, 0]) >> 10)
    fields = (attributes[:, 3], attributes[:, 2], radius, draws["angle"], draws["grain"], period, draws["shift"])
    return Strokes(*(field.to(torch.int32) for field in fields))


def _colour(name: Tensor, second: Tensor, jitter: Tensor, tone: Tensor) -> Tensor:
    """Colours of n objects whose pixels are in the second tone by so many quarters: [n, 3, w, w] int32."""
    tones = (_tones(name.device)[name] + jitter.unsqueeze(1)).to(torch.int32).unsqueeze(-1).unsqueeze(-1)
    main, other = tones[:, 0], torch.where((second == 0).view(-1, 1, 1, 1), tones[:, 1], tones[:, 2])
    return (main * (4 - tone) + other * tone) >> 2


def _shade(light: Tensor, radius: Tensor, window: int) -> Tensor:
    """Light that falls off across an object, in 1/256: [n, 1, window, window]."""
    line = 4 * torch.arange(window, dtype=torch.int32, device=light.device) - 2 * window
    slope = line.view(1, 1, -1) * light[:, 0].view(-1, 1, 1) + line.view(1, -1, 1) * light[:, 1].view(-1, 1, 1)
    return (256 + slope // radius.view(-1, 1, 1)).unsqueeze(1)


def _paste(canvas: Tensor, layers: list[_Layer], shadow: Tensor | None) -> Tensor:
    """Put objects onto the canvas ([B, 3, S, S], changed in place), with shadows of a strength of [B] / 64 or without.

    Returns:
        Who owns each pixel: [B, S, S] int32, 0 for the background, else 1 + slot.
    """
    owners = torch.zeros_like(canvas[:, 0])
    channel = torch.arange(3, device=canvas.device).view(1, 3, 1, 1) * _CANVAS**2
    pixels, owned = canvas.view(-1), owners.view(-1)
    for layer in layers:
        line = torch.arange(layer.alpha.shape[-1], device=canvas.device)
        corner = (layer.corner[:, 0] * _CANVAS + layer.corner[:, 1]).view(-1, 1, 1, 1)
        place = corner + line.view(1, 1, -1, 1) * _CANVAS + line
        scene = layer.scene.view(-1, 1, 1, 1) * _CANVAS**2
        if shadow is not None:
            dim = 256 - layer.alpha * shadow[layer.scene].to(torch.int32).view(-1, 1, 1, 1)
            for shift in (2 * _CANVAS + 2, 3 * _CANVAS + 4):  # two offsets soften the shadow's border
                target = place + shift + channel + 3 * scene
                pixels[target] = pixels[target] * dim >> 8
        target = place + channel + 3 * scene
        pixels[target] = (pixels[target] * (4 - layer.alpha) + layer.colour * layer.alpha + 2) >> 2
        target = place + scene
        owned[target] = torch.where(layer.alpha >= 2, layer.slot + 1, owned[target])
    return owners


def _behind(chance: Chance, canvas: Tensor) -> Tensor:
    """The backdrop with objects of any kind in it, out of focus."""
    attributes = _attributes(chance, CLUTTER)
    things = _Things(
        attributes, _radius(chance, attributes[:, :, 0]), chance.below(EDGE, CLUTTER), chance.below(EDGE, CLUTTER)
    )
    _paste(canvas, _draw(chance, things), None)
    return soften(canvas, 4)


def _expose(chance: Chance, canvas: Tensor) -> Tensor:
    """Light across the scene, slight blur and sensor noise in some scenes, and the crop: [B, 3, 224, 224] uint8."""
    inner = canvas[:, :, _MARGIN - 1 : 1 - _MARGIN, _MARGIN - 1 : 1 - _MARGIN]
    rows = inner[:, :, :-2] + 2 * inner[:, :, 1:-1] + inner[:, :, 2:]
    smooth = (rows[..., :-2] + 2 * rows[..., 1:-1] + rows[..., 2:] + 8) >> 4
    soft = chance.often(35).view(-1, 1, 1, 1)
    image = torch.where(soft, smooth, inner[:, :, 1:-1, 1:-1])
    line = torch.arange(EDGE, dtype=torch.int32, device=canvas.device) - EDGE // 2
    tilt = chance.between(-48, 48, 2).to(torch.int32).view(-1, 2, 1, 1)
    level = chance.between(215, 285).to(torch.int32).view(-1, 1, 1)
    light = level + ((line.view(1, 1, -1) * tilt[:, 0] + line.view(1, -1, 1) * tilt[:, 1]) >> 7)
    image = image * light.unsqueeze(1) >> 8
    amount = (chance.between(1, 12) * chance.often(25)).view(-1, 1, 1)
    bits = chance.bits(EDGE, EDGE)
    noise = [((((bits >> place) & 255) - 128) * amount >> 7).to(torch.int32) for place in (0, 8, 16)]
    return (image + torch.stack(noise, 1)).clamp(0, 255).to(torch.uint8)


def _outline(owner: Tensor) -> Tensor:
    """Pixels whose owner differs from that of the right or the lower neighbour: [B, 224, 224] bool."""
    edge = torch.zeros_like(owner, dtype=torch.bool)
    edge[:, :, :-1] |= owner[:, :, :-1] != owner[:, :, 1:]
    edge[:, :-1] |= owner[:, :-1] != owner[:, 1:]
    return edge


def _count(pixels: Tensor) -> Tensor:
    """Pixels of each patch that are set: [B, 224, 224] bool -> [B, 196] int16."""
    cells = EDGE // CELL
    return pixels.view(-1, cells, CELL, cells, CELL).sum((2, 4), dtype=torch.int16).flatten(1)
