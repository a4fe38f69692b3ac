from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from edgekit import doors
from edgekit.errors import ModelError
from edgekit.model.sources import resolve_model


def test_the_command_is_found_by_its_path() -> None:
    assert callable(doors.resolve(doors.commands.find("operators").function))


def test_the_source_makes_the_linear_model(tmp_path: Path) -> None:
    weight, bias = np.arange(6.0).reshape(2, 3), np.array([0.5, -0.5])
    np.savez(tmp_path / "net.npz", weight=weight, bias=bias)
    spec = resolve_model(f"numpy:{tmp_path / 'net.npz'}")
    output = spec.module(torch.ones(1, 3))
    assert output.tolist() == [[3.5, 11.5]]


def test_the_source_names_a_file_that_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "net.npz").write_bytes(b"no archive")
    with pytest.raises(ModelError, match=r"net\.npz"):
        resolve_model(f"numpy:{tmp_path / 'net.npz'}")


def test_the_place_runs_a_file(tmp_path: Path) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "negative", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph), tmp_path / "model.onnx")
    record = doors.places.find("onnx-reference")
    runtime = doors.resolve(record.opener)(tmp_path / "model.onnx", record.settings)
    assert runtime.run({"x": np.array([1, -2], np.float32)})["y"].tolist() == [-1, 2]
    runtime.close()
