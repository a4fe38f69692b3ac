import json
import pathlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import ExportError, UsageError
from edgekit.reference.vocabulary import read_vocabulary
from edgekit.storage.verified_io import visible
from edgekit_arrcoc import presets, queries

VOCABULARY = queries.vocabulary()


def test_a_query_is_the_mean_of_its_words() -> None:
    rows = {word: VOCABULARY.table[index] for index, word in enumerate(VOCABULARY.words)}
    made = VOCABULARY.encode("Red, striped CIRCLE!")
    assert made.dtype == np.float32
    assert np.array_equal(made, (rows["red"] + rows["striped"] + rows["circle"]) / np.float32(3))


@pytest.mark.parametrize(
    ("text", "named"), [("not red", "'not'"), ("the red zeppelin or the", "'the', 'zeppelin', 'or'")]
)
def test_a_query_with_an_unknown_word_is_refused_by_its_name(text: str, named: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"the model does not know {named} in the query '{text}'")):
        VOCABULARY.encode(text)


@pytest.mark.parametrize("text", ["zeppelin", "", "123 ?"])
def test_a_query_without_a_known_word_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"'{text}'")):
        VOCABULARY.encode(text)


def test_a_misspelt_word_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'triangle'"):
        VOCABULARY.encode("triangel")


def test_synonyms_share_a_row_and_concepts_do_not() -> None:
    assert np.array_equal(VOCABULARY.encode("big discs"), VOCABULARY.encode("large circle"))
    concepts = np.stack([VOCABULARY.encode(concept) for concept in queries.CONCEPTS])
    products = concepts @ concepts.T / (np.linalg.norm(concepts, axis=1)[:, None] * np.linalg.norm(concepts, axis=1))
    assert np.abs(products - np.eye(len(concepts))).max() < 0.2
    assert len(set(VOCABULARY.words)) == len(VOCABULARY.words)


def test_things_have_plurals_and_further_words_and_unsure_ones_are_refused() -> None:
    for said, same in (
        ("kitten", "cat"),
        ("mice", "mouse"),
        ("cherries", "cherry"),
        ("buses", "bus"),
        ("people", "person"),
    ):
        assert np.array_equal(VOCABULARY.encode(said), VOCABULARY.encode(same))
    assert not np.array_equal(VOCABULARY.encode("red car"), VOCABULARY.encode("car"))
    assert set(queries.NAMES) > set(queries.UNSURE)
    for noun in queries.UNSURE:
        with pytest.raises(UsageError, match=f"does not know '{noun}'"):
            VOCABULARY.encode(noun)


def test_the_shipped_files_are_this_vocabulary(tmp_path: Path) -> None:
    queries.save(VOCABULARY, tmp_path)
    for name in ("vocabulary.json", "embeddings.bin"):
        assert (presets.HOME / name).read_bytes() == (tmp_path / name).read_bytes()
    loaded = read_vocabulary(presets.HOME)
    assert loaded is not None
    assert loaded.words == VOCABULARY.words
    assert np.array_equal(loaded.table, VOCABULARY.table)
    assert loaded.near == VOCABULARY.near


def test_a_near_word_is_unknown_and_leads_to_one_that_is_known() -> None:
    near = [word for words in VOCABULARY.near.values() for word in words]
    assert len(near) == len(set(near))
    assert not set(near) & set(VOCABULARY.words)
    assert VOCABULARY.near.keys() <= set(VOCABULARY.words)
    with pytest.raises(UsageError, match="does not know 'beagle' in the query 'red beagle': did you mean 'dog'"):
        VOCABULARY.encode("red beagle")


def test_the_ten_lines_of_the_docstring_do_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert queries.__doc__ is not None
    lines = [line.strip() for line in queries.__doc__.splitlines() if line.startswith("    ")]
    assert 3 < len(lines) <= 10
    monkeypatch.chdir(presets.HOME)
    names: dict[str, Any] = {"json": json, "numpy": np, "re": re, "pathlib": pathlib, "text": "Small, turquoise moon"}
    exec("\n".join(lines), names)  # noqa: S102 - the text is our own docstring
    assert np.array_equal(names["query"], VOCABULARY.encode(names["text"]))


@pytest.mark.parametrize("damage", ["words", "bytes", "json"])
def test_damaged_files_are_refused(tmp_path: Path, damage: str) -> None:
    queries.save(VOCABULARY, tmp_path)
    words, table = tmp_path / "vocabulary.json", tmp_path / "embeddings.bin"
    if damage == "words":
        words.write_text(words.read_text().replace('"red",', ""))
    elif damage == "bytes":
        table.write_bytes(table.read_bytes()[:-4])
    else:
        words.write_text("[")
    with pytest.raises(ExportError, match=re.escape(str(tmp_path))):
        read_vocabulary(tmp_path)


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=40) | st.lists(st.sampled_from(sorted(VOCABULARY.words)), max_size=5).map(" ".join))
def test_any_text_is_a_query_or_a_sentence(text: str) -> None:
    words = re.findall(r"[^\W_]+", text.lower())
    if not words or set(words) - set(VOCABULARY.words):
        with pytest.raises(UsageError) as refused:
            VOCABULARY.encode(text)
        assert str(refused.value) == visible(str(refused.value))
        return
    query = VOCABULARY.encode(text)
    assert query.shape == (768,)
    assert query.dtype == np.float32
    assert np.abs(query).max() < 1
    assert np.array_equal(VOCABULARY.encode(f"  {text.upper()}, "), query)
