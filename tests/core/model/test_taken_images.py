"""Images that artifacts take as bytes, with channels last, or both: computed inside, and the same answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from edgekit.errors import ModelError, UsageError
from edgekit.model.contract import check_spec
from edgekit.model.evaluation_set import calibration_of, evaluation_of
from edgekit.model.image_input import from_planes, to_planes
from edgekit.model.overrides import words_of
from edgekit.model.records import declaration, declared_inputs
from edgekit.model.sources.onnx import spec_of_onnx
from edgekit.model.spec import Array, Axis, EvaluationSet, Input, ModelSpec, Output
from edgekit.reference.batches import BatchSource, batches_for
from edgekit.reference.plausibility import _metric_with
from edgekit.runtime.eager import EagerRuntime

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FORMS = (("uint8",), ("nhwc",), ("uint8", "nhwc"))
BYTES = np.random.default_rng(0).integers(0, 256, (2, 8, 12, 3), np.uint8)


class Net(nn.Module):
    """A convolution that tells channels, rows and columns apart; `last` if its module takes [batch, H, W, 3]."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.linear, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 4), last

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.conv(images.permute(0, 3, 1, 2) if self.last else images)
        answer: torch.Tensor = self.linear(x.abs().mean((2, 3)))
        return answer


def image_net(channels_last: bool) -> nn.Module:
    return Net(channels_last).eval()


def spec(**facts: object) -> ModelSpec:
    shape = ("batch", "height", 12, 3) if facts.get("layout") == "NHWC" else ("batch", 3, "height", 12)
    image = replace(Input("images", shape, kind="image"), **facts)  # type: ignore[arg-type]
    axes = {"batch": Axis(1, 1, 3), "height": Axis(8, 4, 12, 4)}
    module = image_net(channels_last=facts.get("layout") == "NHWC")
    return ModelSpec("net", module, (image,), (Output("y"),), axes)


def in_form(form: tuple[str, ...], low: float, high: float) -> Array:
    """The same pictures as an artifact takes them."""
    values = BYTES if "uint8" in form else (low + (high - low) * (BYTES / np.float32(255))).astype(np.float32)
    return values if "nhwc" in form else np.ascontiguousarray(values.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (0.0, 255.0)])
@pytest.mark.parametrize(("mean", "std"), [((), ()), (MEAN, STD), ((0.5,) * 3, (0.25,) * 3)])
def test_every_form_gives_the_answers_of_the_plain_one(
    layout: str, low: float, high: float, mean: tuple[float, ...], std: tuple[float, ...], double: bool
) -> None:
    for channels in ("RGB", "BGR"):
        facts = {"layout": layout, "low": low, "high": high, "mean": mean, "std": std, "channels": channels}
        expected = EagerRuntime(check_spec(spec(**facts)), double=double).run({"images": in_form((), low, high)})["y"]
        for form in FORMS:
            taken = check_spec(spec(**facts, takes=form))
            got = EagerRuntime(taken, double=double).run({"images": in_form(form, low, high)})["y"]
            np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())


def test_the_declaration_says_what_an_artifact_takes() -> None:
    taken = check_spec(spec(mean=MEAN, std=STD, low=-1.0, takes=("uint8", "nhwc")))
    (image,) = taken.inputs
    assert (image.shape, image.dtype, image.low, image.high) == (("batch", "height", 12, 3), "uint8", 0.0, 255.0)
    assert image.preprocessing == "images: RGB, bytes, channels last"
    assert check_spec(taken).module is taken.module
    assert declared_inputs(declaration(taken)["inputs"]) == taken.inputs
    assert not {"takes", "float_range"} & set(declaration(check_spec(spec()))["inputs"][0])


def test_words_ask_for_a_form() -> None:
    declared = Input("images", (1, 3, 8, 8), low=-4.0, high=4.0)
    for entries in ("images:uint8,nhwc,mean=0.5", {"images": {"takes": ("uint8", "nhwc"), "mean": 0.5}}):
        (image,) = words_of(None, entries, None).of_inputs([declared])
        assert (image.takes, image.kind, image.low, image.high) == (("uint8", "nhwc"), "image", 0.0, 1.0)
        assert image.mean == (0.5, 0.5, 0.5)
    pixels = replace(declared, kind="image", high=255.0)
    (image,) = words_of(None, "images:nhwc", None).of_inputs([pixels])
    assert (image.takes, image.low, image.high) == (("nhwc",), -4.0, 255.0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"takes": ("nchw",)}, "'images' cannot take 'nchw'. Possible: uint8, nhwc"),
        ({"takes": ("uint8",), "dtype": "float64"}, "Only a float32 image can take uint8"),
        ({"takes": ("nhwc",), "shape": ("batch", 3, "height", 3)}, "3 pixels high or wide"),
        ({"takes": ("nhwc",), "shape": ("batch", 1, "height", 12)}, "3 channels at dimension 1"),
        ({"takes": ("uint8",), "kind": "tensor"}, "is not an image"),
    ],
)
def test_a_form_that_means_nothing_is_refused(change: dict[str, object], sentence: str) -> None:
    whole = spec()
    wrong = replace(whole, inputs=(replace(whole.inputs[0], **change),))  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ModelError, match=re.escape(sentence)):
        check_spec(wrong)


def with_set(images: Array, **facts: object) -> ModelSpec:
    every = EvaluationSet(
        {"images": images}, tuple(f"row {n}" for n in range(len(images))), others=({"images": images[:1]},)
    )
    return replace(check_spec(spec(**facts)), evaluation=lambda: every, calibration=every)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0)])
def test_a_set_may_have_floats_with_channels_first_or_the_form_itself(
    form: tuple[str, ...], low: float, high: float
) -> None:
    expected = in_form(form, low, high)
    for own in ((), form, ("nhwc",), *((("uint8",), ("uint8", "nhwc")) if "uint8" in form else ())):
        declared = with_set(in_form(own, low, high), takes=form, low=low, high=high)
        for every in (evaluation_of(declared), calibration_of(declared, 10)):
            assert every is not None
            assert every.inputs["images"].dtype == expected.dtype
            np.testing.assert_array_equal(every.inputs["images"], expected)
            np.testing.assert_array_equal(every.others[0]["images"], expected[:1])


@pytest.mark.parametrize(
    ("images", "high", "sentence"),
    [
        (in_form((), 0, 255), 1.0, "float32 from 0 to 255, but the module takes 0 to 1"),
        (in_form((), 0, 1), 255.0, "float32 from 0 to 1, but the module takes 0 to 255"),
        (in_form((), -1, 1), 1.0, "float32 from -1 to 1, but the module takes 0 to 1"),
        (BYTES.astype(np.int8), 1.0, "has int8 [2, 8, 12, 3] for 'images'. 2 named images need uint8"),
        (BYTES.astype(np.int64), 1.0, "has int64"),
        (BYTES[..., :2], 1.0, "need uint8 [2, 8, 12, 3]"),
        (BYTES.swapaxes(1, 2), 1.0, "need uint8 [2, 8, 12, 3]"),
    ],
)
def test_a_set_of_another_range_type_or_shape_is_refused(images: Array, high: float, sentence: str) -> None:
    with pytest.raises(ModelError, match=re.escape(sentence)):
        evaluation_of(with_set(np.ascontiguousarray(images), takes=("uint8", "nhwc"), high=high))


def test_batches_are_those_of_the_plain_model_in_bytes() -> None:
    images = in_form((), -1.0, 1.0)
    plain, taken = (with_set(images, low=-1.0, takes=form) for form in ((), ("uint8", "nhwc")))
    expected = batches_for(plain, evaluation_of(plain))
    got = batches_for(taken, evaluation_of(taken))
    assert [(b.name, b.names) for b in got] == [(b.name, b.names) for b in expected]
    for batch, other in zip(got, expected, strict=True):
        values = batch.inputs["images"]
        assert values.dtype == np.uint8
        assert values.shape[3] == 3
        if not batch.name.startswith(("stress", "grid")):  # random values, not of the plain model's draw
            levels = (other.inputs["images"].transpose(0, 2, 3, 1) + 1) * 127.5
            assert np.abs(np.clip(levels, 0, 255) - values).max() <= 0.51, batch.name
    draws = [
        BatchSource(s, evaluation_of(s)).fresh("fresh", {"batch": 2}, np.random.default_rng(1)) for s in (plain, taken)
    ]
    levels = (draws[0].inputs["images"].transpose(0, 2, 3, 1) + 1) * 127.5
    assert np.abs(levels - draws[1].inputs["images"]).max() <= 0.51


def test_planes_and_bytes_are_exact() -> None:
    taken = check_spec(spec(low=-1.0, high=1.0, takes=("uint8", "nhwc")))
    arrays = {"images": np.arange(256, dtype=np.uint8).repeat(36).reshape(-1, 8, 12, 3)[:2]}
    planes = to_planes(taken, arrays)
    assert planes["images"].shape == (2, 3, 8, 12)
    np.testing.assert_array_equal(from_planes(taken, planes)["images"], arrays["images"])


def test_another_preprocessing_is_tried_beyond_bytes() -> None:
    """A doubt about mean or range is tried as floats: bytes would clip it."""
    taken = with_set(in_form((), 0, 1), takes=("uint8", "nhwc"))
    every = evaluation_of(taken)
    assert every is not None
    plain_image = check_spec(spec()).inputs[0]
    values = {}

    def keep(outputs: Mapping[str, Array], truth: Array) -> Array:
        values["y"] = outputs["y"]
        return np.zeros(len(truth))

    part = replace(every, truth=np.zeros(2), metric=keep)
    assert _metric_with(taken, part, plain_image, lambda x: 2 * x - 1) is not None
    plain = check_spec(spec())
    with torch.no_grad():
        expected = plain.module(torch.from_numpy(2 * in_form((), 0, 1) - 1)).numpy()
    np.testing.assert_allclose(values["y"], expected, rtol=1e-4, atol=1e-5)


def write_file(path: Path, shape: list[int | str]) -> None:
    """images -> Transpose if its channels are last -> Conv -> GlobalAveragePool -> y; or only Abs."""
    nodes, name = [], "images"
    if shape[-1] == 3:
        nodes, name = [helper.make_node("Transpose", [name], ["planes"], perm=(0, 3, 1, 2))], "planes"
    if len(shape) == 4:
        nodes += [helper.make_node("Conv", [name, "w"], ["c"]), helper.make_node("GlobalAveragePool", ["c"], ["y"])]
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        nodes or [helper.make_node("Abs", [name], ["y"])],
        "net",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")] if len(shape) == 4 else [],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_file_takes_a_form_too(form: tuple[str, ...], layout: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    shape: list[int | str] = ["batch", "height", 12, 3] if layout == "NHWC" else ["batch", 3, "height", 12]
    height = shape.index("height")
    write_file(path, shape)
    axes = f"images:0=batch,{height}=height:4..12/4@8"
    for normal in ("", ",mean=0.485,0.456,0.406,std=0.229,0.224,0.225,channels=BGR", ",mean=0.5,std=0.5"):
        facts = f"images:kind=image,layout={layout}{normal}"
        plain = spec_of_onnx(path, words_of(axes, facts, None))
        taken = spec_of_onnx(path, words_of(axes, f"{facts},{','.join(form)}", None))
        expected = EagerRuntime(plain).run({"images": in_form((), 0, 1)})["y"]
        got = EagerRuntime(taken).run({"images": in_form(form, 0, 1)})["y"]
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-5)


def test_a_file_without_pictures_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    write_file(path, ["batch", 12])
    with pytest.raises(ModelError, match="An image has batch, channels, height and width"):
        spec_of_onnx(path, words_of(None, "images:uint8", None))
    with pytest.raises(UsageError, match="cannot have 'uint16'"):
        words_of(None, "x:uint16=1", None)
