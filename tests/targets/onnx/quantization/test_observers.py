from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from edgekit.errors import ExportError
from edgekit_targets.onnx.passes.groups import METHODS
from edgekit_targets.onnx.quantization.calibration import IMAGES_PER_RUN, Samples, observe
from tests.targets.onnx.passes.graphs import Shape, model

CHANNELS, VECTORS = 3, 4


def graph(operator: str = "Mul") -> onnx.ModelProto:
    """inner = x times (10, 1, -1) by channel, y = relu(inner); x is [batch, vectors, CHANNELS]."""
    nodes = [helper.make_node(operator, ["x", "factors"], ["inner"]), helper.make_node("Relu", ["inner"], ["y"])]
    sizes: Shape = ["batch", "vectors", CHANNELS]
    return model(nodes, {"x": sizes}, {"y": sizes}, {"factors": np.array([10, 1, -1], np.float32)})


def samples(count: int = 10, low: float = -1.0, vectors: int = VECTORS) -> Samples:
    drawn = np.random.default_rng(0).uniform(low, 1, (count, vectors, CHANNELS)).astype(np.float32)
    return Samples({"x": drawn}, tuple(map(str, range(count))))


def test_the_range_of_a_tensor_is_that_of_all_samples_by_channel_and_in_all() -> None:
    given = samples()
    told: list[float] = []
    found = observe(graph(), ["x", "inner", "y"], given, ("minmax",), told.append)
    inner = given.inputs["x"] * np.array([10, 1, -1], np.float32)
    for name, values in (("x", given.inputs["x"]), ("inner", inner), ("y", np.maximum(inner, 0))):
        np.testing.assert_array_equal(found[name].low, values.min((0, 1)))
        np.testing.assert_array_equal(found[name].high, values.max((0, 1)))
        assert found[name].ranges["minmax"] == (float(values.min()), float(values.max()))
        assert found[name].rows == VECTORS
    np.testing.assert_array_equal(found["inner"].peaks, np.abs(inner).max((0, 1)))
    assert told == [number / 3 for number in range(3)]  # ten samples are three batches
    assert IMAGES_PER_RUN == 4


def test_zero_is_always_in_the_range() -> None:
    found = observe(graph(), ["x", "inner"], samples(low=0.5), METHODS, lambda done: None)
    for name in ("x", "inner"):
        for low, high in found[name].ranges.values():
            assert low <= 0.0 <= high
    assert found["x"].ranges["minmax"][0] == 0.0
    assert found["x"].low.min() >= 0.5


def test_a_percentile_leaves_out_what_is_rare() -> None:
    given = samples(8, vectors=20_000)  # 480,000 values, of which 99.999 % leave out the largest four
    given.inputs["x"][0, 0, 1] = 20.0
    found = observe(graph(), ["x"], given, METHODS, lambda done: None)["x"].ranges
    assert found["minmax"][1] == 20.0
    assert 0.9 < found["percentile"][1] < 2.0


def test_the_graph_and_the_samples_are_left_as_they_are() -> None:
    given, observed = samples(), graph()
    before, values = observed.SerializeToString(), given.inputs["x"].copy()
    observe(observed, ["inner"], given, METHODS, lambda done: None)
    assert observed.SerializeToString() == before
    np.testing.assert_array_equal(given.inputs["x"], values)


def test_an_overflow_is_named() -> None:
    given = samples()
    given.inputs["x"][7, 0, 0] = 3e38
    with pytest.raises(ExportError, match="the tensor 'inner' is not finite on the calibration samples"):
        observe(graph(), ["inner"], given, ("minmax",), lambda done: None)
