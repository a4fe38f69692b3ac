"""What all passes of this room share: how they are called, and how a graph is written.

A pass is a function of a graph (`onnx.ModelProto`) and its settings. It returns the new graph and changes nothing of
the given one; what else it found comes second. A pass that follows values to their producers and readers is written on
onnx_ir, and declared with `on_ir`: it also takes the model that PyTorch's exporter made. Declared with `graph_pass` or
`on_ir`, a pass is named in `passes.json` beside the graph, with the operators that it made and took away.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from edgekit.errors import ExportError, reason
from edgekit.model.onnx_check import names_read

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

PASSES = "passes.json"
"""Beside a graph that was saved: by pass in their order `name`, `made` and `removed`, operators by their number."""
_HISTORY = "edgekit.passes"
P = ParamSpec("P")
R = TypeVar("R")
G = TypeVar("G", bound="onnx.ModelProto | ir.Model")
Graph = TypeVar("Graph", "onnx.ModelProto", "ir.Model")


class Step(Protocol):
    """What a formula of `unfolded` adds its nodes with."""

    def __call__(self, operator: str, *inputs: str, output: str = "") -> str:
        """Add a node; its output has this name, or one of its own, which is the answer."""


class IrPass(Protocol[P]):
    """A pass that takes either form of a graph."""

    def __call__(self, graph: Graph, /, *args: P.args, **kwargs: P.kwargs) -> Graph:
        """Rewrite a graph; one of onnx_ir is changed itself, since a copy would name its values anew."""


def on_ir(rewrite: Callable[Concatenate[ir.Model, P], None]) -> IrPass[P]:
    """A pass out of a function that changes a model of onnx_ir."""

    def apply(graph: Graph, /, *args: P.args, **kwargs: P.kwargs) -> Graph:
        import onnx_ir as ir

        if isinstance(graph, ir.Model):
            rewrite(graph, *args, **kwargs)
            return graph
        model = ir.from_proto(graph)
        rewrite(model, *args, **kwargs)
        return ir.to_proto(model)

    named: Any = wraps(rewrite)(apply)
    return cast("IrPass[P]", graph_pass(named))


def graph_pass(rewrite: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
    """A pass that notes in the graph which operators it made and took away, but for what passes that it called did."""

    @wraps(rewrite)
    def apply(graph: G, /, *args: P.args, **kwargs: P.kwargs) -> R:
        before, known = _operators(graph), _history(graph)
        result = rewrite(graph, *args, **kwargs)
        made: Any = result[0] if isinstance(result, tuple) else result
        inner = _history(made)[len(known) :]
        change = _operators(made)
        change.subtract(before)
        for one in inner:
            change.subtract(one["made"])
            change.update(one["removed"])
        if not any(change.values()) and (made is graph or made.graph == graph.graph):  # an onnx_ir graph is itself
            _set_history(made, [*known, *inner])
            return result
        name = f"{rewrite.__module__.rpartition('.')[2]}.{rewrite.__name__}"
        own = {"name": name, "made": dict(sorted((+change).items())), "removed": dict(sorted((-change).items()))}
        _set_history(made, [*known, *inner, own])
        return result

    return apply


def _operators(graph: onnx.ModelProto | ir.Model) -> Counter[str]:
    import onnx

    return Counter(node.op_type for node in (graph.graph.node if isinstance(graph, onnx.ModelProto) else graph.graph))


def _history(graph: onnx.ModelProto | ir.Model) -> list[dict[str, Any]]:
    import onnx

    if isinstance(graph, onnx.ModelProto):
        text = next((one.value for one in graph.metadata_props if one.key == _HISTORY), "[]")
    else:
        text = graph.metadata_props.get(_HISTORY, "[]")
    passes: list[dict[str, Any]] = json.loads(text)
    return passes


def _set_history(graph: onnx.ModelProto | ir.Model, passes: list[dict[str, Any]]) -> None:
    """Let the history be this one; where it is empty, the graph has none."""
    import onnx

    if not isinstance(graph, onnx.ModelProto):
        graph.metadata_props.pop(_HISTORY, None)
        graph.metadata_props.update({_HISTORY: json.dumps(passes)} if passes else {})
        return
    others = [one for one in graph.metadata_props if one.key != _HISTORY]
    del graph.metadata_props[:]
    graph.metadata_props.extend(others)
    if passes:
        graph.metadata_props.add(key=_HISTORY, value=json.dumps(passes))


def unfolded(
    graph: onnx.ModelProto,
    wanted: Callable[[onnx.NodeProto], bool],
    formula: Callable[[Step, str, str], object],
    part: str,
    constants: Mapping[str, float],
) -> onnx.ModelProto:
    """A graph whose wanted nodes of one input are written as several; those in branches and loops stay.

    Args:
        graph: In fp32.
        wanted: Which nodes.
        formula: Called with `step(operator, *inputs, output="")`, which adds a node and gives its output's name, with
            the wanted node's input, and with its output, which the last step writes.
        part: In the names of the values between them: `<output>/<part>_<number>`.
        constants: What the formula reads, by name; added to a graph that has such a node.
    """
    import numpy as np
    from onnx import numpy_helper

    made = copied(graph)
    nodes: list[onnx.NodeProto] = []
    for node in made.graph.node:
        nodes += _steps(node, formula, part) if wanted(node) else [node]
    if len(nodes) > len(made.graph.node):
        made.graph.initializer.extend(
            numpy_helper.from_array(np.array(value, np.float32), name) for name, value in constants.items()
        )
    set_nodes(made.graph, nodes)
    return made


def _steps(node: onnx.NodeProto, formula: Callable[[Step, str, str], object], part: str) -> list[onnx.NodeProto]:
    from onnx import helper

    result = node.output[0]
    nodes: list[onnx.NodeProto] = []

    def step(operator: str, *inputs: str, output: str = "") -> str:
        name = output or f"{result}/{part}_{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [name], name=f"{node.name or result}/{len(nodes)}"))
        return name

    formula(step, node.input[0], result)
    return nodes


def copied(graph: onnx.ModelProto) -> onnx.ModelProto:
    """The copy of a graph that a pass changes."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    return copy


def readers(graph: onnx.ModelProto) -> dict[str, list[onnx.NodeProto]]:
    """The nodes that read each tensor, as often as they read it."""
    nodes: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.graph.node:
        for name in node.input:
            nodes.setdefault(name, []).append(node)
    return nodes


def set_nodes(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Give a graph other nodes."""
    listed = list(nodes)
    del graph.node[:]
    graph.node.extend(listed)


def set_weights(graph: onnx.GraphProto, weights: Iterable[onnx.TensorProto]) -> None:
    """Give a graph those of some weights that it reads."""
    read = {name for node in graph.node for name in names_read(node)} | {value.name for value in graph.output}
    kept = [weight for weight in weights if weight.name in read]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def take_output(graph: ir.Graph, old: ir.Value, new: ir.Value) -> None:
    """Where a value is an output of the graph, let another be that output, by its name."""
    for position, output in enumerate(graph.outputs):
        if output is old:
            new.name, old.name = old.name, None
            graph.outputs[position] = new


def strip_properties(graph: onnx.ModelProto) -> None:
    """Take out what others wrote into a graph's properties."""
    passes = _history(graph)
    del graph.metadata_props[:]
    _set_history(graph, passes)


def save_graph(graph: onnx.ModelProto, path: Path) -> None:
    """Check a graph and write it, and beside it which pass made what.

    Raises:
        ExportError: If it breaks ONNX's rules.
    """
    import onnx

    try:
        onnx.checker.check_model(graph, full_check=True)
    except Exception as error:
        raise ExportError(f"the graph breaks ONNX's rules: {reason(error)}") from error
    passes = _history(graph)
    _set_history(graph, [])
    graph.producer_name, graph.producer_version = "edgekit", ""
    path.write_bytes(graph.SerializeToString(deterministic=True))
    (path.parent / PASSES).write_text(json.dumps(passes, indent=1) + "\n")
