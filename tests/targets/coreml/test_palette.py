"""Tables of values that stand for weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edgekit_targets.coreai import int8 as coreai_int8


def decibels(weights: np.ndarray, bits: int) -> float:
    """Signal to noise of the weights that a table gives back."""
    values = coreai_int8.table(weights, 2**bits)
    noise = weights - values[coreai_int8.indices(weights, values)]
    return float(10 * np.log10(np.mean(weights**2) / np.mean(noise**2)))


@pytest.mark.parametrize(("bits", "least"), [(4, 20.2), (6, 31.8), (8, 43.5)])
def test_a_normal_distribution_loses_what_theory_says(bits: int, least: float) -> None:
    # Lloyd and Max: 20.22 dB at 4 bits; Panter and Dite's approximation is 6.02 bits - 4.35 dB: 31.8 and 43.8 dB
    weights = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    assert least - 0.1 < decibels(weights, bits) < least + 1


def test_few_values_are_kept_exactly() -> None:
    weights = np.array([[-1.5, 0.0, 0.25], [3.0, 0.25, 0.0]], np.float32)
    values = coreai_int8.table(weights, 16)
    np.testing.assert_allclose(values[coreai_int8.indices(weights, values)], weights, atol=1e-6)


@settings(deadline=None, max_examples=50)
@given(hnp.arrays(np.float32, st.integers(1, 300), elements=st.floats(-1e6, 1e6, width=32)))
def test_any_weights_get_their_nearest_value(weights: np.ndarray) -> None:
    values = coreai_int8.table(weights, 16)
    assert values.shape == (16,)
    assert np.all(np.diff(values) >= 0)
    given_back = values[coreai_int8.indices(weights, values)].astype(np.float64)
    nearest = np.min(np.abs(weights[:, None].astype(np.float64) - values[None].astype(np.float64)), axis=1)
    np.testing.assert_allclose(np.abs(weights - given_back), nearest, rtol=1e-5, atol=1e-6 * np.abs(weights).max())
