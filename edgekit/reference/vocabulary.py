"""Vocabulary of a query encoder, and queries from words.

`vocabulary.json` is {"dim": 768, "scale": 0.0078125, "offset": 0.00390625, "words": [...], "rows": [...]}: the row of
each word in `embeddings.bin`, which holds int8 [rows, dim]; a value is scale * byte + offset. Words that mean the same
share a row. "near" may list, by known word, unknown words that are nearest to it: {"dog": ["beagle"]}.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from edgekit.errors import ExportError, UsageError
from edgekit.model.spec import Array, EvaluationSet, ModelSpec
from edgekit.storage.files import load_json
from edgekit.storage.verified_io import visible

# Most words of a query that `Vocabulary.of` recovers.
MOST_WORDS = 8
# Queries that ask the words which no real query has.
MOST_QUERIES = 256
ROUNDING = 1e-4
# Words that a message lists.
EXAMPLES = 12


@dataclass(frozen=True)
class Vocabulary:
    """Words and vectors of a query encoder.

    Attributes:
        words: Lower-case words.
        table: [words, Q] float32, one row per word; a query is the mean of its words' rows.
        near: Known words, each with unknown words nearest to it in meaning: a page may suggest it instead.
    """

    words: tuple[str, ...]
    table: Array
    near: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def encode(self, text: str) -> Array:
        """Return a query [Q] float32: the mean of its words' rows, as every library computes it.

        Raises:
            UsageError: If it has no word, or an unknown one: "not red" must not be run as "red".
        """
        # Runs of letters and digits.
        words = re.findall(r"[^\W_]+", text.lower())
        unknown = [word for word in dict.fromkeys(words) if word not in self._rows]
        if unknown or not words:
            what = f"does not know {', '.join(repr(word) for word in unknown)}" if unknown else "needs a word"
            near = [neighbour for word in unknown for neighbour in self._nearest(word)]
            hint = f"did you mean '{' '.join(near)}'?" if near else f"it knows {', '.join(self.words[:EXAMPLES])} ..."
            raise UsageError(f"the model {what} in the query '{visible(text)}': {hint}")
        rows = self.table[[self._rows[word] for word in words]]
        return np.asarray(rows.mean(0, dtype=np.float32))

    def _nearest(self, word: str) -> list[str]:
        """Return the known word nearest to an unknown one, in meaning or else in letters."""
        kind = [neighbour for neighbour, words in self.near.items() if word in words]
        return kind or difflib.get_close_matches(word, self.words, 1)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}

    def of(self, query: Array) -> tuple[str, ...]:
        """Return the words whose rows' mean is a query [Q], in the vocabulary's order; empty if none fit.

        Matching pursuit (Mallat and Zhang, 1993) with the coefficients that a mean of so many rows must have.
        """
        places, table = self._distinct
        for count in range(1, MOST_WORDS + 1):
            residual, rows = count * query.astype(np.float64), []
            for _ in range(count):
                rows.append(int(np.argmax(table @ residual)))
                residual = residual - table[rows[-1]]
            if np.abs(residual).max() < ROUNDING * count:
                return tuple(self.words[places[row]] for row in sorted(rows))
        return ()

    def words_without(self, queries: Iterable[Array]) -> dict[str, str]:
        """Return the words that occur in none of some queries [Q], each with the first word that has the same row.

        Words with the same row are the same to the model.
        """
        places, _ = self._distinct
        firsts = {bytes(self.table[place]): self.words[place] for place in places}
        first_of = {word: firsts[bytes(row)] for word, row in zip(self.words, self.table, strict=True)}
        known = {word for query in queries for word in self.of(query)}
        return {word: first for word, first in first_of.items() if first not in known}

    @cached_property
    def _distinct(self) -> tuple[list[int], Array]:
        """The first word of each distinct row, and these rows in float64."""
        firsts: dict[bytes, int] = {}
        for place, row in enumerate(self.table):
            firsts.setdefault(bytes(row), place)
        places = list(firsts.values())
        return places, self.table[places].astype(np.float64)


def read_vocabulary(folder: Path) -> Vocabulary | None:
    """Return the vocabulary of a model folder, or None.

    Raises:
        ExportError: If its files do not match.
    """
    listed, table = folder / "vocabulary.json", folder / "embeddings.bin"
    if not listed.is_file() or not table.is_file():
        return None
    try:
        record = load_json(listed.read_text(encoding="utf-8"))
        words, rows = tuple(str(word) for word in record["words"]), [int(row) for row in record["rows"]]
        stored = np.fromfile(table, np.int8).reshape(max(rows, default=-1) + 1, int(record["dim"]))
        values = np.float32(record["scale"]) * stored.astype(np.float32) + np.float32(record["offset"])
        if len(rows) != len(words) or min(rows, default=0) < 0:
            raise ValueError(f"{len(words)} words with {len(rows)} rows")
        near = {str(word): tuple(map(str, unknown)) for word, unknown in record.get("near", {}).items()}
        if lost := near.keys() - {*words}:
            raise ValueError(f"the word {min(lost)!r} has near ones and no row")
        return Vocabulary(words, values[rows], near)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ExportError(f"'{listed}' and '{table}' do not match ({error}). Write both again") from error


def word_queries(spec: ModelSpec, evaluation: EvaluationSet | None) -> dict[str, Array]:
    """Return queries [Q] of one to MOST_WORDS words, with every word that no real query has, by name."""
    path = spec.files.get("vocabulary.json")
    vocabulary = read_vocabulary(Path(path).parent) if path is not None else None
    queries = [i.name for i in spec.inputs if i.kind == "query"]
    by_name: dict[str, Array] = {}
    if vocabulary is None or not queries:
        return by_name
    real = evaluation.inputs[queries[0]] if evaluation is not None else np.empty((0, 1))
    words = vocabulary.words_without(query.reshape(-1) for query in np.unique(real, axis=0))
    # Each first word once, in the order of the last word with its row.
    left = list(dict.fromkeys(reversed(words.values())))[::-1]
    while left and len(by_name) < MOST_QUERIES:
        some = left[: len(by_name) % MOST_WORDS + 1]
        left = left[len(some) :]
        by_name[f"the words {', '.join(some)}"] = vocabulary.encode(" ".join(some))
    return by_name
