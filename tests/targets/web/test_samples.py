"""The sample pictures of a page: what stands beside a picture is in it, and the model finds it there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from edgekit.model.overrides import words_of
from edgekit.model.sources import resolve_model
from edgekit.model.spec import Array, ModelSpec
from edgekit.pipeline.given_model import with_data
from edgekit.pipeline.request import EvaluationData
from edgekit.reference import golden
from edgekit.reference.adopt import obtain
from edgekit_arrcoc import presets, queries
from edgekit_targets.web import samples as samples_module
from tests.dim_classifier import write_pictures
from training import photographs, sets
from training.scenes import CELL

ROOT = Path(__file__).parents[3]
SEEN = CELL * CELL // 8  # pixels of a patch


@pytest.fixture(scope="module")
def spec() -> ModelSpec:
    return presets.arr_coc_tiny()


@pytest.fixture(scope="module")
def answer(spec: ModelSpec) -> golden.Answer:
    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        with torch.no_grad():
            answers = spec.module(*(torch.from_numpy(inputs[i.name]) for i in spec.inputs))
        return {o.name: value.numpy() for o, value in zip(spec.outputs, answers, strict=True)}

    return run


@pytest.fixture(scope="module")
def reference(spec: ModelSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference that ships, as a build has it."""
    folder = tmp_path_factory.mktemp("samples") / "reference"
    obtain(spec, folder)
    return folder


@pytest.mark.nightly
def test_the_samples_of_the_shipped_model_show_what_stands_beside_them(
    spec: ModelSpec, reference: Path, answer: golden.Answer
) -> None:
    """By the scenes that the pictures were rendered from: each query's best patch has an object with all its words."""
    samples = samples_module.choose(spec, presets.HOME, reference, answer)
    assert len(samples) == samples_module.MOST
    assert [sample.absent for sample in samples] == [False] * 7 + [True]
    records = json.loads((presets.HOME / "evaluation" / "evaluation.json").read_text())["images"]
    bank, words = photographs.held_out("evaluation"), queries.vocabulary()
    for sample in samples:
        record = next(one for one in records if Path(one["file"]).stem == sample.case.name)
        sort = sets.SORTS.index(record["sort"])
        scene, _, _ = sets.scene(sort, record["seed"] - sets.seed(sort, 0), bank)
        names = [
            {values[value] for values, value in zip(queries.ATTRIBUTES, row, strict=True) if value >= 0}
            | {queries.OBJECT}
            | (
                {queries.NOUNS[noun], *(group for group, own in queries.GROUPS.items() if queries.NOUNS[noun] in own)}
                if noun >= 0
                else set()
            )
            for row, noun in zip(scene.attributes[0].tolist(), scene.nouns[0].tolist(), strict=True)
        ]
        assert sample.absent == (not any(set(sample.query.split()) <= own for own in names)), sample.query
        assert len(sample.queries) >= 2, "a visitor has something to choose"
        assert sample.absent or sample.queries[0] == sample.query
        for query in sample.queries:
            inputs = {"queries": words.encode(query)[None]}
            feed = golden.Case(sample.case.name, sample.case.image, inputs, {}).feed(spec)
            best = int(answer(feed)["relevance"][0].argmax())
            there = [own for own, seen in zip(names, scene.visible[0, :, best].tolist(), strict=True) if seen >= SEEN]
            assert any(set(query.split()) <= own for own in there), (sample.case.name, query, there)


@pytest.mark.nightly
def test_the_first_sample_brings_its_vector_and_the_model_what_it_was_trained_on(
    spec: ModelSpec, reference: Path, answer: golden.Answer, tmp_path: Path
) -> None:
    samples_module.write(spec, presets.HOME, reference, tmp_path, answer)
    told = json.loads((tmp_path / "samples.json").read_text())
    assert told["trained_on"] == spec.trained_on != ""
    assert ["vector" in row for row in told["samples"]] == [True] + [False] * 7
    assert all((tmp_path / row["file"]).is_file() for row in told["samples"])


def test_samples_from_photographs_name_their_authors(
    spec: ModelSpec, reference: Path, answer: golden.Answer, tmp_path: Path
) -> None:
    images = json.loads((presets.HOME / "evaluation" / "evaluation.json").read_text())["images"]
    lines = json.loads((presets.HOME / "credits.json").read_text(encoding="utf-8"))
    assert lines == sets.credits_of(images)
    samples_module.write(spec, presets.HOME, reference, tmp_path, answer)
    rows = json.loads((tmp_path / "samples.json").read_text(encoding="utf-8"))["samples"]
    named = {row["file"].removeprefix("samples/").rpartition("-")[0]: row.get("credit") for row in rows}
    assert named == {name: lines.get(name) for name in named}
    assert any(named.values())


def test_a_folder_of_pictures_for_each_class_makes_samples(tmp_path: Path) -> None:
    facts = words_of(None, "pixels:kind=image,shape=1,3,8,8", "output:role=logits,classes=red,green,blue")
    data = EvaluationData(data=write_pictures(tmp_path / "photos"), metric="top_k:output")
    spec = with_data(resolve_model("tests.dim_classifier:make", facts), data)
    obtain(spec, tmp_path / "reference")
    (tmp_path / "bundle").mkdir()
    samples_module.write(spec, tmp_path, tmp_path / "reference", tmp_path / "bundle", lambda inputs: {})
    rows = json.loads((tmp_path / "bundle" / "samples.json").read_text())["samples"]
    assert {row["title"].partition("/")[0] for row in rows} <= {"red", "green", "blue"}
    files = {f"samples/{path.name}" for path in (tmp_path / "bundle" / "samples").iterdir()}
    assert len(rows) == samples_module.MOST
    assert {row["file"] for row in rows} == files


@pytest.mark.parametrize(
    "record",
    [
        "plugins/edgekit_arrcoc/checkpoints/arr-coc-tiny/photographs.json",
        "edgekit/reference/photographs/sources.json",
        "targets/edgekit_targets/onnx/quantization/photographs/sources.json",
    ],
)
def test_the_wheels_notice_names_every_photograph(record: str) -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    for one in json.loads((ROOT / record).read_text(encoding="utf-8"))["photographs"]:
        assert f"- {one['file'].removesuffix('.webp')}: {one['author']}, {one['licence']}." in notice
