"""Static INT8 for convolutions: chains of them, with what stands between, compute in INT8 from end to end.

    x -> Conv, weight [D, C, kh, kw] -> Relu -> MaxPool -> Conv -> Add -> ...
    x -> Q -> DQ -> Conv -> Relu -> Q -> DQ -> MaxPool -> Q -> DQ -> Conv -> Q -> DQ -> Add -> ...
        weight int8 -> DQ, scale [D]; bias int32 -> DQ, x's scale times W's

ONNX Runtime has no convolution that takes INT8 and gives float: it fuses DQ, Conv and Q into one kernel, a Relu between
them too. So what a convolution gives is rounded, and all that read it read the rounded values. Pooling, additions and
concatenations between convolutions are carried along; a convolution that gives the model's own output stays in float.
A convolution that stands alone between float operators is taken only where its weight is large.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from edgekit_targets.onnx.passes.graph import readers

if TYPE_CHECKING:
    import onnx

CONV = "Conv"
FUSED = ("Relu", "Clip")
"""ONNX Runtime's kernels round and clip in one step."""
PASSING = ("MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "DepthToSpace")
"""Operators that move bytes: what they give has the scale of what they take."""
CARRIED = ("Add", "Mul", "Concat", "AveragePool", "GlobalAveragePool", "Sigmoid", "LeakyRelu")
"""Operators with INT8 kernels of their own in ONNX Runtime
(https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/optimizer/qdq_transformer/selectors_actions)."""
DATA_ONLY_FIRST = ("Reshape", "Unsqueeze", "Squeeze")
LARGE = 4096
"""Elements of a weight that pays for rounding what a lone convolution takes and gives."""


@dataclass(frozen=True)
class Chain:
    """What is computed in INT8 around the chosen convolutions, and the nodes carried between them, by name.

    `taken` are the tensors that these read, in the graph's order, `given` those that they give, each after its fused
    Relu; `scaled_as` is the tensor whose scale a passed tensor has.
    """

    convolutions: frozenset[str]
    carried: frozenset[str]
    taken: tuple[str, ...]
    given: frozenset[str]
    scaled_as: Mapping[str, str]

    @property
    def tensors(self) -> tuple[str, ...]:
        """All that are rounded."""
        return tuple(dict.fromkeys((*self.taken, *sorted(self.given))))


def convolutions(graph: onnx.ModelProto) -> tuple[str, ...]:
    """Names of the convolutions that INT8 can make faster, in the graph's order."""
    wiring = _Wiring(graph)
    able = [node for node in graph.graph.node if wiring.able(node)]
    named = frozenset(node.name for node in able)
    chained = _chained(chain(graph, named), wiring, able)
    return tuple(n.name for n in able if n.name in chained or prod(wiring.weights[n.input[1]]) >= LARGE)


def chain(graph: onnx.ModelProto, chosen: Collection[str]) -> Chain:
    """What is carried between the chosen convolutions."""
    wiring = _Wiring(graph)
    convs = [node for node in graph.graph.node if node.name in chosen and wiring.able(node)]
    produced = {wiring.end(node) for node in convs}
    candidates: list[onnx.NodeProto] = []
    for node in graph.graph.node:
        if node.op_type in (*PASSING, *CARRIED) and node.name and wiring.end(node) not in wiring.outputs:
            inputs = wiring.data(node)
            if inputs and all(name in produced for name in inputs):
                candidates.append(node)
                produced.add(wiring.end(node))
    kept: list[onnx.NodeProto] = []
    needed = {node.input[0] for node in convs}
    for node in reversed(candidates):
        if wiring.end(node) in needed:
            kept.insert(0, node)
            needed.update(wiring.data(node))
    taken = dict.fromkeys(name for node in (*convs, *kept) for name in wiring.data(node))
    return Chain(
        convolutions=frozenset(node.name for node in convs),
        carried=frozenset(node.name for node in kept),
        taken=tuple(taken),
        given=frozenset(wiring.end(node) for node in (*convs, *kept)),
        scaled_as={wiring.end(n): n.input[0] for n in kept if n.op_type in PASSING and wiring.end(n) == n.output[0]},
    )


def ends(graph: onnx.ModelProto) -> dict[str, str]:
    """What each convolution gives, after its fused Relu, by the node's name."""
    wiring = _Wiring(graph)
    return {node.name: wiring.end(node) for node in wiring.nodes if node.op_type == CONV}


def _chained(links: Chain, wiring: _Wiring, able: list[onnx.NodeProto]) -> set[str]:
    """The convolutions that read what another gives, and those others, through what is carried."""
    starts: dict[str, set[str]] = {}  # tensor -> the convolutions that it comes from
    chained: set[str] = set()
    names = {node.name for node in able}
    for node in wiring.nodes:
        if node.name in names:
            sources = starts.get(node.input[0], set())
            if sources:
                chained |= sources | {node.name}
            starts[wiring.end(node)] = {node.name}
        elif node.name in links.carried:
            starts[wiring.end(node)] = set().union(*(starts.get(name, set()) for name in wiring.data(node)))
    return chained


class _Wiring:
    """Who reads and who makes each tensor of a graph."""

    def __init__(self, graph: onnx.ModelProto) -> None:
        self.nodes = list(graph.graph.node)
        self.outputs = {value.name for value in graph.graph.output}
        self.weights = {i.name: list(i.dims) for i in graph.graph.initializer}
        self.readers = readers(graph)

    def able(self, node: onnx.NodeProto) -> bool:
        """Whether a node is a convolution with constant weights whose answer is not the model's own."""
        constant = node.op_type == CONV and all(name in self.weights for name in node.input[1:] if name)
        return constant and node.input[0] not in self.weights and self.end(node) not in self.outputs

    def end(self, node: onnx.NodeProto) -> str:
        """What a node gives, after the Relu that alone reads it."""
        name = str(node.output[0])
        after = self.readers.get(name, [])
        fused = node.op_type not in PASSING and len(after) == 1 and after[0].op_type in FUSED
        return str(after[0].output[0]) if fused and name not in self.outputs else name

    def data(self, node: onnx.NodeProto) -> list[str]:
        """What a node reads; a constant among it, as an Add of a bias has, is no tensor of the chain."""
        if node.op_type == CONV or node.op_type in DATA_ONLY_FIRST:
            return [node.input[0]]
        return [name for name in node.input if name]
