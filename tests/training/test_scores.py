import numpy as np
import pytest

from edgekit_arrcoc import datasets
from training import scores


def test_auroc_counts_pairs_and_ties_by_half() -> None:
    draw = np.random.default_rng(2)
    values, positive = np.round(draw.random(60), 1), draw.random(60) < 0.3
    pairs = values[positive][:, None] - values[~positive][None]
    assert scores.auroc(values, positive) == pytest.approx(float(((pairs > 0) + 0.5 * (pairs == 0)).mean()))


def test_coverage_is_relative_to_the_best_choice() -> None:
    unknown = [np.nan] * 4
    truth = np.array([[0.5, 1.0, 0.25, 0.0], [0.0, 0.0, 0.0, 0.0], unknown], np.float32)
    chosen = np.array([[1, 2], [0, 3], [0, 1]])
    assert datasets.covered_share(chosen, truth).tolist() == pytest.approx([1.25 / 1.5, 1.0, 1.0])
    assert datasets.coverage({"indices": chosen, "relevance": truth}, truth).dtype == np.float64


def test_perfect_and_reversed_relevance() -> None:
    truth = np.zeros((3, 100))
    truth[:, 10:20] = np.linspace(0.1, 1.0, 10)
    good, bad = scores.measure(truth, truth), scores.measure(1 - truth, truth)
    assert (good.auroc, good.pooled, good.pointing, good.coverage, good.error) == (1.0, 1.0, 1.0, 1.0, 0.0)
    assert (bad.auroc, bad.pointing) == (0.0, 0.0)
    assert bad.coverage == 0.0


def test_taking_a_weight_away_scales_the_others_up() -> None:
    maps = np.random.default_rng(1).random((2, 3, 5))
    weights = np.array([[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]])
    without = scores.ablate(maps, weights, 0, "weight")
    assert np.allclose(without[0], (maps[0, 1] + maps[0, 2]) / 2)
    assert np.allclose(without[1], maps[1, 2])
    # Nothing is left of the second.
    assert np.allclose(scores.ablate(maps, weights, 2, "weight")[1], 0.0)


def test_a_map_replaced_by_its_mean_keeps_its_weight() -> None:
    maps = np.random.default_rng(1).random((1, 3, 5))
    weights = np.array([[0.5, 0.25, 0.25]])
    whole = (weights[:, :, None] * maps).sum(1)
    flat = scores.ablate(maps, weights, 0, "map")
    assert np.allclose(flat - whole, 0.5 * (maps[:, 0].mean(1, keepdims=True) - maps[:, 0]))
