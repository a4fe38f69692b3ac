"""Where only made inputs fail, the user's own inputs and metric may suffice; a wrong artifact stays rejected."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.artifact.fact import Code
from edgekit.artifact.result import EvaluationResult
from edgekit.judge.deviation import spreads
from edgekit.judge.limits import FP16, FP32, INT8, Tolerance
from edgekit.judge.metrics import Comparison, compare
from edgekit.judge.verdict import judge, weigh_own_inputs
from edgekit.metrics import parse_metric
from edgekit.model.spec import Array, Output

ROWS, CLASSES = 40, 4
OUTPUTS = (Output("logits", role="logits"),)
LOGITS = np.random.default_rng(0).normal(0, 2, (ROWS, CLASSES)).astype(np.float32)
TRUTH = LOGITS.argmax(1)
WRONG = LOGITS[::-1].copy()
ONE_FLIPPED = np.where(np.arange(ROWS)[:, None] == 3, -LOGITS, LOGITS)


def compared(answer: Array, with_metric: bool = False) -> Comparison:
    metric = parse_metric("top_k:logits") if with_metric else None
    names = [f"row {row}" for row in range(ROWS)]
    logits, answers = {"logits": LOGITS}, {"logits": answer.astype(np.float32)}
    truth, scales = TRUTH if with_metric else None, spreads(OUTPUTS, [logits], {})
    return compare(OUTPUTS, logits, answers, names, metric=metric, truth=truth, scales=scales)


def weighed(
    own: Array = LOGITS,
    made: Array = WRONG,
    tolerance: Tolerance = INT8,
    with_metric: bool = True,
    task_limits: bool = True,
) -> EvaluationResult:
    evaluation = [compared(own, with_metric)]
    result = judge(tolerance, {}, evaluation=evaluation, more={"changed": [compared(made)]})
    assert result.status == "rejected"
    alone = judge(tolerance, {}, evaluation=evaluation)
    return weigh_own_inputs(result, alone, tolerance, evaluation, "top_k:logits", task_limits)


@pytest.mark.parametrize("tolerance", [FP16, INT8])
def test_wrong_answers_to_made_inputs_alone_are_named_and_accepted_only_if_the_user_asks(tolerance: Tolerance) -> None:
    rejected, accepted = weighed(tolerance=tolerance, task_limits=False), weighed(tolerance=tolerance)
    assert (rejected.status, rejected.reasons[0].code) == ("rejected", Code.MADE_INPUTS)
    assert (accepted.status, accepted.reasons, accepted.notes[0].code) == ("verified", (), Code.MADE_INPUTS)
    assert "your own top_k:logits is 1 -> 1 on 40 inputs" in str(accepted.notes[0])


def test_an_undecided_verdict_does_not_say_that_the_artifact_fails() -> None:
    evaluation = [compared(LOGITS, with_metric=True)]
    own, all_inputs = (
        judge(INT8, {}, evaluation=evaluation, more=more) for more in ({}, {"changed": [compared(WRONG)]})
    )
    result = all_inputs.model_copy(update={"status": "not verified here"})
    reason = weigh_own_inputs(result, own, INT8, evaluation, "top_k:logits", task_limits=False).reasons[0]
    assert (reason.code, reason.details["outcome"]) == (Code.MADE_INPUTS, "undecided")
    assert "fails" not in str(reason)
    earlier = {name: value for name, value in reason.details.items() if name != "outcome"}
    assert str(reason.model_copy(update={"details": earlier})).startswith("fails only on made inputs (changed)")


@pytest.mark.parametrize(
    "verdict",
    [
        pytest.param(lambda: weighed(own=WRONG), id="the metric falls"),
        pytest.param(lambda: weighed(own=ONE_FLIPPED), id="one real input in forty is wrong"),
        pytest.param(lambda: weighed(own=LOGITS * 0.5), id="real outputs are off though the metric holds"),
        pytest.param(lambda: weighed(with_metric=False), id="there is no metric"),
        pytest.param(lambda: weighed(tolerance=FP32), id="nothing may be lost in fp32"),
        pytest.param(lambda: weighed(made=np.full_like(LOGITS, np.nan)), id="an output is NaN"),
    ],
)
def test_a_wrong_artifact_stays_rejected(verdict: object) -> None:
    result = verdict()  # type: ignore[operator]  # a function of the parameters above
    assert result.status == "rejected"
    assert Code.MADE_INPUTS not in {each.code for each in (*result.reasons, *result.notes)}


@pytest.mark.parametrize(
    ("batch", "with_metric", "factor", "status"),
    [
        pytest.param("stress", True, -1, "verified", id="drawn"),
        pytest.param("height 64", True, -1, "verified", id="drawn at another size"),
        pytest.param("stress", False, -1, "rejected", id="no metric"),
        pytest.param("shifted", True, -1, "rejected", id="beyond the data"),
        pytest.param("stress", True, -40, "rejected", id="another order of magnitude"),
    ],
)
def test_in_int8_errors_in_drawn_inputs_have_no_limit_beside_a_metric(
    batch: str, with_metric: bool, factor: float, status: str
) -> None:
    evaluation = [compared(LOGITS, with_metric)]
    result = judge(INT8, {}, evaluation=evaluation, more={batch: [compared(LOGITS * factor)]})
    assert result.status == status


@pytest.mark.parametrize(("answer", "status"), [(0.0, "verified"), (3.5, "rejected")])
def test_an_answer_to_noise_within_the_models_own_range_is_not_gross(answer: float, status: str) -> None:
    output = (Output("health", role="tensor"),)
    names, draw = [f"row {row}" for row in range(ROWS)], np.random.default_rng(1)
    health = draw.uniform(0.84, 0.9, (ROWS, 1)).astype(np.float32)
    units, noise = spreads(output, [{"health": health}], {}), {"health": np.ones_like(health)}
    metric, wrong = parse_metric("mean_absolute_error:health,unit=1"), {"health": np.full_like(health, answer)}
    said = {"health": health}
    real = compare(output, said, said, names, scales=units, metric=metric, truth=health)
    drawn = compare(output, noise, wrong, names, scales=units)
    assert judge(INT8, {}, evaluation=[real], more={"stress": [drawn]}).status == status
