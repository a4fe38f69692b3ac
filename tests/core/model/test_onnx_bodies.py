"""What is done to an ONNX node reaches into its branches and loops, and stops where they have a name of their own."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from edgekit.model.onnx_check import every_node, names_read, rename


def nested(shadow: str) -> onnx.NodeProto:
    """An If whose branch holds a Loop that reads `x`; the loop's own state is called `shadow`."""
    state = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in (shadow, "state_out")]
    count, go, still = (
        helper.make_tensor_value_info(name, kind, [])
        for name, kind in (("i", TensorProto.INT64), ("go", TensorProto.BOOL), ("still", TensorProto.BOOL))
    )
    steps = [helper.make_node("Add", ["x", "y"], ["state_out"]), helper.make_node("Identity", ["go"], ["still"])]
    body = helper.make_graph(steps, "body", [count, go, state[0]], [still, state[1]])
    loop = helper.make_node("Loop", ["n", "", "start"], ["end"], body=body)
    out = helper.make_tensor_value_info("end", TensorProto.FLOAT, [2])
    branch = helper.make_graph([loop], "branch", [], [out])
    other = helper.make_graph([], "other", [], [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])])
    return helper.make_node("If", ["which"], ["z"], then_branch=branch, else_branch=other)


def test_every_level_is_walked_and_read() -> None:
    graph = helper.make_graph([nested("state")], "graph", [], [])
    assert [node.op_type for node in every_node(graph)] == ["If", "Loop", "Add", "Identity"]
    assert {"which", "n", "start", "x", "y", "go"} <= set(names_read(graph.node[0]))


def test_a_name_is_changed_wherever_it_is_seen() -> None:
    node = nested("state")
    rename(node, {"x": "other_x", "y": "other_y"})
    loop, add = node.attribute[1].g.node[0], node.attribute[1].g.node[0].attribute[0].g.node[0]
    assert (list(add.input), list(loop.input)) == (["other_x", "other_y"], ["n", "", "start"])
    assert node.attribute[0].g.output[0].name == "other_x"


def test_a_body_that_has_the_name_itself_keeps_it() -> None:
    node = nested("x")
    rename(node, {"x": "other_x", "y": "other_y"})
    body = node.attribute[1].g.node[0].attribute[0].g
    assert list(body.node[0].input) == ["x", "other_y"]
    assert body.input[2].name == "x"
