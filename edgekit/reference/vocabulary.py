"""The vocabulary of a query encoder, and the words that make a query.

`vocabulary.json` is {"dim": 768, "scale": 0.0078125, "offset": 0.00390625, "words": [...], "rows": [...]}: the row of
each word in `embeddings.bin`, which holds int8 [rows, dim]; a value is scale * byte + offset. Words that mean the same
share a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.errors import ExportError
from edgekit.model.spec import Array
from edgekit.storage.files import load_json

MOST_WORDS = 6  # of a query that is put into words again
ROUNDING = 1e-4


@dataclass(frozen=True)
class Vocabulary:
    """What a query encoder knows.

    Attributes:
        words: Lower-case words.
        table: [words, Q] float32, one row a word; a query is the mean of its words' rows.
    """

    words: tuple[str, ...]
    table: Array

    def of(self, query: Array) -> tuple[str, ...]:
        """The words whose rows' mean is a query [Q], in the vocabulary's order; empty where there are none.

        Matching pursuit (Mallat and Zhang, 1993) with the coefficients that a mean of so many rows must have.
        """
        for count in range(1, MOST_WORDS + 1):
            left, rows = count * query.astype(np.float64), []
            for _ in range(count):
                rows.append(int(np.argmax(self.table @ left)))
                left = left - self.table[rows[-1]]
            if np.abs(left).max() < ROUNDING * count:
                return tuple(self.words[row] for row in sorted(rows))
        return ()


def read_vocabulary(folder: Path) -> Vocabulary | None:
    """The vocabulary of a model folder, or None where it has none.

    Raises:
        ExportError: Its files do not fit each other.
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
        return Vocabulary(words, values[rows])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExportError(f"'{listed}' and '{table}' do not fit each other ({error})") from error
