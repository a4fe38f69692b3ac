"""ONNX files as tools write them: open axes with a baked size, INT8 in the file, names that differ by a sign."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

import edgekit
from edgekit.errors import ModelError
from edgekit.model.adapter import rounds, to_tensors
from edgekit.model.overrides import words_of
from edgekit.model.sources import resolve_model
from edgekit.model.sources.onnx import refuse_closed_axes
from edgekit_targets.onnx.passes import patterns
from tests.targets.onnx.passes.graphs import Shape, answers, linear_in_qdq, model, rounded


def write_reshape(path: Path) -> None:
    """An open batch and a target shape of one row, as `view(1, -1)` gives in a trace."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["y"])]
    weights = {"shape": np.array([1, 12]), "w": rounded(12, 5)}
    graph = model(nodes, {"x": ("batch", 3, 4)}, {"y": ("batch", 5)}, weights)
    path.write_bytes(graph.SerializeToString())


def write_state(path: Path) -> None:
    """An open batch and a state of two rows."""
    gru = helper.make_node("GRU", ["x", "w", "r", "", "", "h"], ["y", "last"], hidden_size=8)
    inputs: dict[str, Shape] = {"x": (5, "batch", 4), "h": (1, 2, 8)}
    weights = {"w": rounded(1, 24, 4), "r": rounded(1, 24, 8)}
    graph = model([gru], inputs, {"y": (5, 1, "batch", 8), "last": (1, 2, 8)}, weights)
    path.write_bytes(graph.SerializeToString())


@pytest.mark.parametrize(
    ("write", "axes", "size"), [(write_reshape, {}, 1), (write_state, {"x": {1: "batch:1..4"}}, 2)]
)
def test_an_axis_that_is_open_in_name_only_is_named_with_its_size(
    write: object, axes: dict[str, dict[int, str]], size: int, tmp_path: Path
) -> None:
    assert callable(write)
    write(path := tmp_path / "net.onnx")
    with pytest.raises(ModelError, match=rf"axis 'batch' .*--axes x:\d=batch:{size}\.\.{size}"):
        edgekit.export(path, axes=axes or None, targets=["onnx"], output=tmp_path / "build", progress="none")
    place = 0 if write is write_reshape else 1
    spec = resolve_model(str(path), words_of({"x": {place: f"batch:{size}..{size}"}}, None, None))
    refuse_closed_axes(spec)
    assert spec.shape("x")[place] == size
    spec.module(*to_tensors(spec, spec.random(0)))


def test_the_sizes_that_onnx_runtime_wants_are_shown(tmp_path: Path) -> None:
    graph = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (10, 4)}, {"y": (10, 4)}, {})
    (path := tmp_path / "ten.onnx").write_bytes(graph.SerializeToString())
    module = resolve_model(str(path)).module
    with pytest.raises(ModelError, match=r"Got: 1 Expected: 10"):
        module(torch.ones(1, 4))


def test_a_file_in_int8_is_judged_as_int8_and_not_quantized_again(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).integers(-9, 9, (4, 4)).astype(np.int8)
    (path := tmp_path / "rounded.onnx").write_bytes(linear_in_qdq(weights).SerializeToString())
    assert rounds(resolve_model(str(path)).module)
    targets = ["onnx", "onnx-int8-static"]
    inputs = {"x": {"range": "0..255"}}
    build = edgekit.export(path, inputs=inputs, targets=targets, output=tmp_path / "build", progress="none")
    manifest = build["onnx"].manifest
    assert manifest is not None
    assert (build["onnx"].verdict, manifest.precision) == ("verified", "int8")
    assert build["onnx-int8-static"].verdict == "failed"
    assert "already quantized" in build["onnx-int8-static"].error


def test_a_file_in_floats_is_not_in_int8(tmp_path: Path) -> None:
    write_reshape(path := tmp_path / "net.onnx")
    assert not rounds(resolve_model(str(path)).module)


def test_names_that_differ_by_a_sign_stay_apart(tmp_path: Path) -> None:
    nodes = [helper.make_node("Sub", ["x:0", "x/0"], ["y:0"]), helper.make_node("Neg", ["y:0"], ["y/0"])]
    graph = model(nodes, dict.fromkeys(("x:0", "x/0"), ("n", 4)), dict.fromkeys(("y:0", "y/0"), ("n", 4)), {})
    (path := tmp_path / "names.onnx").write_bytes(graph.SerializeToString())
    spec = resolve_model(str(path))
    inputs, outputs = [i.name for i in spec.inputs], [o.name for o in spec.outputs]
    assert (inputs, outputs) == (["x_0", "x_0_2"], ["y_0", "y_0_2"])
    x, other = rounded(2, 4), rounded(2, 4, seed=1)
    renamed = patterns.normalize_foreign(onnx.load(path), inputs, outputs)
    np.testing.assert_array_equal(answers(renamed, x_0=x, x_0_2=other)["y_0_2"], other - x)
