"""Counts and rankings: what rounding and ties may excuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from edgekit.judge.metrics import MASS_FLOOR, Comparison, compare
from edgekit.model.spec import Array
from tests.answers import OUTPUTS
from tests.core.judge.metrics.answers import K, against, answer, maps, scores, value


@given(maps, st.integers(0, 11), st.integers(-40, 40), st.floats(0, 0.2))
def test_a_count_is_forgiven_by_the_interval_rule(drawn: Array, patch: int, off: int, tolerance: float) -> None:
    reference, candidate = answer(drawn), answer(drawn)
    patch %= drawn.shape[1]
    candidate["budgets"] = candidate["budgets"].copy()
    candidate["budgets"][0, patch] = count = int(np.clip(candidate["budgets"][0, patch] + off, 64, 400))
    r = float(drawn[0, patch])
    lowest, highest = (np.floor(64 + 336 * np.clip(r + t, 0, 1) + 0.5) for t in (-tolerance, tolerance))
    excess = float(value(against(reference, candidate), "budgets", "count excess")[0])
    assume(abs(excess - tolerance) > 1e-9)
    assert (excess <= tolerance) == (lowest <= count <= highest)


@given(maps, maps)
def test_counts_that_follow_from_near_scores_are_within_their_distance(drawn: Array, other: Array) -> None:
    moved = np.clip(drawn + 0.01 * (other.flat[0] - 0.5), 0, 1).astype(np.float32)
    found = against(answer(drawn), answer(moved))
    distance = value(found, "relevance", "max abs")
    assert (value(found, "budgets", "count excess") <= distance + 1e-9).all()


def test_counts_that_do_not_follow_from_their_own_scores_are_seen() -> None:
    reference, candidate = answer(scores()), answer(scores())
    candidate["budgets"] = np.maximum(candidate["budgets"] - 1, 64)
    found = against(reference, candidate)
    assert value(found, "budgets", "own count excess").max() > 0.5 / 336
    assert value(found, "budgets", "count l1").max() <= 1
    assert value(found, "budgets", "equal").max() < 0.2
    assert value(found, "budgets", "count total").max() > 0


def swapped(gap: float, tolerance: float) -> Comparison:
    """The last chosen patch gives way to the first left out, whose reference score is smaller by the gap."""
    reference = np.array([[0.9, 0.8, 0.7, 0.5 + gap, 0.5, 0.1]], np.float64)
    made = answer(reference.astype(np.float32)) | {"relevance": reference}
    candidate = dict(made) | {"indices": np.array([[0, 1, 2, 4]]), "relevance": reference.astype(np.float32)}
    return compare(OUTPUTS[:3], made, candidate, ["a"], score_tolerance=tolerance)


@pytest.mark.parametrize(("gap", "agreement"), [(1.7e-6, 1.0), (0.99e-4, 1.0), (1.01e-4, 0.75), (0.2, 0.75)])
def test_a_swap_is_forgiven_up_to_the_tolerance(gap: float, agreement: float) -> None:
    found = swapped(gap, 1e-4)
    assert value(found, "indices", "agreement") == agreement
    assert value(found, "indices", "jaccard") == pytest.approx(3 / 5)
    assert value(found, "indices", "swap gap") == pytest.approx(gap, rel=1e-6)
    assert value(found, "indices", "lost mass") == pytest.approx(gap / (2.9 + gap), rel=1e-6)


@given(maps, st.integers(0, 2**32 - 1))
def test_equal_scores_may_come_in_any_order(drawn: Array, seed: int) -> None:
    tied = np.round(drawn * 3) / 3
    made = answer(tied)
    random = np.random.default_rng(seed)
    other = np.lexsort((random.random(tied.shape), -tied), axis=1)[:, :K]
    found = compare(OUTPUTS[:3], made, made | {"indices": other}, ["a"] * len(tied))
    for zero in ("swap gap", "order gap", "own gap", "order faults"):
        assert (value(found, "indices", zero) == 0).all()
    assert (value(found, "indices", "agreement") == 1).all()
    assert value(found, "indices", "lost mass") == pytest.approx(0)


@given(maps, st.integers(0, 2**32 - 1))
def test_any_other_choice_costs_what_it_should(drawn: Array, seed: int) -> None:
    made = answer(drawn)
    other = np.argsort(np.random.default_rng(seed).random(drawn.shape), axis=1)[:, :K]
    found = compare(OUTPUTS[:3], made, made | {"indices": other}, ["a"] * len(drawn))
    gap, own = value(found, "indices", "swap gap"), value(found, "indices", "own gap")
    kept, chosen = (np.take_along_axis(drawn.astype(np.float64), i, axis=1).min(1) for i in (made["indices"], other))
    assert (gap >= kept - chosen - 1e-9).all()
    assert (own >= value(found, "indices", "order gap") - 1e-9).all()
    share = [drawn[i][other[i]].sum() / max(np.sort(drawn[i])[-K:].sum(), K * MASS_FLOOR) for i in range(len(drawn))]
    rich = np.sort(drawn, axis=1)[:, -K:].sum(1) > K * MASS_FLOOR
    assert value(found, "indices", "lost mass")[rich] == pytest.approx(1 - np.array(share)[rich], abs=1e-6)


@given(maps, st.floats(0, 0.05), st.integers(0, 2**32 - 1))
def test_scores_that_moved_by_t_never_swap_across_more_than_2_t(drawn: Array, t: float, seed: int) -> None:
    shift = np.random.default_rng(seed).uniform(-t, t, drawn.shape)
    found = against(answer(drawn), answer(np.clip(drawn + shift, 0, 1).astype(np.float32)))
    assert (value(found, "indices", "swap gap") <= 2 * t + 1e-6).all()
    assert (value(found, "indices", "order gap") <= 2 * t + 1e-6).all()
    assert value(found, "indices", "own gap").max() == 0


def test_the_order_within_the_top_counts_even_in_small_steps() -> None:
    reference = np.array([[0.50, 0.53, 0.56, 0.59, 0.1, 0.1]], np.float32)
    made = answer(reference)
    found = compare(OUTPUTS[:3], made, made | {"indices": np.array([[0, 1, 2, 3]])}, ["a"], score_tolerance=0.05)
    assert value(found, "indices", "order gap") == pytest.approx(0.09)
    assert value(found, "indices", "order faults") == 2  # each step is forgiven, their sum is not
    assert value(found, "indices", "agreement") == 1


def test_negative_scores_have_a_lost_mass_too() -> None:
    reference = np.array([[-1.0, -2.0, -3.0, -4.0, -5.0]], np.float32)
    outputs = (OUTPUTS[0], OUTPUTS[2])
    made = {"relevance": reference, "indices": np.array([[0, 1, 2]])}
    found = compare(outputs, made, made | {"indices": np.array([[0, 1, 4]])}, ["a"])
    assert value(found, "indices", "lost mass") == pytest.approx(2 / 9)


def test_all_patches_may_be_chosen() -> None:
    made = {"relevance": scores(1, 4), "indices": np.argsort(-scores(1, 4), axis=1)}
    found = compare((OUTPUTS[0], OUTPUTS[2]), made, made, ["a"])
    assert value(found, "indices", "own gap") == 0
