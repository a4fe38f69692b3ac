"""The obvious picture: one circle in a colour by its CSS name, on white, on black, or on nothing.

`python -m training.obvious` prints how many of them the shipped model finds, and how many of the queries that name
another colour or another shape it refuses.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from edgekit.model.spec import Array
from edgekit_arrcoc.model import ArrCoc
from edgekit_arrcoc.queries import ATTRIBUTES, vocabulary

CSS = {
    "red": ("red", 0xFF0000),
    "orange": ("orange", 0xFFA500),
    "yellow": ("yellow", 0xFFFF00),
    "lime": ("green", 0x00FF00),
    "green": ("green", 0x008000),
    "aqua": ("cyan", 0x00FFFF),
    "blue": ("blue", 0x0000FF),
    "purple": ("purple", 0x800080),
    "pink": ("pink", 0xFFC0CB),
    "brown": ("brown", 0xA52A2A),
    "white": ("white", 0xFFFFFF),
    "black": ("black", 0x000000),
}
"""CSS name -> the word of a query, and the colour as 0xRRGGBB."""

RADII = (12, 24, 40, 64, 90)
"""In pixels, of pictures of 224 x 224."""

GROUNDS = {"white": 255, "black": 0, "transparent": 255}
"""Name -> level. What is transparent is laid on white, as everywhere in edgekit; its circle is smooth at the edge."""

EDGE, FINE = 224, 4


@dataclass(frozen=True)
class Obvious:
    """One picture: [3, 224, 224] float32 in [0, 1], its word for the colour, and where it is from."""

    pixels: Array
    word: str
    colour: str
    radius: int
    ground: str


@dataclass(frozen=True)
class Found:
    """What a model says of the obvious pictures.

    Attributes:
        found: Of those asked for what they show, the share that reaches the threshold with its highest patch on it.
        refused: Of the queries about something else, the share below the threshold.
        asked: Queries of the first kind.
        others: Queries of the second kind.
        missed: Colour, radius and ground of what was not found.
        mistaken: The same of what was not refused, with the query.
    """

    found: float
    refused: float
    asked: int
    others: int
    missed: tuple[str, ...]
    mistaken: tuple[str, ...]


def pictures() -> Iterator[Obvious]:
    """All that can be seen: a white circle on white is no picture."""
    line = np.arange(EDGE * FINE) + 0.5 - EDGE * FINE / 2
    distance = np.hypot(line[:, None], line[None, :]) / FINE
    for name, (word, packed) in CSS.items():
        colour = np.array([packed >> 16, packed >> 8 & 255, packed & 255], np.float32) / 255
        for radius in RADII:
            inside = (distance <= radius).reshape(EDGE, FINE, EDGE, FINE).mean((1, 3)).astype(np.float32)
            for ground, level in GROUNDS.items():
                if np.abs(colour * 255 - level).sum() == 0:
                    continue
                cover = inside if ground == "transparent" else np.round(inside)
                pixels = cover * colour[:, None, None] + (1 - cover) * np.float32(level / 255)
                yield Obvious(pixels.astype(np.float32), word, name, radius, ground)


@torch.no_grad()
def measure(model: ArrCoc, threshold: float) -> Found:
    """Ask a model about all pictures: what is there, each other colour, and each other shape."""
    encoder, device = vocabulary(), next(model.parameters()).device
    middle = slice(EDGE // 16 // 2 - 1, EDGE // 16 // 2 + 1)
    counts, missed, mistaken = [0, 0], [], []
    for one in pictures():
        right = f"{one.word} circle"
        others = [f"{word} circle" for word in ATTRIBUTES[1] if word != one.word]
        others += [f"{one.word} {shape}" for shape in ATTRIBUTES[3] if shape != "circle"]
        texts = [right, *others]
        queries = torch.from_numpy(np.stack([encoder.encode(text) for text in texts]))[None].to(device)
        features, rows, columns = model.texture(torch.from_numpy(one.pixels)[None].to(device))
        relevance = model.weigh(features, rows, columns, queries)[0][0].cpu()
        highest = relevance.amax(1)
        on_it = relevance[0].view(rows, columns)[middle, middle].amax() if one.radius < 24 else highest[0]
        name = f"{one.colour} {one.radius} on {one.ground}"
        counts[0] += 1
        counts[1] += len(others)
        if highest[0] < threshold or on_it < highest[0]:
            missed.append(name)
        mistaken += [f"{name}: {text}" for text, high in zip(others, highest[1:], strict=True) if high >= threshold]
    return Found(
        1 - len(missed) / counts[0], 1 - len(mistaken) / counts[1], counts[0], counts[1], tuple(missed), tuple(mistaken)
    )


def main() -> None:
    """Measure the shipped model."""
    from edgekit_arrcoc.presets import HOME, arr_coc_tiny
    from training import presence

    model = arr_coc_tiny().module
    if not isinstance(model, ArrCoc):
        raise SystemExit("the preset arr-coc-tiny is not an ArrCoc")
    found = measure(model, presence.load(HOME))
    sys.stdout.write(json.dumps(vars(found), indent=1) + "\n")


if __name__ == "__main__":
    main()
