"""Static INT8: from a graph, a configuration and ranges to a graph in QDQ form.

    x fp32 [M, K] -> Gemm, weight fp32 [K, N], bias fp32 [N] -> y fp32 [M, N]
    x fp32 [M, K] -> QuantizeLinear uint8 -> DequantizeLinear -> Gemm -> y fp32 [M, N]
        weight int8 [K, N] -> DequantizeLinear, scale [N]; bias int32 [N] -> DequantizeLinear, x's scale times W's

QuantizeLinear and DequantizeLinear surround only the inputs of each linear layer, so that it takes INT8
and outputs float: the sum is scaled back once, and the next normalisation, attention or scorer reads no second
rounding. (`quantize_static` surrounds outputs too, and takes seconds where this takes milliseconds.)
Convolutions have no such kernel: they pass INT8 to each other (`groups.chain`). Weights of layers in float
arithmetic are stored in INT8 all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.model.onnx_check import names_read
from edgekit.model.spec import Array
from edgekit_targets.onnx.passes import weight_only
from edgekit_targets.onnx.passes.graph import copy_graph, graph_pass, readers, set_nodes
from edgekit_targets.onnx.passes.groups import Chain, ObservedRange, QuantConfig, chain, convolutions, groups, nodes_of

if TYPE_CHECKING:
    import onnx

WEIGHT_LEVELS = {False: 127, True: 63}
"""Largest quantized weight, by `reduce_range`: pairs of products with 7-bit weights fit 16 bits."""
SMALLEST = float(np.finfo(np.float32).tiny)
"""Smallest scale."""


def activations(graph: onnx.ModelProto) -> tuple[str, ...]:
    """Return the tensors whose ranges static INT8 needs: inputs of linear layers, and chains of convolutions."""
    convs = convolutions(graph)
    linear = set(nodes_of(groups(graph), ())) - set(convs)
    read = [node.input[0] for node in graph.graph.node if node.name in linear]
    return tuple(dict.fromkeys((*read, *chain(graph, convs).tensors)))


@graph_pass("qdq.quantize_static")
def quantize_static(
    graph: onnx.ModelProto, config: QuantConfig, observed: Mapping[str, ObservedRange]
) -> onnx.ModelProto:
    """Return the INT8 graph of a configuration; the original graph is not changed."""
    copy = copy_graph(graph)
    selected, convs = set(nodes_of(groups(copy), config.floats)), set(convolutions(copy))
    chained, layouts = chain(copy, selected & convs), _layout_nodes(copy, selected - convs)
    ranges = {name: tensor_range.ranges[config.method] for name, tensor_range in observed.items()}
    _GraphQuantizer(copy.graph, config, ranges, layouts, chained).run(selected - convs)
    return weight_only.quantize_weights(copy)


@dataclass
class _GraphQuantizer:
    """A graph during its quantization: each tensor and each weight is quantized once.

    Attributes:
        graph: Changed in place.
        config: Types and bits.
        ranges: Smallest and largest value to represent, by tensor.
        layouts: The Reshape and Transpose nodes before a tensor, in order: moving bytes is faster than moving floats.
        chain: The chain of convolutions.
        scales: Scales of the quantized tensors.
        nodes: The new list of nodes.
        weights: Scales of the quantized weights.
    """

    graph: onnx.GraphProto
    config: QuantConfig
    ranges: Mapping[str, tuple[float, float]]
    layouts: Mapping[str, tuple[onnx.NodeProto, ...]]
    chain: Chain
    scales: dict[str, float] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)

    def run(self, linear: set[str]) -> None:
        """Quantize the chosen linear layers, and the chain of convolutions."""
        weights = {i.name: i for i in self.graph.initializer}
        for node in self.graph.node:
            if node.name in linear or node.name in self.chain.convolutions:
                self._layer(node, weights)
            for place, name in enumerate(node.input):
                # A convolution and its rounding run in one kernel, so only the rounded tensor exists.
                if name in self.chain.given:
                    node.input[place] = f"{name}_dequantized"
            self.nodes.append(node)
            for name in node.output:
                if name in self.chain.given:
                    self._tensor(name)
        read = {name for node in self.nodes for name in names_read(node)}
        for name, weight in weights.items():
            if name not in read:
                self.graph.initializer.remove(weight)
        set_nodes(self.graph, self.nodes)

    def _layer(self, node: onnx.NodeProto, weights: Mapping[str, onnx.TensorProto]) -> None:
        """Quantize a layer's inputs and let the layer read them."""
        rows, weight = node.input[0], node.input[1]
        if rows not in self.scales:
            self._tensor(rows)
        if weight not in self.weights:
            self.weights[weight] = self._weight(weights[weight], node)
        if len(node.input) > 2 and node.input[2] in weights:
            self._bias(weights[node.input[2]], self._bias_scale(rows, weight, node), node)
        node.input[0], node.input[1] = f"{rows}_dequantized", f"{weight}_dequantized"

    def _like(self, name: str) -> str:
        """Return the tensor whose scale a tensor shares."""
        while name in self.chain.scaled_as:
            name = self.chain.scaled_as[name]
        return name

    def _tensor(self, name: str) -> None:
        like = self._like(name)
        if like == name:
            self._scale(name)
        self.scales[name] = self.scales[like]
        layouts = self.layouts.get(name, ())
        place = self.nodes.index(layouts[0]) if layouts else len(self.nodes)
        source, result = layouts[0].input[0] if layouts else name, f"{name}_quantized"
        self._node("QuantizeLinear", [source, f"{like}_scale", f"{like}_zero"], result)
        self.nodes.insert(place, self.nodes.pop())
        if layouts:
            layouts[0].input[0] = result
        moved = name if layouts else result
        self._node("DequantizeLinear", [moved, f"{like}_scale", f"{like}_zero"], f"{name}_dequantized")

    def _scale(self, name: str) -> None:
        low, high = self.ranges[name]
        if self.config.activation == "uint8":
            scale = max((high - low) / 255.0, SMALLEST)
            zero = np.array(np.clip(np.round(-low / scale), 0, 255), np.uint8)
        else:
            scale = max(max(-low, high) / 127.0, SMALLEST)
            zero = np.array(0, np.int8)
        self.scales[name] = float(np.float32(scale))
        self._store(f"{name}_scale", np.array(scale, np.float32))
        self._store(f"{name}_zero", zero)

    def _weight(self, weight: onnx.TensorProto, node: onnx.NodeProto) -> Array:
        """Store one weight; return its scales, [outputs] or a scalar."""
        from onnx import numpy_helper

        values, axis = numpy_helper.to_array(weight), weight_only.channel_axis(node)
        levels = WEIGHT_LEVELS[self.config.reduce_range]
        others = tuple(a for a in range(values.ndim) if a != axis or not self.config.per_channel)
        peaks = np.abs(values).max(axis=others, keepdims=True)
        scale = np.maximum(peaks / levels, SMALLEST).astype(np.float32)
        rounded = np.clip(np.round(values / scale), -levels, levels).astype(np.int8)
        name, flat = weight.name, scale.ravel() if self.config.per_channel else scale.reshape(())
        self._store(f"{name}_quantized", rounded)
        self._store(f"{name}_scale", flat)
        self._store(f"{name}_zero", np.zeros_like(flat, dtype=np.int8))
        self._node(
            "DequantizeLinear",
            [f"{name}_quantized", f"{name}_scale", f"{name}_zero"],
            f"{name}_dequantized",
            **({"axis": axis} if self.config.per_channel else {}),
        )
        return np.asarray(flat)

    def _bias_scale(self, rows: str, weight: str, node: onnx.NodeProto) -> Array:
        """Return the unit of the sum, x's scale times W's: [outputs] or a scalar.

        The graph computes the product, which ONNX Runtime does once, when it opens the file: stored, it would be bytes
        that do not compress. Only a product that is too small for that is stored, as SMALLEST.
        """
        scale = np.asarray(np.float32(self.scales[rows]) * self.weights[weight], np.float32)
        name = f"{node.name}/bias_scale"
        if scale.min() < SMALLEST:
            scale = np.maximum(scale, SMALLEST).astype(np.float32)
            self._store(name, scale)
        else:
            self._node("Mul", [f"{self._like(rows)}_scale", f"{weight}_scale"], name)
        return scale

    def _bias(self, bias: onnx.TensorProto, scale: Array, node: onnx.NodeProto) -> None:
        """Store a bias in the units of the sum, so that the kernel adds it before it scales back."""
        from onnx import numpy_helper

        values = numpy_helper.to_array(bias)
        limits = np.iinfo(np.int32)
        name = f"{node.name}/bias"
        rounded = np.clip(np.round(values.astype(np.float64) / scale), limits.min, limits.max).astype(np.int32)
        self._store(f"{name}_quantized", rounded)
        self._store(f"{name}_zero", np.zeros_like(scale, dtype=np.int32))
        axis = {"axis": 0} if scale.ndim else {}
        self._node(
            "DequantizeLinear", [f"{name}_quantized", f"{name}_scale", f"{name}_zero"], f"{name}_dequantized", **axis
        )
        node.input[2] = f"{name}_dequantized"

    def _store(self, name: str, values: Array) -> None:
        from onnx import numpy_helper

        self.graph.initializer.append(numpy_helper.from_array(values, name))

    def _node(self, kind: str, inputs: list[str], result: str, **attributes: Any) -> None:
        from onnx import helper

        self.nodes.append(helper.make_node(kind, inputs, [result], name=f"{result}/{kind}", **attributes))


def _layout_nodes(graph: onnx.ModelProto, selected: set[str]) -> dict[str, tuple[onnx.NodeProto, ...]]:
    """Return the Reshape and Transpose nodes right before the chosen layers, by the tensor that only these read."""
    producers = {name: node for node in graph.graph.node for name in node.output}
    users, ends = readers(graph), {value.name for value in graph.graph.output}
    layouts: dict[str, tuple[onnx.NodeProto, ...]] = {}
    for node in graph.graph.node:
        if node.name in selected and all(
            u.name in selected and u.input[0] == node.input[0] for u in users[node.input[0]]
        ):
            chain: list[onnx.NodeProto] = []
            name = node.input[0]
            while name in producers and producers[name].op_type in ("Reshape", "Transpose") and name not in ends:
                if chain and len(users[name]) > 1:
                    break
                chain.insert(0, producers[name])
                name = producers[name].input[0]
            if chain:
                layouts[node.input[0]] = tuple(chain)
    return layouts
