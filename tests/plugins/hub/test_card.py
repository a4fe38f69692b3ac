"""The model card of a hub folder: its facts are those of the source and of the results, and nobody's card is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgekit.artifact.result import EvaluationResult, Evidence, Measure, Result, Timing
from edgekit.artifact.run_record import HUB, PARTS, PartRecord, PartsRecord, WholeRecord, write_parts
from edgekit.errors import ArtifactError, UsageError
from edgekit.model.parts import CompositeModel
from edgekit.model.sources import resolve
from edgekit.pipeline.outcome import Build
from edgekit.storage.files import digest_file
from edgekit_hub.card import CARD, MARK, Variant, source_licence, write_card
from edgekit_hub.upload import upload_build
from tests.command import exit_code
from tests.hub import REPOSITORY, Hub, serve_hub
from tests.plugins.hub.test_sentences import MEAN, NORMALIZE, POOLING, TRANSFORMER, write_folder

SOURCE_CARD = "---\nlicense: apache-2.0\ntags:\n- mine\n---\n# The source's own card\n"
OWN_CARD = f"{MARK}\n# models in ONNX\n"
MEASURES = tuple(Measure(batch="evaluation", output="x", metric="max abs", value=v, limit=1.0) for v in (0.25, 0.5))
PLACE = EvaluationResult(
    place="cpu",
    status="verified",
    measures=MEASURES,
    timings={"candidate": Timing(device="cpu", runs=9, p50=12.0, p90=13, p95=13, p99=13, mean=12, std=1)},
    evidence=Evidence(inputs={"evaluation": 41}),
)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with a sentence-transformers model and its card."""
    write_folder(tmp_path / "minilm", (TRANSFORMER, POOLING, NORMALIZE), MEAN)
    (tmp_path / "minilm" / CARD).write_text(SOURCE_CARD)
    files = [path for path in (tmp_path / "minilm").rglob("*") if path.is_file()]
    with serve_hub(tmp_path / "cache") as application:
        application.files = {path.relative_to(tmp_path / "minilm").as_posix(): path.read_bytes() for path in files}
        monkeypatch.setenv("HF_TOKEN", "hf_test")
        yield application


def front_matter(card: str) -> dict[str, Any]:
    front: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return front


def result(*places: EvaluationResult) -> Result:
    return Result(
        name="models",
        target="onnx",
        precision="fp32",
        artifact_sha256="",
        reference_sha256="",
        reference_device="",
        size=1,
        host={"processor": "A|B"},
        places=places,
    )


def test_the_card_states_source_licence_task_files_and_evidence(hub: Hub, tmp_path: Path) -> None:
    model = resolve(f"hf:{REPOSITORY}", task="feature-extraction")
    assert isinstance(model, CompositeModel)
    variants = []
    for name, precision in (("model.onnx", "fp32"), ("model_quantized.onnx", "int8")):
        (tmp_path / "onnx").mkdir(exist_ok=True)
        (tmp_path / "onnx" / name).write_bytes(bytes(2000))
        variants.append(Variant(tmp_path / "onnx" / name, "model", "onnx", precision, result(PLACE)))
    whole = WholeRecord(target="onnx", status="verified", artifacts={}, result=result(PLACE))
    write_card(tmp_path, model, variants, {"onnx": whole})
    card = (tmp_path / CARD).read_text()
    assert front_matter(card) == {
        "library_name": "transformers.js",
        "pipeline_tag": "feature-extraction",
        "base_model": REPOSITORY,
        "license": "apache-2.0",
        "tags": ["edgekit", "onnx", "transformers.js", "optimum"],
    }
    rows = [line.split(" | ") for line in card.splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows] == ["| `onnx/model.onnx`", "| `onnx/model_quantized.onnx`"]
    for row in rows:
        assert (len(row), row[2:4]) == (6, ["2 kB", "verified"])
        assert "0.500" in row[4]
        assert "12.0 ms" in row[5]
    assert card.count("41 evaluation inputs") == 3
    assert "A\\|B" in card
    assert 'dtype: "fp32"' in card
    assert "sentence_embedding" in card
    assert 'ORTModelForFeatureExtraction.from_pretrained("ORG/NAME", subfolder="onnx", file_name="model.onnx")' in card


@pytest.mark.parametrize(
    "card", ["", "no front matter", "---\n[\n---\n", "---\n- a list\n---\n", "---\nlicense:\n---\n"]
)
def test_a_card_without_a_licence_states_none(card: str, tmp_path: Path) -> None:
    (tmp_path / CARD).write_text(card)
    assert source_licence(tmp_path) == {}


def test_names_of_the_source_cannot_break_the_front_matter(tmp_path: Path) -> None:
    licence = 'other\n---\n"evil": <b>'
    model = CompositeModel("m", {"part": "arr-coc-tiny"}, lambda parts, given: given, [0], card={"license": licence})
    write_card(tmp_path, model, [], {})
    card = (tmp_path / CARD).read_text()
    assert front_matter(card)["license"] == licence
    assert "<b>" not in card.replace("\\<b\\>", "")


def build_of_hub(root: Path, files: dict[str, str]) -> Build:
    """A build with a hub folder of these files."""
    for name, text in files.items():
        (root / HUB / name).parent.mkdir(parents=True, exist_ok=True)
        (root / HUB / name).write_text(text)
    hashes = {name: digest_file(root / HUB / name) for name in files}
    part = PartRecord(folder="model", calls=1)
    write_parts(root, PartsRecord(name="m", driver="", inputs=1, parts={"model": part}, targets={}, hub=hashes))
    return Build((), root, "cpu", parts={"model": Build((), root / "model", "cpu")})


@pytest.mark.parametrize(("before", "is_kept"), [("", False), (OWN_CARD, False), (SOURCE_CARD, True)])
def test_only_a_card_of_edgekit_is_overwritten(before: str, is_kept: bool, hub: Hub, tmp_path: Path) -> None:
    hub.files = {CARD: before.encode()} if before else {}
    build = build_of_hub(tmp_path / "m", {CARD: f"{OWN_CARD} new", "onnx/model[1].onnx": "graph"})
    (tmp_path / "m" / HUB / "notes.txt").write_text("not edgekit's")
    said = upload_build(build, REPOSITORY)
    assert hub.files[CARD].decode() == (before if is_kept else f"{OWN_CARD} new")
    assert (CARD in said) == is_kept
    assert sorted(hub.files) == [CARD, "onnx/model[1].onnx"]


def test_a_folder_without_graphs_or_with_a_changed_file_is_not_uploaded(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="-t onnx"):
        upload_build(build_of_hub(tmp_path / "m", {CARD: OWN_CARD}), REPOSITORY)
    build = build_of_hub(tmp_path / "n", {CARD: OWN_CARD, "onnx/model.onnx": "graph"})
    (build.path / HUB / "onnx" / "model.onnx").write_text("other")
    with pytest.raises(ArtifactError, match=r"model\.onnx"):
        upload_build(build, REPOSITORY)
    with pytest.raises(UsageError, match="no verified artifact"):
        upload_build(replace(build, parts={}), REPOSITORY)
    assert hub.commits == []


def test_verify_checks_the_folder_of_a_model_whose_part_is_called_model(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    build = build_of_hub(tmp_path / "m", {CARD: OWN_CARD})
    (build.path / "model").mkdir()
    (build.path / HUB / CARD).write_text("other")
    assert exit_code("verify", build.path) == 2
    error = capfd.readouterr().err
    assert f"{HUB}/{CARD}" in error
    assert "Traceback" not in error


@pytest.mark.nightly
def test_a_model_of_the_hub_goes_back_to_it_as_a_verified_folder(hub: Hub, tmp_path: Path) -> None:
    name = f"hf:{REPOSITORY}"
    arguments = ("export", name, "--task", "feature-extraction", "-t", "onnx", "-o", tmp_path, "--push-to", name)
    assert exit_code(*arguments) == 0
    build = tmp_path / "models"
    record = json.loads((build / PARTS).read_text())
    assert record["hub"][CARD] == digest_file(build / HUB / CARD)
    [paths] = hub.commits
    assert set(paths) == set(record["hub"]) - {CARD}
    assert hub.files[CARD].decode() == SOURCE_CARD
    assert hub.files["onnx/model.onnx"] == (build / HUB / "onnx" / "model.onnx").read_bytes()
    front = front_matter((build / HUB / CARD).read_text())
    assert (front["base_model"], front["license"]) == (REPOSITORY, "apache-2.0")
    assert exit_code("verify", build, "--trust-build") == 0
