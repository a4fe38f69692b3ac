"""Artifacts that take bytes with channels last: the same answers as plain ones, and wrong preprocessing is rejected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import GraphProto, TensorProto, helper, numpy_helper
from torch import nn

import edgekit
from edgekit.artifact.store import read_artifact
from edgekit.errors import UsageError
from edgekit.model.contract import check_spec
from edgekit.model.spec import Axis, EvaluationSet, Input, ModelSpec, Output
from edgekit.pipeline.loaded import check_inputs
from edgekit.reference import golden
from edgekit.reference.info import read_info
from edgekit.reference.record import record_reference
from edgekit.runtime.eager import EagerRuntime
from edgekit_apps.bundle import _refusal
from tests.targets import tampering

pytestmark = pytest.mark.usefixtures("no_report")

MEAN, STD, SIZE = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 24


def spec(*takes: str) -> ModelSpec:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    shape = ("batch", 3, SIZE, SIZE)
    image = Input("images", shape, kind="image", mean=MEAN, std=STD, takes=takes)  # type: ignore[arg-type]  # any word
    module = nn.Sequential(*layers, nn.Linear(8, 4)).eval()
    return ModelSpec("taken", module, (image,), (Output("y", role="logits"),), {"batch": Axis(1, 1, 3)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("taken")
    build = edgekit.export(spec("uint8", "nhwc"), targets=["onnx"], output=root, progress="none")
    assert build["onnx"].status == "verified", build["onnx"].sentences
    return build["onnx"].path


def test_it_answers_as_the_plain_model_does(folder: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, SIZE, SIZE, 3), np.uint8)
    floats = (pixels.transpose(0, 3, 1, 2) / np.float32(255)).astype(np.float32)
    plain = check_spec(spec())
    with edgekit.load(folder) as loaded:
        answers = loaded.run({"images": pixels})["y"]
        np.testing.assert_allclose(answers, EagerRuntime(plain).run({"images": floats})["y"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(loaded.run({"images": pixels[0]})["y"], answers[:1], atol=1e-6)
        with pytest.raises(
            UsageError, match=r"float32 \[2, 3, 24, 24\].*takes a NumPy array of uint8 \[batch, 24, 24, 3\]"
        ):
            loaded.run({"images": floats})
        with pytest.raises(UsageError, match="int8"):
            loaded.run({"images": pixels.astype(np.int8)})
    large = np.random.default_rng(1).integers(0, 256, (50, 40, 3), np.uint8)
    assert check_inputs(read_artifact(folder), {"images": large})["images"].shape == (1, SIZE, SIZE, 3)


def test_golden_vectors_show_what_a_caller_of_bytes_can_get_wrong(folder: Path) -> None:
    taken = check_spec(spec("uint8", "nhwc"))
    answer = EagerRuntime(taken).run
    vectors = golden.choose_golden(taken, folder.parent / "reference", answer)
    (case, *_) = vectors.cases
    assert case.image is not None
    assert case.feed(taken)["images"].tolist() == [case.image.tolist()]
    limits = vectors.limits("fp32", {})
    assert vectors.failures(answer, limits) == ()
    assert vectors.undetected_faults(answer, limits) == ()


def channels_swapped(graph: GraphProto) -> None:
    graph.initializer.append(numpy_helper.from_array(np.array([2, 1, 0]), "swapped"))
    insert(graph, "Gather", ["swapped"], axis=3)


def signed(graph: GraphProto) -> None:
    insert(graph, "Cast", [], to=TensorProto.INT8)


def turned(graph: GraphProto) -> None:
    (perm,) = (a for node in graph.node if node.op_type == "Transpose" for a in node.attribute)
    perm.ints[:] = (0, 3, 2, 1)


def not_scaled(graph: GraphProto) -> None:
    for tensor in graph.initializer:
        if tensor.name.startswith(("mean", "std")):
            values = numpy_helper.to_array(tensor) / np.float32(255)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def scaled_by_256(graph: GraphProto) -> None:
    for tensor in graph.initializer:
        if tensor.name.startswith("std"):
            values = numpy_helper.to_array(tensor) * np.float32(256 / 255)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def without_mean(graph: GraphProto) -> None:
    for tensor in graph.initializer:
        if tensor.name.startswith("mean"):
            tensor.CopyFrom(numpy_helper.from_array(0 * numpy_helper.to_array(tensor), tensor.name))


def insert(graph: GraphProto, operator: str, constants: list[str], **attributes: Any) -> None:
    """Put an operator behind the input."""
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = "between" if name == "images" else name
    graph.node.insert(0, helper.make_node(operator, ["images", *constants], ["between"], **attributes))


@pytest.mark.parametrize("change", [channels_swapped, signed, turned, not_scaled, scaled_by_256, without_mean])
def test_wrong_preprocessing_is_rejected(folder: Path, change: Callable[[GraphProto], None], tmp_path: Path) -> None:
    def spoil(artifact: Path) -> None:
        path = artifact / "model.onnx"
        model = onnx.load(path)
        before = model.SerializeToString()
        change(model.graph)
        assert model.SerializeToString() != before
        onnx.save(model, path)

    outcome = tampering.judged(folder.parent, "onnx", spoil, tmp_path / "wrong", trust_build=True)
    assert outcome.status == "rejected", outcome.sentences


def test_int8_quantizes_the_first_layer(tmp_path: Path) -> None:
    options = {"onnx-int8-static": {"search": "none"}}
    build = edgekit.export(
        spec("uint8", "nhwc"), targets=["onnx-int8-static"], options=options, output=tmp_path, progress="none"
    )
    graph = onnx.load(build["onnx-int8-static"].path / "model.onnx").graph
    (first, *_) = (node for node in graph.node if node.op_type == "Conv")
    makers = {name: node.op_type for node in graph.node for name in node.output}
    assert makers[first.input[0]] == makers[first.input[1]] == "DequantizeLinear"
    assert graph.input[0].type.tensor_type.elem_type == TensorProto.UINT8


def test_no_app_gets_it(folder: Path) -> None:
    assert "takes 'images' as uint8 [batch, 24, 24, 3]" in _refusal(read_artifact(folder))


def test_a_report_shows_its_pictures(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, SIZE, SIZE, 3), np.uint8)
    every = EvaluationSet({"images": pixels}, tuple(f"picture {row}" for row in range(6)))
    record_reference(check_spec(replace(spec("uint8", "nhwc"), evaluation=lambda: every)), tmp_path / "r", "cpu")
    info = read_info(tmp_path / "r")
    assert info.image_input() == "evaluation/images"
    picture = info.picture("evaluation/images", 2)
    assert picture is not None
    assert np.array_equal(picture, pixels[2])


@pytest.mark.parametrize("target", ["coreml", "web"])
def test_what_gives_floats_alone_refuses_bytes(target: str, tmp_path: Path) -> None:
    build = edgekit.export(spec("uint8"), targets=[target], output=tmp_path, progress="none")
    if build[target].status != "missing":
        assert "'images' takes uint8, and" in build[target].error
