"""Packed attention heads: picked apart by one Split, or left as they are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from edgekit.onnxgraph import split_qkv
from tests.onnxgraph.graphs import answers, model, operators, rewritten, rounded

BATCH, COUNT, HEADS, SIZE = 2, 5, 3, 4
node = helper.make_node


def packed(
    perm: tuple[int, ...] = (2, 0, 3, 1, 4), picks: tuple[int, ...] = (0, 1, 2), axis: int = 0, parts: int = 3
) -> onnx.ModelProto:
    """x [B, N, parts * heads * d] -> [B, N, parts, heads, d] -> transposed -> Gather -> one negated output a pick."""
    sizes = (BATCH, COUNT, parts, HEADS, SIZE)
    laid = [sizes[i] for i in perm]
    left: list[int | str] = [*laid[:axis], *laid[axis + 1 :]]
    nodes = [
        node("Reshape", ["x", "sizes"], ["heads"], name="heads"),
        node("Transpose", ["heads"], ["moved"], name="move", perm=perm),
    ]
    for number, pick in enumerate(picks):
        nodes += [
            node("Gather", ["moved", f"index{pick}"], [f"part{number}"], name=f"pick{number}", axis=axis),
            node("Neg", [f"part{number}"], [f"y{number}"], name=f"negate{number}"),
        ]
    held = {f"index{pick}": np.array(pick) for pick in picks} | {"sizes": np.array(sizes)}
    outputs = {f"y{number}": left for number in range(len(picks))}
    return model(nodes, {"x": [BATCH, COUNT, parts * HEADS * SIZE]}, outputs, held)


def same(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    x = rounded(*(d.dim_value for d in before.graph.input[0].type.tensor_type.shape.dim))
    right, got = answers(before, x=x), answers(after, x=x)
    for name, values in right.items():
        np.testing.assert_array_equal(got[name], values)


@pytest.mark.parametrize("picks", [(0, 1, 2), (2, 0, 1)])
def test_queries_keys_and_values_come_from_one_split(picks: tuple[int, ...]) -> None:
    before = packed(picks=picks)
    after = rewritten(before, split_qkv.split)
    found = operators(after)
    assert (found["Split"], found["Gather"], found["Transpose"], found["Reshape"]) == (1, 0, 1, 1)
    same(before, after)


def test_keys_and_values_alone_are_split_too() -> None:
    before = packed(picks=(0, 1), parts=2)
    after = rewritten(before, split_qkv.split)
    assert operators(after)["Split"] == 1
    same(before, after)


@pytest.mark.parametrize(
    "changes",
    [{"picks": (0, 1)}, {"perm": (2, 0, 1, 3, 4)}, {"axis": 1, "picks": (0, 1)}],
    ids=["one is not picked", "another order of axes", "picked from another axis"],
)
def test_another_pattern_is_left_alone(changes: dict[str, tuple[int, ...]]) -> None:
    before = packed(**changes)  # type: ignore[arg-type]
    after = rewritten(before, split_qkv.split)
    assert operators(after)["Split"] == 0
    same(before, after)


def test_a_packing_that_others_read_is_left_alone() -> None:
    before = packed()
    before.graph.node.append(node("ReduceSum", ["moved"], ["total"], name="total", keepdims=0))
    before.graph.output.append(helper.make_tensor_value_info("total", onnx.TensorProto.FLOAT, []))
    assert operators(rewritten(before, split_qkv.split))["Split"] == 0


def test_a_part_that_is_an_output_keeps_its_name() -> None:
    before = packed()
    before.graph.output.append(
        helper.make_tensor_value_info("part1", onnx.TensorProto.FLOAT, [BATCH, HEADS, COUNT, SIZE])
    )
    after = rewritten(before, split_qkv.split)
    assert "part1" in [value.name for value in after.graph.output]
    same(before, after)
