"""Convolutions in INT8: what is carried between them, what stays in float, and that ONNX Runtime fuses all of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edgekit_targets.onnx.passes import qdq
from edgekit_targets.onnx.passes.groups import (
    METHODS,
    ObservedRange,
    QuantConfig,
    chain,
    convolutions,
    groups,
    multiplications,
)
from edgekit_targets.onnx.quantization import calibration
from edgekit_targets.onnx.quantization.calibration import Samples
from tests.targets.onnx.passes.graphs import answers, model, noise, optimized, rounded, weights

CHANNELS = 16


def conv(name: str, source: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(
        "Conv", [source, f"w_{name}", f"b_{name}"], [name], name=f"{name}/Conv", pads=[1, 1, 1, 1], **attributes
    )


def node(kind: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [output], name=f"{output}/{kind}", **attributes)


@pytest.fixture(scope="module")
def graph() -> onnx.ModelProto:
    """A residual block after pooling, a gate in float, and the answer by a last convolution."""
    nodes = [
        conv("stem", "x"),
        node("Relu", ["stem"], "stem_on"),
        node("MaxPool", ["stem_on"], "pooled", kernel_shape=[2, 2], strides=[2, 2]),
        conv("first", "pooled"),
        node("Relu", ["first"], "first_on"),
        conv("second", "first_on"),
        node("Add", ["second", "pooled"], "sum"),
        node("Relu", ["sum"], "sum_on"),
        conv("third", "sum_on"),
        node("Softplus", ["third"], "bent"),
        conv("answer", "bent"),
    ]
    held: dict[str, np.ndarray] = {}
    for number, name in enumerate(("stem", "first", "second", "third", "answer")):
        inputs, outputs = 3 if name == "stem" else CHANNELS, 2 if name == "answer" else CHANNELS
        held[f"w_{name}"] = rounded(outputs, inputs, 3, 3, seed=number, deviation=1.4 / (9 * inputs) ** 0.5)
        held[f"b_{name}"] = rounded(outputs, seed=9 + number, deviation=0.1)
    return model(nodes, {"x": ("batch", 3, "high", "wide")}, {"answer": ("batch", 2, "h", "w")}, held)


@pytest.fixture(scope="module")
def samples() -> Samples:
    return Samples({"x": np.abs(rounded(24, 3, 12, 12, seed=3))}, tuple(map(str, range(24))))


@pytest.fixture(scope="module")
def observed(graph: onnx.ModelProto, samples: Samples) -> dict[str, ObservedRange]:
    return calibration.observe(graph, qdq.activations(graph), samples, METHODS, lambda done: None)


def test_a_chain_carries_what_stands_between(graph: onnx.ModelProto) -> None:
    chosen = convolutions(graph)
    assert chosen == ("stem/Conv", "first/Conv", "second/Conv", "third/Conv")  # not what gives the answer
    found = chain(graph, chosen)
    assert found.carried == {"pooled/MaxPool", "sum/Add"}
    assert found.given == {"stem_on", "pooled", "first_on", "second", "sum_on", "third"}
    assert found.scaled_as == {"pooled": "stem_on"}
    assert set(found.taken) == {"x", "stem_on", "pooled", "first_on", "second", "sum_on"}


def test_one_in_float_breaks_the_chain_there(graph: onnx.ModelProto) -> None:
    found = chain(graph, ("stem/Conv", "first/Conv", "third/Conv"))
    assert found.carried == {"pooled/MaxPool"}  # the sum has an addend in float
    assert found.given == {"stem_on", "pooled", "first_on", "third"}


@pytest.mark.parametrize(
    "config",
    [QuantConfig(), QuantConfig(activation="int8"), QuantConfig(per_channel=False), QuantConfig(reduce_range=True)],
    ids=lambda config: config.name,
)
def test_the_quantized_graph_is_near(
    config: QuantConfig, graph: onnx.ModelProto, samples: Samples, observed: dict[str, ObservedRange]
) -> None:
    before = graph.SerializeToString()
    made = qdq.quantize_static(graph, config, observed)
    assert 1e-4 < noise(graph, made, x=samples.inputs["x"]) < 0.06
    assert graph.SerializeToString() == before
    scale = weights(made)["w_first_scale"]
    assert scale.shape == ((CHANNELS,) if config.per_channel else ())


def test_onnx_runtime_computes_the_chain_in_int8(graph: onnx.ModelProto, observed: dict[str, ObservedRange]) -> None:
    kinds = optimized(qdq.quantize_static(graph, QuantConfig(), observed))
    assert kinds["QLinearConv"] == 4
    assert kinds["QLinearAdd"] == 1
    assert kinds["Relu"] == 0
    assert (kinds["QuantizeLinear"], kinds["DequantizeLinear"]) == (1, 1)  # into the chain, and out of it


def test_each_channel_of_a_weight_has_its_own_scale(observed: dict[str, ObservedRange], graph: onnx.ModelProto) -> None:
    right, made = weights(graph)["w_second"], weights(qdq.quantize_static(graph, QuantConfig(), observed))
    steps = made["w_second_scale"][:, None, None, None]
    assert (np.abs(made["w_second_quantized"] * steps - right) <= 0.501 * steps).all()


def test_a_lone_convolution_is_taken_where_its_weight_is_large() -> None:
    for channels, taken in ((8, ()), (32, ("only/Conv",))):
        held = {"w_only": rounded(channels, 32, 3, 3), "b_only": rounded(channels)}
        nodes = [node("Softplus", ["x"], "bent"), conv("only", "bent"), node("Softplus", ["only"], "y")]
        graph = model(nodes, {"x": (1, 32, 8, 8)}, {"y": (1, channels, 8, 8)}, held)
        assert convolutions(graph) == taken


def test_transposed_convolutions_stay_in_float_since_onnx_runtime_has_no_int8_kernel() -> None:
    """Between Q and DQ it computes them in float: where a release fuses them, they belong into the chain."""
    up = node("ConvTranspose", ["x_rounded", "w_rounded"], "up", strides=[2, 2])
    plain = model(
        [node("ConvTranspose", ["x", "w"], "y")],
        {"x": (1, 32, 8, 8)},
        {"y": (1, 32, 9, 9)},
        {"w": rounded(32, 32, 2, 2)},
    )
    assert convolutions(plain) == ()
    nodes = [
        node("QuantizeLinear", ["x", "step", "zero"], "x_int8"),
        node("DequantizeLinear", ["x_int8", "step", "zero"], "x_rounded"),
        node("DequantizeLinear", ["w", "step", "zero"], "w_rounded"),
        up,
        node("QuantizeLinear", ["up", "step", "zero"], "up_int8"),
        node("DequantizeLinear", ["up_int8", "step", "zero"], "y"),
    ]
    weight = np.random.default_rng(0).integers(-99, 99, (32, 32, 2, 2)).astype(np.int8)
    held: dict[str, np.ndarray] = {"w": weight, "step": np.array(0.02, np.float32), "zero": np.array(0, np.int8)}
    quantized = model(nodes, {"x": (1, 32, 8, 8)}, {"y": (1, 32, 16, 16)}, held)
    kinds = optimized(quantized)
    assert kinds["ConvTranspose"] == 1
    assert kinds["DequantizeLinear"] >= 2


def test_groups_and_work_name_convolutions(graph: onnx.ModelProto, observed: dict[str, ObservedRange]) -> None:
    assert groups(graph) == {name: (f"{name}/Conv",) for name in ("stem", "first", "second", "third")}
    assert groups(graph, dynamic=True) == {}
    found = multiplications(graph, convolutions(graph), {n: o.elements for n, o in observed.items()})
    assert found["stem/Conv"] == 12 * 12 * CHANNELS * 27
    assert found["first/Conv"] == 6 * 6 * CHANNELS * CHANNELS * 9


def test_a_tensor_that_is_read_in_float_too_is_read_as_rounded(
    graph: onnx.ModelProto, samples: Samples, observed: dict[str, ObservedRange]
) -> None:
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    copy.graph.node.insert(9, node("Neg", ["first_on"], "turned"))
    copy.graph.output.append(helper.make_tensor_value_info("turned", onnx.TensorProto.FLOAT, ["b", CHANNELS, "h", "w"]))
    made = qdq.quantize_static(copy, QuantConfig(), observed)
    (reader,) = (n for n in made.graph.node if n.op_type == "Neg")
    assert reader.input[0] == "first_on_dequantized"
    right, got = (answers(g, x=samples.inputs["x"])["turned"] for g in (copy, made))
    assert 0 < np.abs(right - got).max() < 0.1 * np.abs(right).max()
