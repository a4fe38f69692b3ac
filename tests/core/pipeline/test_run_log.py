"""A build remembers what was asked of it, also what left no artifact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.artifact.run_record import TargetStatus, earlier_run, read_run
from edgekit.errors import install_command
from edgekit.pipeline import run_log
from edgekit.pipeline.outcome import TargetOutcome
from edgekit.pipeline.request import Criteria, ExportRequest, ModelFacts
from edgekit.target import FP32, Need, Place, Target


def outcome(target: str, status: str, error: str = "") -> TargetOutcome:
    return TargetOutcome(target, Path(target), status, error)


def test_targets_of_earlier_runs_stay(tmp_path: Path) -> None:
    first = run_log.start_record("edgekit export -t onnx")
    run_log.finish_record(
        tmp_path, first, [outcome("onnx", "verified"), outcome("web", "failed", "no page")], {"coreml": "needs it"}
    )
    run_log.finish_record(
        tmp_path, run_log.start_record("edgekit export -t web"), [outcome("web", "verified")], {"onnx": "gone"}
    )
    found = read_run(tmp_path)
    assert found.targets == {
        "onnx": TargetStatus(status="verified", began=first.began),  # it was made, whatever is installed now
        "web": TargetStatus(status="verified", began=found.began),
    }, "what was not installed then may be by now"
    assert found.command == "edgekit export -t web"
    assert found.began.endswith("+00:00")


@pytest.mark.parametrize("text", ["{", "[]", '{"targets": {"onnx": {"status": "excellent"}}}'])
def test_a_run_goes_on_without_a_record_that_cannot_be_used(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    assert earlier_run(tmp_path).targets == {}


def test_the_command_that_does_the_same() -> None:
    options = {"web": {"variants": "fp32,q8"}}
    facts = ModelFacts(name="net")
    request = ExportRequest(model="my model.onnx", targets=("onnx", "web"), options=options, facts=facts)
    assert request.command == "edgekit export 'my model.onnx' -t onnx -t web --name net -O web.variants=fp32,q8"
    assert ExportRequest(model=object()).command == ""
    criteria = Criteria(("openvino", "ort-cuda"), budget=("p50=20ms",))
    assert (
        ExportRequest(model="a.onnx", criteria=criteria).command
        == "edgekit export a.onnx --place openvino --place ort-cuda --budget p50=20ms"
    )


def test_what_a_run_named_stays_asked_for_when_a_bundle_brings_it_later(tmp_path: Path) -> None:
    part = TargetOutcome("onnx-fp16", Path("p"), "rejected", part_of="web")
    run_log.finish_record(tmp_path, run_log.start_record(""), [part], {})
    assert read_run(tmp_path).targets["onnx-fp16"].part_of == "web"
    run_log.finish_record(tmp_path, run_log.start_record(""), [replace(part, part_of="")], {})
    run_log.finish_record(tmp_path, run_log.start_record(""), [part], {})
    assert read_run(tmp_path).targets["onnx-fp16"].part_of == ""


def test_what_is_not_installed_says_how_to_install_it() -> None:
    place = Place(name="cpu", tolerance=FP32)

    def export(*_: object) -> None: ...

    target = Target(
        summary="",
        export=export,  # type: ignore[arg-type]  # never called
        load=export,  # type: ignore[arg-type]
        places=(place,),
        needs=(Need("no_such_library", "extra"),),
    )
    command = install_command("extra")
    assert run_log.missing_requirements({"one": target}) == {"one": f"needs no_such_library: {command}"}
