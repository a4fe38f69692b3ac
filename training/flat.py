"""Flat pictures: what a person draws first. Few objects in pure colours on white, black or one other colour.

The colours are those that CSS and paint programs call by the words of a query. Objects are from small to as large as
the picture, sharp or smooth at the edge, with or without an outline, or nothing but an outline; some grounds are
gradients, some have lines of text on them as a screen does. All arithmetic is integer, as in `scenes`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgekit_arrcoc.counter_rng import Chance
from edgekit_arrcoc.queries import ATTRIBUTES
from training import exposure
from training.background import gradient
from training.drawing import SHAPES, TURN, Strokes, quarters, rotate, weave
from training.objects import SIZES, TONES, Frame, draw_attributes, tones
from training.scenes import CELL, Scenes, count_pixels, find_outline
from training.sprites import EDGES, Sprites, Turned, choose, facts, lay, turn

MOST = 4
"""Objects of a picture at most; half of the pictures have one."""


WHITE, BLACK = ATTRIBUTES[1].index("white"), ATTRIBUTES[1].index("black")

LEGIBLE = 90
"""Least sum of the differences of the channels between an object and its ground; closer ones get an outline."""

DARK = 384
"""Sum of the channels of a ground below which outlines on it are white."""

LONGEST = 8 * 1024
"""Beyond so many 1/1024 of its radius a place is outside any shape; squares of larger numbers would overflow."""

_BATCH = 64 * 224 * 224


@dataclass(frozen=True)
class _Drawn:
    """n objects, [n, h, w] each: quarters of the pixel inside, in the stroke and in the second tone."""

    inside: Tensor
    stroke: Tensor
    tone: Tensor


@dataclass(frozen=True)
class _Style:
    """How the objects of B pictures are drawn; every field [B, P], in quarter pixels where it is a length."""

    radius: Tensor
    x: Tensor
    y: Tensor
    stroke: Tensor
    hollow: Tensor


def render(seeds: Tensor, frame: Frame | None = None, sprites: Sprites | None = None) -> Scenes:
    """Render one flat picture for each seed, on the device of the seeds; fields as those of `scenes.render`.

    Args:
        seeds: [B] int64 in [0, 2^32).
        frame: Height and width; 224 x 224 by default.
        sprites: Pictures of things with names, which most of the objects are then; None for drawn shapes only.
    """
    frame = frame or Frame()
    parts = [
        _render(part, frame, sprites) for part in torch.split(seeds, max(1, _BATCH // (frame.height * frame.width)))
    ]
    names = ("images", "attributes", "visible", "outline", "area", "grey", "nouns", "unclear")
    return Scenes(*(torch.cat([getattr(part, name) for part in parts]) for name in names))


def _render(seeds: Tensor, frame: Frame, sprites: Sprites | None) -> Scenes:
    chance = Chance(seeds)
    cast = None if sprites is None else chance.branch(torch.arange(len(seeds), device=seeds.device))
    ground, canvas = _ground(chance, frame)
    attributes = _attributes(chance)
    style, attributes = _style(chance, frame, attributes)
    main = _main(chance, attributes)
    unlike = (main - ground.unsqueeze(1)).abs().sum(2) >= LEGIBLE
    # An outline on what the ground would swallow; of black and white objects the stroke is never all there is.
    hollow = style.hollow & (attributes[:, :, 1] != WHITE) & (attributes[:, :, 1] != BLACK) & unlike
    least = torch.where(unlike, 0, 6 + style.radius // 24)
    stroke = torch.where(hollow, 6 + style.radius // 16, torch.maximum(style.stroke, least))
    edging = _edging(chance, ground, main)
    draws = {name: chance.below(limit, MOST) for name, limit in (("angle", TURN), ("grain", TURN), ("shift", 400))}
    upright, period, second = chance.bernoulli(60, MOST), chance.below(1024, MOST), chance.below(2, MOST)
    draws["angle"] = torch.where(upright, 0, draws["angle"])
    sharp, shaded, light = chance.bernoulli(35), chance.bernoulli(15), chance.between(-40, 40, 2)
    owners = torch.zeros_like(canvas[:, 0])
    chosen = torch.full_like(style.radius, -1)
    if cast is not None and sprites is not None:
        chosen, turned = choose(cast, sprites, attributes[:, :, 0] >= 0), turn(cast, MOST)
    for slot in range(MOST):
        if sprites is not None:
            _lay(sprites, chosen[:, slot], slot, turned.slot(slot),
                 style, canvas, owners)  # fmt: skip
        rows = torch.nonzero((attributes[:, slot, 0] >= 0) & (chosen[:, slot] < 0))[:, 0]
        own, radius = attributes[rows, slot], style.radius[rows, slot]
        coarse = 20 + radius // 14 + 2 * own[:, 0]
        fields = (
            own[:, 3], own[:, 2], radius, draws["angle"][rows, slot], draws["grain"][rows, slot],
            coarse + (period[rows, slot] * (coarse // 2) >> 10), draws["shift"][rows, slot],
        )  # fmt: skip
        strokes = Strokes(*(field.to(torch.int32) for field in fields))
        drawn = _draw(strokes, stroke[rows, slot], style.x[rows, slot], style.y[rows, slot], frame)
        alpha, line = drawn.inside, drawn.stroke
        whole = sharp[rows].view(-1, 1, 1)
        alpha = torch.where(whole, 4 * (alpha >= 2), alpha).to(torch.int32)
        line = torch.where(whole, 4 * (line >= 2), line).to(torch.int32).minimum(alpha)
        fill = _fill(own[:, 1], main[rows, slot], second[rows, slot], drawn.tone)
        shade = _shade(light[rows] * shaded[rows].unsqueeze(1), frame)
        fill = (fill * shade >> 8).clamp(0, 255)
        empty = hollow[rows, slot].view(-1, 1, 1, 1)
        border = torch.where(empty, _flat(main[rows, slot]), _flat(edging[rows, slot]))
        below, line = canvas[rows], line.unsqueeze(1)
        body = torch.where(empty, torch.zeros_like(line), alpha.unsqueeze(1) - line)
        canvas[rows] = (below * (4 - body - line) + fill * body + border * line + 2) >> 2
        owners[rows] = torch.where(alpha >= 2, slot + 1, owners[rows])
    image = canvas.clamp(0, 255)
    rows = torch.nonzero(chance.bernoulli(25))[:, 0]
    quality = chance.between(40, 95)[rows]
    image[rows] = exposure.jpeg(image[rows], quality)
    visible = torch.zeros(len(seeds), frame.most, owners[0].numel() // CELL**2, dtype=torch.int16, device=seeds.device)
    shown = min(MOST, frame.most)
    for slot in range(shown):
        visible[:, slot] = count_pixels(owners == slot + 1)
    full = torch.full((len(seeds), frame.most, len(ATTRIBUTES)), -1, dtype=torch.int64, device=seeds.device)
    full[:, :shown] = attributes[:, :shown]
    area = torch.zeros(len(seeds), frame.most, dtype=torch.int16, device=seeds.device)
    area[:, :shown] = (style.radius * style.radius // 32).clamp(max=4096)[:, :shown].to(torch.int16)
    grey = torch.zeros(len(seeds), dtype=torch.bool, device=seeds.device)
    shown_as = torch.full((len(seeds), frame.most), -1, dtype=torch.int64, device=seeds.device)
    shown_as[:, :shown] = chosen[:, :shown]
    full, nouns, unclear = facts(sprites, shown_as, full)
    outline = count_pixels(find_outline(owners))
    return Scenes(image.to(torch.uint8), full, visible, outline, area, grey, nouns, unclear)


def _lay(
    sprites: Sprites, chosen: Tensor, slot: int, turned: Turned, style: _Style, canvas: Tensor, owners: Tensor
) -> None:
    """Put the sprites of one slot ([B], -1 for none) onto the canvas and among the owners, both changed in place."""
    radius = style.radius[:, slot]
    down = 2 * torch.arange(canvas.shape[2], dtype=torch.int32, device=canvas.device).view(1, -1, 1) + 1
    across = 2 * torch.arange(canvas.shape[3], dtype=torch.int32, device=canvas.device).view(1, 1, -1) + 1
    # The finest level that is not much finer than what is shown.
    level = torch.where(radius > 112, 0, torch.where(radius > 56, 1, 2))
    for number in range(len(EDGES)):
        rows = torch.nonzero((chosen >= 0) & (level == number))[:, 0]
        if len(rows) == 0:
            continue
        x, y = (place[rows, slot].to(torch.int32).view(-1, 1, 1) >> 1 for place in (style.x, style.y))
        laid = lay(sprites, chosen[rows], number, radius[rows], turned.of(rows), across - x, down - y)
        canvas[rows] = (canvas[rows] * (4 - laid.alpha) + laid.colour * laid.alpha + 2) >> 2
        owners[rows] = torch.where(laid.alpha[:, 0] >= 2, slot + 1, owners[rows])


def _ground(chance: Chance, frame: Frame) -> tuple[Tensor, Tensor]:
    """The ground's colour [B, 3] and the canvas [B, 3, h, w], int32: flat, a gradient, or with lines of text."""
    roll = chance.below(100).unsqueeze(1)
    free, dim, pale = chance.below(256, 3), chance.between(18, 50, 1), chance.between(232, 250, 1)
    colour = torch.where(roll < 84, pale, free)
    for share, value in ((76, dim), (66, torch.zeros_like(dim)), (40, torch.full_like(dim, 255))):
        colour = torch.where(roll < share, value, colour)
    colour = colour.expand(-1, 3).to(torch.int32)
    canvas = _flat(colour).expand(-1, -1, frame.height, frame.width).clone()
    rows = torch.nonzero(chance.bernoulli(12))[:, 0]
    branch = chance.branch(rows)
    other = (colour[rows] + branch.between(-90, 90, 3)).clamp(0, 255).to(torch.int32)
    ramp = gradient(branch, max(frame.height, frame.width))[:, None, : frame.height, : frame.width]
    canvas[rows] = canvas[rows] + ((_flat(other) - canvas[rows]) * ramp >> 8)
    rows = torch.nonzero(chance.bernoulli(12))[:, 0]
    canvas[rows] = _written(chance.branch(rows), canvas[rows])
    return colour, canvas


def _written(chance: Chance, canvas: Tensor) -> Tensor:
    """Lines of grey dashes, as text looks from afar, over a part of each canvas."""
    high, wide = canvas.shape[2:]
    y = torch.arange(high, device=canvas.device).view(1, -1, 1)
    x = torch.arange(wide, device=canvas.device).view(1, 1, -1)
    pitch, dash = chance.between(9, 18).view(-1, 1, 1), chance.between(3, 9).view(-1, 1, 1)
    top, left = chance.below(high).view(-1, 1, 1), chance.below(wide).view(-1, 1, 1)
    depth, length = chance.between(20, high).view(-1, 1, 1), chance.between(30, wide).view(-1, 1, 1)
    words = chance.bits(64, 64)
    row, column = (y // pitch).clamp(max=63), (x // dash).clamp(max=63)
    place = (row * 64 + column).flatten(1)
    ink = words.flatten(1).gather(1, place).view(len(canvas), high, wide) % 4 > 0
    ink = ink & (y % pitch < pitch // 3 + 1) & (y >= top) & (y < top + depth) & (x >= left) & (x < left + length)
    level = chance.between(90, 175).to(torch.int32).view(-1, 1, 1, 1)
    return torch.where(ink.unsqueeze(1), level, canvas)


def _attributes(chance: Chance) -> Tensor:
    """Of one to four objects, mostly plain ones: [B, P, 4] int64, -1 where there is none."""
    roll = chance.below(100, 1)
    count = 1 + (roll >= 50).to(torch.int64) + (roll >= 70) + (roll >= 85) - (roll >= 98) * 4
    attributes = draw_attributes(chance, MOST)
    attributes[:, :, 2] = torch.where(chance.bernoulli(70, MOST), 0, attributes[:, :, 2])
    exists = torch.arange(MOST, device=count.device) < count
    return torch.where(exists.unsqueeze(2), attributes, -1)


def _style(chance: Chance, frame: Frame, attributes: Tensor) -> tuple[_Style, Tensor]:
    """Sizes, places and strokes; the attributes get the size that came out, and the largest are the furthest behind."""
    edge = min(frame.height, frame.width)
    exists = attributes[:, :, 0] >= 0
    ranges = torch.tensor(list(SIZES.values()), device=attributes.device)[attributes[:, :, 0].clamp(min=0)]
    low, high = ranges[..., 0], ranges[..., 1]
    usual = low + (chance.bits(MOST) * (high - low + 1) >> 32)
    free = chance.between(SIZES["small"][0], 2 * edge - edge // 8, MOST)
    filling = chance.between(edge, 2 * edge, MOST)
    alone = exists.sum(1, keepdim=True) == 1
    radius = torch.where(chance.bernoulli(50, MOST), usual, free)
    radius = torch.where(alone & chance.bernoulli(25, MOST), filling, radius)
    radius = torch.where(alone | chance.bernoulli(25, MOST), radius, radius.clamp(max=edge))
    radius = torch.where(exists, radius, 0)
    radius = torch.sort(radius, 1, descending=True)[0]
    bounds = ((SIZES["small"][1] + SIZES["medium"][0]) // 2, (SIZES["medium"][1] + SIZES["large"][0]) // 2)
    size = (radius > bounds[0]).to(torch.int64) + (radius > bounds[1])
    attributes = torch.cat([torch.where(exists, size, -1).unsqueeze(2), attributes[:, :, 1:]], 2)
    places = _places(chance, frame, radius)
    roll, thickness = chance.below(100, MOST), chance.between(4, 40, MOST)
    stroke = torch.where(roll < 25, torch.minimum(thickness, radius // 6), 0)
    return _Style(radius, *places, stroke, roll >= 88), attributes


def _places(chance: Chance, frame: Frame, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Centres [B, P] in quarter pixels, of six candidates the one that overlaps earlier objects least."""
    x, y = torch.zeros_like(radius), torch.zeros_like(radius)
    for slot in range(MOST):
        own = radius[:, slot, None]
        within = torch.where(chance.bernoulli(75, 1), own, own // 3)
        tries = []
        for edge in (4 * frame.width, 4 * frame.height):
            inset = within.clamp(max=edge // 2 - 1)
            tries.append(inset + (chance.bits(6) * (edge - 2 * inset) >> 32))
        reach = radius[:, None, :slot] + own.unsqueeze(2)
        gap = (tries[0].unsqueeze(2) - x[:, None, :slot]) ** 2 + (tries[1].unsqueeze(2) - y[:, None, :slot]) ** 2
        overlap = (reach**2 - gap).clamp(min=0).sum(2)
        # The index breaks ties, which argmin may break differently on different devices.
        best = (overlap * 8 + torch.arange(6, device=overlap.device)).argmin(1, keepdim=True)
        x[:, slot], y[:, slot] = tries[0].gather(1, best)[:, 0], tries[1].gather(1, best)[:, 0]
    return x, y


def _main(chance: Chance, attributes: Tensor) -> Tensor:
    """The main colour of each object, half of them a little off their tone: [B, P, 3] int32."""
    most = max(map(len, TONES.values()))
    table = torch.tensor([[tones[at % len(tones)] for at in range(most)] for tones in TONES.values()])
    packed = table.to(attributes.device)[attributes[:, :, 1].clamp(min=0), chance.below(most, MOST)]
    colour = torch.stack([packed >> 16, packed >> 8 & 255, packed & 255], 2)
    off = chance.between(-12, 12, MOST, 3) * chance.bernoulli(50, MOST).unsqueeze(2)
    return (colour + off).clamp(0, 255).to(torch.int32)


def _edging(chance: Chance, ground: Tensor, main: Tensor) -> Tensor:
    """The colour of strokes, [B, P, 3] int32: black on light grounds, white on dark ones, or a darker fill."""
    light = (ground.sum(1) >= DARK).view(-1, 1, 1)
    contrast = torch.where(light, 0, 255).to(torch.int32).expand_as(main)
    near = (main - contrast).abs().sum(2, keepdim=True) < LEGIBLE
    return torch.where(chance.bernoulli(25, MOST).unsqueeze(2) & ~near, main * 5 >> 3, contrast)


def _draw(strokes: Strokes, stroke: Tensor, x: Tensor, y: Tensor, frame: Frame) -> _Drawn:
    """Draw one object in each of n pictures with four samples a pixel."""
    device = strokes.shape.device
    down = 1 + 2 * torch.arange(2 * frame.height, dtype=torch.int32, device=device).view(1, -1, 1)
    across = 1 + 2 * torch.arange(2 * frame.width, dtype=torch.int32, device=device).view(1, 1, -1)
    down, across = down - y.to(torch.int32).view(-1, 1, 1), across - x.to(torch.int32).view(-1, 1, 1)
    inside = torch.zeros(len(x), down.shape[1], across.shape[2], dtype=torch.bool, device=device)
    within = inside.clone()
    scale = 4 * strokes.radius.view(-1, 1, 1)
    inner = 4 * (strokes.radius - stroke.to(torch.int32)).view(-1, 1, 1)
    for number, shape in enumerate(SHAPES.values()):
        rows = torch.nonzero(strokes.shape == number)[:, 0]
        u, v = rotate(across[rows], down[rows], strokes.angle[rows].view(-1, 1, 1))
        for mask, unit in ((inside, scale), (within, inner)):
            mask[rows] = shape(
                *(part.div(unit[rows], rounding_mode="floor").clamp(-LONGEST, LONGEST) for part in (u, v))
            )
    stroked = inside & ~within & (stroke > 0).view(-1, 1, 1)
    return _Drawn(*(quarters(samples) for samples in (inside, stroked, weave(strokes, across, down))))


def _fill(name: Tensor, main: Tensor, second: Tensor, tone: Tensor) -> Tensor:
    """Colours [n, 3, h, w] int32 of objects whose pixels are in the second tone by so many quarters."""
    known = tones(name.device)[name].to(torch.int32)
    other = torch.where((second == 0).view(-1, 1), known[:, 1], known[:, 2])
    return (_flat(main) * (4 - tone.unsqueeze(1)) + _flat(other) * tone.unsqueeze(1)) >> 2


def _shade(slope: Tensor, frame: Frame) -> Tensor:
    """Light that falls off across the picture, in 1/256: [n, 1, h, w] int32."""
    down = torch.arange(frame.height, device=slope.device).view(1, -1, 1) * 2 - frame.height
    across = torch.arange(frame.width, device=slope.device).view(1, 1, -1) * 2 - frame.width
    fall = across * slope[:, 0].view(-1, 1, 1) // frame.width + down * slope[:, 1].view(-1, 1, 1) // frame.height
    return (256 + fall).unsqueeze(1).to(torch.int32)


def _flat(colour: Tensor) -> Tensor:
    """[n, 3] -> [n, 3, 1, 1]."""
    return colour.unsqueeze(-1).unsqueeze(-1)
