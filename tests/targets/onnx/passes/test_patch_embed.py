"""Patch embedding as Gemm: the same rows at every size that tiles, and a convolution wherever it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edgekit_targets.onnx.passes import patterns
from tests.targets.onnx.passes.graphs import answers, model, operators, rewritten, rounded

SIDE, WIDE = 4, 6
node = helper.make_node


def embedding(scaled: bool = False, read: str = "", shared: bool = False, **attributes: Any) -> onnx.ModelProto:
    """image [B, 3, H, W] -> Conv [B, 6, h, w] -> Reshape [B, 6, h * w] -> Transpose [B, h * w, 6] -> y, negated.

    Args:
        scaled: Whether (image - 0.5) * 3 is embedded.
        read: Also an output of the graph.
        shared: Whether another convolution reads the weight.
        attributes: Of the Conv; by default its kernel is its stride.
    """
    given: dict[str, Any] = {"strides": [SIDE, SIDE], "kernel_shape": [SIDE, SIDE]} | attributes
    shift = [node("Sub", ["image", "half"], ["shifted"]), node("Mul", ["shifted", "three"], ["pixels"])]
    nodes = [
        *(shift if scaled else []),
        node("Conv", ["pixels" if scaled else "image", "weight", "bias"], ["maps"], name="patch/Conv", **given),
        node("Reshape", ["maps", "sizes"], ["flat"], name="flatten"),
        node("Transpose", ["flat"], ["rows"], name="rows", perm=[0, 2, 1]),
        node("Neg", ["rows"], ["y"], name="negate"),
    ]
    outputs: dict[str, list[int | str]] = {"y": ["batch", "count", WIDE]}
    if read:
        outputs[read] = ["batch", WIDE, "high", "wide"] if read == "maps" else ["batch", "count", WIDE]
    if shared:
        nodes.append(node("Conv", ["image", "weight"], ["other"], name="other/Conv", strides=[SIDE, SIDE]))
        outputs["other"] = ["batch", WIDE, "high", "wide"]
    held = {"weight": rounded(WIDE, 3, SIDE, SIDE), "bias": rounded(WIDE, seed=1), "sizes": np.array([0, WIDE, -1])}
    if scaled:
        held |= {"half": np.array(0.5, np.float32), "three": np.array(3.0, np.float32)}
    return model(nodes, {"image": ["batch", 3, "height", "width"]}, outputs, held)


def embedded(graph: onnx.ModelProto, multiple: int = SIDE) -> onnx.ModelProto:
    return rewritten(graph, lambda typed: patterns.patches_as_gemm(typed, {"image": (1, 3, multiple, multiple)}))


def same(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    for sizes in ((1, 3, 8, 8), (2, 3, 16, 12), (3, 3, 8, 20)):
        image = rounded(*sizes)
        right, got = answers(before, image=image), answers(after, image=image)
        for name, values in right.items():
            np.testing.assert_allclose(got[name], values, atol=1e-5 * float(np.abs(values).max()))


def test_patches_are_rows_of_a_gemm() -> None:
    before = embedding()
    after = embedded(before)
    found = operators(after)
    assert (found["Gemm"], found["Conv"], found["Transpose"]) == (1, 0, 1)
    same(before, after)


def test_a_shift_and_a_scale_of_the_image_go_into_the_weights() -> None:
    before = embedding(scaled=True)
    after = embedded(before)
    found = operators(after)
    assert (found["Gemm"], found["Conv"], found["Sub"], found["Mul"]) == (1, 0, 0, 0)
    same(before, after)


@pytest.mark.parametrize(
    "changes",
    [
        {"pads": [1, 1, 1, 1]},
        {"pads": [1, 1, 1, 1], "scaled": True},
        {"strides": [2, 2]},
        {"dilations": [2, 2], "kernel_shape": [SIDE, SIDE]},
        {"read": "maps"},
        {"read": "rows"},
        {"shared": True},
    ],
    ids=[
        "padded",
        "padded and scaled",
        "overlapping",
        "dilated",
        "its maps are an output",
        "its rows are an output",
        "its weight is shared",
    ],
)
def test_another_convolution_stays_one(changes: dict[str, Any]) -> None:
    before = embedding(**changes)
    after = embedded(before)
    assert operators(after) == operators(before)
    same(before, after)


def test_sizes_that_leave_a_rest_keep_the_convolution() -> None:
    """A convolution drops what is left over; a Gemm could not."""
    before = embedding()
    assert operators(embedded(before, multiple=SIDE + 2)) == operators(before)
