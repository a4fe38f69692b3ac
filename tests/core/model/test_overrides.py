"""What is said of a model in words: one notation for the command line and for Python, and it travels with a factory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgekit.errors import UsageError
from edgekit.model.evaluation_set import calibration_of, write_sets
from edgekit.model.folder import load_model, save_model
from edgekit.model.overrides import Given, Span, SpecOverrides, from_record, words_of
from edgekit.model.sources import resolve_model
from edgekit.model.sources.module import spec_of_module
from edgekit.model.spec import Axis, EvaluationSet
from edgekit.pipeline.given_model import with_data
from edgekit.pipeline.request import EvaluationData
from edgekit.testing import SMALL

PLAIN = "tests.models:plain"
SAID = ("x:shape=1,3,8,8,kind=image,mean=0.25,0.5,0.75,std=0.5",)


@pytest.mark.parametrize(
    ("texts", "record"),
    [
        (["ids:0=batch,1=length:8..512/8@128"], {"ids": {0: "batch", 1: "length:8..512/8@128"}}),
        (["ids:0=batch", "ids:1=length:8..512/8@128"], {"ids": "0=batch,1=length:8..512/8@128"}),
        (["ids:0=batch,1=length:8..512/8@128"], {"ids": {0: ("batch", None), 1: ("length", Span(8, 512, 8, 128))}}),
    ],
)
def test_axes_are_one_notation(texts: list[str], record: dict[str, Any]) -> None:
    words = words_of(texts, None, None)
    assert words == words_of(record, None, None)
    assert words.axes == {"ids": {0: ("batch", None), 1: ("length", Span(8, 512, 8, 128))}}
    assert from_record(words.as_record()) == words


@pytest.mark.parametrize(
    ("said", "axes"),
    [
        (["x:0=N:1..6", "h:1=N"], ({0: ("batch", Span(1, 6)), 1: ("batch", None)})),
        (["x:0=bs,1=N:1..6"], ({0: ("bs", None), 1: ("N", Span(1, 6))})),  # one of them is something else
        (["x:0=batch,1=N:1..6"], ({0: ("batch", None), 1: ("N", Span(1, 6))})),
    ],
)
def test_the_batch_may_have_another_of_its_usual_names(said: list[str], axes: dict[int, Any]) -> None:
    words = words_of(said, None, None)
    assert words.axes is not None
    assert {place: axis for dimensions in words.axes.values() for place, axis in dimensions.items()} == axes


def test_facts_are_one_notation() -> None:
    texts = words_of(None, ["rate:range=-8e3..16000", "x:kind=image,mean=0.1,0.2,0.3,fit=crop"], "y:classes=cat,dog")
    facts = {"rate": {"range": (-8000, 16000)}, "x": {"kind": "image", "mean": [0.1, 0.2, 0.3], "fit": "crop"}}
    assert texts == words_of(None, facts, {"y": {"classes": ("cat", "dog")}})
    assert texts.inputs["rate"] == {"low": -8000.0, "high": 16000.0}
    assert from_record(texts.as_record()) == texts


@pytest.mark.parametrize(
    ("span", "size", "axis"),
    [
        (Span(8, 512, 8, 128), 0, Axis(128, 8, 512, 8)),
        (Span(1, 512), 24, Axis(24, 1, 512)),
        (Span(1, 512), 0, Axis(256, 1, 512)),
        (Span(32, 100, 32), 0, Axis(64, 32, 100, 32)),
    ],
)
def test_a_default_is_the_examples_size_else_the_middle(span: Span, size: int, axis: Axis) -> None:
    assert span.axis("length", size) == axis
    assert Span(1, 8).axis("batch", 5) == Axis(1, 1, 8)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"axes": ["ids"]}, "axes 'ids' are not of the form NAME:FACT=VALUE"),
        ({"axes": ["ids:x=batch"]}, "axes of 'ids' are 'x=batch'"),
        ({"axes": ["ids:1=length:1-5"]}, "the range '1-5' of axis 'length' is not of the form MIN..MAX"),
        ({"inputs": ["x:rnage=0..1"]}, "cannot have 'rnage'"),
        ({"inputs": ["x:kind=tokens"]}, "kind 'tokens' of 'x' is not possible. Possible: image, query, tensor"),
        ({"inputs": ["x:range=3..1"]}, "lowest must not be above the highest"),
        ({"inputs": ["x:dtype=text"]}, "Possible: NumPy's names"),
        ({"outputs": {"y": {"role": "class"}}}, "role 'class' of 'y' is not possible. Possible: scores"),
        ({"outputs": 3}, "outputs are 3"),
    ],
)
def test_a_mistake_is_one_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        words_of(given.get("axes"), given.get("inputs"), given.get("outputs"))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_factory_of_a_plain_module_is_the_same_again_in_a_worker(tmp_path: Path) -> None:
    words = words_of({"x": "0=batch,2=height:8..16/8,3=width:8..16/8"}, SAID, "output:role=embedding")
    spec = resolve_model(PLAIN, words)
    (image,) = spec.inputs
    assert (image.shape, image.kind, image.low, image.high) == (("batch", 3, "height", "width"), "image", 0.0, 1.0)
    assert (spec.axes["height"], spec.outputs[0].role) == (Axis(8, 8, 16, 8), "embedding")
    save_model(spec, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert (again.inputs, again.outputs, again.axes, again.factory) == (spec.inputs, spec.outputs, spec.axes, PLAIN)
    x = torch.rand(2, 3, 8, 16)
    inside = (x - torch.tensor([0.25, 0.5, 0.75]).reshape(1, 3, 1, 1)) / 0.5
    for one in (spec, again):
        torch.testing.assert_close(one.module(x)[0] if isinstance(one.module(x), tuple) else one.module(x), inside)


@pytest.mark.parametrize("given", ["pixels:channels=bgr,layout=nchw,fit=CROP", {"pixels": {"channels": "bgr"}}])
def test_a_choice_may_be_written_in_any_case(given: Given) -> None:
    overrides = words_of(None, given, "output:role=Logits")
    (facts,) = overrides.inputs.values()
    assert facts["channels"] == "BGR"
    assert facts.get("layout", "NCHW") == "NCHW"
    assert facts.get("fit", "crop") == "crop"
    assert overrides.outputs["output"]["role"] == "logits"


def test_a_declared_model_takes_words_on_top() -> None:
    spec = resolve_model(SMALL, words_of(["images:2=height:96..128/16"], ["queries:range=-2..2"], None))
    assert spec.axes["height"] == Axis(96, 96, 128, 16)
    assert spec.axes["width"] == resolve_model(SMALL).axes["width"]
    assert (spec.inputs[1].low, spec.inputs[1].kind) == (-2.0, "query")
    with pytest.raises(UsageError, match=r"mean 'images'"):
        resolve_model(SMALL, words_of(["image:0=batch"], None, None))
    with pytest.raises(UsageError, match="'images' already has a shape"):
        resolve_model(SMALL, words_of(None, ["images:shape=1,3,8,8"], None))


def test_what_a_module_with_an_example_says_less_of_is_said() -> None:
    net = torch.nn.Linear(4, 2).eval()
    spec = spec_of_module(net, torch.randn(2, 4), words_of(None, "input:range=-9..9", "output:role=logits"))
    assert (spec.inputs[0].low, spec.inputs[0].high, spec.outputs[0].role) == (-9.0, 9.0, "logits")


def test_sets_that_are_given_beside_a_factory_reach_its_workers(tmp_path: Path) -> None:
    """A worker that called the factory would calibrate with the factory's own set, whatever the user gave."""
    images, queries = np.full((2, 3, 96, 96), 0.125, np.float32), np.zeros((2, 16), np.float32)
    mine = EvaluationSet({"images": images, "queries": queries}, ("a", "b"))
    spec = with_data(resolve_model(SMALL), EvaluationData(evaluation=mine, calibration=lambda count: mine))
    save_model(spec, tmp_path / "model")
    again = load_model(tmp_path / "model")
    samples = calibration_of(again, 5)
    assert samples is not None
    assert again.evaluation is not None
    np.testing.assert_array_equal(samples.inputs["images"], images)
    np.testing.assert_array_equal(again.evaluation().inputs["images"], images)
    assert not write_sets(resolve_model(SMALL), tmp_path, frozenset())  # its own ones it makes again


def test_nothing_said_is_false() -> None:
    assert not SpecOverrides()
    assert not words_of(None, None, None)
    assert words_of({}, None, None)  # no axis varies
