"""The share of a run's other rows in an answer is measured; rounding that depends on them has none."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.judge.mixing import share_of_others
from edgekit.model.spec import Array

RUNS, SIZE = 8, 4


def answers() -> Array:
    return np.random.default_rng(0).normal(5, 2, (RUNS * SIZE, 6, 3)).astype(np.float32)


def in_runs(alone: Array) -> Array:
    return alone.reshape(RUNS, SIZE, *alone.shape[1:])


def test_one_neighbour_and_all_others_are_told_by_their_share() -> None:
    alone = answers()
    runs = in_runs(alone)
    next_one = (0.9 * runs + 0.1 * np.roll(runs, -1, 1)).reshape(alone.shape)
    assert share_of_others(alone, next_one, SIZE) == pytest.approx(0.1, abs=0.005)
    mean = (0.9 * runs + 0.1 * runs.mean(1, keepdims=True)).reshape(alone.shape)
    assert share_of_others(alone, mean, SIZE) == pytest.approx(0.1 * (SIZE - 1) / SIZE, abs=0.005)


def test_noise_and_a_common_step_are_no_share() -> None:
    alone = answers()
    noise = np.random.default_rng(1).normal(0, 0.3, alone.shape) + np.random.default_rng(2).normal(
        0, 0.3, (RUNS, 1, 1, 1)
    ).repeat(SIZE, 1).reshape(-1, 1, 1)
    assert share_of_others(alone, alone + noise, SIZE) < 0.01
    # A smaller size, and another row's answer by chance, are no share of the neighbours.
    assert share_of_others(alone, 0.8 * alone, SIZE) < 0.01
    assert share_of_others(alone, alone, SIZE) == 0


def test_too_few_runs_and_answers_without_spread_have_no_share() -> None:
    alone = answers()
    assert share_of_others(alone[: 3 * SIZE], alone[: 3 * SIZE][::-1], SIZE) == 0
    assert share_of_others(np.ones_like(alone), np.ones_like(alone), SIZE) == 0
    assert np.isnan(share_of_others(alone, np.full_like(alone, np.nan), SIZE))
