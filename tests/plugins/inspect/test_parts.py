"""What counts as a module's own error and what does not; each on a graph made for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgekit.model.spec import Array
from edgekit.runtime import ort
from edgekit_inspect.attribution import Module, Noise, Part, attribute, cut, layouts_in_float, modules_of
from edgekit_targets.onnx.passes import qdq
from edgekit_targets.onnx.passes.groups import QuantConfig
from edgekit_targets.onnx.quantization import calibration
from edgekit_targets.onnx.quantization.calibration import Samples
from tests.plugins.inspect import nets
from tests.plugins.inspect.test_broken_modules import broken, noisy
from tests.targets.onnx.passes.graphs import model

ROW = {"x": np.random.default_rng(3).normal(0, 1, (64, 8)).astype(np.float32)}


def amplifying(slope: float = 1.0) -> onnx.ModelProto:
    """first: slope * x + 1; second: 100 (first - 1 - 0.99 x), to which the slope's error is a hundred times larger."""
    nodes = [
        helper.make_node("Mul", ["x", "first.slope"], ["sloped"], name="first/Mul"),
        helper.make_node("Add", ["sloped", "one"], ["a"], name="first/Add"),
        helper.make_node("Sub", ["a", "one"], ["b"], name="second/Sub"),
        helper.make_node("Mul", ["x", "second.share"], ["c"], name="second/Mul"),
        helper.make_node("Sub", ["b", "c"], ["d"], name="second/Sub_2"),
        helper.make_node("Mul", ["d", "second.hundred"], ["y"], name="second/Mul_2"),
    ]
    numbers = {"first.slope": slope, "one": 1.0, "second.share": 0.99, "second.hundred": 100.0}
    constants = {name: np.asarray(value, np.float32) for name, value in numbers.items()}
    return model(nodes, {"x": ["rows", 8]}, {"y": ["rows", 8]}, constants)


def test_amplification_is_carried_through_and_not_introduced() -> None:
    first, second = attribute(amplifying(), amplifying(slope=1.001), [ROW])
    assert first == Part("first", 0.0, first.noise_out, first.noise_out)
    assert 0.0005 < first.introduced < 0.001
    assert second.introduced == 0.0
    assert second.noise_in == first.noise_out
    assert second.propagated_noise == pytest.approx(0.1, rel=0.01)


def test_what_is_introduced_and_what_is_carried_make_up_the_noise() -> None:
    part = Part("a", noise_in=0.03, noise_out=0.05, introduced=0.04)
    assert part.propagated_noise == pytest.approx(0.03)
    assert Part("a", noise_in=0.0, noise_out=0.04, introduced=0.05).propagated_noise == 0.0


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    return nets.exported(nets.ranker(), tmp_path_factory.mktemp("ranker"))


def test_another_ranking_is_no_error_of_what_follows(ranked: onnx.ModelProto) -> None:
    spec = nets.ranker()
    rows = [spec.random(seed) for seed in range(4)]
    other = broken(ranked, "scorer/MatMul", noisy)
    there, here = (np.stack([ort.open_with_taps(g, []).run(r)["indices"] for r in rows]) for g in (ranked, other))
    assert (there != here).any()
    parts = {part.module: part for part in attribute(ranked, other, rows)}
    assert parts["scorer"].introduced > 0.05
    assert [parts[name].noise_out for name in ("refine.up", "refine.down", "box")] == [0.0, 0.0, 0.0]


def test_a_module_of_indices_is_judged_by_the_share_that_differs() -> None:
    def graph(shift: list[float]) -> onnx.ModelProto:
        nodes = [
            helper.make_node("Add", ["x", "choice.shift"], ["shifted"], name="choice/Add"),
            helper.make_node("ArgMax", ["shifted"], ["best"], name="choice/ArgMax", axis=1, keepdims=0),
        ]
        shifts = {"choice.shift": np.asarray(shift, np.float32)}
        return model(nodes, {"x": ["rows", 8]}, {"best": ["rows"]}, shifts, {"best": TensorProto.INT64})

    (part,) = attribute(graph([0.0] * 8), graph([9.0] + [0.0] * 7), [ROW])
    first = ROW["x"].argmax(1) == 0
    assert part.introduced == part.noise_out == pytest.approx(1.0 - first.mean())


def test_a_folded_table_is_a_module_and_weights_are_their_layers(tmp_path: Path) -> None:
    words = modules_of(nets.exported(nets.words(), tmp_path / "words"))
    assert Module("positions", (), ("positions.embedding_1",)) in words
    assert "mlp.down" in [module.path for module in words]
    convolutional = modules_of(nets.exported(nets.convolutional(), tmp_path / "convolutional"))
    paths = [module.path for module in convolutional]
    assert paths == ["stem", "", "block.first", "block", "block.second", "last", "classifier"]


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    return nets.exported(nets.transformer(), tmp_path_factory.mktemp("transformer"))


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("norm", ["norm", "second_norm"])
def test_a_smoothed_normalisation_introduces_nothing_unless_broken(
    norm: str, static: bool, transformer: onnx.ModelProto
) -> None:
    spec = nets.transformer()
    rows = [spec.random(seed) for seed in range(4)]
    smoothed = nets.quantized(spec, transformer, static)
    parts = {part.module: part for part in attribute(transformer, smoothed, rows)}
    assert parts[norm].introduced < 1e-6
    worse = nets.quantized(spec, broken(transformer, f"{norm}.weight", noisy), static)
    found = attribute(transformer, worse, rows)
    assert max(found, key=lambda part: part.introduced).module == norm


def test_layouts_in_float_compute_the_same() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "sizes"], ["flat"], name="embed/Reshape"),
        helper.make_node("Gemm", ["flat", "w", "b"], ["y"], name="embed/Gemm"),
    ]
    rng = np.random.default_rng(5)
    constants = {"w": rng.normal(0, 1, (4, 6)).astype(np.float32), "b": np.ones(6, np.float32)}
    constants["sizes"] = np.array([-1, 4], np.int64)
    graph = model(nodes, {"x": ["rows", 8]}, {"y": ["rows", 6]}, constants)
    samples = Samples(ROW, tuple(map(str, range(64))))
    observed = calibration.observe(graph, qdq.activations(graph), samples, ("minmax",), lambda done: None)
    static = qdq.quantize_static(graph, QuantConfig(), observed)
    moved = layouts_in_float(static)
    reshaped = next(node.output[0] for node in static.graph.node if node.name == "embed/Reshape")
    before, after = (ort.open_with_taps(graph, [reshaped]).run(ROW) for graph in (static, moved))
    assert (before[reshaped].dtype.name, after[reshaped].dtype.name) == ("uint8", "float32")
    np.testing.assert_array_equal(before["y"], after["y"])
    np.testing.assert_array_equal(after[reshaped], ROW["x"].reshape(-1, 4))


def test_a_cut_graph_reads_what_is_given() -> None:
    graph = amplifying()
    given = {"a": np.full((64, 8), 3.0, np.float32)}
    found = cut(graph, given, ["a"]).run(ROW, given)
    np.testing.assert_allclose(found["a"], ROW["x"] + 1.0)
    np.testing.assert_allclose(found["y"], 100.0 * (2.0 - np.float32(0.99) * ROW["x"]), rtol=1e-4)


def test_what_fp16_cannot_hold_is_given_as_its_largest_value() -> None:
    nodes = [helper.make_node("Neg", ["h"], ["y"], name="n/Neg")]
    kinds = {"h": TensorProto.FLOAT16, "y": TensorProto.FLOAT16}
    graph = model(nodes, {"h": ["rows"]}, {"y": ["rows"]}, {}, kinds)
    row = {"h": np.zeros(2, np.float16)}
    found = cut(graph, row, []).run(row, {"h": np.array([1e6, -2.0], np.float32)})
    assert found["y"].tolist() == [-65504.0, 2.0]


@pytest.mark.parametrize(
    ("right", "other", "expected"),
    [
        ([3.0, 4.0], [3.0, 4.5], 0.1),
        ([3.0, 4.0], [3.0, np.inf], 0.8),
        ([-np.inf, 4.0], [-65504.0, 4.0], 0.0),
        ([0.0, 0.0], [1.0, 0.0], None),
    ],
)
def test_noise_is_relative_to_the_signal(right: list[float], other: list[float], expected: float | None) -> None:
    noise = Noise()
    arrays: list[Array] = [np.asarray(values, np.float32) for values in (right, other)]
    noise.add("a", *arrays)
    assert noise.largest(["a", "unknown"]) == (None if expected is None else pytest.approx(expected))
