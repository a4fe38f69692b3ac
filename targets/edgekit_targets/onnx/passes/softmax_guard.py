"""No guard behind a softmax, for runtimes whose softmax gives zeros for a row of -inf, and which lack IsNaN.

    x -> Softmax -> Where(IsNaN(softmax), 0, softmax)        as PyTorch's exporter writes masked attention
    x -> Softmax

A row that is masked from end to end is NaN after ONNX's softmax, and zeros in PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit_targets.onnx.passes.graph import copied, graph_pass, set_nodes

if TYPE_CHECKING:
    import onnx


@graph_pass
def dropped(graph: onnx.ModelProto) -> onnx.ModelProto:
    """A graph without these guards; an IsNaN elsewhere stays."""
    made = copied(graph)
    producers = {name: node for node in made.graph.node for name in node.output}
    zeros = _zeros(made)
    instead: dict[str, str] = {}
    for node in made.graph.node:
        if node.op_type == "Where" and node.input[1] in zeros:
            asked, softmax = producers.get(node.input[0]), producers.get(node.input[2])
            if _guards(asked, softmax) and softmax is not None:
                instead[softmax.output[0]] = node.output[0]
    set_nodes(
        made.graph,
        (
            node
            for node in made.graph.node
            if not (
                (node.op_type == "IsNaN" and node.input[0] in instead)
                or (node.op_type == "Where" and instead.get(node.input[2]) == node.output[0])
            )
        ),
    )
    for node in made.graph.node:
        if node.op_type == "Softmax" and node.output[0] in instead:
            node.output[0] = instead[node.output[0]]
        for position, name in enumerate(node.input):
            node.input[position] = instead.get(name, name)
    return made


def _guards(asked: onnx.NodeProto | None, softmax: onnx.NodeProto | None) -> bool:
    if asked is None or softmax is None:
        return False
    return (asked.op_type, softmax.op_type, *asked.input) == ("IsNaN", "Softmax", *softmax.output)


def _zeros(graph: onnx.ModelProto) -> set[str]:
    """Names of constants that are zero."""
    from onnx import numpy_helper

    held = {tensor.name: tensor for tensor in graph.graph.initializer}
    constants = [node for node in graph.graph.node if node.op_type == "Constant"]
    held |= {node.output[0]: a.t for node in constants for a in node.attribute if a.name == "value"}
    return {name for name, tensor in held.items() if not numpy_helper.to_array(tensor).any()}
