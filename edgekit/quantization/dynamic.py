"""Dynamic INT8: weights are rounded once, activations at each run by their own range (ONNX Runtime's quantizer)."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.quantization import stored
from edgekit.quantization.groups import groups, nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx


def quantize(graph: onnx.ModelProto, floats: tuple[str, ...] = (), reduce_range: bool = False) -> onnx.ModelProto:
    """Make the dynamically quantized graph; the given one is not changed.

    Args:
        graph: In fp32.
        floats: Groups that stay in float arithmetic.
        reduce_range: Whether weights have 7 bits.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    chosen = set(nodes_of(groups(copy), floats))
    taken_apart = [part for node in copy.graph.node for part in _apart(node, chosen)]
    del copy.graph.node[:]
    copy.graph.node.extend(taken_apart)
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        source, result = Path(folder) / "source.onnx", Path(folder) / "result.onnx"
        source.write_bytes(copy.SerializeToString())
        logging.getLogger().setLevel(logging.ERROR)  # it recommends a pre-processing that fails on such graphs
        quantize_dynamic(
            source,
            result,
            op_types_to_quantize=["MatMul"],
            nodes_to_quantize=sorted(chosen),
            per_channel=True,
            reduce_range=reduce_range,
            weight_type=QuantType.QInt8,
        )
        made = onnx.load(result)
    stored.in_int8(made)
    return made


def _apart(node: onnx.NodeProto, chosen: set[str]) -> Iterator[onnx.NodeProto]:
    """A Gemm as MatMul and Add: the dynamic quantizer takes no Gemm, and ONNX Runtime fuses the two again."""
    from onnx import helper

    if node.op_type != "Gemm" or node.name not in chosen or any(a.name in ("transA", "transB") for a in node.attribute):
        yield node
        return
    product = node.output[0] if len(node.input) < 3 else f"{node.output[0]}_product"
    yield helper.make_node("MatMul", node.input[:2], [product], name=node.name)
    if len(node.input) == 3:
        yield helper.make_node("Add", [product, node.input[2]], node.output, name=f"{node.name}_bias")
