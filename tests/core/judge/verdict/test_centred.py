"""INT8 answers that are centred on zero, and embeddings with channels that no input moves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from edgekit.artifact.result import EvaluationResult
from edgekit.judge.deviation import spreads
from edgekit.judge.limits import FP16, FP32, INT8, Tolerance
from edgekit.judge.metrics import Comparison, compare
from edgekit.judge.verdict import judge
from edgekit.model.spec import Array, Output

ROWS, WIDTH = 60, 16
DRAW = np.random.default_rng(5)
CENTRED = DRAW.normal(size=(ROWS, WIDTH))
NOISE = DRAW.normal(size=(ROWS, WIDTH))
EMBEDDING = np.abs(CENTRED) * (np.arange(WIDTH) > 3)


def on(output: Output, right: Array, wrong: Array, tolerance: Tolerance = INT8) -> EvaluationResult:
    said, made = ({output.name: values.astype(np.float32)} for values in (right, wrong))
    scales = spreads((output,), [said], {})
    found = compare((output,), said, made, [f"row {n}" for n in range(ROWS)], scales=scales)
    return judge(tolerance, {output.name: 0.0}, evaluation=[found])


def test_the_same_noise_is_allowed_with_a_mean_and_without_one() -> None:
    for mean in (0.0, 5.0):
        noisy = on(Output("y"), CENTRED + mean, CENTRED + mean + 0.18 * NOISE)
        assert noisy.status == "verified", noisy.reasons


@pytest.mark.parametrize(
    "wrong",
    [
        lambda y: y + 0.4 * NOISE,
        lambda y: -y,
        lambda y: y[::-1],
        lambda y: y[:, ::-1],
        lambda y: 0 * y,
        lambda y: np.roll(y, 1, axis=1),
        lambda y: np.where(np.arange(ROWS)[:, None] == 4, -y, y),
        lambda y: np.where(np.arange(WIDTH) == 4, -y, y),
        lambda y: np.where(np.arange(WIDTH) < 8, 0, y),
    ],
)
def test_what_is_wrong_is_rejected_without_a_mean_too(wrong: Callable[[Array], Array]) -> None:
    assert on(Output("y"), CENTRED, wrong(CENTRED)).status == "rejected"


@pytest.mark.parametrize(("tolerance", "small"), [(INT8, 0.01), (FP32, 1e-5)])
def test_a_channel_of_an_embedding_that_no_input_moves_has_the_scale_of_the_others(
    tolerance: Tolerance, small: float
) -> None:
    embedding = Output("embedding", role="embedding")
    dead = np.arange(WIDTH) == 2
    assert on(embedding, EMBEDDING, EMBEDDING + small * dead, tolerance).status == "verified"
    assert on(embedding, EMBEDDING, EMBEDDING + 1.0 * dead, tolerance).status == "rejected"
    assert on(Output("y"), EMBEDDING, EMBEDDING + small * dead, tolerance).status == "rejected"  # units of its own


def test_rows_that_are_alike_are_measured_by_the_spread_of_real_inputs() -> None:
    """Similarities with eight copies of one text, where the evaluation set has three texts: no spread of their own."""
    similarities = Output("similarities", role="logits")
    scales = spreads((similarities,), [{similarities.name: 10.0 * CENTRED[:, :3].astype(np.float32)}], {})
    alike = np.full((4, 8), 10.0, np.float32)
    for off, status in ((0.1, "verified"), (8.0, "rejected")):
        sides = ({similarities.name: alike}, {similarities.name: alike + np.float32(off)})
        found = compare((similarities,), *sides, [f"row {n}" for n in range(4)], scales=scales)
        verdict = judge(FP16, {similarities.name: 0.0}, evaluation=[found])
        assert verdict.status == status, verdict.reasons


@pytest.mark.parametrize(("answer", "status"), [(1.0, "verified"), (-100.0, "verified"), (-800.0, "rejected")])
def test_int8_may_saturate_where_the_reference_answers_far_beyond_its_real_answers(answer: float, status: str) -> None:
    output, row = Output("y"), CENTRED[:1]
    scales = spreads((output,), [{"y": CENTRED.astype(np.float32)}], {})

    def compared(right: Array, wrong: Array) -> Comparison:
        said, made = ({"y": values.astype(np.float32)} for values in (right, wrong))
        return compare((output,), said, made, [f"row {n}" for n in range(len(right))], scales=scales)

    real = compared(CENTRED, CENTRED + 0.05 * NOISE)
    random = compared(row + 100, row + answer)
    found = judge(INT8, {"y": 0.0}, evaluation=[real], stress=[random])
    assert found.status == status, found.reasons
