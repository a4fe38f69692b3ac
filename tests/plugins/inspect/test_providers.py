"""What a provider would take of a graph, by its table, and what QNN's own compiler takes where it is installed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from edgekit.cli.use_commands import show_provider
from onnx import TensorProto, helper, numpy_helper

from edgekit_inspect import providers
from edgekit_inspect.operator_rules import RULES, TABLES, operators, place_of
from edgekit_inspect.providers import Answer, Coverage, covered, largest_value
from edgekit_targets.onnx import qnn
from edgekit_targets.onnx.passes.optimizer import fixed
from tests.command import exit_code

IMAGE = {"x": np.ones((1, 3, 8, 8), np.float32)}


def _graph(
    nodes: Sequence[onnx.NodeProto],
    *constants: tuple[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]],
    batch: int | str = 1,
    opset: int = 20,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 8])],
        [onnx.ValueInfoProto(name=nodes[-1].output[0])],
        [numpy_helper.from_array(value, name) for name, value in constants],
    )
    inferred = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), data_prop=True
    )
    assert inferred.graph.output[0].type.tensor_type.elem_type
    return inferred


def _conv(source: str, weight: str, out: str) -> onnx.NodeProto:
    return helper.make_node("Conv", [source, weight], [out], out, pads=[1, 1, 1, 1])


def _node(operator: str, inputs: Sequence[str], out: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, inputs, [out], out, **attributes)


WEIGHT = ("w", np.full((3, 3, 3, 3), 0.1, np.float32))


def _why(found: Coverage) -> dict[str, str]:
    return {operator: left.reason for left in found.left for operator in left.operators}


def test_a_node_between_cuts_the_graph_and_multiplications_are_counted() -> None:
    graph = _graph([_conv("x", "w", "a"), _node("Gelu", ["a"], "b"), _conv("b", "w", "c")], WEIGHT)
    found = covered(graph, TABLES["nnapi"], IMAGE, {})
    assert (found.nodes, found.taken, found.partitions, found.share) == (3, 2, 2, 1.0)
    assert _why(found) == {"Gelu": "the operator is not in the table"}
    assert found.multiplications == 2 * 3 * 8 * 8 * 27
    whole = covered(graph, TABLES["coreml"], IMAGE, {})
    assert (whole.taken, whole.partitions, whole.left) == (3, 1, ())


def test_open_sizes_are_left_by_those_that_take_none_and_taken_when_fixed() -> None:
    graph = _graph([_conv("x", "w", "a"), _node("Relu", ["a"], "b")], WEIGHT, batch="batch")
    found = covered(graph, TABLES["nnapi"], IMAGE, {})
    assert (found.taken, found.share) == (0, 0.0)
    assert set(_why(found).values()) == {"takes fixed sizes only"}
    assert covered(fixed(graph, {"x": (1, 3, 8, 8)}), TABLES["nnapi"], IMAGE, {"batch": 1}).taken == 2
    assert covered(graph, TABLES["tensorrt"], IMAGE, {}).taken == 2


def test_a_convolution_with_computed_weights_is_left() -> None:
    graph = _graph([_node("Relu", ["w"], "v"), _conv("x", "v", "a")], WEIGHT)
    found = covered(graph, TABLES["nnapi"], IMAGE, {})
    assert _why(found) == {"Conv": "Weights and bias should be constant"}
    assert found.share == 0
    assert covered(graph, TABLES["tensorrt"], IMAGE, {}).left == ()


def test_ranks_and_types_are_held_to_the_table() -> None:
    six = ("six", np.array([1, 1, 3, 2, 4, 8]))
    deep = _graph([_node("Reshape", ["x", "six"], "a"), _node("Relu", ["a"], "b")], six)
    assert _why(covered(deep, TABLES["coreml"], IMAGE, {})) == {"Relu": "rank 6 is more than 5"}
    assert covered(deep, TABLES["tensorrt"], IMAGE, {}).left == ()
    whole = _graph([_node("Cast", ["x"], "a", to=TensorProto.INT64), _node("Add", ["a", "a"], "b")])
    assert _why(covered(whole, TABLES["nnapi"], IMAGE, {})) == {"Add": "INT64 is not among its types"}
    double = _graph([_node("Cast", ["x"], "a", to=TensorProto.DOUBLE), _node("Add", ["a", "a"], "b")])
    assert _why(covered(double, TABLES["tensorrt"], IMAGE, {})) == {"Add": "FP64 is not among its types"}


@pytest.mark.parametrize(("kind", "point", "left"), [("int8", 0, 0), ("int8", 3, 2), ("uint8", 0, 1)])
def test_tensorrt_takes_signed_symmetric_quantization_only(kind: str, point: int, left: int) -> None:
    constants = ("s", np.array(0.1, np.float32)), ("z", np.array(point, kind))
    nodes = [_node("QuantizeLinear", ["x", "s", "z"], "q"), _node("DequantizeLinear", ["q", "s", "z"], "y")]
    found = covered(_graph(nodes, *constants), TABLES["tensorrt"], IMAGE, {})
    assert found.nodes - found.taken == left


def test_an_opset_outside_the_range_is_left_whole() -> None:
    graph = _graph([_conv("x", "w", "a")], WEIGHT, opset=8)
    assert _why(covered(graph, TABLES["tensorrt"], IMAGE, {})) == {"Conv": "opset 8 is not in 9 to 24"}


def test_nodes_of_branches_are_counted_and_what_is_not_checked_is_named() -> None:
    branches = [
        helper.make_graph([_node("Relu" if one else "Gelu", ["x"], name)], name, [], [onnx.ValueInfoProto(name=name)])
        for one, name in enumerate(("no", "yes"))
    ]
    graph = _graph([_node("If", ["c"], "y", then_branch=branches[1], else_branch=branches[0])], ("c", np.array(True)))
    found = covered(graph, TABLES["tensorrt"], IMAGE, {})
    assert (found.nodes, found.taken, found.uncounted) == (3, 3, {"If": 1})
    (unchecked,) = found.unchecked
    assert unchecked.startswith("If: Both branches")
    assert covered(graph, TABLES["nnapi"], IMAGE, {}).taken == 1


def test_the_largest_value_names_its_tensor() -> None:
    graph = _graph([_node("Mul", ["x", "k"], "big"), _node("Sqrt", ["big"], "y")], ("k", np.array(7e4, np.float32)))
    assert largest_value(graph, IMAGE) == (70000.0, "big")


def test_each_check_stands_for_a_restriction_of_a_table() -> None:
    written = {
        note for table in TABLES.values() for _, notes in operators(place_of(table.file)).values() for note in notes
    }
    assert RULES.keys() <= written


def test_the_command_shows_both_sizes_and_says_that_nothing_was_verified(
    small_build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("inspect", small_build / "onnx", "--provider", "nnapi", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verified"] is False
    assert onnxruntime.__version__ in told["said_by"]
    before, after = told["found"]
    assert before["taken"] < after["taken"]
    assert sum(n for left in after["left"] for n in left["operators"].values()) == after["nodes"] - after["taken"]
    assert exit_code("inspect", small_build / "onnx", "--provider", "nnapi") == 0
    assert "not verified here" in capsys.readouterr().out


@pytest.mark.parametrize(("axis", "target"), [("height", "onnx-buckets"), ("batch", "onnx -O onnx.shapes=static")])
def test_the_next_step_is_one_that_the_model_can_take(
    axis: str, target: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = (
        Coverage(sizes, 1, taken, 1, 8, 8 * taken, (), (), {}) for sizes, taken in (({}, 0), ({axis: 1}, 1))
    )
    monkeypatch.setattr(providers, "would_take", lambda *_: Answer("onnx", "nnapi", "a table", (before, after)))
    show_provider(Path("onnx"), "nnapi", False, False)
    assert f"next: edgekit export -t {target}  #" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [(("--provider", "nnap"), "did you mean 'nnapi'"), (("--provider", "nnapi", "--html", "x"), "name one of them")],
)
def test_what_cannot_be_asked_is_refused(
    more: tuple[str, ...], said: str, small_build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("inspect", small_build / "onnx", *more) == 2
    assert said in capsys.readouterr().err


def test_qnn_is_named_where_it_is_not_installed(
    small_build: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qnn, "PACKAGE", "not_installed")
    assert exit_code("inspect", small_build / "onnx", "--provider", "qnn") == 2
    assert "pip install onnxruntime-qnn" in capsys.readouterr().err


@pytest.mark.skipif(not qnn.installed(), reason="pip install onnxruntime-qnn")
def test_qnn_itself_takes_a_graph_of_fixed_sizes(small_build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("inspect", small_build / "onnx", "--provider", "qnn", "--json") == 0
    before, after = json.loads(capsys.readouterr().out)["found"]
    assert (before["taken"], before["partitions"]) == (0, 0)
    assert after["taken_multiplications"] == after["multiplications"] > 0
    assert after["partitions"] >= 1


@pytest.mark.skipif(not qnn.installed(), reason="pip install onnxruntime-qnn")
def test_qnn_leaves_what_its_compiler_has_not() -> None:
    nodes = [_node("Relu", ["x"], "a"), _node("Det", ["a"], "b"), _node("Relu", ["b"], "c")]
    assert qnn.assigned(_graph(nodes)) == (2, {"b"})
