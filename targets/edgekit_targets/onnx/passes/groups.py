"""Groups of layers that INT8 quantizes together: linear layers and convolutions of a module, or a recurrent layer.

A configuration (`QuantConfig`) describes the quantization; an `ObservedRange` describes the observed values of a
tensor.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Literal

import numpy as np

from edgekit.model.spec import Array
from edgekit_targets.onnx.passes.graph import LSTM, RECURRENT, readers
from edgekit_targets.onnx.passes.weight_only import is_transposed

if TYPE_CHECKING:
    import onnx

LINEAR = ("Gemm", "MatMul")
"""Operators with a constant weight that INT8 makes faster; the rest stays in float."""
DEPTH = 3
"""Names of a module path that make a group: different `texture.blocks.0` are separate groups, their linears are not."""
EXTREMES = ("ReduceMax", "ReduceMin")
_MOVING = (
    *("Concat", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Pad", "Reshape", "Resize", "Slice", "Split"),
    *("Squeeze", "Tile", "Transpose", "Unsqueeze"),
)
_ELEMENTWISE = (
    *("Abs", "Add", "Clip", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Max"),
    *("Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "Relu", "Sigmoid", "Softplus", "Sqrt", "Sub", "Tanh"),
)
FUSED = frozenset(_MOVING + _ELEMENTWISE)
"""Operators that may be fused into the reduction, or through which rounding can move."""
Method = Literal["minmax", "entropy", "percentile"]
METHODS: tuple[Method, ...] = ("minmax", "entropy", "percentile")
Activation = Literal["uint8", "int8"]
CONV = "Conv"
CHAIN_ENDS = ("Relu", "Clip")
"""Operators after a convolution that ONNX Runtime's kernels compute together with the rounding."""
PASSING = ("MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "DepthToSpace")
"""Operators that move bytes: their output has the scale of their input."""
CARRIED = ("Add", "Mul", "Concat", "AveragePool", "GlobalAveragePool", "Sigmoid", "LeakyRelu")
"""Operators with INT8 kernels in ONNX Runtime
(https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/optimizer/qdq_transformer/selectors_actions)."""
DATA_ONLY_FIRST = ("Reshape", "Unsqueeze", "Squeeze")
LARGE = 4096
"""Elements of a weight for which rounding the input and output of a lone convolution pays off."""


def groups(graph: onnx.ModelProto, dynamic: bool = False) -> dict[str, tuple[str, ...]]:
    """Return names of the quantizable nodes by group, in the graph's order.

    Static INT8 takes linear layers and convolutions, dynamic INT8 linear layers and LSTMs: ONNX Runtime computes a
    convolution with dynamic ranges slower than in float. Each layer of an LSTM is a group with its node's name.
    """
    constants = {i.name: i.dims for i in graph.graph.initializer}
    others = set() if dynamic else set(convolutions(graph))
    names: dict[str, list[str]] = {}
    for node in graph.graph.node:
        if node.name in others or (node.op_type in LINEAR and len(constants.get(node.input[1], ())) == 2):
            names.setdefault(group_of(node.name), []).append(node.name)
        elif dynamic and node.op_type == LSTM and constants.keys() >= {*node.input[1:3]}:
            names.setdefault(node.name, []).append(node.name)
    return {name: tuple(nodes) for name, nodes in names.items()}


def linear_groups(graph: onnx.ModelProto) -> dict[str, tuple[str, ...]]:
    """Return the linear layers of `groups`: constant fp32 weight [K, N], rows [..., K], channels on the last axis."""
    from onnx import TensorProto

    weights = {i.name for i in graph.graph.initializer if i.data_type == TensorProto.FLOAT}
    constants = {i.name for i in graph.graph.initializer}
    able = {
        node.name
        for node in graph.graph.node
        if node.op_type in LINEAR and node.input[1] in weights and node.input[0] not in constants
        if not any(a.name == "transA" and a.i for a in node.attribute)
    }
    linear = {name: tuple(node for node in nodes if node in able) for name, nodes in groups(graph).items()}
    return {name: nodes for name, nodes in linear.items() if nodes}


def group_of(node: str) -> str:
    """Return the group of a node `module.path/Operator`: its module, or its part of a numbered block."""
    path = node.partition("/")[0].split(".")
    numbered = next((i for i, word in enumerate(path) if word.isdigit() and i < len(path) - 1), None)
    if numbered is None or numbered == 0:
        return path[0] if len(path) < DEPTH else ".".join(path[: DEPTH - 1])
    return ".".join(path[: numbered + 2])


def nodes_of(parts: Mapping[str, tuple[str, ...]], without: tuple[str, ...]) -> list[str]:
    """Return all nodes except those of some groups."""
    return [node for name, nodes in parts.items() if name not in without for node in nodes]


def multiplications(graph: onnx.ModelProto, layers: Collection[str], elements: Mapping[str, int]) -> dict[str, int]:
    """Return the multiplications of layers with constant weights, by node.

    Args:
        graph: In fp32.
        layers: Names of the nodes.
        elements: Number of values in the outputs of convolutions, each of which is a sum over [C, kh, kw], and in the
            inputs of all other layers.
    """
    sizes = {i.name: i.dims for i in graph.graph.initializer}
    outputs, counts = ends(graph), {}
    for node in graph.graph.node:
        if node.name not in layers:
            continue
        weight = sizes[node.input[1]]
        if node.op_type == CONV:
            counts[node.name] = elements[outputs[node.name]] * prod(weight[1:])
        elif node.op_type in RECURRENT:
            # Each step of each sequence meets all weights of inputs and of states.
            counts[node.name] = elements[node.input[0]] // weight[-1] * (prod(weight) + prod(sizes[node.input[2]]))
        elif node.op_type in LINEAR:
            counts[node.name] = elements[node.input[0]] * weight[0 if is_transposed(node) else -1]
        else:
            counts[node.name] = elements[node.input[0]] * prod(weight[1:])
    return counts


def groups_after_extremes(graph: onnx.ModelProto) -> tuple[str, ...]:
    """Return the static INT8 groups with a layer that reads a ReduceMax or ReduceMin through FUSED operators.

        x -> ReduceMax -> QuantizeLinear -> DequantizeLinear -> Gemm

    OpenVINO 2026.4.1 fuses the operators between the reduction and the layer into the reduction, and the largest value
    is wrong (CPU plugin, its default mode; other reductions are right, GlobalMaxPool too, and all of it with
    LP_TRANSFORMS_MODE=NO). Such layers stay in float arithmetic.
    """
    # Names of tensors; nodes are in topological order.
    extreme: set[str] = set()
    for node in graph.graph.node:
        if node.op_type in EXTREMES or (node.op_type in FUSED and not extreme.isdisjoint(node.input)):
            extreme.update(node.output)
    nodes = {node.name: node for node in graph.graph.node}
    return tuple(group for group, names in groups(graph).items() if any(nodes[n].input[0] in extreme for n in names))


@dataclass(frozen=True)
class QuantConfig:
    """Settings of a quantization: how activations get their ranges, and which parts are rounded.

    Attributes:
        method: Method for ranges.
        activation: Type of quantized activations; `uint8` is asymmetric, `int8` symmetric.
        per_channel: True for a scale per output channel of a weight.
        reduce_range: True for 7-bit weights, so that pairs of products fit 16 bits without VNNI.
        floats: Groups that stay in float arithmetic, sorted.
    """

    method: Method = "minmax"
    activation: Activation = "uint8"
    per_channel: bool = True
    reduce_range: bool = False
    floats: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """A text that is equal for equal configurations."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def name(self) -> str:
        """Name in tables."""
        words: list[str] = [self.method, self.activation]
        words += [] if self.per_channel else ["per-tensor"]
        words += ["reduced range"] if self.reduce_range else []
        if self.floats:
            words.append("1 group in float" if len(self.floats) == 1 else f"{len(self.floats)} groups in float")
        return ", ".join(words)

    def keeping(self, *groups: str) -> QuantConfig:
        """Return the same configuration with these groups in float, and no others."""
        return replace(self, floats=tuple(sorted(groups)))


@dataclass(frozen=True)
class ObservedRange:
    """One tensor on all samples: smallest and largest value to represent, by method, always including zero.

    `low` and `high` are the smallest and largest value of each entry of the last axis, [channels]; `rows` is the number
    of vectors along the last axis, per sample.
    """

    ranges: Mapping[Method, tuple[float, float]]
    low: Array
    high: Array
    rows: int

    @property
    def elements(self) -> int:
        """Number of values in the tensor, per sample."""
        return self.rows * len(self.low)

    @property
    def peaks(self) -> Array:
        """Largest magnitude of each entry of the last axis, [channels]."""
        return np.maximum(-self.low, self.high)


@dataclass(frozen=True)
class Chain:
    """The INT8 computations around the chosen convolutions, and the nodes carried between them, by name.

    `taken` are the input tensors of these, in the graph's order, `given` their output tensors, each after its fused
    Relu; `scaled_as` is the tensor whose scale a passed tensor shares.
    """

    convolutions: frozenset[str]
    carried: frozenset[str]
    taken: tuple[str, ...]
    given: frozenset[str]
    scaled_as: Mapping[str, str]

    @property
    def tensors(self) -> tuple[str, ...]:
        """All rounded tensors."""
        return tuple(dict.fromkeys((*self.taken, *sorted(self.given))))


def convolutions(graph: onnx.ModelProto) -> tuple[str, ...]:
    """Return the names of the convolutions that INT8 can make faster, in the graph's order."""
    wiring = _Wiring(graph)
    able = [node for node in graph.graph.node if wiring.able(node)]
    convolution_names = frozenset(node.name for node in able)
    chained = _chained_convolutions(chain(graph, convolution_names), wiring, able)
    return tuple(n.name for n in able if n.name in chained or prod(wiring.weights[n.input[1]]) >= LARGE)


def chain(graph: onnx.ModelProto, selected: Collection[str]) -> Chain:
    """Return the nodes that are carried between the chosen convolutions.

        x -> Conv, weight [D, C, kh, kw] -> Relu -> MaxPool -> Conv -> Add -> ...
        x -> Q -> DQ -> Conv -> Relu -> Q -> DQ -> MaxPool -> Q -> DQ -> Conv -> Q -> DQ -> Add -> ...
            weight int8 -> DQ, scale [D]; bias int32 -> DQ, x's scale times W's

    ONNX Runtime has no convolution from INT8 to float: it fuses DQ, Conv and Q into one kernel, with a Relu
    between them too. So a convolution's output is rounded, and all its readers read the rounded values. Pooling,
    additions and concatenations between convolutions are carried along; a convolution with an output of the model
    stays in float. A lone convolution between float operators is included only if its weight is large.
    """
    wiring = _Wiring(graph)
    convs = [node for node in graph.graph.node if node.name in selected and wiring.able(node)]
    produced = {wiring.end(node) for node in convs}
    candidates: list[onnx.NodeProto] = []
    for node in graph.graph.node:
        if node.op_type in (*PASSING, *CARRIED) and node.name and wiring.end(node) not in wiring.outputs:
            inputs = wiring.data(node)
            if inputs and all(name in produced for name in inputs):
                candidates.append(node)
                produced.add(wiring.end(node))
    nodes: list[onnx.NodeProto] = []
    needed = {node.input[0] for node in convs}
    for node in reversed(candidates):
        if wiring.end(node) in needed:
            nodes.insert(0, node)
            needed.update(wiring.data(node))
    tensors = dict.fromkeys(name for node in (*convs, *nodes) for name in wiring.data(node))
    return Chain(
        convolutions=frozenset(node.name for node in convs),
        carried=frozenset(node.name for node in nodes),
        taken=tuple(tensors),
        given=frozenset(wiring.end(node) for node in (*convs, *nodes)),
        scaled_as={wiring.end(n): n.input[0] for n in nodes if n.op_type in PASSING and wiring.end(n) == n.output[0]},
    )


def ends(graph: onnx.ModelProto) -> dict[str, str]:
    """Return the output of each convolution, after its fused Relu, by the node's name."""
    wiring = _Wiring(graph)
    return {node.name: wiring.end(node) for node in wiring.nodes if node.op_type == CONV}


def _chained_convolutions(links: Chain, wiring: _Wiring, able: list[onnx.NodeProto]) -> set[str]:
    """Return the convolutions that read another's output, through carried nodes, and those others."""
    # Tensor -> the convolutions that it comes from.
    starts: dict[str, set[str]] = {}
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
    """Readers and producers of each tensor of a graph."""

    def __init__(self, graph: onnx.ModelProto) -> None:
        self.nodes = list(graph.graph.node)
        self.outputs = {value.name for value in graph.graph.output}
        self.weights = {i.name: list(i.dims) for i in graph.graph.initializer}
        self.readers = readers(graph)

    def able(self, node: onnx.NodeProto) -> bool:
        """Return whether a node is a convolution with constant weights whose output is not the model's own."""
        constant = node.op_type == CONV and all(name in self.weights for name in node.input[1:] if name)
        return constant and node.input[0] not in self.weights and self.end(node) not in self.outputs

    def end(self, node: onnx.NodeProto) -> str:
        """Return a node's output, after a Relu that is its only reader."""
        name = str(node.output[0])
        after = self.readers.get(name, [])
        fused = node.op_type not in PASSING and len(after) == 1 and after[0].op_type in CHAIN_ENDS
        return str(after[0].output[0]) if fused and name not in self.outputs else name

    def data(self, node: onnx.NodeProto) -> list[str]:
        """Return a node's inputs; a constant, as in an Add of a bias, does not belong to the chain."""
        if node.op_type == CONV or node.op_type in DATA_ONLY_FIRST:
            return [node.input[0]]
        return [name for name in node.input if name]
