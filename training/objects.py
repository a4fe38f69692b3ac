"""Objects: which ones a scene has, where they are, and how they are drawn and pasted, in integers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from edgekit_arrcoc.counter_rng import Chance
from edgekit_arrcoc.queries import ATTRIBUTES
from training.drawing import TURN, Strokes, stamp

EDGE = 224
"""Edge of the default frame in pixels."""

MOST_OBJECTS = 12
"""Of a frame of 224 x 224; other frames hold more or fewer, in proportion to the root of their area."""

FEWEST_OBJECTS = 3

MARGIN = 52
"""Pixels of canvas on each side of the frame, so that objects may stick out."""

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
TONES = {
    "red": (0xFF0000, 0xE60000, 0xD21E1E, 0xDC143C, 0xE53935, 0xCC0000, 0xF01010, 0xC00000),
    "orange": (0xFFA500, 0xFF8C00, 0xFF7F00, 0xF57C00, 0xFF9800, 0xED7D31),
    "yellow": (0xFFFF00, 0xFFD700, 0xFFEB3B, 0xF5E000, 0xFFF200, 0xFFEE58),
    "green": (0x008000, 0x00FF00, 0x00A000, 0x228B22, 0x32CD32, 0x4CAF50, 0x006400, 0x00C800, 0x22B14C),
    "cyan": (0x00FFFF, 0x00CED1, 0x40E0D0, 0x48D1CC, 0x00BCD4, 0x20B2AA, 0x008080, 0x00E5FF),
    "blue": (0x0000FF, 0x4169E1, 0x1E90FF, 0x0000CD, 0x000080, 0x2196F3, 0x3F48CC, 0x1565C0),
    "purple": (0x800080, 0x8A2BE2, 0x9400D3, 0x9C27B0, 0x6A0DAD, 0x663399, 0x7030A0, 0xA020F0),
    "pink": (0xFFC0CB, 0xFF69B4, 0xFFB6C1, 0xFF1493, 0xF48FB1, 0xFFAEC9, 0xFF80C0),
    "brown": (0xA52A2A, 0x8B4513, 0x795548, 0x654321, 0xA0522D, 0x6B3E1E, 0x964B00),
    "white": (0xFFFFFF, 0xFFFFFF, 0xF5F5F5, 0xFAFAFA, 0xF0F0F0),
    "black": (0x000000, 0x000000, 0x111111, 0x1A1A1A, 0x222222),
}
"""Name -> tones of pictures that people draw, as 0xRRGGBB."""


@dataclass(frozen=True)
class Frame:
    """Height and width of a scene in pixels, multiples of 16."""

    height: int = EDGE
    width: int = EDGE

    @property
    def most(self) -> int:
        """Objects that it holds at most: 12 at 224 x 224, 27 at 512 x 512, 5 at 96 x 96."""
        return max(FEWEST_OBJECTS, round(MOST_OBJECTS * math.sqrt(self.height * self.width) / EDGE))

    @property
    def canvas(self) -> tuple[int, int]:
        """Height and width with the margins."""
        return self.height + 2 * MARGIN, self.width + 2 * MARGIN


@dataclass(frozen=True)
class Things:
    """Where objects are: every field [B, P], attributes [B, P, 4]; x and y in pixels, radius in quarter pixels."""

    attributes: Tensor
    radius: Tensor
    x: Tensor
    y: Tensor


def tones(device: torch.device) -> Tensor:
    """[colours, 3 tones, RGB] int64."""
    return torch.tensor(list(COLOURS.values()), device=device)


def arrange(chance: Chance, frame: Frame, empty: Tensor | None, cast: Chance | None = None) -> Things:
    """Objects, mostly larger ones behind smaller ones, each where it overlaps least among eight places.

    Args:
        chance: Draws for B scenes.
        frame: How large the scenes are.
        empty: [B] bool, scenes without any object; None where all have some.
        cast: Draws of scenes with sprites, whose objects are larger; None for other scenes.
    """
    most = frame.most
    count = chance.between(FEWEST_OBJECTS, most, 1)
    if empty is not None:
        count = count * ~empty.unsqueeze(1)
    attributes = draw_attributes(chance, most)
    if cast is not None:
        count = torch.minimum(count, cast.between(FEWEST_OBJECTS, most, 1))
        attributes[:, :, 0] = torch.maximum(attributes[:, :, 0], cast.below(3, most))
    exists = torch.arange(most, device=count.device) < count
    key = torch.where(exists, attributes[:, :, 0] * 2 + chance.below(3, most), -1)
    order = torch.sort(key * most + torch.arange(most, device=key.device), descending=True)[1]
    attributes = attributes.gather(1, order.unsqueeze(2).expand(-1, -1, 4))
    # The order puts what does not exist last, so the mask stays the same.
    attributes = torch.where(exists.unsqueeze(2), attributes, -1)
    radius = torch.where(exists, _radius(chance, attributes[:, :, 0]), 0)
    x, y = torch.zeros_like(radius), torch.zeros_like(radius)
    for slot in range(most):
        x[:, slot], y[:, slot] = _place(chance, frame, radius, x, y, slot)
    return Things(attributes, radius, x, y)


def scatter(chance: Chance, frame: Frame, count: int) -> Things:
    """So many objects of any kind, anywhere."""
    attributes = draw_attributes(chance, count)
    radius = _radius(chance, attributes[:, :, 0])
    return Things(attributes, radius, chance.below(frame.width, count), chance.below(frame.height, count))


def draw_attributes(chance: Chance, count: int) -> Tensor:
    """Random attributes, many of them copied from an earlier object, so that distractors share some: [B, count, 4]."""
    size = chance.below(20, count)
    sizes = (size >= 8).to(torch.int64) + (size >= 15).to(torch.int64)
    others = [chance.below(len(values), count) for values in ATTRIBUTES[1:]]
    attributes = torch.stack([sizes, *others], 2)
    shared = chance.bernoulli(30, count, 4)
    for slot in range(1, count):
        model = chance.below(slot, 1, 1).expand(-1, 1, 4)
        copied = attributes.gather(1, model)[:, 0]
        attributes[:, slot] = torch.where(shared[:, slot], copied, attributes[:, slot])
    return attributes


def _radius(chance: Chance, size: Tensor) -> Tensor:
    """Radius in quarter pixels for size classes [B, P]."""
    ranges = torch.tensor(list(SIZES.values()), device=size.device)[size.clamp(min=0)]
    low, high = ranges[..., 0], ranges[..., 1]
    return low + (chance.bits(size.shape[1]) * (high - low + 1) >> 32)


def _place(chance: Chance, frame: Frame, radius: Tensor, x: Tensor, y: Tensor, slot: int) -> tuple[Tensor, Tensor]:
    """The centre in pixels, [B] each, of eight candidates the one that overlaps the earlier objects least."""
    inset = radius[:, slot, None] // 6
    tries = [inset + (chance.bits(8) * (edge - 2 * inset) >> 32) for edge in (frame.width, frame.height)]
    reach = (radius[:, None, :slot] + radius[:, slot, None, None]) // 4
    gap = (tries[0].unsqueeze(2) - x[:, None, :slot]) ** 2 + (tries[1].unsqueeze(2) - y[:, None, :slot]) ** 2
    overlap = (reach**2 - gap).clamp(min=0).sum(2)
    # The index breaks ties, which argmin may break differently on different devices.
    best = (overlap * 8 + torch.arange(8, device=overlap.device)).argmin(1, keepdim=True)
    return tries[0].gather(1, best)[:, 0], tries[1].gather(1, best)[:, 0]


@dataclass(frozen=True)
class Layer:
    """Objects of one slot and one size, drawn: each one's scene [n], its window's corner [n, 2] (y, x) and its pixels.

    Colour is [n, 3, w, w] int32 in [0, 255]; alpha is [n, 1, w, w] int32, quarters of the pixel covered.
    """

    slot: int
    scene: Tensor
    corner: Tensor
    colour: Tensor
    alpha: Tensor


_DRAWS = {"angle": TURN, "grain": TURN, "period": 1024, "shift": 400, "second": 2}


def draw(chance: Chance, things: Things, chosen: Tensor | None = None) -> list[Layer]:
    """Draw all objects, each in a window that fits its size, ordered from the back to the front.

    Args:
        chance: Draws for B scenes.
        things: Where they are.
        chosen: [B, P] int64, -1 for those that are drawn; the others are sprites. None where all are drawn.
    """
    slots = things.radius.shape[1]
    draws = {name: chance.below(limit, slots) for name, limit in _DRAWS.items()}
    jitter, light = chance.between(-14, 14, slots, 3), chance.between(-30, 30, 2)
    layers = []
    for number, (_, _, window) in enumerate(SIZES.values()):
        own = things.attributes[:, :, 0] == number
        own = own if chosen is None else own & (chosen < 0)
        slot, scene = torch.nonzero(own.t(), as_tuple=True)  # ordered by slot
        attributes, radius = things.attributes[scene, slot], things.radius[scene, slot]
        strokes = _strokes(attributes, radius, {name: values[scene, slot] for name, values in draws.items()})
        drawn = stamp(strokes, window)
        colour = _colour(attributes[:, 1], draws["second"][scene, slot], jitter[scene, slot], drawn.tone.unsqueeze(1))
        colour = (colour * _shade(light[scene].to(torch.int32), strokes.radius, window) >> 8).clamp(0, 255)
        corner = torch.stack([things.y[scene, slot], things.x[scene, slot]], 1) + MARGIN - window // 2
        counts = own.sum(0).tolist()
        parts = (torch.split(part, counts) for part in (scene, corner, colour, drawn.alpha.unsqueeze(1)))
        layers += [Layer(index, *fields) for index, fields in enumerate(zip(*parts, strict=True))]
    return sorted(layers, key=lambda layer: layer.slot)


def _strokes(attributes: Tensor, radius: Tensor, draws: dict[str, Tensor]) -> Strokes:
    """Strokes of n objects; textures are coarser on larger objects: a period of 5.5 to 14 pixels."""
    least = 20 + radius // 14 + 2 * attributes[:, 0]
    period = least + (draws["period"] * (least // 2 + 4 * attributes[:, 0]) >> 10)
    fields = (attributes[:, 3], attributes[:, 2], radius, draws["angle"], draws["grain"], period, draws["shift"])
    return Strokes(*(field.to(torch.int32) for field in fields))


def _colour(name: Tensor, second: Tensor, jitter: Tensor, tone: Tensor) -> Tensor:
    """Colours of n objects whose pixels are in the second tone by so many quarters: [n, 3, w, w] int32."""
    chosen = (tones(name.device)[name] + jitter.unsqueeze(1)).to(torch.int32).unsqueeze(-1).unsqueeze(-1)
    main, other = chosen[:, 0], torch.where((second == 0).view(-1, 1, 1, 1), chosen[:, 1], chosen[:, 2])
    return (main * (4 - tone) + other * tone) >> 2


def _shade(light: Tensor, radius: Tensor, window: int) -> Tensor:
    """Light that falls off across an object, in 1/256: [n, 1, window, window]."""
    line = 4 * torch.arange(window, dtype=torch.int32, device=light.device) - 2 * window
    slope = line.view(1, 1, -1) * light[:, 0].view(-1, 1, 1) + line.view(1, -1, 1) * light[:, 1].view(-1, 1, 1)
    return (256 + slope // radius.view(-1, 1, 1)).unsqueeze(1)


def paste(canvas: Tensor, layers: list[Layer], shadow: Tensor | None) -> Tensor:
    """Put objects onto the canvas ([B, 3, h, w], changed in place), with shadows of a strength of [B] / 64 or without.

    Returns:
        Who owns each pixel: [B, h, w] int32, 0 for the background, else 1 + slot.
    """
    owners = torch.zeros_like(canvas[:, 0])
    across, area = canvas.shape[3], canvas.shape[2] * canvas.shape[3]
    channel = torch.arange(3, device=canvas.device).view(1, 3, 1, 1) * area
    pixels, owned = canvas.view(-1), owners.view(-1)
    for layer in layers:
        line = torch.arange(layer.alpha.shape[-1], device=canvas.device)
        corner = (layer.corner[:, 0] * across + layer.corner[:, 1]).view(-1, 1, 1, 1)
        place = corner + line.view(1, 1, -1, 1) * across + line
        scene = layer.scene.view(-1, 1, 1, 1) * area
        if shadow is not None:
            dim = 256 - layer.alpha * shadow[layer.scene].to(torch.int32).view(-1, 1, 1, 1)
            for shift in (2 * across + 2, 3 * across + 4):  # two offsets soften the shadow's border
                target = place + shift + channel + 3 * scene
                pixels[target] = pixels[target] * dim >> 8
        target = place + channel + 3 * scene
        pixels[target] = (pixels[target] * (4 - layer.alpha) + layer.colour * layer.alpha + 2) >> 2
        target = place + scene
        owned[target] = torch.where(layer.alpha >= 2, layer.slot + 1, owned[target])
    return owners
