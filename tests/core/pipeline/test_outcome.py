"""What became of a run: a mapping by target, its verdicts, its records for machines, its table for notebooks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from edgekit.artifact.fact import Code, Fact, fact
from edgekit.artifact.result import EvaluationResult, Measure, Timing
from edgekit.errors import VerdictError
from edgekit.pipeline import outcome as outcomes_module
from edgekit.pipeline.outcome import Build, TargetOutcome
from tests.manifests import result
from tests.tables import Tables

SCHEMA = Path(outcomes_module.__file__).parent / "build.schema.json"
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> & `x`"
BROKEN = Fact(code=Code.LIMIT_EXCEEDED, output="relevance", metric="max abs", value=0.5, limit=1e-4, row="beach")
TIMED = Timing(device="ONNX Runtime", runs=100, p50=3.25, p90=4, p95=4, p99=5, mean=3.3, std=0.1)


def place(name: str = "cpu", status: str = "verified", **facts: Any) -> EvaluationResult:
    return EvaluationResult.model_validate({"place": name, "device": "ONNX Runtime", "status": status, **facts})


def outcome(target: str, *places: EvaluationResult, reused: bool = False) -> TargetOutcome:
    found = result(*places, target=target)
    return TargetOutcome(target, Path("build/small") / target, found.status, result=found, reused=reused)


def build(*outcomes: TargetOutcome, reference: str = "NVIDIA H200") -> Build:
    return Build(outcomes, Path("build/small"), reference)


GOOD = outcome("onnx", place(timings={"candidate": TIMED}), reused=True)
BAD = outcome("onnx-fp16", place(status="rejected", reasons=(BROKEN,)))
WAITING = outcome("coreml", place("interpreter"), place("coreml", "not verified here", reasons=("needs a Mac",)))
FAILED = TargetOutcome("executorch", Path("build/small/executorch"), "failed", "the converter died")
SKIPPED = TargetOutcome("onnx-int8", Path("build/small/onnx-int8"), "skipped", "source 'onnx' failed")


def test_a_build_is_a_mapping_by_target_in_the_order_of_the_run() -> None:
    made = build(GOOD, BAD, FAILED)
    assert list(made) == ["onnx", "onnx-fp16", "executorch"]
    assert len(made) == 3
    assert made["onnx-fp16"] is BAD
    assert list(made.values()) == [GOOD, BAD, FAILED]
    assert "onnx" in made
    assert "web" not in made
    assert made.get("web") is None
    with pytest.raises(KeyError, match="web"):
        made["web"]
    assert made.report == Path("build/small/report.html")


@pytest.mark.parametrize(
    ("outcomes", "ok"),
    [
        ((GOOD,), True),
        ((GOOD, WAITING), True),
        ((GOOD, BAD), False),
        ((GOOD, FAILED), False),
        ((GOOD, SKIPPED), False),
        ((GOOD, replace(SKIPPED, is_needless=True)), True),
        ((), True),
    ],
)
def test_ok_means_that_nothing_was_rejected_and_nothing_failed(outcomes: tuple[TargetOutcome, ...], ok: bool) -> None:
    made = build(*outcomes)
    assert made.ok is ok
    if ok:
        made.raise_for_verdict()
    else:
        with pytest.raises(VerdictError):
            made.raise_for_verdict()


def test_raising_names_each_bad_artifact_with_its_first_reason() -> None:
    with pytest.raises(VerdictError) as raised:
        build(GOOD, BAD, WAITING, FAILED, SKIPPED).raise_for_verdict()
    assert str(raised.value) == (
        "'onnx-fp16' was rejected (cpu: max abs of 'relevance' is 0.500 in row 'beach', must be at most 1e-4); "
        "'executorch' failed (the converter died); "
        "'onnx-int8' was skipped (source 'onnx' failed)"
    )


def test_a_rejection_is_told_before_what_else_is_verified() -> None:
    """Of several places the first sentence of a bundle that failed in one of them is not that another one passed."""
    bundle = outcome("web", place("wasm-fp32"), place("wasm-q8", "rejected", reasons=(BROKEN,)))
    with pytest.raises(VerdictError, match=r"'web' was rejected \(wasm-q8: max abs of 'relevance' is 0\.500"):
        build(bundle).raise_for_verdict()
    assert "wasm-q8: max abs of" in build(bundle)._repr_html_()
    assert "wasm-fp32: verified (ONNX Runtime)" in bundle.sentences


def test_a_record_of_one_target() -> None:
    measure = Measure(batch="evaluation", output="relevance", metric="max abs", value=0.5, limit=1e-4, passed=False)
    slower = fact(Code.SLOWER, baseline="onnx", ratio=0.7, low=0.6, high=0.8)
    rejected = place(status="rejected", reasons=(BROKEN,), notes=(slower,), measures=(measure,))
    found = outcome("x", rejected, place("gpu", timings={"candidate": TIMED, "onnx": TIMED}))
    assert found.status == found.verdict == "rejected"
    assert [(reason.place, reason.fact) for reason in found.reasons] == [("cpu", BROKEN)]
    assert [str(note) for note in found.notes] == ["cpu: Warning: 0.70x the speed of onnx"]
    assert found.slower
    assert not GOOD.slower
    assert found.metrics == (measure,)
    assert found.latency == {"gpu": TIMED}
    assert found.size == 2_500_000
    assert FAILED.size is None
    assert FAILED.places == ()
    assert FAILED.metrics == ()
    assert FAILED.sentences == ("the converter died",)
    assert GOOD.sentences == ()


def test_the_record_for_machines_is_json_with_codes_numbers_and_sentences() -> None:
    said = json.loads(json.dumps(build(GOOD, BAD, FAILED).as_record()))
    jsonschema.validate(said, json.loads(SCHEMA.read_text()))
    assert said["schema_version"] == 3
    assert (said["reference"], said["report"]) == ("NVIDIA H200", "build/small/report.html")
    good, bad, failed = said["artifacts"]
    assert (good["status"], good["reused"], good["latency_ms"]["cpu"]["p50"]) == ("verified", True, 3.25)
    [reason] = bad["reasons"]
    assert reason["code"] == "limit exceeded"
    assert (reason["place"], reason["value"], reason["limit"], reason["row"]) == ("cpu", 0.5, 1e-4, "beach")
    assert reason["sentence"] == str(BROKEN)
    assert (failed["status"], failed["error"], failed["size"]) == ("failed", "the converter died", None)


def test_the_error_of_a_failed_target_is_a_reason_for_machines() -> None:
    record = TargetOutcome("onnx", Path("onnx"), "failed", "the manifest was changed").as_record()
    assert [(reason.code, reason.sentence) for reason in record.reasons] == [("text", "the manifest was changed")]


def test_the_table_of_a_notebook() -> None:
    found = Tables(build(GOOD, BAD, WAITING, FAILED)._repr_html_())
    assert found.rows == [
        ["target", "verdict", "size", "p50", "why"],
        ["onnx", "verified", "2.50 MB", "3.25 ms", ""],
        ["onnx-fp16", "rejected", "2.50 MB", "", f"cpu: {BROKEN}"],
        ["coreml", "not verified here", "2.50 MB", "", "coreml: needs a Mac"],
        ["executorch", "failed", "", "", "the converter died"],
    ]


def test_the_table_escapes_what_others_named() -> None:
    evil = TargetOutcome(EVIL, Path("x"), "failed", EVIL)
    text = build(evil, reference=EVIL)._repr_html_()
    found = Tables(text)
    assert {tag for tag, _ in found.elements} == {"table", "caption", "tr", "th", "td"}
    assert found.rows[1] == [EVIL, "failed", "", "", EVIL]


def test_a_record_has_what_was_judged_on_the_evaluation_set() -> None:
    judged = Measure(batch="evaluation", output="relevance", metric="max abs", value=2e-6, limit=1e-4)
    others = (judged.model_copy(update={"batch": "stress"}), judged.model_copy(update={"limit": None}))
    record = build(outcome("onnx", place(measures=(judged, *others)))).as_record()
    ((cpu,),) = ([a["places"] for a in record["artifacts"]],)  # type: ignore[attr-defined]
    assert (cpu[0]["place"], cpu[0]["status"]) == ("cpu", "verified")
    assert [(e["metric"], e["value"], e["limit"]) for e in cpu[0]["measures"]] == [("max abs", 2e-6, 1e-4)]
    jsonschema.validate(json.loads(json.dumps(record)), json.loads(SCHEMA.read_text()))
    for broken in ({**record, "schema_version": 2}, {**record, "artifact": []}, {**record, "path": None}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(json.dumps(broken)), json.loads(SCHEMA.read_text()))
