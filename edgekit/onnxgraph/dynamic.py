"""Dynamic INT8: weights are rounded once, activations at each run by their own range (ONNX Runtime's quantizer).

    x [..., K] -> MatMul or Gemm, weight fp32 [K, N] -> y [..., N]
    x [..., K] -> DynamicQuantizeLinear uint8 -> MatMulInteger, weight int8 [K, N] -> Cast, Mul by scales [N] -> y

    Layers that read more channels than they write get a scale for each token first (token_scales.py).

    LSTM, W fp32 [1, 4H, K], R fp32 [1, 4H, H] -> DynamicQuantizeLSTM, W int8 [1, K, 4H], R int8 [1, H, 4H]

A bias is added afterwards, in fp32. Weights of what stays in float arithmetic are stored in INT8 (weight_only.py);
convolutions are: ONNX Runtime's ConvInteger is slower than its Conv.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.onnxgraph import weight_only
from edgekit.onnxgraph.folding import RECURRENT
from edgekit.onnxgraph.groups import groups, nodes_of
from edgekit.onnxgraph.token_scales import scale_tokens

if TYPE_CHECKING:
    import onnx


def quantize_dynamic(
    graph: onnx.ModelProto, floats: tuple[str, ...] = (), reduce_range: bool = False
) -> onnx.ModelProto:
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
    chosen = set(nodes_of(groups(copy, dynamic=True), floats))
    weights = {i.name: i for i in copy.graph.initializer}
    nodes = [part for node in copy.graph.node for part in _gemm_as_matmul(node, chosen, weights)]
    read = {name for node in nodes for name in node.input}
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(weight for name, weight in weights.items() if name in read)
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    scale_tokens(copy, chosen)
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        source, result = Path(folder) / "source.onnx", Path(folder) / "result.onnx"
        source.write_bytes(copy.SerializeToString())
        with _quiet():
            quantize_dynamic(
                source,
                result,
                op_types_to_quantize=["MatMul", RECURRENT],
                nodes_to_quantize=sorted(chosen),
                per_channel=True,
                reduce_range=reduce_range,
                weight_type=QuantType.QInt8,
            )
        made = onnx.load(result)
    weight_only.quantize_weights(made)
    return made


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No warnings: the quantizer recommends a pre-processing that fails on such graphs."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(before)


def _gemm_as_matmul(
    node: onnx.NodeProto, chosen: set[str], weights: dict[str, onnx.TensorProto]
) -> Iterator[onnx.NodeProto]:
    """A Gemm as MatMul and Add: the dynamic quantizer takes no Gemm, and ONNX Runtime fuses the two again."""
    from onnx import helper, numpy_helper

    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    unscaled = given.get("alpha", 1.0) == given.get("beta", 1.0) == 1.0
    if node.op_type != "Gemm" or node.name not in chosen or given.get("transA") or not unscaled:
        yield node
        return
    weight = node.input[1]
    if weight_only.transposed(node):
        turned = np.ascontiguousarray(numpy_helper.to_array(weights[weight]).T)
        weight = f"{weight}_transposed"
        weights[weight] = numpy_helper.from_array(turned, weight)
    product = node.output[0] if len(node.input) < 3 else f"{node.output[0]}_product"
    yield helper.make_node("MatMul", [node.input[0], weight], [product], name=node.name)
    if len(node.input) == 3:
        yield helper.make_node("Add", [product, node.input[2]], node.output, name=f"{node.name}_bias")
