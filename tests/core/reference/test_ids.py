"""Each category of a table in eight real rows."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
import torch

from edgekit.model.spec import Axis, EvaluationSet, Input, ModelSpec, Output
from edgekit.reference.batches import CATEGORIES, batches_for
from edgekit.reference.ids import MOST_CATEGORIES, MOST_OF_COLUMN, category_rows, repeated_rows

ROWS = 300


def table(kind: str = "tensor", size: int = 6) -> tuple[ModelSpec, EvaluationSet]:
    draw = np.random.default_rng(0)
    shape = (3, size, size) if kind == "image" else (size,)
    inputs = (
        Input("country", ("batch",), dtype="int64", high=9),
        Input("codes", ("batch", 2), dtype="int64", high=999),
        Input("x", ("batch", *shape), low=-1, high=1, kind=kind),  # type: ignore[arg-type]  # one of the kinds
    )
    country = draw.integers(0, 8, ROWS)
    country[7] = 8
    codes = np.stack([draw.integers(0, 5, ROWS), np.arange(ROWS)], 1)
    assert MOST_OF_COLUMN < ROWS
    values = {"country": country, "codes": codes, "x": draw.uniform(-1, 1, (ROWS, *shape)).astype(np.float32)}
    spec = ModelSpec("net", torch.nn.Identity(), inputs, (Output("y"),), axes={"batch": Axis(1, 1, 8)})
    return spec, EvaluationSet(values, tuple(f"row {n}" for n in range(ROWS)))


def test_each_category_is_asked_in_eight_real_rows_the_rarest_first() -> None:
    spec, evaluation = table()
    batch = next(b for b in batches_for(spec, evaluation) if b.name == CATEGORIES)
    categories = [(name, len(list(rows))) for name, rows in groupby(batch.names, lambda n: n.rpartition(", ")[2])]
    # Country 9 is in no row; the second code is another number in every row, which is no category.
    assert sorted(categories) == sorted(
        [(f"'country' = {n}", 8) for n in range(9)] + [(f"'codes' 0 = {n}", 8) for n in range(5)]
    )
    assert categories[0][0] == "'country' = 8"
    rarest = {name: array[:8] for name, array in batch.inputs.items()}
    assert set(rarest["country"].ravel()) == {8}
    places = [int(name.partition(",")[0].split()[1]) for name in batch.names[:8]]
    assert len(set(places)) == 8
    assert 7 not in places
    assert all(np.array_equal(rarest[n], evaluation.inputs[n][places]) for n in ("codes", "x"))


@pytest.mark.parametrize(("kind", "size"), [("image", 4), ("tensor", 64)])
def test_models_of_pictures_and_signals_are_not_asked_every_category(kind: str, size: int) -> None:
    assert CATEGORIES not in [batch.name for batch in batches_for(*table(kind, size))]


def test_words_of_a_text_are_no_categories_and_their_number_is_limited() -> None:
    text = Input("ids", ("batch", "length"), dtype="int64", high=99)
    spec = ModelSpec("net", torch.nn.Identity(), (text,), (Output("y"),), axes={"length": Axis(8, 2, 16)})
    draw = np.random.default_rng(0)
    rows = {f"row {n}": {"ids": draw.integers(0, 99, (1, 8))} for n in range(20)}
    assert not category_rows(spec, rows)
    fixed = ModelSpec("net", torch.nn.Identity(), (Input("ids", ("batch", 8), "int64", high=99),), (Output("y"),))
    wide = {f"row {n}": {"ids": draw.integers(0, 99, (1, 8))} for n in range(120)}
    assert len(category_rows(fixed, wide)) == 8 * MOST_CATEGORIES
    mask = Input("mask", ("batch", 8), "int64", high=1)
    padded = ModelSpec("net", torch.nn.Identity(), (*fixed.inputs, mask), fixed.outputs)
    lengths = draw.integers(1, 9, 120)
    texts = {
        name: {**row, "mask": (np.arange(8) < length)[None].astype(np.int64)}
        for (name, row), length in zip(wide.items(), lengths, strict=True)
    }
    assert not category_rows(padded, texts)


def test_words_of_a_text_follow_twice_within_its_length() -> None:
    ids = Input("ids", ("batch", 12), dtype="int64", high=99)
    mask = Input("mask", ("batch", 12), dtype="int64", high=1)
    spec = ModelSpec("net", torch.nn.Identity(), (ids, mask), (Output("y"),))
    row = {"ids": np.arange(10, 22)[None], "mask": (np.arange(12) < 9)[None].astype(np.int64)}
    found = repeated_rows(spec, {"a": row, "b": row})
    assert found["a, words twice"]["ids"].tolist() == [[10, 11, 12, 11, 12, 13, 14, 13, 14, 19, 20, 21]]
    assert found["b, words twice"]["ids"].tolist() == [[10, 11, 12, 13, 12, 13, 14, 15, 14, 19, 20, 21]]
    assert all(np.array_equal(other["mask"], row["mask"]) for other in found.values())
    assert not repeated_rows(*_of_table())


def _of_table() -> tuple[ModelSpec, dict[str, dict[str, np.ndarray]]]:
    spec, evaluation = table()
    return spec, {"row": {name: values[:1] for name, values in evaluation.inputs.items()}}
