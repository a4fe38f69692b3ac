"""Weights of several ONNX graphs in one file beside them, each value once.

    graph at 224x224 (13 MB), graph at 512x512 (13 MB) -> two graphs of 200 KB, weights.bin (13 MB)

ONNX's external data: a tensor names the file, where in it its bytes begin, and how many they are
(https://github.com/onnx/onnx/blob/main/docs/ExternalData.md).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

LEAST = 1024
"""Bytes: smaller tensors stay in the graph, since ONNX Runtime needs shapes and axes while it reads it."""
ALIGNED = 64
"""Bytes: a runtime may read the tensors where they lie, and vector instructions want this."""


class SharedWeights:
    """The bytes of all tensors that were moved so far.

    Args:
        name: Of the file that will hold them.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.data = bytearray()
        self._places: dict[bytes, int] = {}

    def move(self, graph: onnx.ModelProto) -> None:
        """Move the constants of a graph, all but the smallest."""
        from onnx import TensorProto, numpy_helper

        for tensor in graph.graph.initializer:
            if tensor.data_type == TensorProto.STRING:
                continue
            raw = tensor.raw_data or numpy_helper.to_array(tensor).tobytes()
            if len(raw) < LEAST:
                continue
            digest = hashlib.sha256(raw).digest()
            if digest not in self._places:
                self.data.extend(b"\0" * (-len(self.data) % ALIGNED))
                self._places[digest] = len(self.data)
                self.data.extend(raw)
            place = self._places[digest]
            kept = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            kept.data_location = TensorProto.EXTERNAL
            for key, value in (("location", self.name), ("offset", str(place)), ("length", str(len(raw)))):
                entry = kept.external_data.add()
                entry.key, entry.value = key, value
            tensor.CopyFrom(kept)
