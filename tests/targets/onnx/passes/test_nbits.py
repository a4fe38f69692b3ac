"""Weights in 4 and 8 bits: near the float layer, transposed, with a bias, shared, and of any number of inputs."""

from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgekit_targets.onnx.passes import dynamic
from edgekit_targets.onnx.passes.dynamic import PackedWeights, quantize_blocks
from tests.targets.onnx.passes.graphs import answers, model, noise, rounded

FIRST, SECOND = "first/MatMul", "second/Gemm"


def chain(inputs: int = 96, shared: bool = False) -> onnx.ModelProto:
    """x [batch, inputs] -> MatMul -> y; -> Gemm with transB and a bias -> z, of the same weight where it is shared."""
    weight = np.random.default_rng(0).normal(0, 0.1, (inputs, inputs)).astype(np.float32)
    held = {"w": weight, "b": rounded(inputs)} | ({} if shared else {"v": weight.T.copy()})
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name=FIRST),
        helper.make_node("Gemm", ["y", "w" if shared else "v", "b"], ["z"], name=SECOND, transB=int(not shared)),
    ]
    return model(nodes, {"x": ["batch", inputs]}, {"z": ["batch", inputs]}, held)


def packed(graph: onnx.ModelProto) -> dict[str, int]:
    nodes = [node for node in graph.graph.node if node.op_type == "MatMulNBits"]
    return {node.name: next(a.i for a in node.attribute if a.name == "bits") for node in nodes}


@pytest.mark.parametrize("inputs", [96, 40], ids=["whole blocks", "a block that is not full"])
def test_4_bits_are_near_and_8_bits_nearer(inputs: int) -> None:
    graph = chain(inputs)
    x = np.random.default_rng(1).normal(0, 1, (5, inputs)).astype(np.float32)
    coarse, fine = (quantize_blocks(graph, (FIRST, SECOND), eight) for eight in ((), (FIRST, SECOND)))
    assert packed(coarse) == {FIRST: 4, SECOND: 4}
    assert packed(fine) == {FIRST: 8, SECOND: 8}
    assert 0.02 < noise(graph, coarse, x=x) < 0.2
    assert noise(graph, fine, x=x) < 0.02
    assert {i.name for i in coarse.graph.initializer}.isdisjoint({"w", "v"})
    assert packed(graph) == {}  # the given one stays as it is


def test_smaller_blocks_are_nearer() -> None:
    graph = chain()
    x = np.random.default_rng(1).normal(0, 1, (5, 96)).astype(np.float32)
    found = [noise(graph, quantize_blocks(graph, (FIRST, SECOND), block=block), x=x) for block in (16, 64)]
    assert found[0] < found[1]


def test_layers_that_are_not_named_stay() -> None:
    graph = quantize_blocks(chain(), (FIRST,))
    assert [node.op_type for node in graph.graph.node] == ["MatMulNBits", "Gemm"]


def test_a_weight_that_two_layers_share_is_stored_once_with_the_more_bits() -> None:
    graph = chain(shared=True)
    x = np.random.default_rng(1).normal(0, 1, (5, 96)).astype(np.float32)
    made = quantize_blocks(graph, (FIRST, SECOND), (SECOND,))
    assert packed(made) == {FIRST: 8, SECOND: 8}
    assert sum(i.name.endswith("_blocks") for i in made.graph.initializer) == 1
    assert noise(graph, made, x=x) < 0.02


def test_it_is_right_at_other_places_than_the_first_rows() -> None:
    """Against the weights unpacked by hand: (value - zero point) x scale, in blocks of 32 inputs."""
    graph = chain()
    made = quantize_blocks(graph, (FIRST,))
    held = {i.name: numpy_helper.to_array(i) for i in made.graph.initializer}
    blocks, scales, zeros = (held[f"w_{part}"] for part in ("blocks", "scales", "zero_points"))
    values = np.stack([blocks & 15, blocks >> 4], -1).reshape(96, 3, 32).astype(np.float32)
    points = np.stack([zeros & 15, zeros >> 4], -1).reshape(96, -1)[:, :3, None].astype(np.float32)
    weight = ((values - points) * scales.reshape(96, 3, 1)).reshape(96, 96).T
    x = np.random.default_rng(1).normal(0, 1, (5, 96)).astype(np.float32)
    expected = (x @ weight) @ held["v"].T + held["b"]
    np.testing.assert_allclose(answers(made, x=x)["z"], expected, atol=0.02 * float(np.abs(expected).max()))


def test_a_search_packs_each_layer_once_a_width(monkeypatch: pytest.MonkeyPatch) -> None:
    pack = Mock(wraps=dynamic._pack_weights)
    monkeypatch.setattr(dynamic, "_pack_weights", pack)
    graph: onnx.ModelProto = chain()
    cache: dict[tuple[str, int], PackedWeights] = {}
    for eight in ((), (SECOND,), (FIRST, SECOND), ()):
        candidate = quantize_blocks(graph, (FIRST, SECOND), eight, cache=cache)
        assert candidate == quantize_blocks(graph, (FIRST, SECOND), eight)
    assert pack.call_count == 4 + 4 * 2
