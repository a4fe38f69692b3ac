"""Weights rounded with what they are multiplied with in mind."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgekit_targets.onnx.passes import smoothquant
from edgekit_targets.onnx.quantization import conditioning
from edgekit_targets.onnx.quantization.calibration import Samples
from tests.targets.onnx.passes.graphs import noise


@pytest.mark.parametrize("levels", [127, 63])
def test_weights_lie_on_the_grid_that_a_quantizer_finds_again(levels: int) -> None:
    draw = np.random.default_rng(0)
    weight, inputs = draw.normal(0, 1, (24, 80)), draw.normal(0, 1, (500, 20)) @ draw.normal(0, 1, (20, 80))
    moment = inputs.T @ inputs / len(inputs)
    found = smoothquant.rounded_rows(weight, moment, levels)
    scale = np.abs(weight).max(1, keepdims=True) / levels
    assert np.abs(found).max(1) == pytest.approx(np.abs(weight).max(1))
    assert found / scale == pytest.approx(np.round(found / scale), abs=1e-9)
    nearest = np.round(weight / scale) * scale
    lost, plain = (((weight - rounded) @ inputs.T).std() for rounded in (found, nearest))
    assert lost < 0.6 * plain  # 20 directions carry 80 inputs


def test_an_input_that_is_always_zero_is_rounded_like_the_others() -> None:
    weight = np.array([[1.0, 0.3, -0.2], [0.0, 0.0, 0.0]])
    moment = np.diag([1.0, 0.0, 2.0])
    found = smoothquant.rounded_rows(weight, moment)
    assert np.isfinite(found).all()
    assert np.abs(found - weight).max() <= 0.51 / 127


def test_conditioning_computes_the_same_and_leaves_the_smallest_group_in_float(
    graph: onnx.ModelProto, samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditioning, "ROWS", 0)  # so few samples would not do for GPTQ
    before = graph.SerializeToString()
    found = conditioning.condition(graph, samples)
    assert graph.SerializeToString() == before
    assert noise(graph, found.graph, **samples.inputs) < 0.01
    assert found.floats == ()  # the head is a fifth of the work
    names = {node.name for node in found.graph.graph.node}
    assert "bent/Mul" in names  # no normalisation can take the scales of what follows the Relu
    kept = conditioning.condition(graph, samples, ("blocks.0.mlp",))
    assert kept.floats == ("blocks.0.mlp",)
    assert "bent/Mul" not in {node.name for node in kept.graph.graph.node}
    for weight in found.graph.graph.initializer:
        if weight.name in ("w1", "w2", "w3"):
            values = numpy_helper.to_array(weight).astype(np.float64)
            steps = values / (np.abs(values).max(0) / 127)
            assert steps == pytest.approx(np.round(steps), abs=1e-3)


def test_a_small_group_stays_in_float(
    graph: onnx.ModelProto, samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditioning, "FREE", 0.25)
    assert conditioning.condition(graph, samples).floats == ("head",)
