from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edgekit.compare import MASS_FLOOR, RESOLUTION, SNR_CAP_DB, SPREAD_FLOOR, Comparison, compare, failed
from edgekit.errors import ModelError
from edgekit.spec import Array, Output

OUTPUTS = (
    Output("relevance", role="scores"),
    Output("budgets", role="counts", of="relevance", dtype="int64", low=64, high=400),
    Output("indices", role="ranking", of="relevance", dtype="int64"),
    Output("tokens", role="features", of="indices"),
    Output("logits"),
)
K = 4
settings.register_profile("short", max_examples=60, deadline=None)
settings.load_profile("short")
maps = hnp.arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(K + 1, 12)), elements=st.floats(0, 1, width=32))


def budgets(scores: Array) -> Array:
    return np.floor(64 + 336 * np.clip(scores.astype(np.float64), 0, 1) + 0.5).astype(np.int64)


def answer(scores: Array, seed: int = 0) -> dict[str, Array]:
    """What a model with these scores gives; the features of a patch depend on the patch only."""
    n, patches = scores.shape
    drawn = np.random.default_rng(seed).standard_normal((n, patches, 3)).astype(np.float32)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :K]
    tokens = np.take_along_axis(drawn, order[:, :, None], axis=1)
    counts = budgets(scores)
    return {"relevance": scores, "budgets": counts, "indices": order, "tokens": tokens, "logits": drawn[:, 0]}


def scores(n: int = 2, patches: int = 12, seed: int = 1) -> Array:
    return np.random.default_rng(seed).random((n, patches)).astype(np.float32)


def against(reference: Mapping[str, Array], candidate: Mapping[str, Array], tolerance: float = 0.0) -> Comparison:
    names = [f"image {i}" for i in range(len(reference["relevance"]))]
    return compare(OUTPUTS, reference, candidate, names, score_tolerance=tolerance)


def value(found: Comparison, output: str, metric: str) -> Array:
    values = found.get(output, metric)
    assert values is not None, found.faults
    return values


# Two answers that are the same.


@given(maps)
def test_the_same_answer_is_perfect(drawn: Array) -> None:
    made = answer(drawn)
    found = against(made, made)
    assert found.faults == ()
    for zero in ("max abs", "mean abs"):
        assert (value(found, "relevance", zero) == 0).all()
    for zero in ("swap gap", "order gap", "lost mass", "order faults"):
        assert (value(found, "indices", zero) == 0).all()
    assert (value(found, "relevance", "snr") == SNR_CAP_DB).all()
    assert value(found, "relevance", "cosine") == pytest.approx(1)
    assert value(found, "relevance", "spearman") == pytest.approx(1)
    assert (value(found, "budgets", "count excess") == 0).all()
    assert value(found, "budgets", "own count excess") == pytest.approx(0, abs=1e-7)
    assert value(found, "indices", "own gap") == pytest.approx(0)
    for one in ("jaccard", "agreement"):
        assert (value(found, "indices", one) == 1).all()
    assert (value(found, "tokens", "matched") == 1).all()
    assert (value(found, "tokens", "relative") == 0).all()


def test_the_worst_difference_is_named() -> None:
    reference = scores()
    moved = reference.copy()
    moved[1, 7] += 0.5
    image, patch, most = against(answer(reference), answer(moved)).worst or ("", -1, 0.0)
    assert (image, patch) == ("image 1", 7)
    assert most == pytest.approx(0.5)


def test_double_reference_and_strided_candidate() -> None:
    made = answer(scores())
    wide = {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in made.items()}
    strided = {name: np.asfortranarray(a) for name, a in made.items()}
    found = against(wide, strided)
    assert not found.faults
    assert value(found, "relevance", "max abs").max() == 0


# What cannot be compared.


@pytest.mark.parametrize("output", ["relevance", "tokens", "logits"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", ["reference", "artifact", "both"])
def test_what_is_not_finite_is_a_fault_on_any_side(output: str, bad: float, side: str) -> None:
    reference, candidate = answer(scores()), answer(scores())
    for one, name in ((reference, "reference"), (candidate, "artifact")):
        if side in (name, "both"):
            one[output] = one[output].copy()
            one[output][1, 2] = bad
    found = against(reference, candidate)
    assert len(found.faults) == (2 if side == "both" else 1)
    assert all(f"'{output}'" in text and "not finite" in text and "'image 1'" in text for text in found.faults)
    assert found.get(output, "max abs") is None
    if output == "relevance":
        assert found.get("indices", "swap gap") is None
        assert "patch 2" in found.faults[0]


@pytest.mark.parametrize(
    ("output", "made", "said"),
    [
        ("relevance", None, "is missing"),
        ("relevance", np.zeros((2, 12), np.float64), "is float64, not float32"),
        ("relevance", np.zeros((2, 11), np.float32), "has the shape [2, 11], not [2, 12]"),
        ("relevance", np.zeros((1, 12), np.float32), "has the shape [1, 12]"),
        ("relevance", np.zeros(24, np.float32), "has the shape [24]"),
        ("budgets", np.full((2, 12), 64.0, np.float32), "is float32, not int64"),
        ("budgets", np.full((2, 12), 401), "is no whole number in [64, 400] in 24 of 24 values"),
        ("budgets", np.full((2, 12), 63), "is no whole number in [64, 400]"),
        ("indices", np.array([[0, 1, 2, 12], [0, 1, 2, 3]]), "one that is not among 12"),
        ("indices", np.array([[0, 1, 2, 3], [-1, 1, 2, 3]]), "first in image 'image 1'"),
        ("indices", np.array([[0, 1, 1, 3], [0, 1, 2, 3]]), "names a patch twice"),
        ("indices", np.array([[0, 1, 2], [0, 1, 2]]), "has the shape [2, 3]"),
        ("tokens", np.zeros((2, 4, 2), np.float32), "has the shape [2, 4, 2]"),
        ("logits", np.zeros((2, 4), np.float32), "has the shape [2, 4]"),
    ],
)
def test_what_cannot_be_compared_is_a_fault(output: str, made: Array | None, said: str) -> None:
    candidate = answer(scores())
    if made is None:
        del candidate[output]
    else:
        candidate[output] = made
    found = against(answer(scores()), candidate)
    assert len(found.faults) == 1
    assert said in found.faults[0]
    assert f"output '{output}' of the artifact" in found.faults[0]


@pytest.mark.parametrize(("output", "made"), [("budgets", [[500] * 12] * 2), ("indices", [[0, 0, 1, 2]] * 2)])
def test_an_impossible_reference_is_a_fault_too(output: str, made: list[list[int]]) -> None:
    reference = answer(scores()) | {output: np.array(made)}
    assert any("of the reference" in text for text in against(reference, reference).faults)


def test_an_output_of_nothing_is_a_fault() -> None:
    made = answer(scores())
    lost = (Output("relevance", role="scores"), Output("indices", role="ranking", of="relevanse", dtype="int64"))
    assert "derived from 'relevanse'" in compare(lost, made, made, ["a", "b"]).faults[0]
    wrong = (Output("relevance"), Output("indices", role="ranking", of="relevance", dtype="int64"))
    assert "no output with the role 'scores'" in compare(wrong, made, made, ["a", "b"]).faults[0]


def test_no_image_is_a_fault_and_so_is_a_run_that_failed() -> None:
    assert compare(OUTPUTS, {}, {}, []).faults
    assert failed(["a"], "it crashed").faults == ("it crashed",)


# Scores.


@given(maps, st.integers(0, 2**32 - 1))
def test_spearman_ignores_monotone_transforms_and_sees_reversal(drawn: Array, seed: int) -> None:
    ranks = np.argsort(np.random.default_rng(seed).random(drawn.shape), axis=1)
    spread = (ranks / drawn.shape[1]).astype(np.float32)
    squeezed = (spread**3 / 2 + 0.25).astype(np.float32)
    assert value(against(answer(spread), answer(squeezed)), "relevance", "spearman raw") == pytest.approx(1)
    assert value(against(answer(spread), answer(1 - spread)), "relevance", "spearman raw") == pytest.approx(-1)


@given(maps, st.integers(0, 2**32 - 1))
def test_spearman_is_the_same_for_patches_in_another_order(drawn: Array, seed: int) -> None:
    other = np.random.default_rng(seed).random(drawn.shape).astype(np.float32)
    order = np.random.default_rng(seed).permutation(drawn.shape[1])
    for metric in ("spearman", "spearman raw"):
        plain = value(against(answer(drawn), answer(other)), "relevance", metric)
        permuted = value(against(answer(drawn[:, order]), answer(other[:, order])), "relevance", metric)
        assert plain == pytest.approx(permuted)
        assert (np.abs(plain) <= 1 + 1e-12).all()


@given(hnp.arrays(np.int8, (2, 9), elements=st.integers(0, 4)))
def test_spearman_gives_ties_average_ranks_as_scipy_does(drawn: Array) -> None:
    stats = pytest.importorskip("scipy.stats")
    a, b = drawn[:1].astype(np.float32) / 4, drawn[1:].astype(np.float32) / 4
    assume(np.ptp(a) > 0 and np.ptp(b) > 0)
    found = value(against(answer(a), answer(b)), "relevance", "spearman raw")
    assert found == pytest.approx(stats.spearmanr(a[0], b[0]).statistic)


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        (0.0, 0.0, 1),  # constant on both sides
        (1.0, 0.0, 0),  # constant on one side
        (0.0, 1.0, 0),
        (1.9 * RESOLUTION, 0.0, 1),  # constant within the resolution
        (2.1 * RESOLUTION, 0.0, 0),
        (0.0, 1.9 * RESOLUTION, 1),
    ],
)
def test_spearman_of_flat_maps(reference: float, candidate: float, expected: float) -> None:
    rise = np.linspace(-0.5, 0.5, 12)[None]
    a, b = (0.5 + reference * rise).astype(np.float32), (0.5 - candidate * rise).astype(np.float32)
    assert value(against(answer(a), answer(b)), "relevance", "spearman") == pytest.approx(expected)


@given(maps, st.integers(0, 2**32 - 1))
def test_disorder_below_the_resolution_is_none(drawn: Array, seed: int) -> None:
    random = np.random.default_rng(seed)
    near = (drawn + random.uniform(-0.99 * RESOLUTION, 0.99 * RESOLUTION, drawn.shape)).astype(np.float32)
    assert value(against(answer(drawn), answer(near)), "relevance", "spearman") == pytest.approx(1)


def test_background_does_not_outweigh_what_is_relevant() -> None:
    background = np.random.default_rng(0).uniform(1e-4, 1e-3, (2, 1, 180))
    peaks = np.linspace(0.2, 0.6, 16)[None]
    reference, candidate = (np.concatenate([peaks, part], axis=1).astype(np.float32) for part in background)
    swapped = candidate[:, [*range(16)[::-1], *range(16, 196)]]
    found = against(answer(reference), answer(candidate))
    assert value(found, "relevance", "spearman") == pytest.approx(1)
    assert value(found, "relevance", "spearman raw") < 0.5
    assert value(against(answer(reference), answer(swapped)), "relevance", "spearman") < 0.999


def test_unexplained_is_a_share_of_the_deviation_or_of_its_floor() -> None:
    reference = np.where(np.arange(12) % 2, 0.3, 0.7)[None].astype(np.float32)
    flat = np.full((1, 12), 0.5, np.float32)
    for map_, deviation in ((reference, 0.2), (flat, SPREAD_FLOOR)):
        found = against(answer(map_), answer(map_ + np.float32(0.01)))
        assert value(found, "relevance", "unexplained") == pytest.approx(0.01 / deviation, rel=1e-4)


def test_a_dark_map_has_no_direction() -> None:
    dark = np.linspace(1e-8, 0.99 * RESOLUTION, 12, dtype=np.float32)[None]
    assert value(against(answer(dark), answer(dark[:, ::-1].copy())), "relevance", "cosine") == 1
    seen = np.float32(1.1) * dark
    assert value(against(answer(seen), answer(seen[:, ::-1].copy())), "relevance", "cosine") < 0.9


def test_zero_maps_have_a_cosine_and_a_ratio() -> None:
    zero, one = np.zeros((1, 12), np.float32), np.ones((1, 12), np.float32)
    both, only = against(answer(zero), answer(zero)), against(answer(zero), answer(one))
    assert value(both, "relevance", "cosine") == 1
    assert value(both, "relevance", "snr") == SNR_CAP_DB
    assert value(only, "relevance", "cosine") == 0
    assert value(only, "relevance", "snr") == -SNR_CAP_DB


def test_ten_per_cent_is_twenty_decibels_and_one_bad_image_is_not_averaged_away() -> None:
    reference = scores(8)
    moved = reference.copy()
    moved[3] *= np.float32(0.9)
    found = against(answer(reference), answer(moved))
    assert value(found, "relevance", "snr")[3] == pytest.approx(20, abs=1e-3)
    assert (value(found, "relevance", "snr")[[0, 7]] == SNR_CAP_DB).all()
    assert value(found, "relevance", "cosine")[3] == pytest.approx(1)
    assert value(found, "relevance", "cosine whole")[0] < 1


# Counts.


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


# Ranking.


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


# Features and tensors.


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
    assert worst.patches[1] == reference["indices"][1, 2]


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


# The task metric.


def test_the_task_metric_is_asked_of_both_sides() -> None:
    reference, candidate = answer(scores()), answer(scores(seed=2))
    found = compare(
        OUTPUTS, reference, candidate, ["a", "b"], metric=lambda o, t: o["relevance"].mean(1) * t, truth=np.ones(2)
    )
    assert found.task is not None
    assert found.task[0] == pytest.approx(reference["relevance"].mean(1))
    assert found.task[1] == pytest.approx(candidate["relevance"].mean(1))


def test_a_task_metric_that_is_not_finite_is_a_fault() -> None:
    made = answer(scores())
    found = compare(OUTPUTS, made, made, ["a", "b"], metric=lambda o, t: t * np.nan, truth=np.ones(2))
    assert found.faults == ("the task metric is not finite",)
    assert found.task is None


def test_a_task_metric_of_the_wrong_shape_is_the_users_mistake() -> None:
    made = answer(scores())
    with pytest.raises(ModelError, match="one number an image"):
        compare(OUTPUTS, made, made, ["a", "b"], metric=lambda o, t: np.ones(3), truth=np.ones(2))


def unwanted(outputs: Mapping[str, Array], truth: Array) -> Array:
    raise AssertionError("it is asked about complete answers only")


def test_the_metric_is_not_asked_about_what_is_broken() -> None:
    made = answer(scores())
    broken = made | {"relevance": made["relevance"] * np.float32("nan")}
    found = compare(OUTPUTS, made, broken, ["a", "b"], metric=unwanted, truth=np.ones(2))
    assert found.task is None
