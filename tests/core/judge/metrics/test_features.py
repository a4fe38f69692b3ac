"""Features, tensors and the task metric."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edgekit.artifact.fact import Code, fact
from edgekit.errors import ModelError
from edgekit.judge.deviation import spreads
from edgekit.judge.metrics import compare
from edgekit.model.spec import Array, Output
from tests.answers import OUTPUTS
from tests.core.judge.metrics.answers import K, against, answer, scores, value


def test_features_are_compared_patch_by_patch() -> None:
    reference = answer(scores())
    order = np.array([3, 1, 0, 2])
    candidate = reference | {"indices": reference["indices"][:, order], "tokens": reference["tokens"][:, order]}
    found = against(reference, candidate)
    assert value(found, "tokens", "max abs").max() == 0
    shuffled = against(reference, reference | {"tokens": reference["tokens"][:, order]})
    assert value(shuffled, "tokens", "relative").min() > 0.1
    assert value(shuffled, "tokens", "row cosine").max() < 0.9


def test_one_destroyed_row_is_found_and_named() -> None:
    reference = answer(scores())
    tokens = reference["tokens"].copy()
    tokens[1, 2] = -tokens[1, 2]
    found = against(reference, reference | {"tokens": tokens})
    assert value(found, "tokens", "row cosine") == pytest.approx([1, -1])
    worst = next(m for m in found.measures if m.output == "tokens" and m.metric == "relative")
    assert worst.places[1] == reference["indices"][1, 2]


def test_features_without_a_common_patch_have_nothing_in_common() -> None:
    reference, candidate = answer(scores()), answer(1 - scores())
    candidate["indices"] = np.argsort(scores(), axis=1)[:, :K]
    found = against(reference, candidate)
    assert value(found, "tokens", "matched").max() == 0
    assert value(found, "tokens", "cosine").max() == 0
    assert value(found, "tokens", "relative").min() == 1


@given(hnp.arrays(np.float32, (2, 3), elements=st.floats(-(2**99), 2**99, width=32)))
def test_tensors_of_any_scale(drawn: Array) -> None:
    outputs = (Output("logits"),)
    found = compare(outputs, {"logits": drawn}, {"logits": drawn}, ["a", "b"])
    assert value(found, "logits", "cosine") == pytest.approx(1)
    assert value(found, "logits", "relative").max() == 0
    negated = value(compare(outputs, {"logits": drawn}, {"logits": -drawn}, ["a", "b"]), "logits", "cosine")
    assert negated == pytest.approx([-1.0 if row.any() else 1.0 for row in drawn])


def test_answers_that_say_nothing_beside_real_ones_have_no_size_and_no_direction_of_their_own() -> None:
    draw = np.random.default_rng(0)
    outputs, names = (Output("mask", role="mask"),), ["a", "b"]
    real, noise = (size * draw.random((6, 1, 8, 8), np.float32) for size in (np.float32(1), np.float32(1e-8)))
    noise, nothing = noise[:2], np.zeros((2, 1, 8, 8), np.float32)
    scales = spreads(outputs, [{"mask": real}], {})
    for right, wrong in ((nothing, noise), (noise, nothing), (noise, noise[::-1])):
        found = compare(outputs, {"mask": right}, {"mask": wrong}, names, scales=scales)
        assert value(found, "mask", "relative").max() < 1e-6
        assert value(found, "mask", "cosine").min() > 0.999
        alone = compare(outputs, {"mask": right}, {"mask": wrong}, names)
        assert value(alone, "mask", "cosine").min() < 0.9
    false = compare(outputs, {"mask": nothing}, {"mask": real[:2]}, names, scales=scales)
    assert value(false, "mask", "relative").min() > 0.9
    assert value(false, "mask", "cosine").max() == 0


def test_the_task_metric_is_asked_of_both_sides() -> None:
    reference, candidate = answer(scores()), answer(scores(seed=2))
    found = compare(
        OUTPUTS, reference, candidate, ["a", "b"], metric=lambda o, t: o["relevance"].mean(1) * t, truth=np.ones(2)
    )
    assert found.task is not None
    assert found.task[0] == pytest.approx(reference["relevance"].mean(1))
    assert found.task[1] == pytest.approx(candidate["relevance"].mean(1))


def test_a_tie_at_k_is_no_drop_of_the_task_metric_and_a_real_swap_is() -> None:
    reference = answer(np.array([[0.9, 0.8, 0.7, 0.0012, 0.0011, 0.0, 0.0]], np.float32))  # K is 4
    truth = np.array([[1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]])

    def hits(outputs: Mapping[str, Array], wanted: Array) -> Array:
        return np.asarray(np.take_along_axis(wanted, outputs["indices"], 1).mean(1))

    for rank, left in ((3, 0.5), (0, 0.25)):  # patch 4 instead of the one with 0.0012, and instead of the one with 0.9
        candidate = dict(reference, indices=reference["indices"].copy())
        candidate["indices"][0, rank] = 4
        found = compare(OUTPUTS, reference, candidate, ["a"], metric=hits, truth=truth)
        assert found.task is not None
        assert (found.task[0][0], found.task[1][0]) == (0.5, left)


def test_a_tie_is_one_in_units_of_scores_that_spread_less() -> None:
    reference = answer(np.array([[9e-4, 8e-4, 7e-4, 6e-4, 2e-4, 0.0, 0.0]], np.float32))  # K is 4

    def first(outputs: Mapping[str, Array], wanted: Array) -> Array:
        return np.asarray((outputs["indices"] == 0).any(1), np.float64)

    candidate = dict(reference, indices=reference["indices"].copy())
    candidate["indices"][0, 0] = 4
    for scales, left in ((None, 1.0), ({"relevance": np.array([3e-4])}, 0.0)):
        found = compare(OUTPUTS, reference, candidate, ["a"], metric=first, truth=np.zeros((1, 7)), scales=scales)
        assert found.task is not None
        assert (found.task[0][0], found.task[1][0]) == (1.0, left)


def test_a_task_metric_that_is_not_finite_is_a_fault() -> None:
    made = answer(scores())
    found = compare(OUTPUTS, made, made, ["a", "b"], metric=lambda o, t: t * np.nan, truth=np.ones(2))
    assert found.faults == (fact(Code.TASK_METRIC_NOT_FINITE),)
    assert str(found.faults[0]) == "the task metric is not finite"
    assert found.task is None


def test_a_task_metric_of_the_wrong_shape_is_the_users_mistake() -> None:
    made = answer(scores())
    with pytest.raises(ModelError, match="one number per row"):
        compare(OUTPUTS, made, made, ["a", "b"], metric=lambda o, t: np.ones(3), truth=np.ones(2))


def unwanted(outputs: Mapping[str, Array], truth: Array) -> Array:
    raise AssertionError("it is asked about complete answers only")


def test_the_metric_is_not_asked_about_what_is_broken() -> None:
    made = answer(scores())
    broken = made | {"relevance": made["relevance"] * np.float32("nan")}
    found = compare(OUTPUTS, made, broken, ["a", "b"], metric=unwanted, truth=np.ones(2))
    assert found.task is None
