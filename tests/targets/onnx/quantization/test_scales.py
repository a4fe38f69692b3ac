"""Where static INT8 takes channel scales although it holds without them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit.target import Job
from edgekit_targets.onnx import int8_static
from edgekit_targets.onnx.passes.groups import QuantConfig
from edgekit_targets.onnx.quantization.calibration import Samples
from edgekit_targets.onnx.quantization.conditioning import ConditionedGraph
from edgekit_targets.onnx.quantization.evaluator import Quality
from edgekit_targets.onnx.quantization.search import SearchResult, Trial
from tests.targets.onnx.passes.graphs import model, rounded

ROWS, WIDTH, WIDE = 32, 128, 512
COUNT = 24


def residual(outlier: float) -> onnx.ModelProto:
    """z = h + out(relu(in(h))), h = tanh(first(x)) * channels: a layer reads the residual, which has large channels."""
    channels = np.ones(WIDTH, np.float32)
    channels[:4] = outlier
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], name="first/MatMul"),
        helper.make_node("Tanh", ["a"], ["b"], name="bend/Tanh"),
        helper.make_node("Mul", ["b", "channels"], ["h"], name="bend/Mul"),
        helper.make_node("MatMul", ["h", "w1"], ["c"], name="in/MatMul"),
        helper.make_node("Relu", ["c"], ["d"], name="bend2/Relu"),
        helper.make_node("MatMul", ["d", "w2"], ["e"], name="out/MatMul"),
        helper.make_node("Add", ["h", "e"], ["f"], name="sum/Add"),
        helper.make_node("Div", ["f", "channels"], ["z"], name="sum/Div"),
    ]
    into = rounded(WIDTH, WIDE, seed=1, deviation=0.1)
    # What the layer reads is worth the same in each channel.
    into = into / channels[:, None]
    held = {"w0": rounded(WIDTH, WIDTH, seed=0, deviation=0.2), "w1": into, "channels": channels}
    held["w2"] = rounded(WIDE, WIDTH, seed=2, deviation=0.05)
    return model(nodes, {"x": ["batch", ROWS, WIDTH]}, {"z": ["batch", ROWS, WIDTH]}, held)


def searched(graph: onnx.ModelProto, folder: Path) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    inputs, outputs = (Input("x", ("batch", ROWS, WIDTH), low=-1.0),), (Output("z"),)
    spec = ModelSpec("wide", torch.nn.Identity(), inputs, outputs, {"batch": Axis(1, 1, 3)})
    x = np.random.default_rng(1).uniform(-1, 1, (COUNT, ROWS, WIDTH)).astype(np.float32)
    samples = Samples({"x": x}, tuple(map(str, range(COUNT))))
    job = Job(model=folder, cache=folder / "cache")
    result, notes, failures = int8_static._search(spec, graph, samples, ("minmax",), job)
    assert not failures
    return result, notes


def has_scales(graph: onnx.ModelProto) -> bool:
    return any("_scaled" in name for node in graph.graph.node for name in node.output)


@pytest.mark.parametrize(("outlier", "are_scaled"), [(20.0, True), (1.0, False)])
def test_scales_that_halve_the_noise_are_taken(
    outlier: float, are_scaled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8_static, "NEGLIGIBLE", 0.02)
    graph, notes = searched(residual(outlier), tmp_path)
    assert has_scales(graph) is are_scaled
    table = json.loads((tmp_path / "cache" / "trials.json").read_text())
    assert [row["passed"] for row in table if row["chosen"]] == [True], notes
    assert next(row["measures"]["snr"] for row in table if row["chosen"]) > 25.0


def test_scales_that_cost_too_much_are_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8_static, "NEGLIGIBLE", 1e-6)
    assert not has_scales(searched(residual(20.0), tmp_path)[0])


@pytest.mark.parametrize(
    ("trials", "chosen", "asked"),
    [
        ([(True, 25.0), (True, 26.0)], 0, 1),
        ([(False, 26.0), (True, 25.0)], 1, 2),
        ([(False, 26.0), (True, 22.0)], None, 2),
        ([(True, 22.0), (True, 30.0)], None, 1),
    ],
)
def test_less_moves_into_the_weights_where_the_first_share_does_not_hold(
    trials: list[tuple[bool, float]], chosen: int | None, asked: int, tmp_path: Path
) -> None:
    """20 dB without scales: a share that passes with 3 dB more is taken; a small gain ends the attempts."""
    ready = [ConditionedGraph(onnx.ModelProto(), ()) for _ in trials]
    folders: list[Path] = []

    def find(graph: ConditionedGraph, more_floats: bool, folder: Path) -> SearchResult:
        passed, snr = trials[len(folders)]
        folders.append(folder)
        folder.mkdir()
        (folder / "trials.json").write_text(folder.name)
        trial = Trial(QuantConfig(), Quality(passed, snr, {}), 10, 0.0)
        return SearchResult(onnx.ModelProto(), trial, trial)

    found = int8_static._with_scales([partial(ready.__getitem__, n) for n in range(len(ready))], find, 20.0, tmp_path)
    assert len(folders) == asked
    assert (None if found is None else found[0] is ready[chosen or 0]) is (None if chosen is None else True)
    assert (tmp_path / "trials.json").exists() is (chosen is not None)
