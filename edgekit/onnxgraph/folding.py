"""What is computed from constants alone becomes a constant: INT8 looks for weights, and finds only what is one.

    weight_ih [4H, K] -> Slice, Concat, Unsqueeze -> LSTM, W [1, 4H, K]
    W [1, 4H, K] constant -> LSTM

PyTorch's exporter folds small constants only; a recurrent layer's gates, which ONNX orders otherwise, are larger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

RECURRENT = "LSTM"
LARGEST = 1 << 28
"""Elements of a constant that is folded: any weight of a model for the edge."""


def folded(graph: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with its recurrent layers' weights as constants; the graph itself where it has none of these."""
    if not any(node.op_type == RECURRENT for node in graph.graph.node):
        return graph
    import onnx_ir as ir
    import onnx_ir.passes.common as passes
    from onnxscript import optimizer

    model = ir.from_proto(graph)
    optimizer.fold_constants(model, input_size_limit=LARGEST, output_size_limit=LARGEST)
    passes.RemoveUnusedNodesPass()(model)
    made = ir.to_proto(model)
    del made.graph.value_info[:]  # the quantizers take stale shapes for the truth
    return made
