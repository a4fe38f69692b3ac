"""Conditioning beside convolutions and recurrent layers: linear layers change, nothing else does."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgekit.errors import ExportError
from edgekit_targets.onnx.passes import qdq
from edgekit_targets.onnx.passes.dynamic import quantize_dynamic
from edgekit_targets.onnx.passes.graph import set_weights
from edgekit_targets.onnx.passes.groups import METHODS, QuantConfig, groups, linear_groups
from edgekit_targets.onnx.quantization import calibration, conditioning
from edgekit_targets.onnx.quantization.calibration import Samples
from tests.targets.onnx.passes.graphs import Shape, model, noise, rounded, weights

COUNT = 8


def pictures() -> Samples:
    images = np.random.default_rng(3).uniform(0, 1, (COUNT, 3, 8, 8)).astype(np.float32)
    return Samples({"x": images}, tuple(map(str, range(COUNT))))


def convolutional(linear: bool = True) -> onnx.ModelProto:
    """Two convolutions with a Relu each, and two linear layers on what they give."""
    nodes = [
        helper.make_node("Conv", ["x", "c1"], ["a"], name="trunk.0/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="trunk.1/Relu"),
        helper.make_node("Conv", ["b", "c2"], ["c"], name="trunk.2/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["z" if not linear else "d"], name="trunk.3/Relu"),
        helper.make_node("Flatten", ["d"], ["e"], name="flat/Flatten"),
        helper.make_node("MatMul", ["e", "w1"], ["f"], name="head/MatMul"),
        helper.make_node("Relu", ["f"], ["g"], name="bend/Relu"),
        helper.make_node("MatMul", ["g", "w2"], ["z"], name="last/MatMul"),
    ]
    shapes = {"c1": (8, 3, 3, 3), "c2": (8, 8, 3, 3), "w1": (512, 64), "w2": (64, 4)}
    held = {n: rounded(*s, seed=i, deviation=0.1) for i, (n, s) in enumerate(shapes.items()) if linear or len(s) == 4}
    ends: dict[str, Shape] = {"z": ["batch", 4]} if linear else {"z": ["batch", 8, 8, 8]}
    return model(nodes if linear else nodes[:4], {"x": ["batch", 3, 8, 8]}, ends, held)


def test_convolutions_stay_as_they_are_beside_linear_layers() -> None:
    graph = convolutional()
    assert set(groups(graph)) - set(linear_groups(graph)) == {"trunk"}
    found = conditioning.condition(graph, pictures())
    before, after = weights(graph), weights(found.graph)
    for name in ("c1", "c2"):
        assert np.array_equal(before[name], after[name])
    assert not np.array_equal(before["w1"], after["w1"])
    assert np.array_equal(before["w2"], after["w2"]) is ("last" in found.floats)
    assert noise(graph, found.graph, **pictures().inputs) < 0.02
    assert set(found.floats) <= set(linear_groups(graph))
    observed = calibration.observe(found.graph, qdq.activations(found.graph), pictures(), METHODS, lambda done: None)
    made = qdq.quantize_static(found.graph, QuantConfig(floats=found.floats), observed)
    assert noise(graph, made, **pictures().inputs) < 0.1


def test_weights_of_lstms_are_rounded_by_what_they_meet() -> None:
    """Both directions of two layers, of which the second returns only its last state; inputs are correlated."""
    draw = np.random.default_rng(0)
    steps = draw.normal(size=(COUNT, 80, 4)) @ draw.normal(size=(4, 16)) + 0.1 * draw.normal(size=(COUNT, 80, 16))
    samples = Samples({"x": steps.astype(np.float32)}, tuple(map(str, range(COUNT))))
    held: dict[str, np.ndarray] = {"flat": np.array([0, 0, -1])}
    for number, inputs in enumerate((16, 32)):
        held[f"w{number}"] = rounded(2, 64, inputs, seed=number, deviation=0.3)
        held[f"r{number}"] = rounded(2, 64, 16, seed=2 + number, deviation=0.2)

    def lstm(number: int, read: str, written: list[str]) -> onnx.NodeProto:
        inputs, name = [read, f"w{number}", f"r{number}"], f"rnn/LSTM_{number}"
        return helper.make_node("LSTM", inputs, written, name=name, hidden_size=16, direction="bidirectional")

    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        lstm(0, "t", ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["b", "flat"], ["c"]),
        lstm(1, "c", ["", "y"]),
    ]
    graph = model(nodes, {"x": ["batch", 80, 16]}, {"y": [2, "batch", 16]}, held)
    before = graph.SerializeToString()
    found = conditioning.round_recurrent(graph, samples)
    assert graph.SerializeToString() == before
    assert {name: [weight.name for weight in each] for name, each in found.items()} == {
        f"rnn/LSTM_{number}": [f"w{number}", f"r{number}"] for number in range(2)
    }

    def with_weights(values: dict[str, np.ndarray]) -> onnx.ModelProto:
        copy = onnx.ModelProto()
        copy.CopyFrom(graph)
        kept = [i for i in graph.graph.initializer if i.name not in values]
        set_weights(copy.graph, [*kept, *(numpy_helper.from_array(array, name) for name, array in values.items())])
        return copy

    def dequantized(quantized: onnx.ModelProto) -> dict[str, np.ndarray]:
        arrays = weights(quantized)
        steps = {n: arrays[f"{n}_quantized"] * arrays[f"{n}_scale"][:, None, :] for n in held if n != "flat"}
        return {name: np.ascontiguousarray(array.transpose(0, 2, 1)) for name, array in steps.items()}

    fitting = {weight.name: numpy_helper.to_array(weight) for each in found.values() for weight in each}
    nearest = with_weights(dequantized(quantize_dynamic(graph)))
    assert noise(graph, with_weights(fitting), **samples.inputs) < 0.7 * noise(graph, nearest, **samples.inputs)
    # ONNX Runtime's quantizer finds the same grid.
    for name, array in dequantized(quantize_dynamic(with_weights(fitting))).items():
        np.testing.assert_allclose(array, fitting[name], atol=1e-6)


def test_a_graph_without_linear_layers_comes_back_unchanged() -> None:
    graph = convolutional(linear=False)
    found = conditioning.condition(graph, pictures())
    assert found.graph.SerializeToString() == graph.SerializeToString()
    assert found.floats == ()


def test_only_groups_of_nothing_but_linear_layers_stay_in_float(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditioning, "FREE", 0.99)
    assert conditioning.condition(convolutional(), pictures()).floats == ("last",)
    mixed = convolutional()
    mixed.graph.node[0].name = "last.convolution/Conv"
    assert conditioning.condition(mixed, pictures()).floats == ()


def test_gptq_leaves_the_weights_of_very_wide_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditioning, "WIDEST", 64)
    graph = convolutional()
    found = conditioning.condition(graph, pictures())
    values = weights(found.graph)["w1"]
    steps = values / (np.abs(values).max(0) / 127)
    assert np.abs(steps - np.round(steps)).max() > 0.1  # scaled, not rounded
    assert noise(graph, found.graph, **pictures().inputs) < 0.02


def test_a_weight_that_another_operator_reads_too_stays_as_it_is() -> None:
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["rows"], name="embedding/Gather"),
        helper.make_node("MatMul", ["rows", "w"], ["h"], name="inner/MatMul"),
        helper.make_node("Gemm", ["h", "table"], ["z"], name="head/Gemm", transB=1),
    ]
    held = {"table": rounded(20, 16), "w": rounded(16, 16, seed=1)}
    graph = model(nodes, {"x": ["batch"]}, {"z": ["batch", 20]}, held, {"x": onnx.TensorProto.INT64})
    samples = Samples({"x": np.arange(COUNT)}, tuple(map(str, range(COUNT))))
    found = weights(conditioning.condition(graph, samples).graph)
    assert np.array_equal(found["table"], held["table"])
    assert not np.array_equal(found["w"], held["w"])


def test_what_is_not_finite_is_named() -> None:
    graph = convolutional()
    large = next(i for i in graph.graph.initializer if i.name == "w1")
    large.CopyFrom(numpy_helper.from_array(np.full((512, 64), 3e38, np.float32), "w1"))
    with pytest.raises(ExportError, match="'g' is not finite on the calibration samples"):
        conditioning.condition(graph, pictures())


def test_weights_that_a_training_left_on_their_grid_stay_there() -> None:
    graph = convolutional()
    for weight in graph.graph.initializer:
        if len(weight.dims) == 2:
            values = numpy_helper.to_array(weight)
            scale = np.abs(values).max(0) / 127
            weight.CopyFrom(numpy_helper.from_array((np.round(values / scale) * scale).astype(np.float32), weight.name))
    found = conditioning.condition(graph, pictures())
    assert [node.op_type for node in found.graph.graph.node] == [node.op_type for node in graph.graph.node]  # no scales
    for name, values in weights(graph).items():
        np.testing.assert_allclose(weights(found.graph)[name], values, rtol=1e-6)
    moved = conditioning.condition(convolutional(), pictures()).graph
    assert "Mul" in {node.op_type for node in moved.graph.node}  # what is on no grid is scaled
