"""Static quantization of a hand-made graph: what the numbers must be, and that the real runtime agrees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.onnxgraph import dynamic, qdq, smoothquant, weight_only
from edgekit.onnxgraph.groups import group_of, groups
from edgekit.onnxgraph.quant_config import METHODS, Method, Observed, QuantConfig
from edgekit.quantization import observers
from edgekit.quantization.calibration import Samples
from edgekit.runtime import ort

WIDTH = 64


@pytest.fixture(scope="module")
def graph() -> onnx.ModelProto:
    """Normalisation, two linear layers, one of another module."""
    draw = np.random.default_rng(0)

    def weight(name: str, *shape: int, deviation: float = 0.2) -> onnx.TensorProto:
        return numpy_helper.from_array(draw.normal(0, deviation, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["normal"], name="norm/LayerNormalization"),
        helper.make_node("Gemm", ["normal", "w1", "b1"], ["hidden"], name="blocks.0.mlp.0/Gemm"),
        helper.make_node("Relu", ["hidden"], ["bent"], name="blocks.0.mlp.1/Relu"),
        helper.make_node("Gemm", ["bent", "w2", "b2"], ["y"], name="blocks.0.mlp.2/Gemm"),
        helper.make_node("MatMul", ["y", "w3"], ["z"], name="head/MatMul"),
    ]
    weights = [
        numpy_helper.from_array(np.linspace(0.1, 8, WIDTH, dtype=np.float32), "scale"),
        weight("shift", WIDTH),
        weight("w1", WIDTH, 2 * WIDTH),
        weight("b1", 2 * WIDTH),
        weight("w2", 2 * WIDTH, WIDTH),
        weight("b2", WIDTH),
        weight("w3", WIDTH, WIDTH),
    ]
    made = helper.make_graph(
        nodes,
        "toy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", WIDTH])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["rows", WIDTH])],
        weights,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture(scope="module")
def samples() -> Samples:
    draw = np.random.default_rng(1)
    return Samples({"x": draw.normal(0, 1, (96, WIDTH)).astype(np.float32)}, tuple(map(str, range(96))))


@pytest.fixture(scope="module")
def observed(graph: onnx.ModelProto, samples: Samples) -> dict[str, Observed]:
    return observers.observe(graph, qdq.activations(graph), samples, METHODS, lambda done: None)


def answers(graph: onnx.ModelProto, samples: Samples, folder: Path) -> np.ndarray:
    onnx.checker.check_model(graph, full_check=True)
    (folder / "model.onnx").write_bytes(graph.SerializeToString())
    return ort.OrtRuntime(folder / "model.onnx").run(samples.inputs)["z"]


def noise(graph: onnx.ModelProto, other: onnx.ModelProto, samples: Samples, folder: Path) -> float:
    right, got = answers(graph, samples, folder), answers(other, samples, folder)
    return float(np.sqrt(((right - got) ** 2).mean() / (right**2).mean()))


def test_groups_are_modules(graph: onnx.ModelProto) -> None:
    assert groups(graph) == {"blocks.0.mlp": ("blocks.0.mlp.0/Gemm", "blocks.0.mlp.2/Gemm"), "head": ("head/MatMul",)}
    assert group_of("texture.blocks.11.attention.qkv/Gemm_2") == "texture.blocks.11.attention"
    assert group_of("query_content.question.0/Gemm") == "query_content.question"
    assert group_of("MatMul_7") == "MatMul_7"


def test_ranges_hold_what_was_seen(graph: onnx.ModelProto, samples: Samples, observed: dict[str, Observed]) -> None:
    assert set(observed) == {"normal", "bent", "y"}
    seen = ort.tapped(graph, ["normal", "bent", "y"]).run(samples.inputs)
    for name, one in observed.items():
        assert one.ranges["minmax"] == pytest.approx((min(seen[name].min(), 0), max(seen[name].max(), 0)))
        assert one.rows == 1
        np.testing.assert_allclose(one.peaks, np.abs(seen[name]).max(0))
        for method in METHODS:
            low, high = one.ranges[method]
            assert one.ranges["minmax"][0] * 1.01 <= low <= 0 <= high <= one.ranges["minmax"][1] * 1.01


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "recipe", [QuantConfig(), QuantConfig(activation="int8"), QuantConfig(per_channel=False), QuantConfig(smooth=0.5)]
)
def test_a_quantized_graph_is_near(
    recipe: QuantConfig,
    method: Method,
    graph: onnx.ModelProto,
    samples: Samples,
    observed: dict[str, Observed],
    tmp_path: Path,
) -> None:
    before = graph.SerializeToString()
    made = qdq.quantize(graph, QuantConfig(**{**recipe.__dict__, "method": method}), observed)
    assert 1e-4 < noise(graph, made, samples, tmp_path) < (0.3 if method == "entropy" else 0.06)
    assert graph.SerializeToString() == before
    assert not [i.name for i in made.graph.initializer if i.name in ("w1", "w2", "w3")]


def test_reduced_range_is_seven_bits_and_costs_accuracy(
    graph: onnx.ModelProto, samples: Samples, observed: dict[str, Observed], tmp_path: Path
) -> None:
    made = qdq.quantize(graph, QuantConfig(reduce_range=True), observed)
    weights = [numpy_helper.to_array(i) for i in made.graph.initializer if i.name == "w1_quantized"]
    assert np.abs(weights[0]).max() == 63
    full = noise(graph, qdq.quantize(graph, QuantConfig(), observed), samples, tmp_path)
    assert full < noise(graph, made, samples, tmp_path)


def test_a_group_in_float_is_computed_in_float_and_stored_in_int8(
    graph: onnx.ModelProto, samples: Samples, observed: dict[str, Observed], tmp_path: Path
) -> None:
    made = qdq.quantize(graph, QuantConfig(floats=("blocks.0.mlp",)), observed)
    quantized = [n.input[0] for n in made.graph.node if n.op_type == "QuantizeLinear"]
    assert quantized == ["y"]
    stored_weights = {i.name for i in made.graph.initializer if i.data_type == TensorProto.INT8}
    assert {"w1_int8", "w2_int8", "w3_quantized"} <= stored_weights
    assert noise(graph, made, samples, tmp_path) < 0.03


def test_smoothing_alone_changes_nothing_but_the_ranges(
    graph: onnx.ModelProto, samples: Samples, observed: dict[str, Observed], tmp_path: Path
) -> None:
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    divided = smoothquant.apply(copy, 0.5, observed)
    assert set(divided) == {"normal"}
    assert noise(graph, copy, samples, tmp_path) < 1e-5
    peaks = observed["normal"].peaks / divided["normal"]
    assert peaks.max() / peaks.min() < observed["normal"].peaks.max() / observed["normal"].peaks.min()


def attended(*, biased: bool) -> onnx.ModelProto:
    """One normalisation of [batch, 4, WIDTH], read by two layers, its sizes read by a Shape, as exported.

    Args:
        biased: Whether only the first layer reads it flat, as where the second has no bias.
    """
    draw = np.random.default_rng(2)
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["normal"], name="norm/LayerNormalization"),
        helper.make_node("Reshape", ["normal", "flat"], ["rows"], name="norm/Reshape"),
        helper.make_node("Shape", ["normal"], ["sizes"], name="norm/Shape", start=0, end=2),
        helper.make_node("Concat", ["sizes", "width"], ["full"], name="norm/Concat", axis=0),
        helper.make_node("Gemm", ["rows", "wq", "b"], ["q"], name="q/Gemm"),
        helper.make_node("MatMul", ["normal" if biased else "rows", "wk"], ["k"], name="k/MatMul"),
        helper.make_node("Reshape", ["k", "flat"], ["kf"], name="k/Reshape"),
        helper.make_node("Add", ["q", "kf"], ["sum"], name="sum/Add"),
        helper.make_node("Reshape", ["sum", "full"], ["z"], name="z/Reshape"),
    ]
    weights = [
        numpy_helper.from_array(np.linspace(0.1, 8, WIDTH, dtype=np.float32), "scale"),
        numpy_helper.from_array(np.where(np.arange(WIDTH) % 9, 0, 20).astype(np.float32), "shift"),  # of one sign
        numpy_helper.from_array(np.array([-1, WIDTH]), "flat"),
        numpy_helper.from_array(np.array([WIDTH]), "width"),
        *(numpy_helper.from_array(draw.normal(0, 0.2, (WIDTH, WIDTH)).astype(np.float32), n) for n in ("wq", "wk")),
        numpy_helper.from_array(draw.normal(0, 1, WIDTH).astype(np.float32), "b"),
    ]
    made = helper.make_graph(
        nodes,
        "attended",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4, WIDTH])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", "rows", "wide"])],
        weights,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("biased", [False, True])
def test_layers_that_read_a_normalisation_in_two_shapes(biased: bool, tmp_path: Path) -> None:
    graph = attended(biased=biased)
    drawn = np.random.default_rng(3).normal(0, 1, (96, 4, WIDTH)).astype(np.float32)
    shown = Samples({"x": drawn}, tuple(map(str, range(96))))
    seen = observers.observe(graph, qdq.activations(graph), shown, METHODS, lambda done: None)
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    divided = smoothquant.apply(copy, 0.5, seen)
    assert set(divided) == ({"rows", "normal"} if biased else {"rows"})
    assert noise(graph, copy, shown, tmp_path) < 1e-5
    plain, smoothed = (
        noise(graph, qdq.quantize(graph, QuantConfig(smooth=alpha), seen), shown, tmp_path) for alpha in (0.0, 0.5)
    )
    assert smoothed < plain < 0.06  # outliers of one sign: each end moves by its own channels


def test_a_transposed_weight_is_quantized_dynamically(tmp_path: Path) -> None:
    made = attended(biased=False)
    gemm = next(node for node in made.graph.node if node.op_type == "Gemm")
    gemm.attribute.extend(helper.make_attribute(name, value) for name, value in (("transA", 0), ("transB", 1)))
    drawn = np.random.default_rng(3).normal(0, 1, (8, 4, WIDTH)).astype(np.float32)
    shown = Samples({"x": drawn}, tuple(map(str, range(8))))
    result = dynamic.quantize(made)
    assert sum(n.op_type == "MatMulInteger" for n in result.graph.node) == 2
    assert noise(made, result, shown, tmp_path) < 0.06


def test_weights_of_another_rank_are_no_linear_layers(graph: onnx.ModelProto) -> None:
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    held = next(i for i in copy.graph.initializer if i.name == "w3")
    held.CopyFrom(numpy_helper.from_array(np.zeros((2, WIDTH, WIDTH), np.float32), "w3"))
    assert "head" not in groups(copy)


def test_dynamic_is_near_and_leaves_groups_in_float(graph: onnx.ModelProto, samples: Samples, tmp_path: Path) -> None:
    assert 1e-4 < noise(graph, dynamic.quantize(graph), samples, tmp_path) < 0.06
    made = dynamic.quantize(graph, ("blocks.0.mlp",))
    assert sum(n.op_type == "MatMulInteger" for n in made.graph.node) == 1
    assert not any(n.op_type in ("Gemm", "MatMul") for n in dynamic.quantize(graph).graph.node)


def test_stored_weights_are_within_half_a_step(graph: onnx.ModelProto) -> None:
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    right = {i.name: numpy_helper.to_array(i) for i in graph.graph.initializer}
    weight_only.in_int8(copy)
    held = {i.name: numpy_helper.to_array(i) for i in copy.graph.initializer}
    got = held["w1_int8"] * held["w1_scale"][None, :]
    assert np.abs(got - right["w1"]).max() <= held["w1_scale"].max() / 2 * 1.001
    assert "shift" in held  # too small to be worth a node
