"""The evaluation and calibration sets: `python -m training.sets` renders them again for `edgekit_arrcoc.datasets`.

Seeds are 32-bit numbers. Training draws from the lower half; the sets have ranges of their own in the upper half. The
evaluation set has 80 rendered scenes, 40 scenes on photographs that training never saw, 24 parts of such photographs
as they are, 24 flat pictures, and things with names, in a style that training never saw, on 16 photographs and in 16
flat pictures. A fifth of the queries about scenes and flat pictures has no answer. The order is that in which the
images explain the model best: first queries of several words whose answer is one of several objects that share some of
them, among them a flat picture, two things with names, one without an answer and one about a photograph.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from edgekit.model.spec import Array
from edgekit_arrcoc.counter_rng import Chance
from edgekit_arrcoc.datasets import CALIBRATION_PICTURES, digest
from edgekit_arrcoc.presets import HOME
from edgekit_arrcoc.queries import ATTRIBUTES, DRAWN, MEANINGS
from training import flat, naming, photographs, questions, scenes, sprites
from training.objects import EDGE

TRAINING = 0x80000000
"""Training seeds are below."""

TUNING = 0x90000000
"""First seed of the scenes that the presence threshold is chosen on."""

HELD_OUT = 0xA0000000
"""First seed of the scenes that training is measured on."""

CALIBRATION = 0xC0000000
"""First seed of the calibration set."""

EVALUATION = 0xE0000000
"""First seed of the evaluation set."""

SORTS = ("rendered", "composite", "photograph", "flat", "named", "named flat")
"""Rendered scenes, scenes on photographs, photographs as they are, flat pictures, and things with names, on photographs
and in flat pictures."""

NAMED = SORTS[4:]

_PATTERN = (0, 4, 1, 0, 3, 2, 0, 5, 1, 0, 3, 2)
"""Indices into `SORTS` of calibration samples, over and over: a third have photographs, wherever one stops."""

_BATCH = 16


COUNTS = (80, 40, 24, 24, 16, 16)
"""Images of each of `SORTS`."""

UNANSWERED = 5
"""Every so many-th scene is asked for what it does not show, in turn by an absent and by a hard query."""

TRIES = 24
"""Queries posed of a scene, of which the first that fits is taken."""

LEAST = 1.0
"""Patches of answer that a query about a scene has at least, if it has one and one of its queries has so many."""

PHOTOGRAPHS = (
    "object", "outline", "red", "green", "blue circle", "large", "white", "brown striped bar", "ring", "black object",
    "small star", "yellow",
)  # fmt: skip
"""Queries about photographs as they are, in turn."""


@dataclass(frozen=True)
class Image:
    """One image: its pixels [3, 224, 224] uint8, its line in `evaluation.json`, truth [196], and how telling it is."""

    pixels: Array
    record: dict[str, str | int]
    truth: Array
    telling: float


def write_evaluation(folder: Path) -> None:
    """Make the evaluation set and write it."""
    folder.mkdir(parents=True, exist_ok=True)
    bank = photographs.held_out("evaluation")
    made = [image for sort in range(len(SORTS)) for image in (_photographs(bank) if sort == 2 else _scenes(sort, bank))]
    ordered = _order(made)
    for image in made:
        pixels = image.pixels.transpose(1, 2, 0)
        image.record["sha256"] = digest(pixels)
        _save(folder / str(image.record["file"]), pixels)
    np.save(folder / "truth.npy", np.stack([image.truth for image in ordered]))
    record = json.dumps({"images": [image.record for image in ordered]}, indent=1)
    (folder / "evaluation.json").write_text(record + "\n", encoding="utf-8")
    lines = json.dumps(credits_of([image.record for image in ordered]), indent=1, ensure_ascii=False)
    (folder.parent / "credits.json").write_text(lines + "\n", encoding="utf-8")


def credits_of(images: Sequence[Mapping[str, str | int]]) -> dict[str, str]:
    """The line of credit of each image of the evaluation set that was adapted from photographs, by its name.

    A photograph as it is has its own author. A scene takes its backdrop, pieces and grain from any of them.
    """
    record = json.loads(photographs.SOURCES.read_text(encoding="utf-8"))["photographs"]
    used = [f"{one['author']} ({one['licence']})" for one in record if one["use"] == "evaluation"]
    every, lines = ", ".join(dict.fromkeys(used)), {}
    for image in images:
        if image["sort"] in (SORTS[1], SORTS[2], SORTS[4]):
            whose = used[int(image["seed"]) % len(used)] if image["sort"] == SORTS[2] else every
            lines[str(image["file"]).removesuffix(".webp")] = f"Adapted from photographs by {whose}"
    return dict(sorted(lines.items()))


def write_calibration(folder: Path) -> None:
    """Render the calibration set and write it."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures, texts = calibration_pictures(CALIBRATION_PICTURES)
    record = []
    for number, (pixels, text) in enumerate(zip(pictures.transpose(0, 2, 3, 1), texts, strict=True)):
        record.append({"file": f"{number:03d}.webp", "query": text, "sha256": digest(pixels)})
        _save(folder / record[-1]["file"], pixels)
    (folder / "calibration.json").write_text(json.dumps({"images": record}, indent=1) + "\n", encoding="utf-8")


def calibration_pictures(count: int) -> tuple[Array, list[str]]:
    """The first calibration pictures, [n, 3, 224, 224] uint8, and their queries."""
    bank = photographs.held_out("calibration")
    sorts = np.resize(_PATTERN, count)
    pictures = np.empty((count, 3, EDGE, EDGE), np.uint8)
    texts = [""] * count
    for sort in np.unique(sorts):
        rows = np.flatnonzero(sorts == sort)
        found, said = _pictures(SORTS[sort], torch.from_numpy(CALIBRATION + rows), bank)
        pictures[rows] = found
        for row, text in zip(rows, said, strict=True):
            texts[row] = text
    return pictures, texts


def _pictures(sort: str, seeds: Tensor, bank: Tensor) -> tuple[Array, list[str]]:
    """Pictures of one sort [n, 3, 224, 224] uint8 and a query each; a photograph gets that of the scene on it."""
    found, texts = [], []
    before = torch.get_num_threads()
    # The tensors are small: a second thread gains nothing, and spins where other work needs the core.
    torch.set_num_threads(1)
    try:
        for part in torch.split(seeds, _BATCH):
            rendered = _render(sort, part, bank, sprites.CALIBRATION)
            pose = naming.poser(_things(sort, sprites.CALIBRATION))
            asked = questions.answered(rendered, pose(rendered, part, TRIES))
            images = rendered.images if sort != SORTS[2] else photograph(part, bank)
            found.append(images.numpy())
            unsure = (asked.concepts[..., len(DRAWN) :] & ~naming.KNOWN).any(2).to(torch.int64)
            texts += [questions.describe(row[at]) for row, at in zip(asked.concepts, unsure.argmin(1), strict=True)]
    finally:
        torch.set_num_threads(before)
    return np.concatenate(found), texts


def photograph(seeds: Tensor, bank: Tensor) -> Tensor:
    """Parts of photographs as they are, one for each seed ([B] int64): [B, 3, 224, 224] uint8."""
    chance = Chance(seeds)
    size, top, left = chance.between(140, 256), chance.bits(), chance.bits()
    still = torch.zeros_like(size, dtype=torch.bool)
    return photographs.view(bank, seeds % len(bank), size, top, left, still, EDGE, EDGE).to(torch.uint8)


def _save(path: Path, pixels: Array) -> None:
    """Pixels [h, w, 3] uint8 as lossless WebP: a fifth smaller than PNG."""
    from PIL import Image as Picture

    Picture.fromarray(pixels).save(path, "WEBP", lossless=True, quality=100, method=6)


def seed(sort: int, number: int) -> int:
    """Of the number-th image of a sort."""
    return EVALUATION + (sort << 20) + number


def scene(sort: int, number: int, bank: Tensor) -> tuple[scenes.Scenes, questions.InputBatch, int]:
    """One scene, what is asked about it, and which of the queries is taken."""
    seeds = torch.tensor([seed(sort, number)])
    rendered = _render(SORTS[sort], seeds, bank, sprites.HELD_OUT)
    wanted = 0 if number % UNANSWERED != UNANSWERED - 1 else 1 + number // UNANSWERED % 2
    shares = ((0, 0), (100, 0), (0, 100))[wanted]
    pose = naming.poser(_things(SORTS[sort], sprites.HELD_OUT))
    asked = questions.answered(rendered, pose(rendered, seeds, TRIES, shares))
    seen = asked.truth[0].sum(1)
    fitting = (seen >= LEAST) if wanted == 0 else (asked.answer[0] == wanted)
    if SORTS[sort] in NAMED:
        named = asked.concepts[0, :, len(DRAWN) :]
        fitting &= named.any(1) & ~(named & ~naming.KNOWN).any(1)
    return rendered, asked, int(fitting.to(torch.int64).argmax())


def _render(sort: str, seeds: Tensor, bank: Tensor, style: str) -> scenes.Scenes:
    """Scenes of one sort, in which things with names are of one set of sprites."""
    things = _things(sort, style)
    if sort in (SORTS[3], SORTS[5]):
        return flat.render(seeds, sprites=things)
    return scenes.render(seeds, bank=None if sort == SORTS[0] else bank, sprites=things)


@cache
def _things(sort: str, style: str) -> sprites.Sprites | None:
    return sprites.load(sprites.HERE, (style,)) if sort in NAMED else None


def _scenes(sort: int, bank: Tensor) -> list[Image]:
    made = []
    for number in range(COUNTS[sort]):
        rendered, asked, query = scene(sort, number, bank)
        concepts = asked.concepts[0, query]
        record: dict[str, str | int] = {
            "file": f"{sum(COUNTS[:sort]) + number:03d}.webp",
            "sort": SORTS[sort],
            "seed": seed(sort, number),
            "query": questions.describe(concepts),
            "kind": questions.KINDS[int(asked.kind[0, query])],
            "answer": questions.ANSWERS[int(asked.answer[0, query])],
        }
        truth = asked.truth[0, query].numpy()
        made.append(Image(rendered.images[0].numpy(), record, truth, _telling(rendered, concepts, truth)))
    return made


def _telling(rendered: scenes.Scenes, concepts: Tensor, truth: Array) -> float:
    """How many objects share a part of what is asked for, where two words or three are and the answer is no giant."""
    words = {MEANINGS[index] for index in torch.nonzero(concepts)[:, 0].tolist()}
    shared = 0
    for attributes in rendered.attributes[0].tolist():
        if attributes[0] >= 0:
            own = {values[value] for values, value in zip(ATTRIBUTES, attributes, strict=True)}
            shared += 0 < len(own & words) < len(words)
    return shared * (2 <= len(words) <= 3) * (float(truth.sum()) < 24)


def _photographs(bank: Tensor) -> list[Image]:
    made = []
    seeds = torch.tensor([seed(2, number) for number in range(COUNTS[2])])
    pixels = photograph(seeds, bank).numpy()
    for number in range(COUNTS[2]):
        query = PHOTOGRAPHS[number % len(PHOTOGRAPHS)]
        kind = {"object": 1, "outline": 2}.get(query, 0)
        record: dict[str, str | int] = {
            "file": f"{sum(COUNTS[:2]) + number:03d}.webp",
            "sort": SORTS[2],
            "seed": int(seeds[number]),
            "query": query,
            "kind": questions.KINDS[kind],
            "answer": "unknown",
        }
        made.append(Image(pixels[number], record, np.full(196, np.nan, np.float32), 0.0))
    return made


def _order(images: list[Image]) -> list[Image]:
    """Rendered, composite, rendered, ... by how telling they are; a hard query and a photograph early on."""
    there = [i for i in images if i.record["answer"] == "there"]
    ranked = [
        sorted((i for i in there if i.record["sort"] == sort), key=lambda image: -image.telling) for sort in SORTS[:2]
    ]
    first = [image for pair in zip(ranked[0][:8], ranked[1][:8], strict=True) for image in pair]
    hard = [i for i in images if i.record["answer"] == "hard" and i.record["sort"] == SORTS[0]]
    first[4:4] = [hard[0]]
    first[9:9] = [next(i for i in images if i.record["sort"] == SORTS[2] and i.record["query"] == "blue circle")]
    flat_ones = [i for i in there if i.record["sort"] == SORTS[3] and len(str(i.record["query"]).split()) > 2]
    first[2:2] = flat_ones[:1]
    for place, sort in ((1, SORTS[5]), (6, SORTS[4])):
        named = (i for i in there if i.record["sort"] == sort and " " in str(i.record["query"]))
        first[place:place] = [next(named)]
    return first + [i for i in images if all(i is not one for one in first)]


if __name__ == "__main__":
    write_evaluation(HOME / "evaluation")
    write_calibration(HOME / "calibration")
