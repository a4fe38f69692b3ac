"""The noise of the reference: what it may excuse, and up to where."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.artifact.fact import Code
from edgekit.judge.limits import FP32, INT8
from edgekit.judge.metrics import compare
from edgekit.judge.verdict import NOISE_CAP, NOISE_MULTIPLE, judge, score_tolerance
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
