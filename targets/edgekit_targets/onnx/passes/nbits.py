"""Linear layers whose weights have 4 or 8 bits, with a scale and a zero point for each block of inputs.

    x [..., K] -> MatMul, weight fp32 [K, N] -> y [..., N]
    x [..., K] -> MatMulNBits, weight uint8 [N, K / 32, 16] -> y [..., N]          4 bits, blocks of 32

ONNX Runtime's own operator: it unpacks the weights as it multiplies, in the browser and on GPUs too
(https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit_targets.onnx.passes.dynamic import gemm_as_matmul
from edgekit_targets.onnx.passes.graph import copied, graph_pass, set_nodes, set_weights

if TYPE_CHECKING:
    import onnx

DOMAIN = "com.microsoft"
FEW, MANY = 4, 8
"""Bits of a weight."""
ACCURACY = 4
"""MatMulNBits' `accuracy_level`: what it reads is rounded to INT8 in blocks, too, where the processor gains by that."""


@graph_pass
def quantize_blocks(
    graph: onnx.ModelProto, layers: Collection[str], eight: Collection[str] = (), block: int = 32
) -> onnx.ModelProto:
    """Store the weights of linear layers in 4 bits.

    Args:
        graph: In fp32.
        layers: Names of MatMul and Gemm nodes with a constant weight [K, N].
        eight: Those of them that get 8 bits. A weight that one of them reads has 8 bits for all that read it.
        block: Inputs that share a scale: 16, 32, 64, 128 or 256.
    """
    from onnx import helper

    graph = copied(graph)
    weights = {i.name: i for i in graph.graph.initializer}
    nodes = [part for node in graph.graph.node for part in gemm_as_matmul(node, set(layers), weights)]
    chosen = {node.name: node.input[1] for node in nodes if node.op_type == "MatMul" and node.name in layers}
    finer = {weight for name, weight in chosen.items() if name in eight}
    packed = {
        name: _packed(weights[name], MANY if name in finer else FEW, block) for name in dict.fromkeys(chosen.values())
    }
    for one in packed.values():
        weights |= {tensor.name: tensor for tensor in one.tensors}
    nodes = [packed[node.input[1]].node(node) if node.name in chosen else node for node in nodes]
    set_nodes(graph.graph, nodes)
    set_weights(graph.graph, weights.values())
    if all(opset.domain != DOMAIN for opset in graph.opset_import):
        graph.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return graph


@dataclass(frozen=True)
class _Packed:
    """A weight [K, N] in blocks: its values, scales and zero points, and the attributes of the nodes that read it."""

    tensors: tuple[onnx.TensorProto, ...]
    attributes: dict[str, int]

    def node(self, product: onnx.NodeProto) -> onnx.NodeProto:
        from onnx import helper

        inputs = [product.input[0], *(tensor.name for tensor in self.tensors)]
        packed = helper.make_node("MatMulNBits", inputs, product.output, name=product.name, domain=DOMAIN)
        packed.attribute.extend(helper.make_attribute(name, value) for name, value in self.attributes.items())
        return packed


def _packed(weight: onnx.TensorProto, bits: int, block: int) -> _Packed:
    from onnx import numpy_helper
    from onnxruntime.quantization import matmul_nbits_quantizer as nbits

    values = numpy_helper.to_array(weight)
    config = nbits.DefaultWeightOnlyQuantConfig(block_size=block, is_symmetric=False, bits=bits)
    rounded = nbits.DefaultWeightOnlyQuantizer(config).qbits_block_quant(values)
    parts = zip(("blocks", "scales", "zero_points"), rounded, strict=True)
    tensors = tuple(numpy_helper.from_array(array, f"{weight.name}_{part}") for part, array in parts)
    attributes = {"K": values.shape[0], "N": values.shape[1], "bits": bits, "block_size": block}
    return _Packed(tensors, {**attributes, "accuracy_level": ACCURACY})
