from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.errors import ExportError
from edgekit.model.spec import Array, ModelSpec, Output
from edgekit.reference import golden
from edgekit.reference.pictures import resized
from edgekit.reference.record import record_reference
from edgekit.reference.store import read_reference, write_reference
from edgekit.runtime.eager import EagerRuntime
from edgekit.testing import small_model


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden") / "reference"
    record_reference(small_model(), folder)
    return folder


def words() -> golden.Words:
    table = np.random.default_rng(0).normal(0, 1, (12, 64))
    return golden.Words(tuple(f"word{i}" for i in range(12)), (table / np.linalg.norm(table, axis=1)[:, None]))


@pytest.mark.parametrize("rows", [(3,), (0, 5), (1, 4, 9)])
def test_a_query_is_put_into_its_words_again(rows: tuple[int, ...]) -> None:
    known = words()
    query = known.table[list(rows)].mean(0).astype(np.float32)
    assert known.of(query) == tuple(f"word{row}" for row in rows)


def test_a_query_that_no_words_make_has_none() -> None:
    assert words().of(np.random.default_rng(1).normal(0, 1, 64)) == ()


def test_a_vocabulary_is_read_whole_or_refused(tmp_path: Path) -> None:
    assert golden.read_words(tmp_path) is None
    table = np.arange(6, dtype="<f4")
    (tmp_path / "vocabulary.json").write_text(json.dumps({"words": ["red", "ring"], "dim": 3}))
    assert golden.read_words(tmp_path) is None
    table.tofile(tmp_path / "embeddings.bin")
    found = golden.read_words(tmp_path)
    assert found is not None
    assert (found.words, found.table.tolist()) == (("red", "ring"), [[0, 1, 2], [3, 4, 5]])
    (tmp_path / "vocabulary.json").write_text(json.dumps({"words": ["red"], "dim": 4}))
    with pytest.raises(ExportError, match="do not fit each other"):
        golden.read_words(tmp_path)


def test_a_case_is_the_image_that_was_evaluated(recorded: Path) -> None:
    spec = small_model()
    real = read_reference(recorded).batches[0]
    found = list(golden.cases(spec, recorded, None))
    assert [case.name for case in found] == list(real.names)
    for row, case in enumerate(found):
        assert case.image.dtype == np.uint8
        given = case.inputs(spec)
        np.testing.assert_allclose(given["images"][0], real.inputs["images"][row], atol=1e-6)
        np.testing.assert_array_equal(given["queries"][0], real.inputs["queries"][row])
        np.testing.assert_array_equal(case.scores, real.outputs["relevance"][row])
        np.testing.assert_array_equal(case.ranking, real.outputs["indices"][row])


def test_images_that_are_not_made_of_bytes_are_passed_over(recorded: Path, tmp_path: Path) -> None:
    found = read_reference(recorded)
    images = found.batches[0].inputs["images"].copy()
    images[1] += np.float32(0.4 / 255)
    changed = replace(found.batches[0], inputs={**found.batches[0].inputs, "images": images})
    write_reference(tmp_path / "reference", (changed,), {"noise": {}, "device": ""}, with_inputs=True)
    names = [case.name for case in golden.cases(small_model(), tmp_path / "reference", None)]
    assert names == [name for i, name in enumerate(changed.names) if i != 1]


def test_one_case_of_each_kind_is_chosen(recorded: Path) -> None:
    spec = small_model()
    answer = EagerRuntime(spec).run
    chosen = golden.choose_golden(spec, recorded, None, answer, ("width",))
    found = {case.name: case for case in golden.cases(spec, recorded, None)}
    telling, unanswered, wide = chosen
    assert telling.name == max(found, key=lambda name: golden._weakest(found[name], spec, answer))
    assert unanswered.name == min(found, key=lambda name: float(found[name].scores.max()))
    height, width, _ = wide.image.shape
    assert height != width
    np.testing.assert_array_equal(wide.image[:, :height], telling.image[:, :width])
    np.testing.assert_array_equal(wide.scores, answer(wide.inputs(spec))["relevance"][0])
    closed = golden.choose_golden(spec, recorded, None, answer)
    assert [case.name for case in closed] == [case.name for case in chosen[:2]]
    assert golden.largest(chosen, spec, answer) < 1e-6
    assert golden.undetected_faults(chosen, spec, answer, 0.0) == ()
    assert set(golden.undetected_faults(chosen, spec, answer, 1.0)) <= set(golden.FAULTS)


def test_a_case_of_another_size_tells_whether_a_picture_is_stretched_by_the_filter(recorded: Path) -> None:
    spec = small_model()
    answer = EagerRuntime(spec).run
    case = next(golden.cases(spec, recorded, None))
    other = golden.of_another_size(case, spec, answer)
    side = case.image.shape[0]
    assert other.image.shape == (side + side // 3, side + side // 5, 3)
    np.testing.assert_array_equal(other.image[:side, :side], case.image)
    height, width, _ = other.image.shape
    rows, columns = np.arange(side) * height // side, np.arange(side) * width // side
    top, left = (height - side) // 2, (width - side) // 2
    planes = resized(other.image.transpose(2, 0, 1).astype(np.float32), side, side)
    ways = {
        "stretched": np.floor(planes.transpose(1, 2, 0) + 0.5).astype(np.uint8),
        "cropped": other.image[top : top + side, left : left + side],
        "its corner": case.image,
        "nearest pixels": other.image[rows][:, columns],
    }
    off = {name: golden.largest((replace(other, image=image),), spec, answer) for name, image in ways.items()}
    assert off.pop("stretched") < 1e-6
    assert min(off.values()) > 0.01, off


def test_a_fault_that_changes_nothing_is_told(recorded: Path) -> None:
    """Of a model that sums the channels nobody sees that they are in reverse order."""
    spec = small_model()

    def grey(inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {"relevance": inputs["images"].sum(1)[:, ::16, ::16].reshape(1, -1) / 100}

    chosen = [replace(c, scores=grey(c.inputs(spec))["relevance"][0]) for c in golden.cases(spec, recorded, None)]
    assert golden.undetected_faults(tuple(chosen), spec, grey, 1e-6) == ("channels in reverse order",)


def test_a_model_without_scores_has_no_golden_vectors(recorded: Path) -> None:
    spec: ModelSpec = replace(small_model(), outputs=(Output("relevance"), *small_model().outputs[1:]))
    with pytest.raises(ExportError, match="model 'small' has no output with the role 'scores'"):
        golden.choose_golden(spec, recorded, None, EagerRuntime(small_model()).run)


def test_what_is_written_is_found_at_its_offsets(recorded: Path, tmp_path: Path) -> None:
    cases = tuple(golden.cases(small_model(), recorded, None))[:2]
    assert golden.write_golden(tmp_path, cases) == golden.JSON
    listed = json.loads((tmp_path / golden.JSON).read_text())
    binary = (tmp_path / golden.BINARY).read_bytes()
    assert (listed["format"], listed["binary"], len(listed["cases"])) == (golden.FORMAT, golden.BINARY, 2)

    def part(where: dict[str, list[int] | int], dtype: str) -> Array:
        shape, offset = where["shape"], where["offset"]
        assert isinstance(offset, int)
        assert isinstance(shape, list)
        assert offset % 4 == 0
        return np.frombuffer(binary, dtype, int(np.prod(shape)), offset).reshape(shape)

    for row, case in zip(listed["cases"], cases, strict=True):
        assert row["name"] == case.name
        np.testing.assert_array_equal(part(row["image"], "u1"), case.image)
        np.testing.assert_array_equal(part(row["query"], "<f4"), case.query)
        np.testing.assert_array_equal(part(row["expected"]["relevance"], "<f4"), case.scores)
        np.testing.assert_array_equal(part(row["expected"]["budgets"], "<i4"), case.counts)
        np.testing.assert_array_equal(part(row["expected"]["indices"], "<i4"), case.ranking)
