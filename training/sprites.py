"""Sprites: pictures of things with names, out of emoji sets, and how they are laid into scenes, in integers.

`python -m training.sprites --out build/sprites` fetches the sets with `npm pack` (as long as `--packages` names no
folder that has them), draws each picture with resvg (`pip install resvg-py`) and writes one WebP file a set, a grid
of cells, with `sprites.json`, which names the set, the noun and the set's own name of each cell. A set that is held
out is never trained on: `noto`. Two of the sets are in `held_out/`, for the evaluation and the calibration set.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from edgekit.errors import UsageError
from edgekit_arrcoc.counter_rng import Chance
from edgekit_arrcoc.queries import ATTRIBUTES, GROUPS, MEANINGS, NOUNS
from training.drawing import SHAPES, UNIT, rotate
from training.names import ALSO, SLUGS
from training.objects import COLOURS, MARGIN, SIZES, TONES, Layer, Things

if TYPE_CHECKING:
    from PIL.Image import Image

SETS = {
    "twemoji": "@iconify-json/twemoji@1.2.5",
    "openmoji": "@iconify-json/openmoji@1.2.29",
    "fluent-emoji-flat": "@iconify-json/fluent-emoji-flat@1.2.6",
    "fluent-emoji": "@iconify-json/fluent-emoji@1.2.7",
    "emojione": "@iconify-json/emojione@1.2.3",
    "fxemoji": "@iconify-json/fxemoji@1.2.2",
    "emojione-v1": "@iconify-json/emojione-v1@1.2.3",
    "noto": "@iconify-json/noto@1.2.9",
}
"""Set -> npm package."""

HELD_OUT = "noto"
"""The set that training never sees."""

CALIBRATION = "twemoji"
"""The set, one of training's, that the calibration set shows."""

HERE = Path(__file__).parent / "held_out"

CELL, INSET = 96, 2
"""Edge of a cell and its empty border, in pixels."""

EDGES = (96, 48, 24)
"""Edges of the sizes that a sprite is kept in, the smaller ones averaged."""

ACROSS = 24
"""Cells in a row of a file."""

QUALITY = 72

FULL = 230
"""Of 256: longest side of a sprite over the diameter of the object it stands for."""

DOMINANT, SOME = 0.6, 0.1
"""A sprite has a colour if so much of it is in it; below the second it surely has not, between nobody asks."""

ROUND = 0.82
"""From this overlap with a drawn shape on, nobody asks whether a sprite is one."""

_CHROMA = 14.0
"""Below this chroma (CIELAB) a pixel is grey; it is white above a lightness of 85 and black below 28."""


@dataclass(frozen=True)
class Sprites:
    """S sprites.

    Attributes:
        levels: For each of `EDGES` [S, 4, e, e] uint8, RGB times alpha, then alpha.
        noun: [S] int64, index into `NOUNS`.
        colour: [S] int64, index into the colours; -1 where it has no one colour.
        unclear: [S, concepts] bool, what nobody can say of it: neither yes nor no.
        of_noun: [nouns, m] int64, the sprites of each noun, over and over.
        counts: [nouns] int64, how many of these are different.
    """

    levels: tuple[Tensor, ...]
    noun: Tensor
    colour: Tensor
    unclear: Tensor
    of_noun: Tensor
    counts: Tensor

    def to(self, device: torch.device) -> Sprites:
        """The same on a device."""
        rest = (self.noun, self.colour, self.unclear, self.of_noun, self.counts)
        return Sprites(tuple(level.to(device) for level in self.levels), *(field.to(device) for field in rest))

    def pick(self, chance: Chance, count: int) -> Tensor:
        """So many sprites a scene, first the noun, then one of its pictures: [B, count] int64."""
        present = torch.nonzero(self.counts)[:, 0]
        noun = present[chance.below(len(present), count)]
        return self.of_noun[noun, chance.bits(count) * self.counts[noun] >> 32]


def load(folder: Path, sets: tuple[str, ...]) -> Sprites:
    """Read some of the sets in a folder.

    Raises:
        UsageError: They are not there.
    """
    from PIL import Image

    cells, nouns = [], []
    try:
        record = json.loads((folder / "sprites.json").read_text(encoding="utf-8"))["sprites"]
        for name in sets:
            own = [one for one in record if one["set"] == name]
            with Image.open(folder / f"{name}.webp") as opened:
                grid = np.asarray(opened.convert("RGBA"))
            for number, one in enumerate(own):
                top, left = number // ACROSS * CELL, number % ACROSS * CELL
                cells.append(grid[top : top + CELL, left : left + CELL])
                nouns.append(NOUNS.index(one["noun"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"there are no sprites in '{folder}' ({error}): python -m training.sprites --out {folder}"
        ) from error
    return _sprites(torch.from_numpy(np.stack(cells).transpose(0, 3, 1, 2).copy()), torch.tensor(nouns))


def _sprites(pixels: Tensor, noun: Tensor) -> Sprites:
    """Sprites of RGBA pixels [S, 4, 96, 96] uint8 and their nouns [S]."""
    alpha = pixels[:, 3:].to(torch.int32)
    whole = torch.cat([(pixels[:, :3].to(torch.int32) * alpha + 127) // 255, alpha], 1)
    levels = [whole]
    for _ in EDGES[1:]:
        fine = levels[-1]
        rows = fine[:, :, 0::2] + fine[:, :, 1::2]
        levels.append((rows[..., 0::2] + rows[..., 1::2] + 2) >> 2)
    shares = _shares(pixels)
    best = shares.argmax(1)
    sure = (shares.gather(1, best[:, None])[:, 0] >= DOMINANT) & ((shares >= SOME).sum(1) <= 2)
    colour = torch.where(sure, best, -1)
    unclear = torch.zeros(len(noun), len(MEANINGS), dtype=torch.bool)
    start = len(ATTRIBUTES[0])
    partly = (shares >= SOME) & (torch.arange(shares.shape[1]) != colour[:, None])
    unclear[:, start : start + len(ATTRIBUTES[1])] = partly
    start += len(ATTRIBUTES[1])
    unclear[:, start] = True  # plain
    start += len(ATTRIBUTES[2])
    unclear[:, start : start + len(ATTRIBUTES[3])] = _alike(pixels[:, 3])
    for number, index in enumerate(noun.tolist()):
        for word in ALSO.get(NOUNS[index], ()):
            unclear[number, MEANINGS.index(word)] = True
    counts = torch.bincount(noun, minlength=len(NOUNS))
    of_noun = torch.zeros(len(NOUNS), max(int(counts.max()), 1), dtype=torch.int64)
    for index in range(len(NOUNS)):
        own = torch.nonzero(noun == index)[:, 0]
        if len(own):
            of_noun[index] = own[torch.arange(of_noun.shape[1]) % len(own)]
    return Sprites(
        tuple(level.to(torch.uint8).contiguous() for level in levels), noun, colour, unclear, of_noun, counts
    )


def _shares(pixels: Tensor) -> Tensor:
    """Share of each colour of the opaque pixels of sprites [S, 4, e, e] uint8: [S, colours] float32.

    A pixel has the colour whose nearest tone (CIELAB) is nearest; greys between black and white have none.
    """
    named = [(number, tone) for number, tones in enumerate(TONES.values()) for tone in tones]
    tones = torch.tensor([[tone >> 16, tone >> 8 & 255, tone & 255] for _, tone in named])
    tones = torch.cat([tones, torch.tensor([main for main, *_ in COLOURS.values()])])
    owner = torch.tensor([number for number, _ in named] + list(range(len(COLOURS))))
    space = _lab(tones)
    chromatic = owner < len(COLOURS) - 2
    shares = torch.zeros(len(pixels), len(COLOURS))
    for number, one in enumerate(pixels):
        opaque = one[:3, one[3] > 127].t()[::3]
        lab = _lab(opaque)
        chroma = lab[:, 1:].norm(dim=1)
        nearest = owner[chromatic][torch.cdist(lab, space[chromatic]).argmin(1)]
        grey = torch.where(lab[:, 0] > 85, len(COLOURS) - 2, torch.where(lab[:, 0] < 28, len(COLOURS) - 1, -1))
        colour = torch.where(chroma < _CHROMA, grey, nearest)
        counted = torch.bincount(colour[colour >= 0], minlength=len(COLOURS))
        shares[number] = counted / max(len(opaque), 1)
    return shares


def _lab(rgb: Tensor) -> Tensor:
    """Bytes of sRGB [n, 3] to CIELAB (D65)."""
    linear = rgb.to(torch.float32) / 255
    linear = torch.where(linear <= 0.04045, linear / 12.92, ((linear + 0.055) / 1.055) ** 2.4)
    matrix = torch.tensor([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = linear @ matrix.t() / torch.tensor([0.9505, 1.0, 1.089])
    root = torch.where(xyz > 0.008856, xyz.clamp(min=1e-6) ** (1 / 3), 7.787 * xyz + 16 / 116)
    x, y, z = root.unbind(1)
    return torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], 1)


def _alike(alpha: Tensor) -> Tensor:
    """Which of the drawn shapes each silhouette ([S, e, e] uint8) could be called: [S, shapes] bool."""
    edge = alpha.shape[-1]
    line = 2 * torch.arange(edge, dtype=torch.int32) + 1 - edge
    masks = []
    for shape in SHAPES.values():
        turned = []
        for angle in range(0, 256, 16):
            u, v = rotate(line.view(1, 1, -1), line.view(1, -1, 1), torch.tensor([angle]).view(-1, 1, 1))
            scales = range(edge - 8, 2 * edge, 10)
            turned.append(torch.cat([shape((u >> 12) * UNIT // scale, (v >> 12) * UNIT // scale) for scale in scales]))
        masks.append(torch.cat(turned).flatten(1).float())
    solid = (alpha > 127).flatten(1).float()
    alike = torch.zeros(len(alpha), len(masks), dtype=torch.bool)
    for number, mask in enumerate(masks):
        common = solid @ mask.t()
        union = solid.sum(1, keepdim=True) + mask.sum(1) - common
        alike[:, number] = (common / union).amax(1) >= ROUND
    return alike


@dataclass(frozen=True)
class Laid:
    """n sprites on their windows: colour [n, 3, h, w] int32 in [0, 255], alpha [n, 1, h, w] int32, quarters."""

    colour: Tensor
    alpha: Tensor


def lay(sprites: Sprites, which: Tensor, level: int, radius: Tensor, turned: Turned, x: Tensor, y: Tensor) -> Laid:
    """Draw n sprites, interpolated linearly.

    Args:
        sprites: On the device.
        which: [n] int64.
        level: Index into `EDGES`.
        radius: [n], in quarter pixels, of the object that a sprite stands for.
        turned: How each is turned.
        x: [1 or n, 1, w] int32, half pixels from the middle.
        y: [1 or n, h, 1] int32, likewise.
    """
    edge = EDGES[level]
    u, v = rotate(x, y, turned.angle.to(torch.int32).view(-1, 1, 1))
    # Half pixels / 4096 -> 1/256 of the sprite's: its longest side, `edge - 2 inset`, is FULL / 256 of the diameter.
    inner = edge * (CELL - 2 * INSET) // CELL
    scale = radius.to(torch.int32).view(-1, 1, 1) * FULL >> 4
    u, v = ((part * inner).div(scale, rounding_mode="floor") for part in (u, v))
    u = torch.where(turned.mirrored.view(-1, 1, 1), -u, u)
    middle = 128 * edge - 128
    inside = (torch.maximum(u.abs(), v.abs()) < middle).unsqueeze(1)
    u, v = (u + middle).clamp(0, 256 * (edge - 1) - 1), (v + middle).clamp(0, 256 * (edge - 1) - 1)
    right, down = (u & 255).unsqueeze(1), (v & 255).unsqueeze(1)
    channel = torch.arange(4, device=which.device).view(1, 4, 1, 1) + 4 * which.view(-1, 1, 1, 1)
    start = (channel * edge + (v >> 8).unsqueeze(1)) * edge + (u >> 8).unsqueeze(1)
    flat = sprites.levels[level].reshape(-1)
    upper = flat[start].to(torch.int32) * (256 - right) + flat[start + 1].to(torch.int32) * right
    lower = flat[start + edge].to(torch.int32) * (256 - right) + flat[start + edge + 1].to(torch.int32) * right
    mixed = ((upper * (256 - down) + lower * down + (1 << 15)) >> 16) * inside
    alpha = mixed[:, 3:]
    colour = (mixed[:, :3] * 255).div(alpha.clamp(min=1), rounding_mode="floor")
    colour = colour * turned.gain.to(torch.int32).view(-1, 1, 1, 1) >> 8
    return Laid(colour.clamp(0, 255), (alpha * 4 + 127).div(255, rounding_mode="floor"))


@dataclass(frozen=True)
class Turned:
    """How n sprites are shown, [n] each: angle in 1/256 of a turn, mirrored or not, brightness in 1/256."""

    angle: Tensor
    mirrored: Tensor
    gain: Tensor

    def of(self, *at: Tensor) -> Turned:
        """Some of them."""
        return Turned(self.angle[at], self.mirrored[at], self.gain[at])

    def slot(self, number: int) -> Turned:
        """Those of one slot, of fields [B, P]."""
        return Turned(self.angle[:, number], self.mirrored[:, number], self.gain[:, number])


def turn(chance: Chance, *shape: int) -> Turned:
    """Most a little turned, a tenth any way, half of them mirrored: fields [B, *shape]."""
    angle = torch.where(chance.bernoulli(10, *shape), chance.below(256, *shape), chance.between(-14, 14, *shape))
    angle = torch.where(chance.bernoulli(35, *shape), 0, angle)
    return Turned(angle, chance.bernoulli(50, *shape), chance.between(215, 280, *shape))


def choose(chance: Chance, sprites: Sprites, exists: Tensor) -> Tensor:
    """Which objects ([B, P] bool, those that exist) are sprites: [B, P] int64, -1 for drawn ones and none."""
    count = exists.shape[1]
    picked = sprites.pick(chance, count)
    # A quarter of the scenes have sprites alone.
    share = torch.where(chance.bernoulli(25, 1), 100, 65)
    return torch.where(exists & (chance.below(100, count) < share), picked, -1)


def show(chance: Chance, sprites: Sprites, chosen: Tensor, things: Things) -> list[Layer]:
    """The sprites of B scenes as layers, each in a window that fits its size."""
    turned = turn(chance, chosen.shape[1])
    layers = []
    for number, (_, _, window) in enumerate(SIZES.values()):
        own = (things.attributes[:, :, 0] == number) & (chosen >= 0)
        slot, scene = torch.nonzero(own.t(), as_tuple=True)  # ordered by slot
        line = 2 * torch.arange(window, dtype=torch.int32, device=chosen.device) + 1 - window
        laid = lay(
            sprites, chosen[scene, slot], 2 - number, things.radius[scene, slot], turned.of(scene, slot),
            line.view(1, 1, -1), line.view(1, -1, 1),
        )  # fmt: skip
        corner = torch.stack([things.y[scene, slot], things.x[scene, slot]], 1) + MARGIN - window // 2
        counts = own.sum(0).tolist()
        parts = (torch.split(part, counts) for part in (scene, corner, laid.colour, laid.alpha))
        layers += [Layer(index, *fields) for index, fields in enumerate(zip(*parts, strict=True))]
    return layers


def facts(sprites: Sprites | None, chosen: Tensor, attributes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What is true of scenes with sprites.

    Args:
        sprites: On the device; None for scenes without.
        chosen: [B, P] int64, the sprite that an object is; -1 for a drawn one or none.
        attributes: [B, P, 4] int64.

    Returns:
        Attributes, those of a sprite its size and, if it has one, its colour, -1 otherwise; nouns [B, P], -1 of what
        has none; and what nobody can say of a scene, [B, concepts] bool.
    """
    if sprites is None:
        nothing = torch.zeros(len(chosen), len(MEANINGS), dtype=torch.bool, device=chosen.device)
        return attributes, torch.full_like(chosen, -1), nothing
    shown = chosen >= 0
    at = chosen.clamp(min=0)
    unknown = torch.full_like(attributes[:, :, 0], -1)
    own = torch.stack([attributes[:, :, 0], sprites.colour[at], unknown, unknown], 2)
    nouns = torch.where(shown, sprites.noun[at], -1)
    unclear = (sprites.unclear[at] & shown.unsqueeze(2)).any(1)
    return torch.where(shown.unsqueeze(2), own, attributes), nouns, unclear


def group_of() -> Tensor:
    """Concept of the group of each noun: [nouns] int64, -1 where it has none."""
    found = [-1] * len(NOUNS)
    for group, nouns in GROUPS.items():
        for noun in nouns:
            found[NOUNS.index(noun)] = MEANINGS.index(group)
    return torch.tensor(found)


def gather(packages: Path | None, out: Path, sets: tuple[str, ...] = tuple(SETS)) -> int:
    """Write the sprites of the sets; returns how many there are.

    Args:
        packages: A folder with the .tgz files; None fetches them.
        out: Folder for the sprites.
        sets: Which of `SETS`.

    Raises:
        UsageError: A package cannot be had.
    """
    out.mkdir(parents=True, exist_ok=True)
    record: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="edgekit-") as place:
        for name in sets:
            drawn = list(_drawn(_archive(name, packages, Path(place))))
            record += [{"set": name, "noun": noun, "name": slug} for noun, slug, _ in drawn]
            _grid([image for *_, image in drawn]).save(out / f"{name}.webp", quality=QUALITY, method=6)
    listed = ",\n".join(json.dumps(one) for one in record)
    (out / "sprites.json").write_text(f'{{"sprites": [\n{listed}\n]}}\n', encoding="utf-8")
    return len(record)


def _archive(name: str, packages: Path | None, place: Path) -> Path:
    folder = packages or place
    package, version = SETS[name].rsplit("@", 1)
    if packages is None:
        done = subprocess.run(["npm", "pack", SETS[name]], cwd=place, capture_output=True, text=True)
        if done.returncode:
            raise UsageError(f"npm could not fetch '{SETS[name]}': {done.stderr.strip()}")
    path = folder / f"{package.strip('@').replace('/', '-')}-{version}.tgz"
    if not path.is_file():
        raise UsageError(f"there is no '{path.name}' in '{folder}': npm pack {SETS[name]}")
    return path


def _drawn(archive: Path) -> Iterator[tuple[str, str, Image]]:
    """Noun, name and picture of what a set has."""
    with tarfile.open(archive) as opened:
        member = opened.extractfile("package/icons.json")
        icons = json.load(member) if member else {"icons": {}}
    for noun in NOUNS:
        for slug in SLUGS.get(noun, (noun,)):
            own = icons["icons"].get(icons.get("aliases", {}).get(slug, {"parent": slug})["parent"])
            if own is not None:
                width, height = (own.get(side) or icons.get(side) or 16 for side in ("width", "height"))
                yield noun, slug, _cell(own["body"], width, height)


def _cell(body: str, width: int, height: int) -> Image:
    """A drawing, cut to what is not empty and scaled into a cell."""
    import resvg_py  # type: ignore[import-not-found]  # only gathering needs it
    from PIL import Image

    text = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {width} {height}" width="{4 * CELL}" height="{4 * CELL}">{body}</svg>'
    )
    drawn = Image.open(io.BytesIO(bytes(resvg_py.svg_to_bytes(svg_string=text)))).convert("RGBA")
    drawn = drawn.crop(drawn.getchannel("A").point(lambda value: 255 if value > 12 else 0).getbbox())
    longest = CELL - 2 * INSET
    size = [max(1, round(side * longest / max(drawn.size))) for side in drawn.size]
    cell = Image.new("RGBA", (CELL, CELL))
    cell.paste(
        drawn.resize((size[0], size[1]), Image.Resampling.LANCZOS), ((CELL - size[0]) // 2, (CELL - size[1]) // 2)
    )
    return cell


def _grid(cells: list[Image]) -> Image:
    from PIL import Image

    grid = Image.new("RGBA", (ACROSS * CELL, -(-len(cells) // ACROSS) * CELL))
    for number, cell in enumerate(cells):
        grid.paste(cell, (number % ACROSS * CELL, number // ACROSS * CELL))
    return grid


def main() -> None:
    """Read the options and gather."""
    parser = argparse.ArgumentParser(description="Gather the pictures of things with names.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the sprites")
    parser.add_argument("--packages", type=Path, help="folder with the .tgz files; default: npm pack")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    given = parser.parse_args()
    try:
        sys.stdout.write(f"{gather(given.packages, given.out, tuple(given.sets))} sprites in {given.out}\n")
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from error


if __name__ == "__main__":
    main()
