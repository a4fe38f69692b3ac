"""LSTMs with all of their outputs, for a converter that writes past those that are not named.

    LSTM -> Y
    LSTM -> Y, Y_h, Y_c

MNN 3.6 writes over its own memory, and mostly dies, where a layer leaves out its last states, as most modules do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit_targets.onnx.passes.graph import copied, graph_pass

if TYPE_CHECKING:
    import onnx

OUTPUTS = 3
"""Of an LSTM: its answers, and the last states of both kinds."""


@graph_pass
def with_states(graph: onnx.ModelProto) -> onnx.ModelProto:
    """A graph whose LSTMs name all outputs; nothing reads those that are new."""
    made = copied(graph)
    for node in made.graph.node:
        if node.op_type == "LSTM":
            known = [*node.output, *[""] * (OUTPUTS - len(node.output))]
            layer = next(name for name in known if name)
            node.output[:] = [name or f"{layer}/state_{number}" for number, name in enumerate(known)]
    return made
