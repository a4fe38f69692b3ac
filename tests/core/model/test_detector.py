"""Non-maximum suppression in fixed steps is the plain one, box for box."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgekit.errors import CaptureError, ModelError
from edgekit.model.detector import Detector, suppress
from edgekit.model.graph import capture
from edgekit.model.sources.module import spec_of_module
from edgekit.model.spec import Array
from tests import modules
from tests.detectors import Anchors

MOST, THRESHOLD = 20, 0.4


def overlap(one: Array, other: Array) -> float:
    inner = np.maximum(np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2]), 0).prod()
    areas = [np.maximum(box[2:] - box[:2], 0).prod() for box in (one, other)]
    return float(inner / max(areas[0] + areas[1] - inner, 1e-12))


def plain(boxes: Array, scores: Array, most: int, threshold: float, most_overlap: float) -> Array:
    """Greedy suppression within each class as it is defined, [kept, 6]."""
    pairs = [(-score, i, c) for i, row in enumerate(scores) for c, score in enumerate(row) if score > threshold]
    kept: list[tuple[float, int, int]] = []
    for score, i, c in sorted(pairs):
        if all(c != k or overlap(boxes[i], boxes[j]) <= most_overlap for _, j, k in kept):
            kept.append((score, i, c))
    return np.array([[*boxes[i], -score, c] for score, i, c in kept[:most]], np.float32).reshape(-1, 6)


@pytest.mark.parametrize("most_overlap", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("unit", [1.0, 640.0])
def test_it_is_greedy_suppression(most_overlap: float, unit: float) -> None:
    draw = np.random.default_rng(0)
    for _ in range(15):
        number, classes = int(draw.integers(1, 60)), int(draw.integers(1, 4))
        corner = draw.random((3, number, 2))
        boxes = (unit * np.concatenate([corner, corner + 0.6 * draw.random((3, number, 2))], 2)).astype(np.float32)
        scores = draw.random((3, number, classes)).astype(np.float32)
        candidates = max(number * classes, MOST)
        inputs = torch.tensor(boxes), torch.tensor(scores)
        detections, counts = suppress(*inputs, MOST, THRESHOLD, most_overlap, candidates)
        for row in range(3):
            expected = plain(boxes[row], scores[row], MOST, THRESHOLD, most_overlap)
            assert counts[row] == len(expected)
            np.testing.assert_array_equal(detections[row, : len(expected)], expected)
            assert not detections[row, len(expected) :].any()


def test_boxes_without_an_area_and_pictures_without_a_box() -> None:
    boxes, scores = torch.zeros(1, 3, 4), torch.tensor([[[0.9], [0.8], [0.1]]])
    detections, count = suppress(boxes, scores, 4, 0.4, 0.5, 8)
    assert count.tolist() == [2]  # a box without an area overlaps nothing, and is there once
    np.testing.assert_allclose(detections[0, :, 4], [0.9, 0.8, 0, 0])
    detections, count = suppress(boxes, torch.zeros_like(scores), 4, 0.0, 0.5, 8)
    assert count.tolist() == [0]
    assert not detections.any()


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"most": 0}, "most is '0' of 300 candidates. Use a number from 1 to 300"),
        ({"most": 50, "candidates": 40}, "most is '50' of 40 candidates. Use a number from 1 to 40"),
        ({"threshold": 1.0}, "threshold is '1.0'. Use a number of at least 0 and less than 1"),
        ({"overlap": -0.5}, "overlap is '-0.5'. Use a number of at least 0 and less than 1"),
    ],
)
def test_numbers_out_of_range_are_refused(numbers: dict[str, float], said: str) -> None:
    with pytest.raises(ModelError) as error:
        Detector(nn.Identity(), **numbers)  # type: ignore[arg-type]  # floats and integers alike
    assert str(error.value) == said


def test_an_example_is_enough_and_its_outputs_are_judged_as_detections() -> None:
    spec = spec_of_module(Anchors().eval(), (torch.rand(1, 3, 32, 32),))
    assert [output.role for output in spec.outputs] == ["tensor", "tensor"]
    module = Detector(Anchors(), most=4).eval()
    spec = spec_of_module(module, (torch.rand(1, 3, 32, 32),))
    assert spec.outputs == module.outputs
    assert [output.role for output in spec.outputs] == ["detections", "count"]


@pytest.mark.parametrize(
    ("formula", "operator"),
    [
        (lambda linear, x: torch.nonzero(linear(x) > 0), "aten.nonzero"),
        (lambda linear, x: linear(x)[x[:, 0] > 0.5], "aten.index.Tensor"),
    ],
)
@pytest.mark.parametrize("dynamic", [True, False])
def test_a_length_that_follows_from_values_is_refused_with_its_operator(
    formula: Callable[[nn.Linear, Tensor], Tensor], operator: str, dynamic: bool
) -> None:
    with pytest.raises(CaptureError) as error:
        capture(modules.spec(modules.Formula(formula)), dynamic)
    said = str(error.value)
    assert f"has a length that depends on values, from '{operator}' at {modules.__file__}:" in said
    assert "(return self.formula(self.linear, x))" in said


def test_a_length_from_values_that_is_always_the_same_is_none() -> None:
    def formula(linear: nn.Linear, x: Tensor) -> Tensor:
        return torch.as_tensor(linear(x)[:, torch.tensor([True, False, True, True])])

    assert capture(modules.spec(modules.Formula(formula))).proof
