"""Inputs with a structure keep it, and are asked in others: padded texts, pairs, tables, quiet and sparse signals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.model.evaluation_set import evaluation_of
from edgekit.model.sources import resolve_model
from edgekit.model.sources.module import spec_of_module
from edgekit.model.spec import Axis, EvaluationSet, Input, ModelSpec, Output
from edgekit.pipeline.judge_step import _values_not_asked
from edgekit.reference.batches import CHANGED, IDS, SHIFTED, Batch, BatchSource, batches_for
from edgekit.reference.record import record_reference
from edgekit.reference.store import read_reference
from edgekit.reference.vocabulary import word_queries
from tests.detectors import detections

TOKENS = 12


class Reader(torch.nn.Module):
    """The mean of the words that a mask leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(5000, 4)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        kept = mask.unsqueeze(-1).float()
        mean: torch.Tensor = (self.words(ids) * kept).sum(1) / kept.sum(1)
        return mean


def texts() -> EvaluationSet:
    """Four texts of 12 places: of 12, 9, 5 and 3 words."""
    lengths = np.array([12, 9, 5, 3])[:, None]
    mask = (np.arange(TOKENS) < lengths).astype(np.int64)
    ids = np.random.default_rng(0).integers(2, 5000, (4, TOKENS)) * mask
    return EvaluationSet({"ids": ids, "mask": mask}, ("a", "b", "c", "d"))


@pytest.fixture(scope="module")
def reader() -> ModelSpec:
    return ModelSpec(
        name="reader",
        module=Reader().eval(),
        inputs=(
            Input("ids", ("batch", "tokens"), dtype="int64", low=0, high=4999),
            Input("mask", ("batch", "tokens"), dtype="int64"),
        ),
        outputs=(Output("mean", role="embedding"),),
        axes={"batch": Axis(1, 1, 4), "tokens": Axis(TOKENS, 2, 32)},
        evaluation=texts,
    )


def test_prefix_masks_stay_prefixes_at_every_length(reader: ModelSpec) -> None:
    batches = batches_for(reader, texts())
    real = [b for b in batches if b.name.startswith("real-") or b.name.startswith("between-")]
    assert max(b.sizes["tokens"] for b in real) == 32
    padded = 0
    for batch in real:
        ids, mask = batch.inputs["ids"], batch.inputs["mask"]
        assert (np.diff(mask, axis=1) <= 0).all(), batch.name
        short = mask[:, -1] == 0
        padded += int(short.sum())
        assert (ids[short][:, -1] == 0).all()
    assert padded > 10


def test_shorter_texts_than_those_of_the_set_are_asked(reader: ModelSpec) -> None:
    changed = next(b for b in batches_for(reader, texts()) if b.name == "changed")
    rows = dict(zip(changed.names, changed.inputs["mask"], strict=True))
    ids = dict(zip(changed.names, changed.inputs["ids"], strict=True))
    assert rows["a, the first 1 of 12"].sum() == 1
    assert rows["b, the first 4 of 9"].sum() == 4
    assert not ids["b, the first 4 of 9"][4:].any()
    assert (np.diff(ids["a, 'ids' sorted"]) >= 0).all()


def test_a_mask_of_which_the_declaration_says_only_ones_is_never_sorted(reader: ModelSpec) -> None:
    inputs = tuple(replace(i, low=1) if i.name == "mask" else i for i in reader.inputs)
    changed = next(b for b in batches_for(replace(reader, inputs=inputs), texts()) if b.name == "changed")
    ids = dict(zip(changed.names, changed.inputs["ids"], strict=True))
    assert not ids["b, 'ids' sorted"][9:].any()  # padding stays behind
    assert (np.diff(ids["b, 'ids' sorted"][:9]) >= 0).all()
    assert "a, 'mask' sorted" not in changed.names


def test_pairs_are_asked_alike_and_exchanged_and_signals_quiet_and_sparse() -> None:
    class Pair(torch.nn.Module):
        def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return left * right

    sides = {name: np.random.default_rng(n).uniform(-1, 1, (3, 80)).astype(np.float32) for n, name in enumerate("lr")}
    named = {"left": sides["l"], "right": sides["r"]}
    spec = spec_of_module(Pair().eval(), tuple(map(torch.tensor, named.values())))
    changed = next(b for b in batches_for(spec, EvaluationSet(named, ("a", "b", "c"))) if b.name == "changed")
    rows = {name: {i: array[n] for i, array in changed.inputs.items()} for n, name in enumerate(changed.names)}
    assert np.array_equal(rows["a, 'right' as 'left'"]["right"], named["left"][0])
    assert np.array_equal(rows["a, 'right' and 'left' exchanged"]["left"], named["right"][0])
    assert 0 < np.abs(rows["a, 'left' quiet"]["left"]).max() <= 1e-3
    assert np.count_nonzero(rows["a, 'left' sparse"]["left"]) == 5


@pytest.mark.parametrize("functional", [False, True])
def test_integers_that_index_a_table_take_all_of_its_rows(functional: bool) -> None:
    class Lookup(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(5000, 4)

        def forward(self, ids: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
            rows = torch.nn.functional.embedding(ids, self.words.weight) if functional else self.words(ids)
            return rows.sum(1) * counts

    ids, counts = torch.tensor([[3, 17, 250]]), torch.tensor([[2]])
    spec = spec_of_module(Lookup().eval(), (ids, counts))
    assert {i.name: (i.low, i.high) for i in spec.inputs} == {"ids": (0, 4999), "counts": (2, 3)}


def test_values_that_were_never_asked_are_counted(reader: ModelSpec) -> None:
    batches = batches_for(reader, texts())
    asked = {int(value) for batch in batches for value in batch.inputs["ids"].ravel()}
    assert list(_values_not_asked(reader, batches)) == [f"{5000 - len(asked)} of 5000 values of 'ids'"]
    few = replace(reader, inputs=(replace(reader.inputs[0], high=2), reader.inputs[1]))
    assert not list(_values_not_asked(few, batches))


def test_every_word_is_asked_in_queries_of_one_to_eight_words() -> None:
    """Also the words that no query of the evaluation set has; words with the same row are one."""
    spec = resolve_model("arr-coc-tiny")
    evaluation = evaluation_of(spec)
    assert evaluation is not None
    source = BatchSource(spec, evaluation, word_queries(spec, evaluation))
    batches = [batch for name in ("evaluation", "words") if (batch := source.batch(name, {})) is not None]
    assert list(_values_not_asked(spec, batches[:1])) == ["667 of 832 words of 'queries'"]
    assert not list(_values_not_asked(spec, batches))
    assert {name.count(",") + 1 for name in batches[1].names} == set(range(1, 9))


def test_texts_are_asked_padded_before_and_with_a_gap(reader: ModelSpec) -> None:
    changed = next(b for b in batches_for(reader, texts()) if b.name == CHANGED)
    masks = dict(zip(changed.names, changed.inputs["mask"], strict=True))
    ids = dict(zip(changed.names, changed.inputs["ids"], strict=True))
    assert masks["a, the first 6 of 12, at the end"].tolist() == [0] * 6 + [1] * 6
    np.testing.assert_array_equal(ids["a, the first 6 of 12, at the end"][6:], texts().inputs["ids"][0, :6])
    assert masks["b, a gap in 9"].tolist() == [1] * 3 + [0] * 3 + [1] * 3 + [0] * 3


def test_longer_texts_hold_more_padding_and_more_words_in_turn(reader: ModelSpec) -> None:
    batches = [b for b in batches_for(reader, texts()) if b.name.startswith(("real-", "between-"))]
    longer = [b for b in batches if b.sizes["tokens"] > 12]
    lengths = {(int(length), b.sizes["tokens"]) for b in longer for length in b.inputs["mask"].sum(1)}
    assert any(length == tokens for length, tokens in lengths)
    assert any(length in (9, 5, 3) for length, _ in lengths)


def test_ids_that_no_real_row_has_are_asked_in_its_place_and_keep_its_padding(reader: ModelSpec) -> None:
    batch = next(b for b in batches_for(reader, texts()) if b.name == IDS)
    real = set(texts().inputs["ids"].ravel().tolist())
    kept = batch.inputs["mask"].astype(bool)
    asked = set(batch.inputs["ids"][kept].tolist())
    assert not asked & real
    assert len(asked) > 400
    assert (batch.inputs["ids"][~kept] == 0).all()


def test_each_category_is_asked_once() -> None:
    spec = ModelSpec(
        name="shops",
        module=torch.nn.Embedding(300, 2),
        inputs=(Input("shop", ("batch",), dtype="int64", low=0, high=299),),
        outputs=(Output("y"),),
        axes={"batch": Axis(1, 1, 4)},
    )
    own = EvaluationSet({"shop": np.arange(0, 20)}, tuple(f"row {row}" for row in range(20)))
    batch = next(b for b in batches_for(spec, own) if b.name == IDS)
    assert sorted(batch.inputs["shop"].tolist()) == list(range(20, 300))
    assert not [text for text in _values_not_asked(spec, batches_for(spec, own)) if "shop" in text]


def test_a_signal_falls_silent_in_part() -> None:
    spec = ModelSpec(
        name="audio",
        module=torch.nn.Identity(),
        inputs=(Input("wave", ("batch", 90), low=-1),),
        outputs=(Output("y"),),
        axes={"batch": Axis(1, 1, 4)},
    )
    wave = np.random.default_rng(0).uniform(0.1, 1, (3, 90)).astype(np.float32)
    asked = {b.name: b for b in batches_for(spec, EvaluationSet({"wave": wave}, ("a", "b", "c")))}
    rows = dict(zip(asked[CHANGED].names, asked[CHANGED].inputs["wave"], strict=True))
    assert (rows["a, 'wave' silent at its start"] != 0).tolist() == [False] * 30 + [True] * 60
    assert (rows["a, 'wave' silent at its end"] != 0).tolist() == [True] * 60 + [False] * 30
    assert SHIFTED in asked
    assert "levelled" not in asked


def test_classes_that_were_never_an_answer_are_counted() -> None:
    spec = ModelSpec(
        name="net",
        module=torch.nn.Identity(),
        inputs=(Input("x", ("batch", 5)),),
        outputs=(Output("logits", role="logits"),),
        axes={"batch": Axis(1, 1, 4)},
    )
    answers = np.eye(5)[[0, 0, 3]].astype(np.float32)
    batch = Batch("evaluation", {}, {"logits": answers}, {}, ("a", "b", "c"))
    assert list(_values_not_asked(spec, [batch])) == ["3 of 5 classes of 'logits', never the answer"]


class Shop(torch.nn.Module):
    """Numbers of a shop, by its id."""

    def __init__(self) -> None:
        super().__init__()
        self.shops = torch.nn.Embedding(40, 3)

    def forward(self, shop: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        sums: torch.Tensor = self.shops(shop) + numbers
        return sums


def test_batches_are_asked_with_equal_and_sorted_rows_and_with_one_id_for_all() -> None:
    """A graph that mixes the rows of a batch may be right unless some are alike, or in order."""
    draw = np.random.default_rng(0)
    real = EvaluationSet(
        {"shop": draw.integers(0, 40, 20), "numbers": draw.normal(size=(20, 3)).astype(np.float32)},
        tuple(map(str, range(20))),
    )
    inputs = (Input("shop", ("batch",), dtype="int64", high=39), Input("numbers", ("batch", 3), low=-4.0, high=4.0))
    spec = ModelSpec("shop", Shop().eval(), inputs, (Output("sums"),), {"batch": Axis(1, 1, 8)})
    by_size = {b.sizes["batch"]: b.inputs for b in batches_for(spec, real) if b.name.startswith(("real-", "between-"))}
    assert np.array_equal(by_size[8]["numbers"][::2], by_size[8]["numbers"][1::2])
    assert len({row.tobytes() for row in by_size[8]["numbers"]}) == 4
    assert len(set(by_size[5]["shop"])) == 1 < len({row.tobytes() for row in by_size[5]["numbers"]})
    assert list(by_size[6]["numbers"][:, 0]) == sorted(by_size[6]["numbers"][:, 0])
    assert len({row.tobytes() for row in by_size[7]["numbers"]}) == 7


def test_one_batch_has_the_fullest_texts(reader: ModelSpec) -> None:
    """Also of a model whose texts have one length."""
    fixed = replace(
        reader,
        inputs=tuple(replace(i, shape=("batch", TOKENS)) for i in reader.inputs),
        axes={"batch": Axis(1, 1, 4)},
    )
    twice = EvaluationSet(
        {name: np.tile(array, (4, 1)) for name, array in texts().inputs.items()}, tuple(map(str, range(16)))
    )
    batches = [b for b in batches_for(fixed, twice) if b.sizes.get("batch") == 4]
    assert any(b.inputs["mask"].all() for b in batches if b.name.startswith(("real-", "between-")))


def detector() -> ModelSpec:
    return ModelSpec(
        name="net",
        module=torch.nn.Identity(),
        inputs=(Input("images", ("batch", 3, 30, 40), kind="image"),),
        outputs=(Output("boxes", role="detections"),),
        axes={"batch": Axis(1, 1, 4)},
    )


def test_a_detector_is_asked_mosaics_of_real_pictures() -> None:
    shades = np.arange(1, 13, dtype=np.float32)[:, None, None, None] / 12 * np.ones((1, 3, 30, 40), np.float32)
    evaluation = EvaluationSet({"images": shades}, tuple(f"p{n}" for n in range(12)))
    source = BatchSource(detector(), evaluation)
    batch = source.batch(CHANGED, {})
    assert batch is not None
    rows = dict(zip(batch.names, batch.inputs["images"], strict=True))
    [four], [nine] = ([n for n in rows if n.endswith(f", {count} pictures in one")] for count in (4, 9))
    assert len(np.unique(rows[four].round(4))) == 4
    assert len(np.unique(rows[nine].round(4))) == 9
    plain = replace(detector(), outputs=(Output("logits", role="logits"),))
    other = BatchSource(plain, evaluation).batch(CHANGED, {})
    assert other is not None
    assert not [name for name in other.names if "in one" in name]


def test_a_recorded_reference_of_a_detector_is_read_again(tmp_path: Path) -> None:
    """Its inputs are made again from the record alone, the mosaics too."""
    spec = detections()
    spec = replace(spec, inputs=(replace(spec.inputs[0], kind="image"),))
    record_reference(spec, tmp_path, "cpu", True, lambda share, text: None)
    changed = next(batch for batch in read_reference(tmp_path).batches if batch.name == CHANGED)
    assert [name for name in changed.names if name.endswith("in one")]


def test_places_of_a_list_that_no_input_fills_are_counted() -> None:
    boxes = np.zeros((2, 100, 6), np.float32)
    boxes[0, :9, 4] = 0.9
    batch = Batch("evaluation", {}, {"boxes": boxes}, {}, ("a", "b"))
    assert "the last 91 of 100 places of 'boxes', which no input fills" in list(_values_not_asked(detector(), [batch]))
