"""A model that is set up wrongly is doubted, and what would make it right is named; a right one is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from edgekit.metrics import parse_metric
from edgekit.model.spec import Array, Axis, EvaluationSet, Input, ModelSpec, Output
from edgekit.reference.plausibility import IMAGENET, find_doubt

SIZE, CLASSES, ROWS = 16, 3, 60
BY_COLOUR = np.array([[0.9, 0.4, 0.1], [0.5, 0.3, 0.2], [0.2, 0.6, 0.7]], np.float32)
"""Each class's colour; the classes differ in all channels, and in the order of the channels."""


class Nearest(torch.nn.Module):
    """Logits are the distances to the classes' colours, in the preprocessing that the module was trained for."""

    def __init__(self, low: float, high: float, normalized: bool = False, least: int = 1) -> None:
        super().__init__()
        mean, std = (torch.tensor(values) for values in IMAGENET)
        colours = torch.from_numpy(BY_COLOUR)
        self.register_buffer("colours", (colours - mean) / std if normalized else low + colours * (high - low))
        self.span, self.least = high - low, least

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        if pixels.shape[-1] < self.least:
            return torch.zeros(len(pixels), CLASSES)
        distance = (pixels.mean((2, 3))[:, None] - self.get_buffer("colours")).square().sum(-1)
        return -distance / self.span**2


def pictures() -> tuple[Array, Array]:
    draw = np.random.default_rng(0)
    truth = np.arange(ROWS) % CLASSES
    noise = draw.normal(0, 0.02, (ROWS, 3, SIZE, SIZE))
    return np.clip(BY_COLOUR[truth][:, :, None, None] + noise, 0, 1).astype(np.float32), truth


def doubt_of(module: torch.nn.Module, truth_of: Array | None = None, role: str = "logits", flip: bool = False) -> str:
    images, truth = pictures()
    images = images[:, ::-1].copy() if flip else images
    spec = ModelSpec(
        name="nearest",
        module=module.eval(),
        inputs=(Input("pixels", ("batch", 3, SIZE, SIZE), kind="image"),),
        outputs=(Output("logits", role=role),),  # type: ignore[arg-type]  # two roles
        axes={"batch": Axis(1, 1, 8)},
    )
    names = tuple(map(str, range(ROWS)))
    metric = parse_metric("top_k:logits")
    evaluation = EvaluationSet({"pixels": images}, names, truth=truth if truth_of is None else truth_of, metric=metric)
    evaluation = replace(evaluation, metric_name=metric.words)
    with torch.no_grad():
        answer = module(torch.from_numpy(images)).numpy()
    return find_doubt(spec, evaluation, {"logits": answer})


def test_a_model_that_is_right_is_not_doubted() -> None:
    assert not doubt_of(Nearest(0, 1))


@pytest.mark.parametrize(
    ("module", "flip", "advice"),
    [
        (Nearest(0, 1, normalized=True), False, "with ImageNet's mean and std it has 100%"),
        (Nearest(0, 255), False, "with pixels from 0 to 255 it has 100%"),
        (Nearest(-1, 1), False, "with ImageNet's mean and std or with pixels from -1 to 1 it has 100%"),
        (Nearest(0, 1), True, "with the channels in the other order (BGR) it has 100%"),
        (Nearest(0, 1, least=SIZE + 1), False, "at 2 times the size it has 100%"),
    ],
)
def test_the_preprocessing_that_would_be_right_is_named(module: torch.nn.Module, flip: bool, advice: str) -> None:
    assert advice in doubt_of(module, flip=flip)


def test_labels_of_other_inputs_are_chance() -> None:
    said = doubt_of(Nearest(0, 1), np.random.default_rng(1).permutation(pictures()[1]))
    assert "60 inputs, where chance has 3" in said
    assert "labels wrong?" in said


def test_labels_from_one_are_named() -> None:
    assert "with labels -1 it has 100%" in doubt_of(Nearest(0, 1), pictures()[1] + 1)


def test_a_sigmoid_is_no_softmax() -> None:
    assert "add up to" in doubt_of(torch.nn.Sequential(Nearest(0, 1), torch.nn.Sigmoid()), role="probabilities")
    assert not doubt_of(torch.nn.Sequential(Nearest(0, 1), torch.nn.Softmax(1)), role="probabilities")
