"""The noise of the reference: what it may excuse, and up to where."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.artifact.fact import Code
from edgekit.judge.deviation import noise_by_channel, spreads
from edgekit.judge.limits import FP16, FP32, INT8, Tolerance
from edgekit.judge.metrics import compare
from edgekit.judge.verdict import NOISE_CAP, NOISE_MULTIPLE, judge, score_tolerance
from edgekit.model.spec import Array, Output
from tests.answers import OUTPUTS
from tests.core.judge.verdict.answers import GRID, N, answer, at, metrics, moved, on, scored


@pytest.mark.parametrize(
    ("noise", "by", "status"),
    [
        (0.0, 1.1e-4, "rejected"),
        (1e-5, 1.1e-4, "rejected"),
        (5e-5, 1.9e-4, "verified"),
        (5e-5, 2.1e-4, "rejected"),
        (1e-3, 0.9e-3, "verified"),
        (1e-3, 1.1e-3, "not verified here"),
        (1e-3, 4.1e-3, "rejected"),
    ],
)
def test_the_limit_is_the_larger_of_table_and_noise_up_to_a_cap(noise: float, by: float, status: str) -> None:
    verdict = on(scored(moved(by)), FP32, noise)
    assert verdict.status == status, verdict.reasons
    limit = score_tolerance(FP32, noise)
    assert limit == max(1e-4, min(NOISE_MULTIPLE * noise, NOISE_CAP * 1e-4))
    check = next(c for c in verdict.measures if c.metric == "max abs" and c.output == "relevance")
    assert (check.limit, check.table, check.noise) == (limit, 1e-4, NOISE_MULTIPLE * noise)
    assert any("times the reference's own noise" in str(note) for note in verdict.notes) == (limit > 1e-4)
    assert (Code.LIMIT_WIDENED in {note.code for note in verdict.notes}) == (limit > 1e-4)


@pytest.mark.parametrize("noise", [np.nan, np.inf, -1.0])
def test_a_noise_that_is_no_number_excuses_nothing(noise: float) -> None:
    assert on(scored(moved(0.5)), FP32, noise).status == "not verified here"


def test_the_noise_of_features_counts_as_a_share_of_their_peak() -> None:
    made = answer(GRID)
    logits = made["logits"].copy()
    logits[0, 0] += 3e-4 * np.abs(made["logits"]).max()
    found = at({"logits": logits})
    assert metrics(judge(FP32, {}, evaluation=[found])) == {"relative"}
    assert judge(FP32, {"logits": 3e-4}, evaluation=[found]).status == "verified"


def test_ranks_within_the_noise_are_not_asked_for() -> None:
    rising = (0.5 + np.linspace(0, 0.02, N))[None].astype(np.float32)
    noisy = (rising + np.random.default_rng(0).uniform(-8e-3, 8e-3, rising.shape)).astype(np.float32)
    found = compare(OUTPUTS[:1], answer(rising), answer(noisy), ["photo"])
    assert metrics(on(found, INT8, 1e-4)) == {"spearman"}
    assert on(found, INT8, 3e-3).status == "verified"


def verdict_on(real: Array, double: Array, right: Array, wrong: Array, tolerance: Tolerance = FP32) -> str:
    """Return the verdict on made inputs, by the noise of each channel of real ones."""
    output = Output("y")
    right, wrong = right.astype(np.float32), wrong.astype(np.float32)
    by_channel = noise_by_channel(output, [(real, double)])
    assert by_channel is not None
    noise = {"y": float(np.abs(real - double).max())}
    scales = spreads((output,), [{"y": real}], noise, tolerance.rounding, {"y": by_channel})
    found = compare((output,), {"y": right}, {"y": wrong}, [f"row {i}" for i in range(len(right))], scales=scales)
    return judge(tolerance, noise, more={"between": [found]}).status


@pytest.mark.parametrize(("error", "status"), [(6e-7, "verified"), (1e-4, "rejected")])
def test_a_channel_that_real_inputs_leave_dead_has_the_noise_of_its_neighbors(error: float, status: str) -> None:
    """A channel behind a ReLU that wakes up on a made input, and spreads by little more than rounding."""
    draw = np.random.default_rng(1)
    real, right = (draw.uniform(0, 1, (8, 16, 6, 6)) for _ in range(2))
    real[:, 10], right[:, 10] = 0.0, draw.uniform(0, 1e-4, (8, 6, 6))
    double = real + 4e-7 * draw.uniform(-1, 1, real.shape)
    double[:, 10] = 0.0
    wrong = right.copy()
    wrong[:, 10] += error * draw.uniform(-1, 1, (8, 6, 6))
    assert verdict_on(real, double, right, wrong) == status


@pytest.mark.parametrize(("off", "status"), [(0.0, "verified"), (8e-4, "rejected")])
def test_an_exact_quantity_beside_a_noisy_one_keeps_its_own_unit(off: float, status: str) -> None:
    """A humidity of 0 to 1 that the model passes on, beside a difference of large numbers that is noisy."""
    draw = np.random.default_rng(2)
    real = np.stack([draw.uniform(0, 1, 64), draw.normal(0, 1, 64)], -1)
    double = real + [0.0, 1e-3] * draw.uniform(-1, 1, real.shape)
    assert verdict_on(real, double, real, real + np.array([off, 0.0])) == status


@pytest.mark.parametrize("tolerance", [FP32, FP16], ids=lambda tolerance: tolerance.name)
def test_a_quantity_beside_pascals_keeps_its_own_unit(tolerance: Tolerance) -> None:
    """A humidity of 0 to 1 beside a pressure, and rain that no real input has: each may be broken."""
    draw = np.random.default_rng(3)
    real, right = (draw.uniform([0, 99000, 0], [1, 101000, 20], (64, 3)) for _ in range(2))
    real[:, 2] = 0.0
    double = real + [3e-8, 4e-3, 0.0] * draw.uniform(-1, 1, real.shape)
    for channel in range(3):
        wrong = right.copy()
        wrong[:, channel] = right[::-1, channel]
        assert verdict_on(real, double, right, wrong, tolerance) == "rejected", channel
    assert verdict_on(real, double, right, right, tolerance) == "verified"
