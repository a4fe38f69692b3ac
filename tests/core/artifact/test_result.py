from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from edgekit.artifact.result import (
    RESULT,
    EvaluationResult,
    Evidence,
    Measure,
    Result,
    Timing,
    parse_result,
    result_text,
)
from edgekit.artifact.store import result_of
from tests.manifests import manifest, read_result, result

PLACE: dict[str, Any] = {"place": "cpu", "status": "verified", "device": "ORT"}


def judged(*places: dict[str, Any]) -> Result:
    return result(*(EvaluationResult.model_validate(place) for place in places or (PLACE,)), size=3)


@pytest.mark.parametrize(
    ("statuses", "worst"),
    [
        (("verified", "verified"), "verified"),
        (("verified", "not verified here"), "not verified here"),
        (("not verified here", "rejected", "verified"), "rejected"),
    ],
)
def test_the_status_is_that_of_the_worst_place(statuses: tuple[str, ...], worst: str) -> None:
    places = [{**PLACE, "place": str(number), "status": status} for number, status in enumerate(statuses)]
    assert judged(*places).status == worst


def test_what_is_written_is_read_and_the_bytes_are_the_same(tmp_path: Path) -> None:
    measure = Measure(batch="evaluation", output="y", metric="max abs", value=None, limit=1e-4, passed=False)
    timing = Timing(device="ORT", runs=100, p50=1.5, p90=2, p95=2, p99=3, mean=1.6, std=0.1)
    given = judged({**PLACE, "measures": (measure,), "timings": {"candidate": timing}})
    (tmp_path / RESULT).write_text(result_text(given))
    found = read_result(tmp_path)
    assert found == given
    assert result_text(found) == result_text(given)


def test_an_artifact_that_was_never_judged_has_no_result(tmp_path: Path) -> None:
    assert result_of(tmp_path, manifest()) is None


@pytest.mark.parametrize("change", [lambda t: t[:-9], lambda t: "", lambda t: t.replace('"size": 3', '"size": "x"')])
def test_a_result_that_is_damaged_is_one_sentence(change: Any, tmp_path: Path) -> None:
    from edgekit.errors import ArtifactError

    path = tmp_path / RESULT
    path.write_text(change(result_text(judged())))
    with pytest.raises(ArtifactError, match=r"the result '.*' is damaged \(.*\)") as refused:
        parse_result(path.read_bytes(), path)
    assert "\n" not in str(refused.value)


def test_a_field_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValidationError, match="colour"):
        Measure.model_validate({"batch": "b", "output": "y", "metric": "m", "value": 1.0, "colour": "red"})


def test_the_line_names_kinds_shapes_place_who_answered_and_what_was_not_asked() -> None:
    found = Evidence(
        inputs={"evaluation": 80, "photographs": 8, "grid": 51},
        shapes=43,
        between=27,
        combinations=5832,
        repeated=81,
        place="ONNX Runtime 1.31, CPU, 2 threads",
        settings={"provider": "CPU"},
        answered_by={"NVIDIA H200": 139, "PyTorch": 60},
        not_asked=("answers of timed runs",),
    )
    assert found.lines == (
        "evidence: 80 evaluation inputs, 8 photographs, 81 of all these a second time, in another order",
        "shapes: 51 random inputs of other sizes, 43 of 5,832 combinations of sizes that its dynamic axes allow "
        "(27 between the smallest, default and largest sizes)",
        "run in: ONNX Runtime 1.31, CPU, 2 threads, provider CPU",
        "compared with: the model's outputs on NVIDIA H200 (139 inputs), PyTorch (60 inputs)",
        "not covered: answers of timed runs",
    )


def test_a_model_without_an_evaluation_set_does_not_read_like_one_with_it() -> None:
    without, with_one = Evidence(inputs={"stress": 9}), Evidence(inputs={"evaluation": 1, "stress": 9})
    sample = Evidence(inputs={"evaluation": 2}, sampled_from=144)
    assert str(without).startswith("evidence: no evaluation set, 9 random")
    assert "no evaluation set" not in str(with_one)
    for status, evidence, beside in (
        ("verified", without, "no evaluation set"),
        ("verified", with_one, ""),
        ("verified", sample, "2 of 144 evaluation inputs"),
        ("rejected", without, ""),
        ("verified", None, ""),
    ):
        assert (
            EvaluationResult.model_validate({"place": "cpu", "status": status, "evidence": evidence}).qualifier
            == beside
        )
