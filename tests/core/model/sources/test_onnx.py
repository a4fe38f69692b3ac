"""An ONNX file as a model: what it declares, what is refused, and that ONNX targets follow from it."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.errors import CaptureError, EdgekitError, ModelError, UsageError
from edgekit.model.adapter import to_tensors
from edgekit.model.folder import load_model, save_model
from edgekit.model.graph import capture
from edgekit.model.overrides import NOTHING, words_of
from edgekit.model.sources import onnx as onnx_file
from edgekit.model.sources import resolve_model
from edgekit.model.sources.checkpoint import weights_digest
from edgekit.model.sources.onnx import external_file
from edgekit.model.spec import Axis, EvaluationSet
from tests.targets.onnx.passes.graphs import answers, model, rounded
from tests.targets.onnx.passes.test_foreign import theirs


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "My Net.onnx"
    file.write_bytes(theirs().SerializeToString())
    return file


def test_it_declares_what_the_file_says(path: Path) -> None:
    spec = resolve_model(str(path))
    (image,), (answer,) = spec.inputs, spec.outputs
    assert (spec.name, spec.author, spec.licence) == ("my-net", "", "")
    assert (image.name, image.shape, image.dtype, image.kind) == ("input.1", ("batch", 3, 12, 12), "float32", "image")
    assert (answer.name, answer.dtype) == ("tensor_495", "float32")
    assert spec.axes == {"batch": Axis(1, 1, 8)}
    x = rounded(2, 3, 12, 12)
    got = copy.deepcopy(spec.module)(torch.from_numpy(x))[0].numpy()
    np.testing.assert_allclose(got, answers(theirs(), **{"input.1": x})["495"], atol=1e-5)


def test_its_folder_holds_the_file_and_tells_it_from_others(path: Path, tmp_path: Path) -> None:
    spec = resolve_model(str(path))
    save_model(spec, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert (tmp_path / "model" / onnx_file.FILE).read_bytes() == path.read_bytes()
    assert weights_digest(again) == weights_digest(spec)
    graph = theirs()
    graph.doc_string = "another"
    path.write_bytes(graph.SerializeToString())
    assert weights_digest(resolve_model(str(path))) != weights_digest(spec)


def test_targets_that_need_pytorch_say_what_is_possible(path: Path) -> None:
    with pytest.raises(CaptureError, match=r"is an ONNX file without PyTorch code\. Possible targets: onnx"):
        capture(resolve_model(str(path)))


def write_open(path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    path.write_bytes(model([node], {"x": ("n", "tokens")}, {"y": ("n", "tokens")}, {}).SerializeToString())


def write_external(path: Path) -> None:
    onnx.save(theirs(), path, save_as_external_data=True, location="w.bin", size_threshold=0)


def write_external_lost(path: Path) -> None:
    write_external(path)
    (path.parent / "w.bin").unlink()


@pytest.mark.parametrize("location", ["theirs.onnx.data", "w.bin"])
def test_weights_in_a_second_file_are_read(location: str, tmp_path: Path) -> None:
    path = tmp_path / "theirs.onnx"
    path.with_name("another.bin").write_bytes(b"no weights")
    path.write_bytes(theirs().SerializeToString())
    expected = resolve_model(str(path))
    inputs = to_tensors(expected, expected.random(0))
    answered = expected.module(*inputs)
    onnx.save(theirs(), path, save_as_external_data=True, location=location, size_threshold=0)
    spec = resolve_model(str(path))
    for one, other in zip(spec.module(*inputs), answered, strict=True):
        assert torch.equal(one, other)


def test_weights_beside_a_file_are_found_among_many_others(tmp_path: Path) -> None:
    path = tmp_path / "theirs.onnx"
    for number in range(120):
        path.with_name(f"another-{number}.bin").write_bytes(b"no weights")
    onnx.save(theirs(), path, save_as_external_data=True, location="theirs.onnx.data", size_threshold=0)
    assert external_file(path) == "theirs.onnx.data"


def write_sequence(path: Path) -> None:
    node = helper.make_node("SequenceConstruct", ["x"], ["y"])
    graph = model([node], {"x": (1, 2)}, {"y": (1, 2)}, {})
    del graph.graph.output[:]
    graph.graph.output.append(helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, [1, 2]))
    path.write_bytes(graph.SerializeToString())


@pytest.mark.parametrize(
    ("write", "kind", "sentence"),
    [
        (
            lambda path: path.write_bytes(b"not onnx"),
            ModelError,
            "it has a field of the unknown kind",
        ),
        (lambda path: path.write_bytes(b""), ModelError, "is not a regular file of 1 to"),
        (
            write_open,
            UsageError,
            "dimension 1 of the input 'x' is open ('tokens') and has no range. Add --axes x:1=tokens:MIN",
        ),
        (write_external_lost, ModelError, "in another file"),
        (write_sequence, ModelError, "'y' of the ONNX file is a sequence"),
    ],
)
def test_what_cannot_be_taken_is_a_sentence(
    write: object, kind: type[EdgekitError], sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "theirs.onnx"
    assert callable(write)
    write(path)
    with pytest.raises(kind, match=re.escape(sentence)) as caught:
        resolve_model(str(path))
    assert "\n" not in str(caught.value)


def test_an_open_size_takes_the_range_that_is_given(tmp_path: Path) -> None:
    write_open(tmp_path / "theirs.onnx")
    for given in ({"x": {1: ("tokens", Axis(6, 2, 12))}}, {"x": "1=tokens:2..12@6"}, ["x:0=batch,1=tokens:2..12@6"]):
        spec = resolve_model(str(tmp_path / "theirs.onnx"), words_of(given, None, None))
        assert spec.inputs[0].shape == ("batch", "tokens")
        assert spec.axes == {"batch": Axis(1, 1, 8), "tokens": Axis(6, 2, 12)}


def test_integers_have_the_range_that_their_readers_tell(tmp_path: Path) -> None:
    """A table's rows, through a cast and inside a branch; -1 is an open size, as PaddlePaddle writes it."""
    inner = helper.make_graph(
        [helper.make_node("Gather", ["table", "flat"], ["row"])],
        "b",
        [],
        [helper.make_tensor_value_info("row", 1, None)],
    )
    nodes = [
        helper.make_node("Cast", ["ids"], ["flat"], to=TensorProto.INT64),
        helper.make_node("If", ["yes"], ["z"], then_branch=inner, else_branch=inner),
        helper.make_node("Cast", ["rate"], ["r"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["z", "r"], ["y"]),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT32, [-1])
    rate = helper.make_tensor_value_info("rate", TensorProto.INT64, [])
    graph = model(nodes, {"ids": [2], "rate": []}, {"y": (2, 4)}, {"yes": np.array(True), "table": rounded(9, 4)})
    del graph.graph.input[:]
    graph.graph.input.extend([ids, rate])
    path = tmp_path / "theirs.onnx"
    path.write_bytes(graph.SerializeToString())
    spec = resolve_model(str(path))
    ids_input = spec.inputs[0]
    assert (ids_input.shape, ids_input.low, ids_input.high) == (("batch",), 0.0, 8.0)
    with pytest.raises(UsageError, match=r"'rate' holds integers without a known range\. Add --inputs rate"):
        onnx_file.require_ranges(spec)
    said = resolve_model(str(path), words_of(None, ["rate:range=16000..16000"], None))
    onnx_file.require_ranges(said)
    assert {*said.random(3)["rate"].ravel()} == {16000}
    onnx_file.require_ranges(replace(said, words=NOTHING))  # as a factory's, of which nothing is said on top


@pytest.mark.parametrize(("rows", "kind"), [("n", "image"), (1, "image"), (10, "tensor")])
def test_ten_pictures_at_once_are_not_one(rows: str | int, kind: str, tmp_path: Path) -> None:
    """A run of a file that takes ten has no single picture, such as a photograph."""
    shape = (rows, 3, 8, 8)
    graph = model([helper.make_node("Sigmoid", ["x"], ["y"])], {"x": shape}, {"y": shape}, {})
    (tmp_path / "ten.onnx").write_bytes(graph.SerializeToString())
    assert resolve_model(str(tmp_path / "ten.onnx")).inputs[0].kind == kind


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_mean_and_the_like_of_pictures_are_computed_in_the_graph(tmp_path: Path, layout: str) -> None:
    """Also where a branch reads the input from outside of it."""
    shape = ("n", 3, 4, 5) if layout == "NCHW" else ("n", 4, 5, 3)
    inner = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["twice"])], "b", [], [helper.make_tensor_value_info("twice", 1, shape)]
    )
    nodes = [helper.make_node("If", ["yes"], ["z"], then_branch=inner, else_branch=inner)]
    nodes.append(helper.make_node("Add", ["x", "z"], ["y"]))
    graph = model(nodes, {"x": shape}, {"y": shape}, {"yes": np.array(True)})
    (tmp_path / "theirs.onnx").write_bytes(graph.SerializeToString())
    said = f"x:kind=image,mean=0.1,0.2,0.3,std=0.5,0.25,0.125,channels=BGR,layout={layout}"
    spec = resolve_model(str(tmp_path / "theirs.onnx"), words_of(None, [said], None))
    assert (spec.inputs[0].shape, spec.inputs[0].mean) == (("batch", 3, 4, 5), ())
    x = rounded(2, 3, 4, 5)
    mean, std = (np.array(v, np.float32).reshape(1, 3, 1, 1) for v in ((0.1, 0.2, 0.3), (0.5, 0.25, 0.125)))
    expected = 2 * (x[:, ::-1] - mean) / std
    again = copy.deepcopy(spec.module)
    save_model(spec, tmp_path / "model")
    del spec  # the copy needs the file that was written for the first
    for module in (again, load_model(tmp_path / "model").module):
        got = module(torch.from_numpy(x))[0].numpy()
        np.testing.assert_allclose(got.transpose(0, 3, 1, 2) if layout == "NHWC" else got, expected, atol=1e-5)
    with pytest.raises(ModelError, match="the std of 'x' is"):
        resolve_model(str(tmp_path / "theirs.onnx"), words_of(None, ["x:kind=image,std=0"], None))


@pytest.mark.parametrize(
    ("axes", "sentence"),
    [
        ("y:1=tokens:1..5", "axes name the input 'y', which does not exist. This model has: x"),
        ("x:7=tokens:1..5", "axes name dimension 7 of 'x', which has 2"),
    ],
)
def test_axes_that_a_file_has_not_are_refused(axes: str, sentence: str, tmp_path: Path) -> None:
    write_open(tmp_path / "theirs.onnx")
    with pytest.raises(UsageError, match=sentence):
        resolve_model(str(tmp_path / "theirs.onnx"), words_of([axes], None, None))
    (tmp_path / "fixed.onnx").write_bytes(theirs().SerializeToString())
    with pytest.raises(UsageError, match=r"dimension 1 of 'input.1', which the file fixes at 3"):
        resolve_model(str(tmp_path / "fixed.onnx"), words_of(["input.1:1=colours:1..4"], None, None))


@pytest.mark.nightly
def test_onnx_fp16_and_int8_follow_from_a_file(path: Path, tmp_path: Path) -> None:
    graph = onnx.load(path)
    graph.metadata_props.add(key="edgekit.passes", value="no history of ours")
    path.write_bytes(graph.SerializeToString())
    draw = np.random.default_rng(0).random((6, 3, 12, 12)).astype(np.float32)

    def samples(count: int) -> EvaluationSet:
        images = np.resize(draw, (count, 3, 12, 12)) * np.linspace(0.5, 1, count, dtype=np.float32)[:, None, None, None]
        return EvaluationSet({"input.1": images}, tuple(map(str, range(count))))

    build = edgekit.export(
        path,
        evaluation=samples(6),
        calibration=samples,
        targets=["onnx-fp16", "onnx-int8-static", "torchscript"],
        options={"onnx-int8-static": {"search": "none"}},
        output=tmp_path,
        progress="none",
    )
    assert {o.target: o.status for o in build.outcomes} == {
        "onnx": "verified",
        "onnx-fp16": "verified",
        "onnx-int8-static": "verified",
        "torchscript": "failed",
    }, [o.sentences for o in build.outcomes]
    assert "is an ONNX file without PyTorch code" in build["torchscript"].error


@pytest.mark.nightly(but=("float16",))
@pytest.mark.parametrize(("kind", "dtype"), [(TensorProto.FLOAT16, "float16"), (TensorProto.DOUBLE, "float64")])
def test_a_file_of_other_floats_takes_and_gives_float32(kind: int, dtype: str, tmp_path: Path) -> None:
    weight, one = rounded(4, 3).astype(dtype), np.ones((), dtype)
    body = [helper.make_node("Constant", [], ["two"], value=numpy_helper.from_array(2 * one))]
    body.append(helper.make_node("Mul", ["p", "two"], ["q"]))
    branch = helper.make_graph(body, "then", [], [helper.make_tensor_value_info("q", kind, None)])
    other = helper.make_graph(
        [helper.make_node("Neg", ["p"], ["r"])], "else", [], [helper.make_tensor_value_info("r", kind, None)]
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("If", ["yes"], ["wide"], then_branch=branch, else_branch=other),
        helper.make_node("Cast", ["wide"], ["single"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["single"], ["y"], to=kind),
    ]
    graph = model(nodes, {"x": ("n", 4)}, {"y": ("n", 3)}, {"w": weight, "yes": np.array(True)}, {"x": kind, "y": kind})
    (path := tmp_path / "wide.onnx").write_bytes(graph.SerializeToString())
    spec = resolve_model(str(path))
    assert (spec.inputs[0].dtype, spec.outputs[0].dtype) == ("float32", "float32")
    x = rounded(2, 4)
    got = spec.module(torch.from_numpy(x))[0].numpy()
    np.testing.assert_allclose(got, 2 * x @ weight.astype(np.float32), rtol=1e-6)
    build = edgekit.export(path, targets=["onnx"], output=tmp_path / "build", progress="none")
    assert build["onnx"].verdict == "verified"


@pytest.mark.nightly
def test_a_file_in_any_order_and_without_shapes_of_its_outputs_is_taken(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Reshape", ["z", "shape"], ["y"]),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),  # without axes: one number of all
        helper.make_node("Relu", ["x"], ["z"]),
    ]
    graph = model(nodes, {"x": (2, 4)}, {"y": (4, 2), "sum": ()}, {"shape": np.array([-1, 2])})
    graph.graph.output[0].type.tensor_type.ClearField("shape")
    (path := tmp_path / "loose.onnx").write_bytes(graph.SerializeToString())
    spec = resolve_model(str(path))
    assert [tuple(answer.shape) for answer in spec.module(torch.ones(2, 4))] == [(4, 2), ()]
    assert (
        edgekit.export(path, targets=["onnx"], output=tmp_path / "build", progress="none")["onnx"].verdict == "verified"
    )


def test_a_file_that_draws_random_numbers_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["r"]), helper.make_node("Add", ["x", "r"], ["y"])]
    (path := tmp_path / "noisy.onnx").write_bytes(
        model(nodes, {"x": ("n", 4)}, {"y": ("n", 4)}, {}).SerializeToString()
    )
    with pytest.raises(ModelError, match=r"different output 'y' each time: it draws .* \(RandomNormalLike\)"):
        edgekit.export(path, targets=["onnx"], output=tmp_path / "build", progress="none")


def test_what_onnx_runtime_says_comes_without_its_source(tmp_path: Path) -> None:
    graph = model([helper.make_node("Relu", ["x"], ["y"])], {"x": ("n", 4)}, {"y": ("n", 4)}, {})
    graph.ir_version = 99
    (path := tmp_path / "late.onnx").write_bytes(graph.SerializeToString())
    with pytest.raises(ModelError, match=r"late\.onnx': Unsupported model IR version: 99"):
        resolve_model(str(path)).module(torch.ones(1, 4))
