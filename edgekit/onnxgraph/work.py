"""How much a layer computes: multiplications for one sample, by which a search orders what stays in float."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import TYPE_CHECKING

from edgekit.onnxgraph.conv_chain import CONV, ends
from edgekit.onnxgraph.quant_config import ObservedRange

if TYPE_CHECKING:
    import onnx


def multiplications(
    graph: onnx.ModelProto, layers: Collection[str], observed: Mapping[str, ObservedRange]
) -> dict[str, int]:
    """Multiplications of linear layers and convolutions, by node.

    Args:
        graph: In fp32.
        layers: Names of the nodes.
        observed: What a linear layer [rows, K] x [K, N] reads, and what a convolution gives: each of its values is a
            sum over [C, kh, kw].
    """
    sizes = {i.name: i.dims for i in graph.graph.initializer}
    given, found = ends(graph), {}
    for node in graph.graph.node:
        if node.name not in layers:
            continue
        if node.op_type == CONV:
            found[node.name] = observed[given[node.name]].elements * prod(sizes[node.input[1]][1:])
        else:
            found[node.name] = observed[node.input[0]].rows * prod(sizes[node.input[1]])
    return found
