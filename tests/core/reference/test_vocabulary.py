"""A query is put into its words again; a vocabulary is read whole or refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgekit.errors import ExportError, UsageError
from edgekit.reference.vocabulary import Vocabulary, read_vocabulary


def words() -> Vocabulary:
    table = np.random.default_rng(0).normal(0, 1, (12, 64))
    return Vocabulary(tuple(f"word{i}" for i in range(12)), (table / np.linalg.norm(table, axis=1)[:, None]))


@pytest.mark.parametrize("rows", [(3,), (0, 5), (1, 4, 9)])
def test_a_query_is_put_into_its_words_again(rows: tuple[int, ...]) -> None:
    known = words()
    query = known.table[list(rows)].mean(0).astype(np.float32)
    assert known.of(query) == tuple(f"word{row}" for row in rows)


def test_a_query_that_no_words_make_has_none() -> None:
    assert words().of(np.random.default_rng(1).normal(0, 1, 64)) == ()


def test_a_vocabulary_is_read_whole_or_refused(tmp_path: Path) -> None:
    assert read_vocabulary(tmp_path) is None
    table = np.array([-128, 0, 127, 1, 2, 3], np.int8)
    listed = {"words": ["red", "ring", "hoop"], "rows": [1, 0, 0], "dim": 3, "scale": 0.5, "offset": 1.0}
    (tmp_path / "vocabulary.json").write_text(json.dumps(listed))
    assert read_vocabulary(tmp_path) is None
    table.tofile(tmp_path / "embeddings.bin")
    found = read_vocabulary(tmp_path)
    assert found is not None
    first, second = [-63.0, 1.0, 64.5], [1.5, 2.0, 2.5]
    assert (found.words, found.table.tolist()) == (("red", "ring", "hoop"), [second, first, first])
    assert found.near == {}
    (tmp_path / "vocabulary.json").write_text(json.dumps(listed | {"near": {"ring": ["band"]}}))
    found = read_vocabulary(tmp_path)
    assert found is not None
    with pytest.raises(UsageError, match="did you mean 'ring'"):
        found.encode("red band")
    for wrong in (
        {"near": {"rung": ["band"]}},
        {"near": ["band"]},
        {"dim": 4},
        {"rows": [1, 0]},
        {"rows": [1, 0, -1]},
        {"rows": [2, 0, 0]},
    ):
        (tmp_path / "vocabulary.json").write_text(json.dumps(listed | wrong))
        with pytest.raises(ExportError, match="do not match"):
            read_vocabulary(tmp_path)
