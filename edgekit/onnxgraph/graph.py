"""What all passes of this room share: how they are called, and how a graph is written.

A pass is a function of a graph (`onnx.ModelProto`) and its settings. It returns the new graph and changes nothing of
the given one; what else it found comes second. A pass that follows values to their producers and readers is written on
onnx_ir, and declared with `on_ir`: it also takes the model that PyTorch's exporter made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from edgekit.errors import ExportError, reason

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

P = ParamSpec("P")
Graph = TypeVar("Graph", "onnx.ModelProto", "ir.Model")


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

    apply.__doc__ = rewrite.__doc__
    return apply


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


def take_output(graph: ir.Graph, old: ir.Value, new: ir.Value) -> None:
    """Where a value is an output of the graph, let another be that output, by its name."""
    for position, output in enumerate(graph.outputs):
        if output is old:
            new.name, old.name = old.name, None
            graph.outputs[position] = new


def save_graph(graph: onnx.ModelProto, path: Path) -> None:
    """Check a graph and write it.

    Raises:
        ExportError: If it breaks ONNX's rules.
    """
    import onnx

    try:
        onnx.checker.check_model(graph, full_check=True)
    except Exception as error:
        raise ExportError(f"the graph breaks ONNX's rules: {reason(error)}") from error
    graph.producer_name, graph.producer_version = "edgekit", ""
    path.write_bytes(graph.SerializeToString(deterministic=True))
