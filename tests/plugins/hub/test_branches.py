"""Two graphs in one file: each branch answers as its graph, weights are there once, a loop in a branch goes along."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper, parser

from edgekit.model.spec import Array
from edgekit_hub.folder import join_graphs

NAMES = {"present_a": "present.a", "past_a": "past_key_values.a"}
WEIGHTS = np.arange(4, dtype=np.float32)
FIRST = """<ir_version: 9, opset_import: ["" : 20]>
first (float[batch, n] x, float[batch, 4] states) => (float[batch, 4] y, float[batch, 4] present_a) {
  shared = Add(states, weights)
  once = ReduceSum<keepdims = 1>(x)
  y = Mul(shared, once)
  present_a = Identity(shared)
}"""
FURTHER = """<ir_version: 9, opset_import: ["" : 20]>
further (float[batch, 1] x, float[batch, 4] past_a, bool yes) => (float[batch, 4] y) {
  shared = Mul(past_a, weights)
  y = If (yes) <
    then_branch = then () => (float[batch, 4] kept) { kept = Add(shared, x) },
    else_branch = other () => (float[batch, 4] kept) { kept = Sub(shared, weights) }
  >
}"""


def graph(text: str) -> onnx.ModelProto:
    made = parser.parse_model(text)  # which takes no dots in names
    for value in (*made.graph.input, *made.graph.output):
        value.name = NAMES.get(value.name, value.name)
    for node in made.graph.node:
        node.input[:] = [NAMES.get(name, name) for name in node.input]
        node.output[:] = [NAMES.get(name, name) for name in node.output]
    made.graph.initializer.append(numpy_helper.from_array(WEIGHTS, "weights"))
    return made


def test_each_branch_is_its_graph() -> None:
    whole = join_graphs(graph(FIRST), graph(FURTHER))
    onnx.checker.check_model(whole, full_check=True)
    assert [numpy_helper.to_array(one).tolist() for one in whole.graph.initializer] == [WEIGHTS.tolist()]
    sizes = {i.name: [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in whole.graph.input}
    assert sizes["x"] == ["batch", "n"]  # of the first, which takes more
    session = onnxruntime.InferenceSession(whole.SerializeToString())
    x, states, past = (np.array([row], np.float32) for row in ([2], [1, 2, 3, 4], [5, 6, 7, 8]))
    given = {"x": x, "states": states, "past_key_values.a": past}

    def asked(further: bool, inner: bool) -> list[Array]:
        feed = {**given, "yes": np.array(inner), "use_cache_branch": np.array([further])}
        return [np.asarray(one) for one in session.run(["y", "present.a"], feed)]

    first = states + WEIGHTS
    for answer, expected in (
        (asked(False, True), (first * 2, first)),
        (asked(True, True), (past * WEIGHTS + x, past)),  # what stays is what was given
        (asked(True, False), (past * WEIGHTS - WEIGHTS, past)),
    ):
        assert [one.tolist() for one in answer] == [one.tolist() for one in expected]
