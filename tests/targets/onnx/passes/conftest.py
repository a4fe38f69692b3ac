"""A graph of linear layers, what it is calibrated on, and what was observed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from edgekit_targets.onnx.passes import qdq
from edgekit_targets.onnx.passes.groups import METHODS, ObservedRange
from edgekit_targets.onnx.quantization import calibration
from edgekit_targets.onnx.quantization.calibration import Samples
from tests.targets.onnx.passes.graphs import WIDTH, model


@pytest.fixture(scope="module")
def graph() -> onnx.ModelProto:
    """Normalisation, two linear layers, one of another module."""
    draw = np.random.default_rng(0)

    def weight(*shape: int) -> np.ndarray:
        return draw.normal(0, 0.2, shape).astype(np.float32)

    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["normal"], name="norm/LayerNormalization"),
        helper.make_node("Gemm", ["normal", "w1", "b1"], ["hidden"], name="blocks.0.mlp.0/Gemm"),
        helper.make_node("Relu", ["hidden"], ["bent"], name="blocks.0.mlp.1/Relu"),
        helper.make_node("Gemm", ["bent", "w2", "b2"], ["y"], name="blocks.0.mlp.2/Gemm"),
        helper.make_node("MatMul", ["y", "w3"], ["z"], name="head/MatMul"),
    ]
    shapes = {"w1": (WIDTH, 2 * WIDTH), "b1": (2 * WIDTH,), "w2": (2 * WIDTH, WIDTH), "b2": (WIDTH,)}
    shapes = {"shift": (WIDTH,), **shapes, "w3": (WIDTH, WIDTH)}
    held = {name: weight(*shape) for name, shape in shapes.items()}
    held["scale"] = np.linspace(0.1, 8, WIDTH, dtype=np.float32)
    return model(nodes, {"x": ["rows", WIDTH]}, {"z": ["rows", WIDTH]}, held)


@pytest.fixture(scope="module")
def samples() -> Samples:
    draw = np.random.default_rng(1)
    return Samples({"x": draw.normal(0, 1, (96, WIDTH)).astype(np.float32)}, tuple(map(str, range(96))))


@pytest.fixture(scope="module")
def observed(graph: onnx.ModelProto, samples: Samples) -> dict[str, ObservedRange]:
    return calibration.observe(graph, qdq.activations(graph), samples, METHODS, lambda done: None)
