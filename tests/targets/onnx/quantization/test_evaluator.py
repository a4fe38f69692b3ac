"""What the evaluator asks beside photographs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.reference.batches import stress_batch
from edgekit.testing import small_model
from edgekit_targets.onnx.quantization import calibration
from edgekit_targets.onnx.quantization.calibration import AT_A_SHAPE, extra_inputs
from edgekit_targets.onnx.quantization.evaluator import Evaluator

Step = tuple[str, list[str], str]

AT_AN_END: list[Step] = [
    ("Abs", ["queries"], "size"),
    ("ReduceMin", ["size"], "least"),
    ("Less", ["least", "end"], "fine"),
]
AT_ANOTHER_HEIGHT: list[Step] = [
    ("Shape", ["images"], "sizes"),
    ("Gather", ["sizes", "second"], "height"),
    ("Equal", ["height", "usual"], "fine"),
]


def without_relevance(graph: onnx.ModelProto, steps: list[Step], numbers: dict[str, Any]) -> onnx.ModelProto:
    """The same, but relevance is 0 where the steps do not end in true."""
    made = onnx.ModelProto()
    made.CopyFrom(graph)
    last = next(node for node in made.graph.node if "relevance" in node.output)
    last.output[list(last.output).index("relevance")] = "right"
    for node in made.graph.node:
        node.input[:] = ["right" if name == "relevance" else name for name in node.input]
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items())
    made.graph.node.extend(helper.make_node(kind, inputs, [output]) for kind, inputs, output in steps)
    made.graph.node.append(helper.make_node("Cast", ["fine"], ["kept"], to=onnx.TensorProto.FLOAT))
    made.graph.node.append(helper.make_node("Mul", ["right", "kept"], ["relevance"]))
    return made


def test_inputs_that_nobody_calibrated_for_are_asked(small_build: Path, tmp_path: Path) -> None:
    graph = onnx.load(small_build / "onnx" / "model.onnx")
    spec = small_model()
    samples = calibration.samples(spec, None, 96)
    made = without_relevance(graph, AT_AN_END, {"end": np.float32(0.99)})
    told = Evaluator(spec, graph, samples.part(64, 96), tmp_path, (stress_batch(spec),)).judge(made)
    assert any("'all highest'" in reason for reason in told.reasons), told.reasons
    untold = Evaluator(spec, graph, samples.part(64, 96), tmp_path).judge(made)
    assert untold.passed
    assert untold.snr_db == told.snr_db


def test_real_inputs_are_asked_at_the_shapes_of_open_axes(small_build: Path, tmp_path: Path) -> None:
    spec = small_model()
    samples = calibration.samples(spec, None, 64)
    shaped = [batch for batch in extra_inputs(spec, samples, ("batch", "height", "width")) if batch.sizes]
    found = {tuple(batch.inputs["images"].shape) for batch in shaped}
    low, high = spec.axes["height"].minimum, spec.axes["height"].maximum
    assert {(1, 3, low, high), (1, 3, high, high)} <= found
    assert all(shape[2:] != (spec.axes["height"].default, spec.axes["width"].default) for shape in found)
    assert len({batch.names for batch in shaped}) > AT_A_SHAPE
    assert not [batch for batch in extra_inputs(spec, samples, ("batch",)) if batch.sizes]
    graph = onnx.load(small_build / "onnx" / "model.onnx")
    usual = spec.axes["height"].default
    fixed = without_relevance(graph, AT_ANOTHER_HEIGHT, {"second": 2, "usual": usual})
    told = Evaluator(spec, graph, samples.part(32, 64), tmp_path, tuple(shaped)).judge(fixed)
    assert any(f"height {high}" in reason for reason in told.reasons), told.reasons
    assert Evaluator(spec, graph, samples.part(32, 64), tmp_path).judge(fixed).passed


def test_random_samples_have_the_limits_of_changed_inputs(small_build: Path, tmp_path: Path) -> None:
    """Relevance in 32 steps: its cosine breaks the limit of real inputs, and holds that of changed ones."""
    graph = onnx.load(small_build / "onnx" / "model.onnx")
    coarse = without_relevance(graph, [("Mul", ["right", "steps"], "scaled")], {"steps": np.float32(32)})
    del coarse.graph.node[-2:]
    coarse.graph.node.append(helper.make_node("Round", ["scaled"], ["whole"]))
    coarse.graph.node.append(helper.make_node("Div", ["whole", "steps"], ["relevance"]))
    samples = calibration.samples(small_model(), None, 96).part(64, 96)
    for are_real in (True, False):
        quality = Evaluator(small_model(), graph, samples, tmp_path, are_real=are_real).judge(coarse)
        assert any(reason.startswith("cosine of 'relevance'") for reason in quality.reasons) is are_real, quality
