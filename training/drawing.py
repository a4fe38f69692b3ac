"""Drawing: shapes and textures as integer functions of the place, and stamps made of them.

Everything that decides a pixel is integer arithmetic, so that CPU and GPU draw the same bytes. Lengths are in quarter
pixels unless a name says otherwise; angles are in 1/256 of a turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from edgekit_arrcoc.counter_rng import MASK, scramble

UNIT = 1024
"""A shape's radius in its own coordinates."""

TURN = 256
"""Steps of a full turn."""

_WAVE = [round(4096 * math.sin(2 * math.pi * step / TURN)) for step in range(TURN)]
# Outward normals: five of them, 72 degrees apart, the first one up; three, 120 degrees apart, the first one down.
_FIVE = [(round(UNIT * math.sin(k * math.tau / 5)), round(-UNIT * math.cos(k * math.tau / 5))) for k in range(5)]
_THREE = [(round(UNIT * math.sin(k * math.tau / 3)), round(UNIT * math.cos(k * math.tau / 3))) for k in range(3)]


def wave(angle: Tensor) -> Tensor:
    """4096 times the sine of an angle in 1/256 of a turn; int32."""
    return torch.tensor(_WAVE, dtype=torch.int32, device=angle.device)[angle & (TURN - 1)]


def rotate(x: Tensor, y: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    """Turn coordinates about the origin: 4096 times (x cos + y sin, y cos - x sin)."""
    cosine, sine = wave(angle + TURN // 4), wave(angle)
    return x * cosine + y * sine, y * cosine - x * sine


def _beyond(u: Tensor, v: Tensor, normals: list[tuple[int, int]], distance: int) -> Tensor:
    """How many of the half-planes at that distance from the centre exclude a place."""
    return sum(((u * a + v * b > distance * UNIT).to(torch.int32) for a, b in normals), torch.zeros_like(u))


def _circle(u: Tensor, v: Tensor) -> Tensor:
    return u * u + v * v <= 960**2


def _square(u: Tensor, v: Tensor) -> Tensor:
    return torch.maximum(u.abs(), v.abs()) <= 780


def _triangle(u: Tensor, v: Tensor) -> Tensor:
    return _beyond(u, v, _THREE, 520) == 0


def _star(u: Tensor, v: Tensor) -> Tensor:
    # A pentagram: outside at most one of the five lines through its tips (at cos 72 degrees of the radius).
    return _beyond(u, -v, _FIVE, 340) <= 1


def _cross(u: Tensor, v: Tensor) -> Tensor:
    return (torch.minimum(u.abs(), v.abs()) <= 290) & (torch.maximum(u.abs(), v.abs()) <= 950)


def _ring(u: Tensor, v: Tensor) -> Tensor:
    square = u * u + v * v
    return (square <= 1000**2) & (square >= 560**2)


def _heart(u: Tensor, v: Tensor) -> Tensor:
    lobes = (u.abs() - 410) ** 2 + (v + 310) ** 2 <= 580**2
    return lobes | (u.abs() + (v - 100).abs() <= 820)


def _crescent(u: Tensor, v: Tensor) -> Tensor:
    return (u * u + v * v <= 1000**2) & ((u - 460) ** 2 + v * v > 780**2)


def _arrow(u: Tensor, v: Tensor) -> Tensor:
    shaft = (v.abs() <= 250) & (u >= -1000) & (u <= 100)
    return shaft | ((u >= 0) & (v.abs() * 5 <= (1000 - u) * 4))


def _bar(u: Tensor, v: Tensor) -> Tensor:
    return (u.abs() <= 1020) & (v.abs() <= 330)


SHAPES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "cross": _cross,
    "ring": _ring,
    "heart": _heart,
    "crescent": _crescent,
    "arrow": _arrow,
    "bar": _bar,
}
"""Name -> whether a place (in 1/1024 of the radius, y down) is inside."""


def _plain(a: Tensor, b: Tensor, period: Tensor) -> Tensor:
    return (a + b + period) != (a + b + period)


def _striped(a: Tensor, b: Tensor, period: Tensor) -> Tensor:
    return (a % period) * 2 < period


def _dotted(a: Tensor, b: Tensor, period: Tensor) -> Tensor:
    x, y = a % period * 2 - period, b % period * 2 - period
    return (x * x + y * y) * 9 < period * period * 4


def _checkered(a: Tensor, b: Tensor, period: Tensor) -> Tensor:
    return ((a * 2 // period) + (b * 2 // period)) % 2 == 0


def _zigzag(a: Tensor, b: Tensor, period: Tensor) -> Tensor:
    return ((b + (a % (2 * period) - period).abs()) % period) * 2 < period


def _speckled(a: Tensor, b: Tensor, period: Tensor) -> Tensor:
    x, y = (a * 3 // period) & 0xFFFF, (b * 3 // period) & 0xFFFF
    return scramble(((x.to(torch.int64) << 16) | y) & MASK) % 5 < 2


def _ringed(a: Tensor, b: Tensor, period: Tensor) -> Tensor:
    # The octagonal norm stands in for a root; 181 / 256 is 1 / sqrt 2.
    distance = torch.maximum(torch.maximum(a.abs(), b.abs()), (a.abs() + b.abs()) * 181 // 256)
    return (distance % period) * 2 < period


TEXTURES: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "plain": _plain,
    "striped": _striped,
    "dotted": _dotted,
    "checkered": _checkered,
    "zigzag": _zigzag,
    "speckled": _speckled,
    "ringed": _ringed,
}
"""Name -> where the second tone shows, at a place in quarter pixels."""


@dataclass(frozen=True)
class Stamps:
    """n drawn objects, each in a window of w x w pixels around its centre.

    Attributes:
        alpha: [n, w, w] int32, quarters of the pixel inside the shape.
        tone: [n, w, w] int32, quarters of the pixel in the second tone.
    """

    alpha: Tensor
    tone: Tensor


@dataclass(frozen=True)
class Strokes:
    """What decides the stamps of n objects; every field is [n] int32.

    Attributes:
        shape: Index into `SHAPES`.
        texture: Index into `TEXTURES`.
        radius: Quarter pixels.
        angle: Of the shape, in 1/256 of a turn.
        grain: Angle of the texture.
        period: Of the texture, quarter pixels.
        shift: Of the texture, quarter pixels, both axes.
    """

    shape: Tensor
    texture: Tensor
    radius: Tensor
    angle: Tensor
    grain: Tensor
    period: Tensor
    shift: Tensor


def stamp(strokes: Strokes, window: int) -> Stamps:
    """Draw n objects with four samples a pixel, each in a window of so many pixels (even)."""
    line = 1 + 2 * torch.arange(2 * window, dtype=torch.int32, device=strokes.shape.device) - 2 * window
    x, y = line.view(1, 1, -1), line.view(1, -1, 1)
    inside = torch.zeros(len(strokes.shape), 2 * window, 2 * window, dtype=torch.bool, device=line.device)
    scale = 4 * strokes.radius.view(-1, 1, 1)
    for number, shape in enumerate(SHAPES.values()):
        rows = torch.nonzero(strokes.shape == number)[:, 0]
        u, v = rotate(x, y, strokes.angle[rows].view(-1, 1, 1))
        inside[rows] = shape(u // scale[rows], v // scale[rows])
    return Stamps(quarters(inside), quarters(weave(strokes, x, y)))


def weave(strokes: Strokes, x: Tensor, y: Tensor) -> Tensor:
    """Where the second tone of n textures shows.

    Args:
        strokes: Textures, their angles, periods and shifts.
        x: [1, 1, w] or [n, 1, w] int32, quarter pixels from the middle.
        y: [1, h, 1] or [n, h, 1] int32, likewise.

    Returns:
        [n, h, w] bool.
    """
    second = torch.zeros(len(strokes.texture), y.shape[1], x.shape[2], dtype=torch.bool, device=x.device)
    for number, (name, texture) in enumerate(TEXTURES.items()):
        rows = torch.nonzero(strokes.texture == number)[:, 0]
        period, shift = strokes.period[rows].view(-1, 1, 1), strokes.shift[rows].view(-1, 1, 1)
        across, down = (line if len(line) == 1 else line[rows] for line in (x, y))
        a, b = rotate(across, down, strokes.grain[rows].view(-1, 1, 1))
        if name == "ringed":  # rings stay centred; everything else starts anywhere
            shift = torch.zeros_like(shift)
        second[rows] = texture((a >> 12) + shift, (b >> 12) + shift // 3, period)
    return second


def quarters(samples: Tensor) -> Tensor:
    """[n, 2h, 2w] bool -> [n, h, w] int32 in [0, 4]."""
    rows = samples[:, 0::2].to(torch.int32) + samples[:, 1::2]
    return rows[:, :, 0::2] + rows[:, :, 1::2]
