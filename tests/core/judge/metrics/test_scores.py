"""Scores: order, spread, direction and ratio of maps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from edgekit.judge.deviation import spreads
from edgekit.judge.metrics import MASS_FLOOR, RESOLUTION, SNR_CAP_DB, SPREAD_FLOOR, compare
from edgekit.model.spec import Array, Output
from tests.answers import OUTPUTS
from tests.core.judge.metrics.answers import against, answer, maps, scores, value


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


def test_nrmse_is_a_share_of_the_deviation_or_of_its_floor() -> None:
    reference = np.where(np.arange(12) % 2, 0.3, 0.7)[None].astype(np.float32)
    flat = np.full((1, 12), 0.5, np.float32)
    for map_, deviation in ((reference, 0.2), (flat, SPREAD_FLOOR)):
        found = against(answer(map_), answer(map_ + np.float32(0.01)))
        assert value(found, "relevance", "nrmse") == pytest.approx(0.01 / deviation, rel=1e-4)


def test_a_dark_map_has_no_direction() -> None:
    dark = np.linspace(1e-8, 0.99 * RESOLUTION, 12, dtype=np.float32)[None]
    assert value(against(answer(dark), answer(dark[:, ::-1].copy())), "relevance", "cosine") == 1
    seen = np.float32(20) * dark
    assert value(against(answer(seen), answer(seen[:, ::-1].copy())), "relevance", "cosine") < 0.9


def test_the_direction_of_maps_without_relevance_counts_by_their_size_and_of_others_in_full() -> None:
    ramp = np.linspace(0, 1, 12, dtype=np.float32)[None]
    plain = value(against(answer(ramp), answer(ramp[:, ::-1].copy())), "relevance", "cosine")
    small = np.float32(0.3 * MASS_FLOOR / np.sqrt((ramp**2).mean())) * ramp
    found = value(against(answer(small), answer(small[:, ::-1].copy())), "relevance", "cosine")
    assert found == pytest.approx(1 - 0.09 * (1 - plain), rel=1e-4)
    wrong = answer(ramp[:, ::-1].copy())  # an artifact that finds something where the reference finds nothing
    assert value(against(answer(small), wrong), "relevance", "cosine") == pytest.approx(plain, rel=1e-4)
    assert value(against(wrong, answer(small)), "relevance", "cosine") == pytest.approx(plain, rel=1e-4)


def test_the_direction_counts_in_full_where_all_scores_are_small() -> None:
    ramp = np.linspace(0, 1e-3, 12, dtype=np.float32)[None]
    plain = value(against(answer(ramp * 1000), answer(ramp[:, ::-1] * 1000)), "relevance", "cosine")
    scales = {"relevance": np.array([3e-4])}
    found = compare(OUTPUTS, answer(ramp), answer(ramp[:, ::-1].copy()), ["a"], scales=scales)
    assert value(found, "relevance", "cosine") == pytest.approx(plain, rel=1e-4)


def test_zero_maps_have_a_cosine_and_a_ratio() -> None:
    zero, one = np.zeros((1, 12), np.float32), np.ones((1, 12), np.float32)
    both, only = against(answer(zero), answer(zero)), against(answer(zero), answer(one))
    assert value(both, "relevance", "cosine") == 1
    assert value(both, "relevance", "snr") == SNR_CAP_DB
    assert value(only, "relevance", "cosine") == 0
    assert value(only, "relevance", "snr") == -SNR_CAP_DB


def test_few_numbers_that_are_all_near_zero_have_no_direction_that_an_allowed_error_could_turn() -> None:
    decided = np.array([[4.0, -2.0, -2.0], [-3.0, 5.0, -2.0]], np.float32)
    near, turned = np.array([[0.1, -0.2, 0.1]], np.float32), np.array([[-0.1, -0.1, 0.2]], np.float32)
    right, wrong = {"y": np.concatenate([decided, near])}, {"y": np.concatenate([decided, turned])}
    for role, least, most in (("logits", 0.95, 1.0), ("tensor", 0.95, 1.0), ("embedding", -1.0, 0.6)):
        output = Output("y", role=role)  # type: ignore[arg-type]  # one of the roles
        found = compare((output,), right, wrong, list("abc"), scales={"y": np.array([3.0, 3.0, 3.0])})
        assert least <= value(found, "y", "cosine")[2] <= most
    swapped = {"y": right["y"][[1, 0, 2]]}
    found = compare((Output("y", role="logits"),), right, swapped, list("abc"), scales={"y": np.array([3.0, 3.0, 3.0])})
    assert (value(found, "y", "cosine")[:2] < 0).all()


def test_ten_per_cent_is_twenty_decibels_and_one_bad_image_is_not_averaged_away() -> None:
    reference = scores(8)
    moved = reference.copy()
    moved[3] *= np.float32(0.9)
    found = against(answer(reference), answer(moved))
    assert value(found, "relevance", "snr")[3] == pytest.approx(20, abs=1e-3)
    assert (value(found, "relevance", "snr")[[0, 7]] == SNR_CAP_DB).all()
    assert value(found, "relevance", "cosine")[3] == pytest.approx(1)
    assert value(found, "relevance", "cosine whole")[0] < 1


@pytest.mark.parametrize("far", [False, True])
def test_of_few_items_only_an_exchange_of_unequal_ones_changes_the_order(far: bool) -> None:
    """Neighbours at 2 % of the spread of all scores are exchanged in pairs, and two items far from each other."""
    right = np.random.default_rng(0).uniform(0, 1, (40, 16)).astype(np.float32)
    right[:, 1::2] = right[:, ::2] + 0.02 * right.std()
    wrong = right.reshape(40, -1, 2)[:, :, ::-1].reshape(40, 16)
    if far:
        places = np.argsort(right, axis=1)[:, [2, -3]]
        np.put_along_axis(wrong, places, np.take_along_axis(right, places[:, ::-1], 1), 1)
    outputs, names = (Output("scores", role="scores"),), [f"list {n}" for n in range(40)]
    scales = spreads(outputs, [{"scores": right}], {}, 0.0)
    comparison = compare(outputs, {"scores": right}, {"scores": wrong}, names, scales=scales)
    ranks = comparison.get("scores", "spearman")
    assert ranks is not None
    assert (ranks.max() < 0.96) if far else (ranks.min() > 0.999)


@pytest.mark.parametrize(("scores", "ranked"), [(5, False), (8, True)])
def test_fewer_than_eight_scores_have_errors_and_no_ranks(scores: int, ranked: bool) -> None:
    """Of five, one exchange of neighbours costs a tenth of the correlation."""
    draw = np.random.default_rng(0).random((64, scores)).astype(np.float32)
    outputs = (Output("visible", role="scores"),)
    found = compare(outputs, {"visible": draw}, {"visible": draw}, [f"picture {row}" for row in range(64)])
    assert (found.get("visible", "spearman") is not None) == ranked
