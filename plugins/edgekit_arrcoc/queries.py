r"""Queries: words -> a vector that the model reads.

Lower-case words are rows of a table that is 768 wide; a query is the mean of its words' rows. A query with a word that
is not in the table is refused: "not red" without its first word would ask for the opposite. The whole encoder, for a
platform that copies it::

    known = json.loads(pathlib.Path("vocabulary.json").read_text())
    table = numpy.fromfile("embeddings.bin", "i1").reshape(-1, known["dim"])
    table = known["scale"] * table.astype("f4") + numpy.float32(known["offset"])
    row = {word: table[index] for word, index in zip(known["words"], known["rows"])}
    query = numpy.mean([row[word] for word in re.findall(r"[^\W_]+", text.lower())], 0)  # KeyError: an unknown word

Rows are fixed, not learned: odd multiples of 1/256 in (-1, 1), drawn from `chance`. So sums are exact in float32 and
every platform computes the same mean. Synonyms share a row. A byte holds a value: 2 / 256 of it, and 1 / 256.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import torch

from edgekit.reference.vocabulary import Vocabulary
from edgekit_arrcoc import nouns
from edgekit_arrcoc.counter_rng import Chance
from edgekit_arrcoc.knowing import QUERY_WIDTH
from edgekit_arrcoc.near import NEAR

ATTRIBUTES = (
    ("small", "medium", "large"),
    ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink", "brown", "white", "black"),
    ("plain", "striped", "dotted", "checkered", "zigzag", "speckled", "ringed"),
    ("circle", "square", "triangle", "star", "cross", "ring", "heart", "crescent", "arrow", "bar"),
)
"""The values of the attributes of an object: size, colour, texture, shape, in the order of words in a query."""

OBJECT = "object"
"""The concept of any object; beside attributes it changes nothing."""

OUTLINE = "outline"
"""The concept of the borders of objects."""

DRAWN = (*(value for values in ATTRIBUTES for value in values), OBJECT, OUTLINE)
"""What a word can mean of drawn shapes: the values of the attributes in order, then any object, then outlines."""

CONCEPTS = (*DRAWN, *(name for name in nouns.NAMES if name not in nouns.UNSURE))
"""What a word can mean to the shipped model."""

MEANINGS = (*DRAWN, *nouns.NAMES)
"""What a word can mean in training: the same, and the nouns that the shipped model is too unsure of."""

SYNONYMS = {
    "small": ("tiny", "little"),
    "large": ("big", "huge"),
    "cyan": ("turquoise", "teal"),
    "purple": ("violet",),
    "plain": ("solid",),
    "striped": ("stripes", "stripy"),
    "dotted": ("dots", "spotted"),
    "checkered": ("chequered", "checked"),
    "speckled": ("mottled",),
    "ringed": ("concentric",),
    "zigzag": ("chevron", "chevrons"),
    "cross": ("crosses", "plus"),
    "circle": ("circles", "disc", "discs"),
    "ring": ("rings", "donut"),
    "crescent": ("crescents", "moon"),
    "bar": ("bars", "rectangle", "rectangles"),
    "square": ("squares",),
    "triangle": ("triangles",),
    "star": ("stars",),
    "heart": ("hearts",),
    "arrow": ("arrows",),
    OBJECT: ("objects", "thing", "things", "anything", "everything", "shape", "shapes"),
    OUTLINE: ("outlines", "edge", "edges", "border", "borders", "contour", "contours"),
}
"""Further words for a concept."""

SEED = 768

SCALE, OFFSET = 2 / 256, 1 / 256
"""A value of a row is `SCALE` times its byte, from -128 to 127, and `OFFSET`."""


def vocabulary() -> Vocabulary:
    """The vocabulary of the family, made from its definition."""
    means = {
        word: MEANINGS.index(concept)
        for concept in CONCEPTS
        for word in ((concept, *SYNONYMS.get(concept, ())) if concept in DRAWN else nouns.words(concept))
    }
    near = {known: tuple(words.split()) for known, words in NEAR.items()}
    return Vocabulary(tuple(means), concept_table().numpy()[list(means.values())], near)


def concept_table() -> torch.Tensor:
    """The row of each of `MEANINGS`: [concepts, 768] float32, odd multiples of 1/256 in (-1, 1).

    The row of a noun follows from the word alone.
    """
    drawn = torch.arange(len(DRAWN)) + SEED * len(DRAWN)
    seeds = torch.cat([drawn, torch.tensor([zlib.crc32(word.encode()) for word in nouns.NAMES])])
    return (2 * Chance(seeds).below(256, QUERY_WIDTH) - 255).to(torch.float32) / 256.0


def save(vocabulary: Vocabulary, folder: Path) -> None:
    """Write `vocabulary.json` and `embeddings.bin` (int8, row-major, each row once)."""
    numbers: dict[bytes, int] = {}
    rows = [numbers.setdefault(row.tobytes(), len(numbers)) for row in vocabulary.table]
    known = {"dim": QUERY_WIDTH, "scale": SCALE, "offset": OFFSET, "words": vocabulary.words, "rows": rows}
    known["near"] = vocabulary.near
    (folder / "vocabulary.json").write_text(json.dumps(known) + "\n", encoding="utf-8")
    table = np.stack([np.frombuffer(row, np.float32) for row in numbers])
    (folder / "embeddings.bin").write_bytes(((table - OFFSET) / SCALE).astype(np.int8).tobytes())
