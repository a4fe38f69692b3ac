"""What goes into an app and what bundle.json says of it."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from edgekit.artifact.manifest import AxisInfo
from edgekit.artifact.result import RESULT, EvaluationResult, Measure, result_text
from edgekit.artifact.store import amend, read_artifact
from edgekit.errors import ArtifactError
from edgekit.reference import golden
from edgekit.runtime.eager import EagerRuntime
from edgekit_apps import bundle
from edgekit_apps.bundle import Platform, content_digest, content_size
from tests.manifests import resealed, result
from tests.plugins.apps import toy


def platform(*targets: str) -> Platform:
    return Platform(targets, targets, (), require_app=lambda app: None, files=lambda made: {})


ANY = platform("executorch-int8", "executorch", "coreml", "onnx", "torch-mobile")


def test_the_index_names_and_hashes_every_other_file(build: Path) -> None:
    made = bundle.plan(build, ANY, (), trust_build=True)
    content = made.files[bundle.INDEX]
    assert isinstance(content, bytes)
    index = json.loads(content)
    assert {f["path"]: (f["size"], f["sha256"]) for f in index["files"]} == {
        path: (content_size(content), content_digest(content))
        for path, content in made.files.items()
        if path != bundle.INDEX
    }
    assert [model["manifest"] for model in index["models"]] == [f"{t}/manifest.json" for t in ANY.targets]
    assert index["reference"]["device"] == made.reference_device == 'NVIDIA H200 "$1"'


def test_models_come_in_the_order_of_the_platform(build: Path) -> None:
    order = ("torch-mobile", "onnx", "executorch")
    assert [m.manifest.target for m in bundle.plan(build, platform(*order), (), trust_build=True).models] == list(order)
    chosen = bundle.plan(build, platform(*order), ("executorch", "torch-mobile"), trust_build=True)
    assert [m.manifest.target for m in chosen.models] == ["torch-mobile", "executorch"]


def test_a_package_has_one_size_and_one_hash_of_all_its_files(build: Path) -> None:
    (model,) = bundle.plan(build, platform("coreml"), (), trust_build=True).models
    inside = [f for f in read_artifact(build / "coreml").files if f.path.startswith("Toy.mlpackage/")]
    assert len(inside) == 2
    assert model.path == "coreml/Toy.mlpackage"
    assert model.size == sum(f.size for f in inside)
    assert model.sha256 == hashlib.sha256("\n".join(f"{f.path} {f.sha256}" for f in inside).encode()).hexdigest()


def test_a_single_file_has_its_own_hash_and_its_companions_stay_out(build: Path) -> None:
    made = bundle.plan(build, platform("torch-mobile"), (), trust_build=True)
    (model,) = made.models
    assert model.sha256 == content_digest(build / "torch-mobile" / "model.ptl")
    assert "torch-mobile/model.ptl" in made.files
    assert "torch-mobile/operators.yaml" not in made.files


def test_the_limit_on_a_device_follows_the_precision(build: Path) -> None:
    vectors = bundle.plan(build, ANY, (), trust_build=True).files["golden.json"]
    assert isinstance(vectors, bytes)
    limits = {target: table["relevance"]["max_abs"] for target, table in json.loads(vectors)["limits"].items()}
    assert limits == {"executorch-int8": 2e-2, "executorch": 1e-3, "coreml": 1e-2, "onnx": 1e-3, "torch-mobile": 1e-3}


def test_each_model_checks_the_picture_in_the_size_that_it_gives_it(own: Path) -> None:
    """An open size follows the picture of 24 x 19 pixels, a fixed one does not."""
    edge = AxisInfo(default=16, minimum=8, maximum=32, multiple_of=4, dynamic=True)
    resealed(own / "onnx", axes=read_artifact(own / "onnx").axes | {"height": edge, "width": edge})
    made = bundle.plan(own, platform("executorch", "onnx", "torch-mobile"), (), trust_build=True)
    vectors = made.files["golden.json"]
    assert isinstance(vectors, bytes)
    cases = [case for case in json.loads(vectors)["cases"] if case["image"]["shape"] != [16, 16, 3]]
    assert [(case["image"]["shape"], case["targets"], case["expected"]["relevance"]["shape"]) for case in cases] == [
        ([24, 19, 3], ["executorch", "torch-mobile"], [1, 16]),
        ([24, 19, 3], ["onnx"], [1, 20]),
    ]


def test_what_was_not_verified_is_left_out_with_a_note_or_refused_by_name(own: Path) -> None:
    toy.judge(own / "executorch", "not verified here")
    made = bundle.plan(own, platform("executorch", "onnx"), (), trust_build=True)
    assert [m.manifest.target for m in made.models] == ["onnx"]
    assert "'executorch' was not verified and was left out" in made.notes
    with pytest.raises(ArtifactError, match="was not verified, so no app may contain it"):
        bundle.plan(own, platform("executorch", "onnx"), ("executorch",), trust_build=True)


def test_a_build_without_any_artifact_of_the_kind_says_what_to_do(own: Path) -> None:
    shutil.rmtree(own / "coreml")
    with pytest.raises(ArtifactError, match=r"it has none of coreml.*Run `edgekit export -t coreml`"):
        bundle.plan(own, platform("coreml"), (), trust_build=True)


def test_an_artifact_of_another_size_goes_into_no_app(own: Path) -> None:
    """Its golden vectors have the default size: a device could not check itself."""
    resealed(own / "onnx", sizes=({"height": 160, "width": 112},))
    assert "onnx" not in [model.manifest.target for model in bundle.plan(own, ANY, (), trust_build=True).models]
    with pytest.raises(ArtifactError, match="takes 160x112, but a device checks itself with pictures of the default"):
        bundle.plan(own, ANY, ("onnx",), trust_build=True)
    resealed(own / "onnx", sizes=({"height": 160, "width": 112}, {"height": 160, "width": 160}))
    with pytest.raises(ArtifactError, match="takes 160x112, but a device checks itself with pictures of the default"):
        bundle.plan(own, ANY, ("onnx",), trust_build=True)


def test_a_count_may_be_off_as_far_as_its_score(own: Path) -> None:
    """INT8 is not measured by its largest difference in counts, which follow from the scores."""
    folder = own / "executorch-int8"
    measure = Measure(batch="evaluation", output="relevance", metric="max abs", value=0.05)
    found = result(EvaluationResult(place="cpu", status="verified", measures=(measure,)))
    amend(folder, read_artifact(folder).verdicts, {RESULT: result_text(found).encode()})
    manifest = read_artifact(folder)
    chosen = golden.choose_golden(toy.spec(), own / "reference", EagerRuntime(toy.spec()).run)
    limits = golden.device_limits(chosen, folder, manifest)
    assert limits["relevance"]["max_abs"] == pytest.approx(golden.MARGIN * 0.05)
    assert limits["budgets"]["max_abs"] == pytest.approx(golden.MARGIN * (1 + 336 * 0.05))
