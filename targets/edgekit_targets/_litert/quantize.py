"""A `.tflite` file -> one in INT8: run by the interpreter of the environment `litert`, without edgekit.

Arguments: a JSON object with the paths of the file to read and of the file to write and the recipe; and the
path of the JSON object that says how it ended.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Quantize, and say how many weights are in INT8."""
    asked, told = json.loads(sys.argv[1]), Path(sys.argv[2])
    try:
        answer: dict[str, Any] = {"weights": _quantized(asked)}
    except Exception as error:  # whatever its passes met: the parent says it in a sentence
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        answer = {"error": lines[0] if lines else type(error).__name__}
    told.write_text(json.dumps(answer))


def _quantized(asked: dict[str, Any]) -> int:
    from ai_edge_quantizer import quantizer, recipe

    recipes = {
        "dynamic": recipe.dynamic_wi8_afp32,
        "weights": recipe.weight_only_wi8_afp32,
    }
    made = quantizer.Quantizer(asked["model"], recipes[asked["recipe"]]())
    Path(asked["out"]).write_bytes(bytes(made.quantize().quantized_model))
    return _weights(asked["out"])


def _weights(path: str) -> int:
    """How many tensors of more than one dimension are in INT8 and constant."""
    from ai_edge_litert.tools import flatbuffer_utils
    from ai_edge_quantizer import qtyping

    model = flatbuffer_utils.read_model(path)
    held = [len(buffer.data) if buffer.data is not None else 0 for buffer in model.buffers]
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    constant = [t for t in tensors if held[t.buffer] and t.type == qtyping.TensorType.INT8]
    return sum(len(tensor.shape) > 1 for tensor in constant)


if __name__ == "__main__":
    main()
