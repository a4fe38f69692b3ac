"""Ready task metrics, on cases that can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit import metrics


def test_the_right_class_is_among_the_largest() -> None:
    logits = {"y": np.array([[0.1, 0.9, 0.5], [0.7, 0.2, 0.6], [0.0, 0.0, 1.0]], np.float32)}
    truth = np.array([1, 2, 0])
    assert metrics.top_k("y")(logits, truth).tolist() == [1, 0, 0]
    assert metrics.top_k("y", 2)(logits, truth).tolist() == [1, 1, 1]  # of equals the first counts


def test_overlap_is_of_the_classes_that_an_image_has() -> None:
    chosen = np.array([[[0, 0], [1, 1]], [[2, 2], [2, 2]], [[0, 0], [0, 0]]])
    outputs = {"mask": np.eye(3)[chosen].transpose(0, 3, 1, 2)}
    truth = np.array([[[0, 1], [1, 1]], [[2, 2], [-1, -1]], [[1, 1], [1, 1]]])
    found = metrics.mean_iou("mask")(outputs, truth)
    np.testing.assert_allclose(found, [(1 / 2 + 2 / 3) / 2, 1.0, 0.0])
    np.testing.assert_allclose(metrics.mean_iou("mask")(outputs, np.full((3, 2, 2), -1)), 1.0)


def test_directions_and_pictures() -> None:
    truth = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0], [1.0, 0.0]])
    answers = {"e": np.array([[2.0, 0.0], [1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])}
    np.testing.assert_allclose(metrics.cosine("e")(answers, truth), [1.0, 0.5**0.5, 0.0, 0.0])
    black = np.zeros((3, 1, 4, 4))
    grey = {"p": np.stack([np.full((1, 4, 4), off) for off in (0.0, 0.1, 5.0)])}
    np.testing.assert_allclose(metrics.psnr("p")(grey, black), [1.0, 20 / 60, 0.0])
    np.testing.assert_allclose(metrics.psnr("p", peak=10.0)(grey, black)[1], 40 / 60)


def test_numbers() -> None:
    kelvin = {"kelvin": np.array([[290.0], [291.0], [300.0]])}
    found = metrics.parse_metric("mean_absolute_error:kelvin,unit=4")(kelvin, np.array([290.0, 290.0, 290.0]))
    np.testing.assert_allclose(found, [1.0, 0.75, 0.0])


LEFT, RIGHT, FAR = [0, 0, 10, 10], [20, 0, 30, 10], [50, 50, 60, 60]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ((0.9, 0.8, 0.1), 1.0),
        ((0.9, 0.1, 0.8), 0.5 * 1 + 0.5 * 2 / 3),  # a wrong box before the second right one
        ((0.1, 0.2, 0.9), 2 / 3),
    ],
)
def test_precision_falls_with_wrong_boxes_that_come_early(scores: tuple[float, ...], expected: float) -> None:
    outputs = {"boxes": np.array([[LEFT, RIGHT, FAR]], float), "scores": np.array(scores).reshape(1, 3, 1)}
    truth = np.array([[[0, *LEFT], [0, *RIGHT], [-1, 0, 0, 0, 0]]], float)
    np.testing.assert_allclose(metrics.average_precision("boxes", "scores")(outputs, truth), [expected])


def test_a_truth_is_found_once_and_an_empty_image_has_no_boxes() -> None:
    metric = metrics.average_precision("boxes", "scores")
    twice = {"boxes": np.array([[LEFT, LEFT]], float), "scores": np.array([[[0.9], [0.8]]])}
    np.testing.assert_allclose(metric(twice, np.array([[[0, *LEFT], [0, *RIGHT]]], float)), [0.5])
    nothing = np.array([[[-1, 0, 0, 0, 0]]], float)
    assert metric(twice, nothing).tolist() == [0.0]
    assert metric({**twice, "scores": np.full((1, 2, 1), 0.3)}, nothing).tolist() == [1.0]
    shifted = {"boxes": np.array([[[4, 0, 14, 10]]], float), "scores": np.ones((1, 1, 1))}
    truth = np.array([[[0, *LEFT]]], float)
    assert metric(shifted, truth).tolist() == [0.0]  # 6 / 14
    assert metrics.average_precision("boxes", "scores", iou=0.4)(shifted, truth).tolist() == [1.0]


def test_the_mean_over_overlaps_counts_how_well_a_box_fits() -> None:
    metric = metrics.parse_metric("mean_average_precision:boxes,scores")
    truth = np.array([[[0, *LEFT]]], float)
    right = {"boxes": np.array([[LEFT]], float), "scores": np.ones((1, 1, 1))}
    shifted = {**right, "boxes": np.array([[[2, 0, 12, 10]]], float)}  # an overlap of 8 / 12: four of ten
    np.testing.assert_allclose([metric(right, truth), metric(shifted, truth)], [[1.0], [0.4]])


def test_a_detectors_list_is_measured_as_its_boxes_and_scores() -> None:
    metric = metrics.parse_metric("mean_average_precision:detections")
    truth = np.array([[[0, *LEFT], [1, *RIGHT], [-1, 0, 0, 0, 0]]], float)
    rows = np.array([[[*LEFT, 0.9, 0], [*RIGHT, 0.8, 1], [0, 0, 0, 0, 0, 0]]], float)
    swapped = rows.copy()
    swapped[0, :2, 5] = 1, 0
    assert metric.outputs == ("detections",)
    np.testing.assert_allclose([metric({"detections": x}, truth)[0] for x in (rows, swapped)], [1.0, 0.0])
