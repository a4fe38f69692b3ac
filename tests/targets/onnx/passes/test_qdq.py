"""Static quantization of a hand-made graph: what the numbers must be, and that the real runtime agrees."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.runtime import ort
from edgekit_targets.onnx.passes import qdq
from edgekit_targets.onnx.passes.groups import METHODS, Method, ObservedRange, QuantConfig
from edgekit_targets.onnx.quantization import calibration
from edgekit_targets.onnx.quantization.calibration import Samples
from tests.targets.onnx.passes.graphs import answers, model, noise, optimized, rounded, weights


def test_ranges_hold_what_was_seen(
    graph: onnx.ModelProto, samples: Samples, observed: dict[str, ObservedRange]
) -> None:
    assert set(observed) == {"normal", "bent", "y"}
    seen = ort.open_with_taps(graph, ["normal", "bent", "y"]).run(samples.inputs)
    for name, one in observed.items():
        assert one.ranges["minmax"] == pytest.approx((min(seen[name].min(), 0), max(seen[name].max(), 0)))
        assert one.rows == 1
        np.testing.assert_allclose(one.peaks, np.abs(seen[name]).max(0))
        for method in METHODS:
            low, high = one.ranges[method]
            assert one.ranges["minmax"][0] * 1.01 <= low <= 0 <= high <= one.ranges["minmax"][1] * 1.01


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("recipe", [QuantConfig(), QuantConfig(activation="int8"), QuantConfig(per_channel=False)])
def test_a_quantized_graph_is_near(
    recipe: QuantConfig, method: Method, graph: onnx.ModelProto, samples: Samples, observed: dict[str, ObservedRange]
) -> None:
    before = graph.SerializeToString()
    made = qdq.quantize_static(graph, QuantConfig(**{**recipe.__dict__, "method": method}), observed)
    assert 1e-4 < noise(graph, made, **samples.inputs) < (0.3 if method == "entropy" else 0.06)
    assert graph.SerializeToString() == before
    assert not [i.name for i in made.graph.initializer if i.name in ("w1", "w2", "w3")]


def test_what_only_a_branch_reads_is_kept(
    graph: onnx.ModelProto, samples: Samples, observed: dict[str, ObservedRange]
) -> None:
    """Silero's file: weights of the outer graph that the bodies of an If alone read."""
    whole = onnx.ModelProto.FromString(graph.SerializeToString())
    answer, kind = whole.graph.output[0].name, whole.graph.output[0].type
    adding = helper.make_node("Add", [answer, "added"], ["moved"])
    branch = helper.make_graph([adding], "branch", [], [helper.make_value_info("moved", kind)])
    whole.graph.node.append(helper.make_node("If", ["yes"], ["shifted"], then_branch=branch, else_branch=branch))
    held = {"added": np.full(1, 5, np.float32), "yes": np.array(True)}
    whole.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in held.items())
    whole.graph.output.append(helper.make_value_info("shifted", kind))
    made = qdq.quantize_static(whole, QuantConfig(), observed)
    found = answers(made, **samples.inputs)
    np.testing.assert_allclose(found["shifted"], found[answer] + 5, atol=1e-5)


def test_reduced_range_is_seven_bits_and_costs_accuracy(
    graph: onnx.ModelProto, samples: Samples, observed: dict[str, ObservedRange]
) -> None:
    made = qdq.quantize_static(graph, QuantConfig(reduce_range=True), observed)
    weights = [numpy_helper.to_array(i) for i in made.graph.initializer if i.name == "w1_quantized"]
    assert np.abs(weights[0]).max() == 63
    full = noise(graph, qdq.quantize_static(graph, QuantConfig(), observed), **samples.inputs)
    assert full < noise(graph, made, **samples.inputs)


def test_a_group_in_float_is_computed_in_float_and_stored_in_int8(
    graph: onnx.ModelProto, samples: Samples, observed: dict[str, ObservedRange]
) -> None:
    made = qdq.quantize_static(graph, QuantConfig(floats=("blocks.0.mlp",)), observed)
    quantized = [n.input[0] for n in made.graph.node if n.op_type == "QuantizeLinear"]
    assert quantized == ["y"]
    stored_weights = {i.name for i in made.graph.initializer if i.data_type == TensorProto.INT8}
    assert {"w1_int8", "w2_int8", "w3_quantized"} <= stored_weights
    assert noise(graph, made, **samples.inputs) < 0.03


def test_a_bias_is_stored_in_the_units_of_the_sum(graph: onnx.ModelProto, observed: dict[str, ObservedRange]) -> None:
    """And these are not stored: ONNX Runtime multiplies them out when it opens the file, and runs INT8 all the same."""
    made = qdq.quantize_static(graph, QuantConfig(), observed)
    held = weights(made)
    name = "blocks.0.mlp.0/Gemm/bias"
    assert f"{name}_scale" not in held
    (unit,) = (node for node in made.graph.node if node.output[0] == f"{name}_scale")
    assert (unit.op_type, *unit.input) == ("Mul", "normal_scale", "w1_scale")
    assert held[f"{name}_quantized"].dtype == np.int32
    scale = held["normal_scale"] * held["w1_scale"]
    restored = held[f"{name}_quantized"] * scale
    assert np.abs(restored - weights(graph)["b1"]).max() <= scale.max() * 0.501
    assert optimized(made)["QGemm"] == 2


def test_a_unit_that_fp32_cannot_hold_is_the_smallest_that_it_can() -> None:
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="layer/Gemm")]
    held = {"w": rounded(4, 4, deviation=1e-30), "b": rounded(4)}
    graph = model(nodes, {"x": ("rows", 4)}, {"y": ("rows", 4)}, held)
    rows = Samples({"x": rounded(2, 4, seed=1) * np.float32(1e-10)}, ("a", "b"))
    observed = calibration.observe(graph, ("x",), rows, ("minmax",), lambda done: None)
    made = qdq.quantize_static(graph, QuantConfig(), observed)
    assert (weights(made)["layer/Gemm/bias_scale"] == np.float32(qdq.SMALLEST)).all()
    assert all(np.isfinite(value).all() for value in weights(made).values())


def test_bytes_are_moved_not_floats() -> None:
    """[2, 3, 4] -> Reshape, Transpose -> layer: the tensor is quantized before it is moved."""
    graph = model(
        [
            helper.make_node("Abs", ["x"], ["made"], name="Abs"),
            helper.make_node("Reshape", ["made", "shape"], ["flat"], name="Reshape"),
            helper.make_node("Transpose", ["flat"], ["turned"], name="Transpose", perm=[1, 0]),
            helper.make_node("MatMul", ["turned", "w"], ["y"], name="layer/MatMul"),
        ],
        {"x": [2, 3, 4]},
        {"y": [4, 5]},
        {"shape": np.array([6, 4]), "w": rounded(6, 5)},
    )
    x = rounded(2, 3, 4, seed=1)
    low, high = np.zeros(6, np.float32), np.full(6, 4.0, np.float32)
    seen = ObservedRange(dict.fromkeys(METHODS, (0.0, 4.0)), low, high, rows=4)
    after = qdq.quantize_static(graph, QuantConfig(), {"turned": seen})
    kinds = [node.op_type for node in after.graph.node]
    assert kinds.index("QuantizeLinear") < kinds.index("Reshape") < kinds.index("Transpose")
    assert 1e-5 < np.abs(answers(after, x=x)["y"] - answers(graph, x=x)["y"]).max() < 0.2
