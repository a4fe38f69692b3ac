"""What changes nothing is taken out, an epsilon is not; fixed sizes leave nothing that is computed of shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from edgekit.model.contract import check_spec
from edgekit.model.graph import capture
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit.runtime.ort import OrtRuntime
from edgekit_targets.onnx import export as onnx_target
from edgekit_targets.onnx.passes import patterns
from edgekit_targets.onnx.passes.graph import exact, fix_shapes, save_graph
from tests.targets.onnx.passes.graphs import answers, model, operators, rounded

CHANGES = {"Add": 1e-8, "Sub": 1e-12, "Mul": 1.000004, "Div": 0.999996}
NOTHING = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0}


def chain(numbers: dict[str, float]) -> onnx.ModelProto:
    """One operator after the other, each with its number."""
    at = ["x", *(f"after {name}" for name in numbers)]
    nodes = [helper.make_node(name, [at[n], name], [at[n + 1]], name=name) for n, name in enumerate(numbers)]
    nodes.append(helper.make_node("Sqrt", [at[-1]], ["y"], name="Sqrt"))
    held = {name: np.array(value, np.float32) for name, value in numbers.items()}
    return model(nodes, {"x": ("N", 4)}, {"y": ("N", 4)}, held)


def test_an_epsilon_stays_and_what_changes_nothing_goes() -> None:
    made = patterns.normalize_foreign(chain(CHANGES), ["x"], ["y"])
    assert operators(made) == dict.fromkeys([*CHANGES, "Sqrt"], 1)
    x = np.abs(rounded(2, 4))
    x[0] = 0
    assert np.array_equal(answers(made, x=x)["y"], answers(chain(CHANGES), x=x)["y"])
    assert answers(made, x=x)["y"][0] == pytest.approx(1e-4, rel=1e-3)
    assert operators(patterns.normalize_foreign(chain(NOTHING), ["x"], ["y"])) == {"Identity": 4, "Sqrt": 1}


def test_a_modules_epsilon_stays_whether_sizes_are_open_or_fixed() -> None:
    import torch
    from torch import nn

    class Unit(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / (torch.sqrt((x * x).sum(1, keepdim=True)) + 1e-8)

    spec = check_spec(
        ModelSpec("unit", Unit().eval(), (Input("x", ("batch", 4)),), (Output("y"),), {"batch": Axis(1, 1, 3)})
    )
    made = onnx_target._translate(spec, capture(spec), 20)
    for graph in (made, fix_shapes(made, {"x": (1, 4)})):
        assert not answers(graph, x=np.zeros((1, 4), np.float32)).popitem()[1].any()


def test_the_rules_are_as_they_were_afterwards() -> None:
    from onnxscript import rewriter

    def left() -> set[str]:
        return set(operators(rewriter.rewrite(chain(CHANGES))))

    before = left()
    with exact():
        assert left() == {*CHANGES, "Sqrt"}
    assert left() == before


def test_what_is_computed_of_shapes_becomes_a_constant(tmp_path: Path) -> None:
    """x [batch, n, 4] -> its rows in one line, by its own shape."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["line"], axis=0),
        helper.make_node("Reshape", ["x", "line"], ["y"]),
    ]
    held = {"first": np.array([0]), "rest": np.array([-1])}
    graph = model(nodes, {"x": ["batch", "n", 4]}, {"y": ["batch", "4*n"]}, held)
    made = fix_shapes(graph, {"x": (2, 3, 4)})
    save_graph(made, tmp_path / "fixed.onnx")
    assert [node.op_type for node in made.graph.node] == ["Reshape"]
    assert [d.dim_value for d in made.graph.output[0].type.tensor_type.shape.dim] == [2, 12]
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(OrtRuntime(tmp_path / "fixed.onnx").run({"x": x})["y"], x.reshape(2, 12))
    assert graph.graph.node[0].op_type == "Shape", "the graph that was given is as it was"
