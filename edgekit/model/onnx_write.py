"""Writing of ONNX graphs of any size.

Protobuf holds at most 2 GiB in one file, and its own writer needs all bytes of a graph a second time in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from edgekit.model.onnx_check import BYTES, LARGEST, data_name

if TYPE_CHECKING:
    import onnx

    Part = TypeVar("Part", onnx.ModelProto, onnx.GraphProto)

LEAST = 1024
"""Bytes: smaller tensors stay in the graph, since ONNX Runtime needs shapes and axes while it reads it."""
GRAPH = 1 << 26
"""Bytes left to nodes in a file with all weights."""
ALIGNED = 64
"""Bytes: a runtime may read the tensors in place, and vector instructions need this alignment."""


def write_graph(graph: onnx.ModelProto, path: Path) -> None:
    """Write a graph; weights that are too large for one file go to another next to it, `model.onnx.data`."""
    if sum(weight.ByteSize() for weight in graph.graph.initializer) > LARGEST - GRAPH:
        graph = _with_weights_apart(graph, path.parent / data_name(path))
    with path.open("wb") as stream:
        stream.writelines(pieces(graph))


def pieces(graph: onnx.ModelProto) -> Iterator[bytes]:
    """Yield a graph's bytes, its weights one after the other: protobuf's own writer holds all their bytes again.

    Fields in another order are the same message (https://protobuf.dev/programming-guides/encoding/#order).
    """
    model, inner = (part.SerializeToString(deterministic=True) for part in split(graph))
    heads = [_head(graph.graph, "initializer", weight.ByteSize()) for weight in graph.graph.initializer]
    size = len(inner) + sum(map(len, heads)) + sum(weight.ByteSize() for weight in graph.graph.initializer)
    yield model + _head(graph, "graph", size) + inner
    for head, weight in zip(heads, graph.graph.initializer, strict=True):
        yield head + weight.SerializeToString(deterministic=True)


def _with_weights_apart(graph: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """Write a graph's weights to a file, and return the graph that reads them from there."""
    model, inner = split(graph)
    with path.open("wb") as stream:
        for weight in graph.graph.initializer:
            # Protobuf copies the bytes at each access.
            raw = weight.raw_data
            if len(raw) >= LEAST:
                stream.write(b"\0" * (-stream.tell() % ALIGNED))
                inner.initializer.append(external(weight, path.name, stream.tell(), len(raw)))
                stream.write(raw)
            else:
                inner.initializer.append(weight)
    model.graph.MergeFrom(inner)
    return model


def external(tensor: onnx.TensorProto, name: str, offset: int, length: int) -> onnx.TensorProto:
    """Return a tensor whose bytes lie in another file.

    A tensor names the file, the offset of its bytes in it, and their number
    (https://github.com/onnx/onnx/blob/main/docs/ExternalData.md).
    """
    from onnx import TensorProto

    moved = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    moved.data_location = TensorProto.EXTERNAL
    for key, value in (("location", name), ("offset", str(offset)), ("length", str(length))):
        moved.external_data.add(key=key, value=value)
    return moved


def split(graph: onnx.ModelProto) -> tuple[onnx.ModelProto, onnx.GraphProto]:
    """Return copies of a file without its graph, and of the graph without its weights."""
    import onnx

    model, inner = onnx.ModelProto(), onnx.GraphProto()
    _copy_fields(graph, model, "graph")
    _copy_fields(graph.graph, inner, "initializer")
    return model, inner


def _copy_fields(message: Part, copy: Part, but: str) -> None:
    """Copy the fields of a message, except one, into an empty message."""
    for field, value in message.ListFields():
        if field.name == but:
            continue
        if isinstance(value, int | float | str | bytes):
            setattr(copy, field.name, value)
        else:
            getattr(copy, field.name).MergeFrom(value)


def _head(message: Part, field: str, size: int) -> bytes:
    """Return what precedes a message as a field of another: the field's tag, and its number of bytes."""
    head = bytearray()
    for number in (message.DESCRIPTOR.fields_by_name[field].number << 3 | BYTES, size):
        while number > 127:
            head.append(number & 127 | 128)
            number >>= 7
        head.append(number)
    return bytes(head)
