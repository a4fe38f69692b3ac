"""What is kept of a model without scores: the largest error of each output in each evaluation image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.artifact.fact import EVALUATION
from edgekit.pipeline import evaluate_step
from edgekit.reference.batches import Batch
from edgekit.reference.info import ReferenceInfo
from edgekit.reference.store import Reference


def recorded(outputs: dict[str, np.ndarray], count: int) -> Reference:
    names = tuple(f"image {number}" for number in range(count))
    return Reference((Batch(EVALUATION, {}, outputs, {}, names),), ReferenceInfo(Path()))


def test_errors_are_those_of_each_image_over_the_outputs_peak() -> None:
    outputs = {
        "map": np.array([[[0, -4]], [[2, 1]]], np.float32),
        "classes": np.array([1, 2]),
        "of all": np.ones((1, 3), np.float32),
        "other shape": np.ones((2, 3), np.float32),
        "nothing": np.zeros((2, 2), np.float32),
    }
    answers = {
        "map": np.array([[[0, -3]], [[2, np.nan]]], np.float32),
        "classes": np.array([1, 3]),
        "of all": np.zeros((1, 3), np.float32),
        "other shape": np.ones((2, 4), np.float32),
        "nothing": np.array([[0, 0], [0, 0.5]], np.float32),
        "unknown": np.ones((2, 2), np.float32),
    }
    found = evaluate_step._errors(recorded(outputs, 2), answers)
    assert sorted(found) == ["map", "nothing"]
    assert found["map"][0] == pytest.approx(0.25)
    assert np.isnan(found["map"][1])
    assert found["nothing"].tolist() == [0.0, 0.5]


def test_one_image_is_one_error() -> None:
    found = evaluate_step._errors(
        recorded({"map": np.ones((1, 3), np.float32)}, 1), {"map": np.zeros((1, 3), np.float32)}
    )
    assert found["map"].tolist() == [1.0]
