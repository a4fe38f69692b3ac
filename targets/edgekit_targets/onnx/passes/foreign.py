"""A graph that another exporter wrote, in the form of edgekit's own: names, constants, folded batch norms.

Constant -> value; Conv -> BatchNormalization
initializer; Conv with the batch norm's scale and shift in its weights
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.errors import ExportError
from edgekit_targets.onnx.passes.optimizer import exact

if TYPE_CHECKING:
    import onnx

OLDEST = 13
"""Opset: the first whose DequantizeLinear has a scale for each channel."""


def adopted(graph: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto:
    """The graph with these names of inputs and outputs, in order, weights as initializers and a name for each node.

    Raises:
        ExportError: If its opset is too old to be brought to OLDEST.
    """
    import onnx_ir as ir
    import onnx_ir.passes.common as passes
    from onnxscript import rewriter

    made_by = {tensor: node.name for node in graph.graph.node for tensor in node.output}
    model = ir.from_proto(_recent(graph))
    passes.TopologicalSortPass()(model)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True)(model)
    passes.RemoveInitializersFromInputsPass()(model)
    with exact():
        model = rewriter.rewrite(model)
    passes.RemoveUnusedNodesPass()(model)
    for value, name in zip((*model.graph.inputs, *model.graph.outputs), (*inputs, *outputs), strict=True):
        made_by[name] = made_by.get(str(value.name), "")
        value.name = name
    proto = _shaped(ir.to_proto(model))
    _name_nodes(proto, made_by)
    return proto


def _shaped(graph: onnx.ModelProto) -> onnx.ModelProto:
    """A graph with the shape of each output, which the file may leave to its runtime."""
    from onnx import shape_inference

    if all(value.type.tensor_type.HasField("shape") for value in graph.graph.output):
        return graph
    return shape_inference.infer_shapes(graph)


def _recent(graph: onnx.ModelProto) -> onnx.ModelProto:
    from onnx import version_converter

    opset = next((o.version for o in graph.opset_import if o.domain in ("", "ai.onnx")), OLDEST)
    if opset >= OLDEST:
        return graph
    try:
        return version_converter.convert_version(graph, OLDEST)
    except Exception as error:
        reason = f"opset {opset} cannot be brought to {OLDEST}: export the model again, with opset 17"
        raise ExportError(reason) from error


def _name_nodes(graph: onnx.ModelProto, made_by: Mapping[str, str]) -> None:
    """module.path/OpType, numbered: "/layer1/conv1/Conv" of PyTorch's older exporter says the path in another way.

    A node that a rewrite put in has the path of the node that gave its output before.
    """
    seen: Counter[str] = Counter()
    for node in graph.graph.node:
        name = made_by.get(node.output[0]) or node.name
        path = [part for part in name.split("/") if part][:-1] if "/" in name else []
        base = f"{'.'.join(path)}/{node.op_type}" if path else node.op_type
        seen[base] += 1
        node.name = base if seen[base] == 1 else f"{base}_{seen[base]}"
