"""Linear layers as Gemm on rows: the graph before and after, at several sizes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from edgekit.onnxgraph import gemm
from tests.onnxgraph.graphs import answers, model, operators, rewritten, rounded

WIDE, DEEP = 8, 12
node = helper.make_node
WEIGHTS = {
    "w1": rounded(WIDE, DEEP, seed=1),
    "b1": rounded(DEEP, seed=2),
    "w2": rounded(DEEP, WIDE, seed=3),
    "b2": rounded(WIDE, seed=4),
    "scale": rounded(WIDE, seed=5),
    "shift": rounded(WIDE, seed=6),
}


def graph(nodes: list[onnx.NodeProto], outputs: dict[str, list[int | str]] | None = None) -> onnx.ModelProto:
    """Nodes on rows x [batch, count, 8]; only the weights that they read."""
    read = {name for each in nodes for name in each.input}
    held = {name: values for name, values in WEIGHTS.items() if name in read}
    return model(nodes, {"x": ["batch", "count", WIDE]}, outputs or {"y": ["batch", "count", WIDE]}, held)


def same(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Both give the same answers for several batches of rows."""
    for batch, count in ((1, 1), (2, 5), (3, 4)):
        x = rounded(batch, count, WIDE, seed=batch)
        right, got = answers(before, x=x), answers(after, x=x)
        for name, values in right.items():
            np.testing.assert_allclose(got[name], values, atol=1e-5 * float(np.abs(values).max()))


def layer(source: str, number: int, result: str, *, bias_first: bool = False) -> list[onnx.NodeProto]:
    terms = [f"{result}_product", f"b{number}"]
    return [
        node("MatMul", [source, f"w{number}"], [terms[0]], name=f"{result}/MatMul"),
        node("Add", terms[::-1] if bias_first else terms, [result], name=f"{result}/Add"),
    ]


def test_a_block_is_reshaped_once_on_its_way_in_and_once_on_its_way_out() -> None:
    before = graph(
        [
            node("LayerNormalization", ["x", "scale", "shift"], ["normal"], name="norm"),
            *layer("normal", 1, "hidden"),
            node("Relu", ["hidden"], ["bent"], name="relu"),
            *layer("bent", 2, "update", bias_first=True),
            node("Add", ["x", "update"], ["y"], name="residual"),
        ]
    )
    after = rewritten(before, gemm.flatten)
    found = operators(after)
    assert found["Gemm"] == 2
    assert found["MatMul"] == 0
    assert found["Add"] == 1  # the residual: both biases are in the products
    assert found["Reshape"] == 3  # x, its normalisation, and the output
    same(before, after)


def test_a_layer_is_served_flat_and_whole() -> None:
    """A softmax along the rows' axis wants [batch, count, 12]; the output, too."""
    before = graph(
        [*layer("x", 1, "hidden"), node("Softmax", ["hidden"], ["share"], name="softmax", axis=1)],
        {"share": ["batch", "count", DEEP], "hidden": ["batch", "count", DEEP]},
    )
    after = rewritten(before, gemm.flatten)
    assert operators(after)["Gemm"] == 1
    assert [value.name for value in after.graph.output] == ["share", "hidden"]
    same(before, after)


@pytest.mark.parametrize(
    "nodes",
    [
        [node("MatMul", ["x", "w1"], ["h"]), node("MatMul", ["h", "w2"], ["y"])],
        [
            node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
            node("MatMul", ["x", "t"], ["p"]),
            node("MatMul", ["p", "x"], ["y"]),
        ],
        [node("Add", ["x", "shift"], ["a"]), node("Relu", ["a"], ["y"])],
    ],
    ids=["no bias", "no constant weight", "no product"],
)
def test_what_is_no_linear_layer_with_a_bias_is_left_alone(nodes: list[onnx.NodeProto]) -> None:
    before = graph(nodes)
    assert operators(rewritten(before, gemm.flatten)) == operators(before)


def test_a_normalisation_over_more_than_the_last_axis_is_not_flattened() -> None:
    """Over [count, 12] it would mix the rows of a batch with those of the next."""
    nodes = [*layer("x", 1, "hidden"), node("LayerNormalization", ["hidden", "s"], ["y"], name="norm", axis=1)]
    held = {"w1": WEIGHTS["w1"], "b1": WEIGHTS["b1"], "s": rounded(5, DEEP)}
    before = model(nodes, {"x": ["batch", 5, WIDE]}, {"y": ["batch", 5, DEEP]}, held)
    after, x = rewritten(before, gemm.flatten), rounded(2, 5, WIDE)
    assert operators(after)["Gemm"] == 1
    np.testing.assert_allclose(answers(after, x=x)["y"], answers(before, x=x)["y"], atol=1e-4)
