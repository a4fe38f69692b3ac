"""Linear layers on [B, N, D] become Gemm on [B * N, D]: the bias is added with the product, not in a second pass.

    x [B, N, D] -> MatMul [D, E] -> Add [E] -> y [B, N, E]
    x [B, N, D] -> Reshape [B * N, D] -> Gemm [D, E], [E] -> Reshape -> y [B, N, E]

Normalisation, activations and residual sums between linear layers stay flat too, so that a transformer's trunk is
reshaped once on its way in, and where attention or another operator needs [B, N, D].
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgekit.onnxgraph.graph import on_ir, sizes, take_output

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import onnx_ir as ir

UNARY = frozenset(("Gelu", "Relu", "Sigmoid", "Tanh", "Erf", "LayerNormalization"))
"""Elementwise, or along the last axis."""
BINARY = frozenset(("Add", "Sub", "Mul", "Div"))


@on_ir
def flatten(model: ir.Model) -> None:
    """Flatten the linear layers; only values whose sizes the exporter knows, if by symbols, are touched."""
    import onnx_ir.passes.common as passes

    flattening = _Flattening(model.graph)
    for node in tuple(model.graph):
        flattening.visit(node)
    flattening.restore()
    passes.RemoveUnusedNodesPass()(model)


@dataclass
class _Flattening:
    """One graph while it is rewritten: nodes get copies on flat values, then the other readers are connected to these.

    `flat` is the value of [B * N, D], by its value of [B, N, D]; `sources` a value that is not flat, by its leading
    sizes; `shapes` the shape tensor, by all sizes.
    """

    graph: ir.Graph
    nodes: list[ir.Node] = field(default_factory=list)
    flat: dict[ir.Value, ir.Value] = field(default_factory=dict)
    sources: dict[tuple[str, ...], ir.Value] = field(default_factory=dict)
    shapes: dict[tuple[str, ...], ir.Value] = field(default_factory=dict)

    def visit(self, node: ir.Node) -> None:
        """Add a flat copy of a linear layer, or of an operator on flat values that works row by row."""
        own = _sizes(node.outputs[0])
        if own is None or len(own) < 3:
            return
        linear = _linear(node)
        if linear is not None:
            rows, weight, bias = linear
            self._add("Gemm", [self._flattened(rows, node), weight, bias], node)
        elif any(value in self.flat for value in node.inputs) and _fits(node, own):
            inputs = [self._flattened(v, node) if v is not None and _sizes(v) == own else v for v in node.inputs]
            self._add(node.op_type, inputs, node)

    def restore(self) -> None:
        """Reshape flat values for the nodes and outputs that need [B, N, D], then remove the nodes that have a copy."""
        replaced = set(self.nodes)
        for node in self.nodes:
            old = node.outputs[0]
            uses = [use for use in old.uses() if use.node not in replaced]
            reshapes = [use for use in uses if _reshapes_to_given_sizes(use.node, old)]
            rest = [use for use in uses if use not in reshapes]
            for use in reshapes:
                use.node.replace_input_with(use.idx, self.flat[old])
            if rest or old.is_graph_output():
                self._unflatten(node, rest)
        for node in reversed(self.nodes):
            self.graph.remove(node, safe=True)

    def _add(self, kind: str, inputs: Sequence[ir.Value | None], node: ir.Node) -> None:
        import onnx_ir as ir

        attributes = [a for a in node.attributes.values() if a.name != "axis"] if kind != "Gemm" else []
        copy = ir.Node("", kind, inputs, attributes, metadata_props=dict(node.metadata_props))
        self.graph.insert_before(node, copy)
        self.flat[node.outputs[0]] = copy.outputs[0]
        self.nodes.append(node)

    def _flattened(self, value: ir.Value, before: ir.Node) -> ir.Value:
        if value not in self.flat:
            own = _sizes(value) or ()
            self.sources.setdefault(own[:-1], value)
            producer = value.producer()
            earlier = producer.inputs[0] if producer is not None and producer.op_type == "Reshape" else None
            target = sizes(self.graph, [-1, int(own[-1])])
            self.flat[value] = self._node("Reshape", [earlier or value, target], before)
        return self.flat[value]

    def _unflatten(self, node: ir.Node, uses: Sequence[Any]) -> None:
        old = node.outputs[0]
        shape = self._shape(_sizes(old) or (), node)
        new = self._node("Reshape", [self.flat[old], shape], node)
        new.shape, new.type = old.shape, old.type
        for use in uses:
            use.node.replace_input_with(use.idx, new)
        take_output(self.graph, old, new)

    def _shape(self, own: tuple[str, ...], before: ir.Node) -> ir.Value:
        if own not in self.shapes:
            leading = self._node("Shape", [self.sources[own[:-1]]], before, start=0, end=-1)
            self.shapes[own] = self._node("Concat", [leading, sizes(self.graph, [int(own[-1])])], before, axis=0)
        return self.shapes[own]

    def _node(self, kind: str, inputs: Sequence[ir.Value], before: ir.Node, **attributes: int) -> ir.Value:
        import onnx_ir as ir

        node = ir.node(kind, inputs, attributes, metadata_props=dict(before.metadata_props))
        self.graph.insert_before(before, node)
        return node.outputs[0]


def _linear(node: ir.Node) -> tuple[ir.Value, ir.Value, ir.Value] | None:
    """Rows, weight and bias, where a node adds a constant vector to a product with a constant matrix."""
    if node.op_type != "Add":
        return None
    for product, bias in (tuple(node.inputs), tuple(node.inputs)[::-1]):
        if product is None or bias is None or _rank(bias) != 1 or bias.const_value is None:
            continue
        producer = product.producer()
        if producer is None or producer.op_type != "MatMul":
            continue
        rows, weight = producer.inputs
        known = rows is not None and weight is not None and weight.const_value is not None and _rank(weight) == 2
        if known and rows is not None and weight is not None and len(_sizes(rows) or ()) >= 3:
            return rows, weight, bias
    return None


def _fits(node: ir.Node, own: tuple[str, ...]) -> bool:
    """Whether a node computes the same on flat values: inputs have the output's sizes, or are constants of one row."""
    if node.op_type not in UNARY | BINARY or len(node.outputs) != 1:
        return False
    axis = node.attributes.get("axis")
    if axis is not None and axis.as_int() not in (-1, len(own) - 1):
        return False
    known = (v for v in node.inputs if v is not None)
    return all(_sizes(v) == own or (v.const_value is not None and (_rank(v) or 0) <= 1) for v in known)


def _reshapes_to_given_sizes(node: ir.Node, value: ir.Value) -> bool:
    """Whether a node reshapes a value to sizes that do not depend on the value's own (a 0 in a shape copies them)."""
    if node.op_type != "Reshape" or node.inputs[0] is not value or node.inputs[1] is None:
        return False
    return all(0 not in part for part in _parts(node.inputs[1]))


def _parts(shape: ir.Value) -> Iterator[list[int]]:
    """The constants of a shape tensor; [0] for what is not known to be free of zeros."""
    producer = shape.producer()
    if shape.const_value is not None:
        yield [int(v) for v in shape.const_value.numpy().ravel()]
    elif producer is None or producer.op_type != "Concat":
        yield [0]
    else:
        yield from ([int(v) for v in i.const_value.numpy().ravel()] for i in producer.inputs if i and i.const_value)


def _rank(value: ir.Value) -> int | None:
    return None if value.shape is None else len(value.shape)


def _sizes(value: ir.Value) -> tuple[str, ...] | None:
    """The sizes as text, the last one a number; None where one is unknown."""
    import onnx_ir as ir

    if value.shape is None or not value.shape or not isinstance(value.shape[-1], int):
        return None
    if any(isinstance(size, ir.SymbolicDim) and size.value is None for size in value.shape):
        return None
    return tuple(str(size) for size in value.shape)
