"""Answers of a made-up model, and their comparison."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edgekit.judge.metrics import Comparison, compare
from edgekit.model.spec import Array
from tests import answers
from tests.answers import OUTPUTS

K = 4
settings.register_profile("short", max_examples=60, deadline=None)
settings.load_profile("short")
# Fewer scores than eight have no ranks.
maps = hnp.arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(8, 14)), elements=st.floats(0, 1, width=32))


def answer(scores: Array, seed: int = 0) -> dict[str, Array]:
    return answers.answer(scores, K, 3, seed)


def scores(n: int = 2, patches: int = 12, seed: int = 1) -> Array:
    return np.random.default_rng(seed).random((n, patches)).astype(np.float32)


def against(reference: Mapping[str, Array], candidate: Mapping[str, Array], tolerance: float = 0.0) -> Comparison:
    names = [f"image {i}" for i in range(len(reference["relevance"]))]
    return compare(OUTPUTS, reference, candidate, names, score_tolerance=tolerance)


def value(found: Comparison, output: str, metric: str) -> Array:
    values = found.get(output, metric)
    assert values is not None, found.faults
    return values
