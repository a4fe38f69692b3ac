import pytest

from edgekit.artifact.fact import Code
from edgekit.artifact.result import CANDIDATE, EvaluationResult, Measure, Result, StartUp, Timing
from edgekit.errors import UsageError
from edgekit.judge.budget import compare_budgets, parse_budgets
from tests.manifests import result

KNOWN = {"onnx", "onnx-all", "int8"}


def judged(**place: object) -> Result:
    timing = Timing(device="d", runs=100, p50=10.0, p90=11.0, p95=12.0, p99=13.0, mean=10.0, std=1.0)
    measure = Measure(batch="evaluation", output="", metric="coverage@32 drop", value=0.001)
    start = StartUp(open_ms=500.0, first_answer_ms=700.0, peak_memory=150_000_000)
    whole = {"timings": {CANDIDATE: timing}, "measures": (measure,), "start_up": start, **place}
    return result(
        EvaluationResult.model_validate({"place": "cpu", "status": "verified", **whole}),
        size=8_000_000,
        first_visit=5_500_000,
    )


@pytest.mark.parametrize(
    ("met", "missed", "measured"),
    [
        ("p50=10ms", "p50=9.9ms", "10ms"),
        ("p95=12000us", "p95=11ms", "12ms"),
        ("size=8MB", "size=7.9MB", "8MB"),
        ("visit=5.5MB", "visit=5.4MB", "5.5MB"),
        ("size=8MiB", "size=7MiB", "7.629MiB"),
        ("memory=150MB", "memory=149MB", "150MB"),
        ("open=0.5s", "open=499ms", "500ms"),
        ("first=1s", "first=0.6s", "0.7s"),
        ("task_drop=0.001", "task_drop=0.0009", "0.001"),
        ("int8.size=8MB", "int8.size=1MB", "8MB"),
        ("onnx.size=8MB", "onnx-all.size=1MB", "8MB"),
    ],
)
def test_a_budget_that_is_met_says_nothing_and_one_that_is_missed_says_by_how_much(
    met: str, missed: str, measured: str
) -> None:
    names = {"onnx", "onnx-all", "int8"}
    [(_, within)] = compare_budgets(parse_budgets([met], KNOWN), names, judged())
    assert within.code is Code.WITHIN_BUDGET
    [(place, found)] = compare_budgets(parse_budgets([missed], KNOWN), names, judged())
    assert (place, found.code) == ("cpu", Code.OVER_BUDGET)
    name = missed.partition("=")[0].rpartition(".")[2]
    assert str(found) == f"{name} is {measured}, over the budget of {missed.partition('=')[2]}"


def test_a_budget_for_another_artifact_is_not_asked() -> None:
    assert compare_budgets(parse_budgets(["onnx.size=1MB"], KNOWN), {"torchscript"}, judged()) == ()


def test_a_budget_for_visits_is_asked_of_bundles_only() -> None:
    bare = judged().model_copy(update={"first_visit": None})
    assert compare_budgets(parse_budgets(["visit=1B"], KNOWN), {"onnx"}, bare) == ()
    assert compare_budgets(parse_budgets(["visit=1B"], KNOWN), {"web"}, judged())


@pytest.mark.parametrize("budget", ["p50=1h", "memory=1GB", "task_drop=1", "onnx.visit=1GB"])
def test_what_was_not_measured_meets_no_budget(budget: str) -> None:
    budget = budget.replace("1h", "100s")
    bare = judged(timings={}, measures=(), start_up=None).model_copy(update={"first_visit": None})
    [(_, found)] = compare_budgets(parse_budgets([budget], KNOWN), {"onnx"}, bare)
    assert found.code is Code.BUDGET_UNKNOWN
    assert "was not measured" in str(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("p50", "is not a budget"),
        ("speed=3", "p50, p95"),
        ("p50=20", "us, ms, s"),
        ("size=20ms", "B, kB"),
        ("task_drop=1%", "is not a budget"),
        ("p50=1.2.3ms", "is not a number"),
        ("onx.size=8MB", "mean 'onnx'"),
        ("p50=-1ms", "is not a budget"),
    ],
)
def test_what_is_no_budget_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_budgets([text], KNOWN)


def test_several_budgets_in_one_text() -> None:
    assert [b.name for b in parse_budgets(["p50=1ms, size=1MB", "open=1s"], KNOWN)] == ["p50", "size", "open"]
