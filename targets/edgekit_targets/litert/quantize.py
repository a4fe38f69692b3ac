"""Quantization of a `.tflite` file to INT8, in the environment `litert`, without edgekit."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def answer(request: dict[str, Any]) -> dict[str, object]:
    """Quantize the file, and return how many weights are in INT8.

    Args:
        request: The paths of the file to read ("model") and of the file to write ("out"), and the recipe.
    """
    from ai_edge_quantizer import quantizer, recipe

    recipes = {
        "dynamic": recipe.dynamic_wi8_afp32,
        "weights": recipe.weight_only_wi8_afp32,
    }
    model_quantizer = quantizer.Quantizer(request["model"], recipes[request["recipe"]]())
    Path(request["out"]).write_bytes(bytes(model_quantizer.quantize().quantized_model))
    return {"weights": _weights(request["out"])}


def _weights(path: str) -> int:
    """Return how many tensors of more than one dimension are in INT8 and constant."""
    from ai_edge_litert.tools import flatbuffer_utils
    from ai_edge_quantizer import qtyping

    model = flatbuffer_utils.read_model(path)
    sizes = [len(buffer.data) if buffer.data is not None else 0 for buffer in model.buffers]
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    constant = [t for t in tensors if sizes[t.buffer] and t.type == qtyping.TensorType.INT8]
    return sum(len(tensor.shape) > 1 for tensor in constant)
