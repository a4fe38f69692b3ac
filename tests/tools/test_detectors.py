"""The zoo's detectors: their scenes are the same everywhere, and their weights are those of a detector that works."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
import torch

from edgekit import ModelSpec
from tools.zoo.detectors import CLASSES, HELD_OUT, detr, mean_average_precision, scenes, yolo

COUNT = 12


@pytest.fixture(scope="module")
def held_out() -> tuple[torch.Tensor, torch.Tensor]:
    return scenes(HELD_OUT, COUNT)


def test_a_seed_gives_the_same_scene_in_every_batch(held_out: tuple[torch.Tensor, torch.Tensor]) -> None:
    pictures, objects = held_out
    again, others = scenes(HELD_OUT + 3, 2)
    assert torch.equal(pictures[3:5], again)
    assert torch.equal(objects[3:5], others)
    assert hashlib.sha256(pictures.numpy().tobytes() + objects.numpy().tobytes()).hexdigest()[:16] == "49fdd4f5f22462c3"


def test_right_boxes_are_worth_one_and_each_lost_or_wrong_one_less(held_out: tuple[torch.Tensor, torch.Tensor]) -> None:
    objects = held_out[1].numpy()
    boxes = objects[..., 1:].astype(np.float64)
    scores = 0.9 * (objects[..., :1] == np.arange(CLASSES))
    assert mean_average_precision(boxes, scores, objects) == 1
    assert mean_average_precision(boxes + 8, scores, objects) < 0.8
    assert mean_average_precision(boxes, scores * (np.arange(COUNT) > 2)[:, None, None], objects) < 0.9
    doubled = np.concatenate([boxes, boxes], 1), np.concatenate([scores, scores], 1)
    assert mean_average_precision(doubled[0], doubled[1], objects) < 1


@pytest.mark.parametrize("factory", [yolo, detr])
def test_the_weights_detect(factory: Callable[[], ModelSpec], held_out: tuple[torch.Tensor, torch.Tensor]) -> None:
    pictures, objects = held_out
    with torch.no_grad():
        detections, count = factory().module(pictures.float() / 255)
    rows = detections.numpy()
    scores = rows[..., 4:5] * (rows[..., 5:] == np.arange(CLASSES))
    assert mean_average_precision(rows[..., :4], scores, objects.numpy()) > 0.6
    assert count.min() >= 1
