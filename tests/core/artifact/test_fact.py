"""Facts: a code has its sentence, a sentence becomes a fact, and a fact survives JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from edgekit.artifact.fact import EVALUATION, Code, Fact, fact
from edgekit.artifact.result import RESULT, EvaluationResult, result_text
from tests.manifests import read_result, result

WRONG: dict[str, str | int | float] = {"side": "artifact", "wrong": 3, "all": 72}
NUMBERS: dict[str, Any] = {"metric": "max abs", "output": "relevance", "value": 2.3e-7, "limit": 1e-4}
SHAPE = "batch 2, height 96, width 128"
FACTS: dict[Code, tuple[Fact, str]] = {
    Code.LIMIT_EXCEEDED: (
        Fact(code=Code.LIMIT_EXCEEDED, batch=EVALUATION, row="beach", index=17, **NUMBERS | {"value": 0.0123}),
        "max abs of 'relevance' is 0.0123 in row 'beach', index 17, must be at most 1e-4",
    ),
    Code.NOT_FINITE: (
        Fact(code=Code.NOT_FINITE, batch=SHAPE, output="tokens", row="row 1", details=WRONG),
        f"output 'tokens' of the artifact is not finite (NaN or Inf) in 3 of 72 values, first in row 'row 1' ({SHAPE})",
    ),
    Code.WRONG_SHAPE: (
        Fact(
            code=Code.WRONG_SHAPE,
            batch="stress",
            output="budgets",
            details={"side": "artifact", "shape": "[1, 9]", "expected": "[2, 9]"},
        ),
        "output 'budgets' of the artifact has the shape [1, 9], not [2, 9] (stress)",
    ),
    Code.BAD_COUNTS: (
        Fact(code=Code.BAD_COUNTS, output="budgets", row="a", index=4, details={**WRONG, "low": 64.0, "high": 400.0}),
        "output 'budgets' of the artifact is not an integer in [64, 400] in 3 of 72 values, first in row 'a', index 4",
    ),
    Code.SPEED_UNKNOWN: (
        fact(Code.SPEED_UNKNOWN, baseline="onnx", ratio=789.0, low=79.0, high=1091.0),
        "too noisy to say how fast it is beside onnx",
    ),
    Code.REFERENCE_NOISE: (
        Fact(code=Code.REFERENCE_NOISE, output="relevance", details={"noise": "nan"}),
        "the reference's own noise of 'relevance' is 'nan'. Record the reference again",
    ),
    Code.COUNTS_ROUNDED: (
        Fact(code=Code.COUNTS_ROUNDED, **NUMBERS | {"output": "budgets", "metric": "count excess"}),
        "counts in 'budgets' differ by rounding only (score error at most 2e-7, tolerance 1e-4)",
    ),
    Code.TIES_WITHIN_K: (
        Fact(code=Code.TIES_WITHIN_K, **NUMBERS | {"output": "indices", "metric": "order gap"}),
        "the order of 'indices' differs only where scores are equal within 2e-7 (tolerance 1e-4)",
    ),
    Code.LIMIT_WIDENED: (
        Fact(code=Code.LIMIT_WIDENED, details={"table": "1e-4", "multiple": 4.0}, **NUMBERS | {"limit": 2e-4}),
        "the limit on max abs of 'relevance' is 2e-4 instead of 1e-4: 4 times the reference's own noise",
    ),
    Code.SLOWER: (
        fact(Code.SLOWER, baseline="onnx", ratio=0.731, low=0.7, high=0.76),
        "Warning: 0.73x the speed of onnx",
    ),
    Code.FRESH_INPUTS: (
        fact(Code.FRESH_INPUTS, rows=1234, runs=640, seconds=600.0, seed=7),
        "1,234 fresh inputs in 640 runs (600 s, seed 7)",
    ),
    Code.VARIANT_REPLACED: (
        fact(Code.VARIANT_REPLACED, variant="onnx-fp16", why="max abs is 0.2"),
        "'onnx-fp16' was rejected here and left out: max abs is 0.2",
    ),
    Code.TEXT: (fact(Code.TEXT, text="measured on a phone"), "measured on a phone"),
}


@pytest.mark.parametrize("code", FACTS)
def test_a_code_has_its_sentence(code: Code) -> None:
    found, sentence = FACTS[code]
    assert found.code is code
    assert str(found) == sentence
    assert "{" not in sentence


@pytest.mark.parametrize("code", FACTS)
def test_a_fact_survives_json(code: Code) -> None:
    found, sentence = FACTS[code]
    again = Fact.model_validate_json(found.model_dump_json())
    assert again == found
    assert str(again) == sentence


def test_the_directions_of_a_limit() -> None:
    low = Fact(code=Code.LIMIT_EXCEEDED, output="relevance", metric="spearman", value=0.98765, limit=0.99, row="a")
    assert str(low) == "spearman of 'relevance' is 0.988 in row 'a', must be at least 0.99"
    ratio = Fact(code=Code.LIMIT_EXCEEDED, output="relevance", metric="snr", value=12.34, limit=20.0, row="a")
    assert str(ratio) == "snr of 'relevance' is 12.3 dB in row 'a', must be at least 20 dB"


def test_a_task_metric_names_the_image_that_lost_most() -> None:
    drop = Fact(code=Code.LIMIT_EXCEEDED, metric="coverage@32 drop", value=0.006, limit=0.005, row="beach")
    assert str(drop) == "coverage@32 drop is 0.00600, most in row 'beach', must be at most 0.005"


def test_a_value_that_is_not_finite_is_said_so() -> None:
    lost = Fact(code=Code.LIMIT_EXCEEDED, metric="max abs", output="relevance", value=None, limit=1e-4, row="a")
    assert str(lost) == "max abs of 'relevance' is not finite in row 'a', must be at most 1e-4"


def test_words_of_others_are_no_placeholders() -> None:
    evil = "{0} {code} {output!r} %s"
    assert str(fact(Code.TEXT, text=evil)) == evil
    assert evil in str(Fact(code=Code.OUTPUT_MISSING, output=evil, details={"side": "artifact"}))


def test_a_sentence_becomes_a_fact() -> None:
    found = Fact.model_validate("NNAPI fell back to the CPU")
    assert found == fact(Code.TEXT, text="NNAPI fell back to the CPU")
    place = EvaluationResult.model_validate(
        {"place": "nnapi", "status": "rejected", "reasons": ["too slow", "too hot"]}
    )
    assert [str(reason) for reason in place.reasons] == ["too slow", "too hot"]


def test_what_is_no_fact_is_refused() -> None:
    for wrong in ({"code": "no such code"}, {"code": "text", "colour": "red"}, {}, 3):
        with pytest.raises(ValidationError):
            Fact.model_validate(wrong)


@pytest.mark.parametrize("version", [1, 2])
def test_results_of_both_schema_versions_are_read(version: int, tmp_path: Path) -> None:
    reasons = ["max abs is 1"] if version == 1 else [FACTS[Code.LIMIT_EXCEEDED][0].model_dump(mode="json")]
    place = EvaluationResult.model_validate({"place": "cpu", "status": "rejected", "reasons": reasons, "notes": []})
    (tmp_path / RESULT).write_text(result_text(result(place, schema_version=version)))
    found = read_result(tmp_path)
    [reason] = found.places[0].reasons
    assert reason.code is (Code.TEXT if version == 1 else Code.LIMIT_EXCEEDED)
    assert "max abs" in str(reason)


def test_a_reason_names_rows_inputs_and_needed_numbers_in_plain_words() -> None:
    details: dict[str, str | int | float] = {"beyond": 4, "rows": 160, "allowed": 1}
    numbers = {"output": "y", "metric": "error", "value": 0.5, "limit": 0.3}
    unsure = Fact(code=Code.TOO_FEW_ROWS, batch="real inputs", row="2: list 40", details=details, **numbers)  # type: ignore[arg-type]
    assert "400 would, if no others exceed it (all your inputs" in str(unsure)
    turned = Fact(code=Code.TOO_FEW_TURNED, metric="top-1 drop", value=0.02, limit=0.005, details=details)
    assert "800, if no others turn wrong" in str(turned)
    rows = Fact(code=Code.LIMIT_EXCEEDED, row="2: list 40", index=7, **numbers)  # type: ignore[arg-type]
    assert "in row 'list 40', number 2 of its batch, index 7" in str(rows)
    condition = Fact(code=Code.LIMIT_EXCEEDED, row="grey bars, channel 3", **numbers | {"metric": "channel error"})  # type: ignore[arg-type]
    assert " in the inputs 'grey bars', channel 3" in str(condition)
