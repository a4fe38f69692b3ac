"""An evaluation set is what the model takes, or a sentence says what it is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgekit.errors import ModelError
from edgekit.model.evaluation_set import calibration_of, evaluation_of, join_evaluation_sets, metric_values
from edgekit.model.spec import Array, EvaluationSet, ModelSpec
from edgekit.testing import small_model
from edgekit.testing.models import IMAGES

SPEC = small_model()
assert SPEC.evaluation is not None
GOOD = SPEC.evaluation()


def spec(found: Any) -> ModelSpec:
    return replace(SPEC, evaluation=lambda: found)


def with_images(images: Array) -> dict[str, Array]:
    return {**GOOD.inputs, "images": images}


def test_a_good_one_is_itself() -> None:
    assert evaluation_of(spec(GOOD)) is GOOD
    assert evaluation_of(replace(SPEC, evaluation=None)) is None


def test_several_are_one_whose_rows_say_which() -> None:
    few = {name: values[:2] for name, values in GOOD.inputs.items()}
    night = replace(GOOD, inputs=few, names=("a", "b"), truth=None if GOOD.truth is None else GOOD.truth[:2])
    night = replace(night, captions=GOOD.captions[:2])
    both = join_evaluation_sets(day=GOOD, night=night)
    assert evaluation_of(spec(both)) is both
    assert both.names == (*(f"day: {name}" for name in GOOD.names), "night: a", "night: b")
    np.testing.assert_array_equal(both.inputs["images"][-2:], GOOD.inputs["images"][:2])
    with pytest.raises(ModelError, match="the evaluation set 'night' differs from the first in its metric"):
        join_evaluation_sets(day=GOOD, night=replace(night, metric_name="another"))
    with pytest.raises(ModelError, match="the evaluation set 'night' has other inputs than the first: images, queries"):
        join_evaluation_sets(day=GOOD, night=replace(night, inputs={"images": few["images"]}))
    with pytest.raises(ModelError, match="no evaluation set to join"):
        join_evaluation_sets()


NAN = GOOD.inputs["images"].copy()
NAN[2, 0, 0, 0] = np.nan


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"names": GOOD.names[:1]}, "1 named images need float32"),
        ({"names": (*GOOD.names, "one more")}, f"{IMAGES + 1} named images need float32"),
        ({"names": ()}, "0 named images need"),
        ({"inputs": {"images": GOOD.inputs["images"]}}, "lacks the input 'queries'. The model takes: images, queries"),
        ({"inputs": {**GOOD.inputs, "zz": NAN}}, "has an input 'zz'"),
        ({"inputs": with_images(GOOD.inputs["images"].astype("float64"))}, "has float64 .* for 'images'"),
        ({"inputs": with_images(GOOD.inputs["images"][:, :, :50])}, r"has float32 \[6, 3, 50, 96\] for 'images'"),
        ({"inputs": with_images(NAN)}, "has a NaN in 'images'"),
        ({"captions": ("red",)}, "has 1 captions for 6 images"),
        ({"truth": np.zeros((2, 36))}, "has 2 rows of truth for 6 images"),
    ],
)
def test_what_the_model_does_not_take_is_named(changed: Mapping[str, Any], sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        evaluation_of(spec(replace(GOOD, **changed)))


@pytest.mark.parametrize(("found", "kind"), [(None, "NoneType"), ("photos", "str"), (NAN, "ndarray")])
def test_what_is_no_evaluation_is_named(found: object, kind: str) -> None:
    with pytest.raises(ModelError, match=f"the evaluation set of 'small' is a {kind}"):
        evaluation_of(spec(found))


def test_a_function_that_raises_is_named() -> None:
    with pytest.raises(ModelError, match="the evaluation set of 'small' raised ZeroDivisionError: division by zero"):
        evaluation_of(replace(SPEC, evaluation=lambda: 1 / 0))  # type: ignore[arg-type,return-value]  # it raises


def with_metric(metric: Any) -> EvaluationSet:
    return replace(GOOD, truth=np.zeros(IMAGES), metric=metric, metric_name="hits")


def test_a_metric_gives_a_number_an_image() -> None:
    values = metric_values(with_metric(lambda outputs, truth: truth + 0.5), {})
    assert values is not None
    assert values.tolist() == [0.5] * IMAGES
    assert metric_values(replace(GOOD, metric=None), {}) is None


@pytest.mark.parametrize(
    ("metric", "sentence"),
    [
        (lambda outputs, truth: 0.5, r"the metric 'hits' returned float64 \[\]. .* one number per image, \[6\]"),
        (lambda outputs, truth: truth[:2], r"returned float64 \[2\]"),
        (lambda outputs, truth: ["a"] * IMAGES, r"returned <U1 \[6\]"),
        (lambda outputs, truth: outputs["gone"], "the metric 'hits' raised KeyError: 'gone'"),
    ],
)
def test_a_metric_that_does_not_is_named(metric: object, sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        metric_values(with_metric(metric), {})


@pytest.mark.parametrize("given", [GOOD, lambda: GOOD, lambda count: GOOD], ids=["a set", "of nothing", "of a number"])
def test_calibration_is_a_set_or_what_makes_one(given: Any) -> None:
    made = calibration_of(replace(SPEC, calibration=given), 4)
    assert made is not None
    assert made.names == GOOD.names[:4]
    assert all(len(array) == 4 for array in made.inputs.values())
