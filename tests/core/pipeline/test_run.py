import os
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from edgekit import registry
from edgekit.artifact.fact import Code
from edgekit.artifact.run_record import read_run
from edgekit.artifact.store import commit, own_files, read_artifact
from edgekit.errors import ArtifactError, ExportError, NeedlessExportError
from edgekit.hosts import process
from edgekit.model.sources import resolve_model
from edgekit.model.spec import EvaluationSet
from edgekit.pipeline import given_model, run, run_log, worker
from edgekit.pipeline.outcome import Build
from edgekit.pipeline.request import EvaluationData, ExportRequest, ModelFacts
from edgekit.storage.files import staging
from edgekit.target import Target
from edgekit.testing import SMALL, QuietListener
from tests.builds import unjudged
from tests.manifests import read_result, spoilt

pytestmark = pytest.mark.usefixtures("no_report")


def export(folder: Path, *targets: str, model: str = SMALL, fresh: bool = False) -> Build:
    spec = resolve_model(model)
    return run.export(spec, targets, folder / spec.name, {}, QuietListener(), fresh)


def test_a_build_is_a_picture_of_the_river(small_build: Path) -> None:
    names = {path.name for path in small_build.iterdir()}
    assert {"model", "program", "reference", "onnx", "onnx-fp16"} <= names
    assert {"report.html", "report.json", "report.md", "report.csv"} <= names
    assert {name: asked.status for name, asked in read_run(small_build).targets.items()} == {
        "onnx": "verified",
        "onnx-fp16": "verified",
    }
    found = read_result(small_build / "onnx-fp16")
    place = found.places[0]
    assert place.place == "cpu"
    assert set(place.timings) == {"candidate", "onnx", "pytorch"}
    assert {ratio.baseline for ratio in place.ratios} == {"onnx", "pytorch"}
    assert place.proof
    assert (small_build / "onnx" / "scores-cpu.safetensors").is_file()


def test_an_option_makes_a_new_artifact(build: Path) -> None:
    key = read_artifact(build / "onnx").export.key
    rows = run.export(resolve_model(SMALL), ("onnx",), build, {"onnx": {"opset": "21"}}, QuietListener())
    assert rows["onnx"].status == "verified"
    made = read_artifact(build / "onnx").export
    assert made.key != key
    assert made.options["opset"] == "21"
    assert onnx.load(build / "onnx" / "model.onnx").opset_import[0].version == 21


@pytest.mark.nightly
def test_another_calibration_set_makes_a_new_int8_artifact_of_the_same_source(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).random((64, 3, 8, 8), np.float32)
    keys, sources = set(), set()
    for brightness in (0.5, 1.0):
        samples = EvaluationSet({"pixels": brightness * noise}, tuple(map(str, range(64))))
        facts = ModelFacts(inputs=("pixels:kind=image,shape=1,3,8,8",))
        spec = given_model.resolve_model("tests.dim_classifier:make", None, facts)
        root = unjudged(
            given_model.with_data(spec, EvaluationData(calibration=samples)), tmp_path, ("onnx-int8-dynamic",)
        )
        export_record = read_artifact(root / "onnx-int8-dynamic").export
        keys.add(export_record.key)
        sources.add(export_record.source.sha256)
    assert (len(keys), len(sources)) == (2, 1)


def test_a_package_that_no_target_declares_changes_nothing(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", of_another_version("transformers"))
    assert all(row.reused for row in export(build.parent, "onnx", "onnx-fp16").values())


@pytest.mark.nightly
@pytest.mark.parametrize("library", ["onnxruntime", "onnx-ir"])
def test_another_version_of_a_declared_library_makes_it_again(
    build: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setattr(metadata, "version", of_another_version(library))
    row = export(build.parent, "onnx")["onnx"]
    assert not row.reused
    assert read_artifact(build / "onnx").export.tools[library] == "99"


def of_another_version(library: str) -> Callable[[str], str]:
    real = metadata.version
    return lambda name: "99" if name == library else real(name)


def test_edited_code_makes_it_again(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "package_digest", lambda *names: f"edited {names}")
    assert not export(build.parent, "onnx")["onnx"].reused


def test_a_damaged_artifact_is_made_again(build: Path) -> None:
    (build / "onnx" / "model.onnx").write_bytes(b"damaged")
    verified = run.verify(build, QuietListener())
    assert verified["onnx"].status == "failed"
    assert "is damaged" in verified["onnx"].sentences[0]
    assert export(build.parent, "onnx")["onnx"].status == "verified"


def test_a_wrong_artifact_is_rejected_kept_and_marked(build: Path) -> None:
    spoilt(build / "onnx")
    rows = run.verify(build, QuietListener())
    assert rows["onnx"].status == "rejected"
    assert "max abs of 'relevance' is" in rows["onnx"].sentences[0]
    assert rows["onnx"].reasons[0].fact.code is Code.LIMIT_EXCEEDED
    assert read_artifact(build / "onnx").rejected
    assert rows["onnx-fp16"].status == "verified"


@pytest.mark.nightly
def test_an_artifact_that_its_exporter_found_wrong_is_rejected_whatever_it_answers(build: Path) -> None:
    found = "no recipe holds the gate's limits"
    made = read_artifact(build / "onnx")
    made = made.model_copy(update={"export": made.export.model_copy(update={"failures": (found,)})})
    with staging(build / "onnx", own_files) as staged:
        shutil.copy(build / "onnx" / "model.onnx", staged)
        commit(staged, made)
    rows = run.verify(build, QuietListener())
    assert rows["onnx"].status == "rejected"
    (reason,) = rows["onnx"].reasons
    assert (reason.place, reason.fact.code, str(reason.fact)) == ("cpu", Code.EXPORTER_FAILURE, found)
    assert read_artifact(build / "onnx").rejected


def test_what_is_made_from_a_failure_is_skipped_and_the_rest_goes_on(
    build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = process.call

    def call(
        function: Callable[..., dict[str, object]], arguments: dict[str, Any], *rest: object, **more: object
    ) -> dict[str, object]:
        if function is worker.export_target and arguments["request"]["target"] == "onnx":
            raise ArtifactError("the converter died")
        return real(function, arguments, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(process, "call", call)
    rows = export(build.parent, "onnx", "onnx-fp16", fresh=True)
    assert rows["onnx"].status == "failed"
    assert rows["onnx-fp16"].status == "skipped"
    assert read_artifact(build / "onnx")  # the old one stays


def test_a_needless_export_is_skipped_and_does_not_fail_the_run(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, selected = process.call, []

    def call(
        function: Callable[..., dict[str, object]], arguments: dict[str, Any], *rest: object, **more: object
    ) -> dict[str, object]:
        if function is not worker.export_target:
            return real(function, arguments, *rest, **more)  # type: ignore[arg-type]
        selected.append(arguments["request"]["selected"])
        raise NeedlessExportError("it would not be faster")

    def missing(targets: dict[str, Target]) -> dict[str, str]:
        return {name: "not here" for name in targets if name not in ("onnx", "onnx-fp16")}

    monkeypatch.setattr(process, "call", call)
    monkeypatch.setattr(run_log, "missing_requirements", missing)
    shutil.rmtree(build / "onnx-fp16")
    rows = run.export(resolve_model(SMALL), (), build, {}, QuietListener())
    assert (rows["onnx-fp16"].status, rows["onnx-fp16"].sentences[0]) == ("skipped", "it would not be faster")
    assert rows.ok
    export(build.parent, "onnx-fp16")
    assert selected == [False, True]


SLOW = pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes half a minute: set EDGEKIT_SLOW=1")


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["vit", pytest.param("resnet", marks=SLOW)])
def test_public_architectures_are_exported_and_proved(name: str, tmp_path: Path) -> None:
    rows = export(tmp_path, "onnx", model=f"tests.models:{name}")
    assert rows["onnx"].status == "verified", rows["onnx"].sentences
    assert {sizes["batch"] for sizes in read_artifact(tmp_path / name / "onnx").verdicts[0].proof} == {1, 2, 3, 4}


def test_no_file_of_a_build_tells_where_the_code_lies(small_build: Path) -> None:
    home = str(Path(__file__).parents[3]).encode()
    told = [path for path in small_build.rglob("*") if path.is_file() and home in path.read_bytes()]
    assert told == []


def test_the_recorded_command_names_no_folder_of_its_host() -> None:
    data = EvaluationData(data=Path("/home/me/photos"), calibration=Path("more"))
    request = ExportRequest(model="/home/me/net.onnx", data=data, options={"web": {"variants": "/home/me/x"}})
    assert "/home" not in request.command
    assert "--data .../photos --calibration more" in request.command
    assert "/home/me/net.onnx" in request.words


def test_without_a_second_artifact_the_rejected_first_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A target exports again with other options what is rejected; that export may fail."""
    rejected = SimpleNamespace(status="rejected", places=[SimpleNamespace(status="rejected", reasons=["error is 2"])])
    tried: list[tuple[str, tuple[str, ...]]] = []

    def export(_: object, name: str, options: dict[str, str], __: object, notes: tuple[str, ...] = ()) -> Any:
        tried.append((options["precision"], notes))
        if options["precision"] == "fp32":
            raise ExportError("the converter stops")
        return SimpleNamespace(target=name), rejected, False

    monkeypatch.setattr(run, "export_and_evaluate", export)
    monkeypatch.setattr(run, "stored", lambda *_: None)
    monkeypatch.setattr(registry, "require", lambda *_: None)
    context = SimpleNamespace(
        folder=lambda name: tmp_path / name, targets={"coreml": SimpleNamespace(source="program")}, fresh=False
    )
    outcome = run._run_target(context, "coreml", {"precision": "fp16"}, {"precision": "fp32"}, {}, lambda _: None)  # type: ignore[arg-type]  # as far as it uses them
    assert outcome.status == "rejected"
    assert tried == [("fp16", ()), ("fp32", ("precision fp16 was rejected: error is 2",))]
