"""Checks of an ONNX file before any library opens it: a file is hostile until it has been examined.

onnx's checker lets a file of 72 bytes request 4 TiB, and ONNX Runtime opens any path that its external data name. So
the file's Protocol Buffers are walked here without allocating anything. Each message must lie inside its parent,
nesting and counts must stay within those of real models, and each tensor must hold the bytes of its shape. No tensor
may lie in another file, except one in the same folder that the caller names. Field numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.

A worker's limits, not this module, bound the allocations of a running graph (a ConstantOfShape of any size).
"""

from __future__ import annotations

import mmap
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from edgekit.errors import ModelError

if TYPE_CHECKING:
    import onnx


# In bytes. Protocol Buffers hold no more.
LARGEST = 2 << 30
# Messages in messages: each branch of a graph in a branch adds three.
DEEPEST = 40
MOST_FIELDS = 5_000_000

_VARINT, _FIXED64, BYTES, _FIXED32 = 0, 1, 2, 5
_MESSAGES: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 11: "value", 12: "value", 13: "value", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        14: "type",
        15: "type",
        22: "sparse",
        23: "sparse",
    },
    "function": {7: "node", 11: "attribute"},
    "training": {1: "graph", 2: "graph"},
    "sparse": {1: "tensor", 2: "tensor"},
    "value": {2: "type"},
    "type": {4: "sequence", 5: "map", 9: "sequence"},
    "sequence": {1: "type"},
    "map": {2: "type"},
}
"""For each kind of message, its fields that are messages of a kind."""
_BITS = {1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128, 16: 16}
_BITS |= {17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2}
"""Bits of one value by TensorProto.DataType; strings (8) have none."""
_STRING = 8
_DIMS, _TYPE, _NAME, _RAW, _EXTERNAL, _LOCATION = 1, 2, 8, 9, 13, 14
_TYPED = {4, 5, 6, 7, 10, 11}
"""Fields of a tensor that hold its values one by one, instead of raw bytes."""

_PLACE = (b"location", b"offset", b"length")

Data = bytes | mmap.mmap


def data_name(path: Path) -> str:
    """Return the name that edgekit and PyTorch give to the file of an ONNX file's weights, if it has one."""
    return f"{path.name}.data"


def check_onnx(path: Path, beside: str = "") -> None:
    """Check an ONNX file.

    Args:
        path: The file.
        beside: Name of a further file of its folder, which may hold tensors.

    Raises:
        ModelError: If it is not a regular file, is damaged, too large or too deep, or requests memory or files that
            it does not contain.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= LARGEST:
            _refuse(f"is not a regular file of 1 to {LARGEST} bytes")
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            check_bytes(data, beside, _size(path.parent / beside) if beside else 0)
    except OSError as error:
        raise ModelError(f"'{path}' cannot be read ({error.strerror}). Check the path and permissions") from error
    except RefusalError as refused:
        raise ModelError(f"'{path}' is not a usable ONNX file: it {refused}") from refused


def check_bytes(data: Data, beside: str = "", room: int = 0) -> None:
    """Check a file's bytes as `check_onnx` does; `room` is the size of the other file. Raises RefusalError."""
    walk = Walk(data, beside.encode(), room)
    walk.message("model", 0, len(data), 0)
    if not walk.nodes:
        _refuse("has no nodes")


class RefusalError(ValueError):
    """A reason to refuse a file."""


def _size(path: Path) -> int:
    status = path.lstat()
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


@dataclass
class Walk:
    """A walk over a file's messages; other fields as in `check_bytes`."""

    data: Data
    beside: bytes = b""
    room: int = 0
    fields: int = 0
    nodes: int = 0

    def message(self, kind: str, start: int, end: int, depth: int) -> None:
        """Check a message and everything inside it."""
        if depth > DEEPEST:
            _refuse(f"is nested deeper than {DEEPEST} messages")
        if kind == "tensor":
            self.tensor(start, end)
            return
        self.nodes += kind == "node"
        inner = _MESSAGES[kind]
        for number, wire, first, last in self.split(start, end):
            if number in inner:
                if wire != BYTES:
                    _refuse("has a message that is a number")
                self.message(inner[number], first, last, depth + 1)

    def tensor(self, start: int, end: int) -> None:
        """Check that a tensor holds as many values as its shape needs."""
        dims: list[int] = []
        kind = raw = typed = texts = 0
        has_raw, name = False, ""
        entries: dict[bytes, bytes] = {}
        for number, wire, first, last in self.split(start, end):
            if number == _DIMS:
                dims += self.numbers(wire, first, last)
            elif number == _TYPE:
                kind = self.numbers(wire, first, last)[-1]
            elif number == _NAME:
                name = self.data[first : min(last, first + 60)].decode(errors="replace")
            elif number == _RAW:
                has_raw, raw = True, last - first
            elif number in _TYPED:
                typed, texts = typed + last - first, texts + 1
            elif number in (_EXTERNAL, _LOCATION):
                self.external(number, wire, first, last, name, entries)
        count = prod(dims) if all(0 <= size < 1 << 40 for size in dims) and len(dims) <= 64 else -1
        if count < 0:
            _refuse(f"has the tensor '{name}' with an impossible shape")
        if kind not in _BITS and kind != _STRING:
            _refuse(f"has the tensor '{name}' with the unknown type {kind}")
        needed = (count * _BITS.get(kind, 0) + 7) // 8
        if entries:
            self.check_external(name, needed, entries)
        elif (has_raw and raw != needed) or (not has_raw and count > (texts if kind == _STRING else typed)):
            _refuse(f"has the tensor '{name}', whose shape needs {count} values that are missing")

    def external(self, number: int, wire: int, start: int, end: int, name: str, entries: dict[bytes, bytes]) -> None:
        """Check one external-data field of a tensor; `entries` collects keys and values."""
        if not self.beside and (number == _EXTERNAL or any(self.numbers(wire, start, end))):
            _refuse(
                f"keeps the tensor '{name}' in another file. Put that file (often FILE.onnx.data) next to it. If it "
                "has several such files, join them with onnx.save(onnx.load(FILE), 'joined.onnx')"
            )
        if number == _EXTERNAL:
            fields = {number: bytes(self.data[first:last]) for number, _, first, last in self.split(start, end)}
            if fields.get(1) in (None, *entries) or fields.get(1) not in _PLACE:
                _refuse(f"has duplicate or unknown external-data keys for the tensor '{name}'")
            entries[fields.get(1, b"")] = fields.get(2, b"")

    def check_external(self, name: str, needed: int, entries: Mapping[bytes, bytes]) -> None:
        """Check that an external tensor lies completely inside the named file."""
        offset, length = (entries.get(key, b"0") for key in (b"offset", b"length"))
        numbers = offset.isdigit() and length.isdigit() and len(offset) < 16 and len(length) < 16
        inside = numbers and int(length) == needed and int(offset) + needed <= self.room
        if entries.get(b"location") != self.beside or not inside:
            _refuse(f"has the tensor '{name}' in another file, which does not contain it")

    def numbers(self, wire: int, first: int, last: int) -> list[int]:
        """Return the integers of a field: one, or several packed ones."""
        if wire not in (_VARINT, BYTES):
            _refuse("has a number with the wrong wire type")
        values = []
        while first < last:
            value, first = self.varint(first, last)
            values.append(value)
            if len(values) > MOST_FIELDS:
                _refuse(f"has more than {MOST_FIELDS} fields")
        return values or [0]

    def split(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield number, wire type, start and end of the value of each field of a message."""
        sizes: dict[int, Callable[[int], int]] = {_FIXED64: lambda at: at + 8, _FIXED32: lambda at: at + 4}
        while start < end:
            self.fields += 1
            if self.fields > MOST_FIELDS:
                _refuse(f"has more than {MOST_FIELDS} fields")
            tag, start = self.varint(start, end)
            number, wire = tag >> 3, tag & 7
            if wire == BYTES:
                size, start = self.varint(start, end)
                last = start + size
            elif wire == _VARINT:
                last = self.varint(start, end)[1]
            elif wire in sizes:
                last = sizes[wire](start)
            else:
                _refuse(f"has a field of the unknown kind {wire}")
            if last > end or not number:
                _refuse("is damaged: a field ends outside its message")
            yield number, wire, start, last
            start = last

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """Return an integer of up to ten bytes, and where it ends."""
        value = 0
        for place in range(10):
            if at + place >= end:
                break
            byte = self.data[at + place]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value, at + place + 1
        raise RefusalError("is damaged: an integer does not end")


def _refuse(why: str) -> NoReturn:
    raise RefusalError(why)


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs that a node holds, in the order of its attributes."""
    for attribute in node.attribute:
        yield from attribute.graphs
        if attribute.HasField("g"):
            yield attribute.g


def every_node(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of its branches and loops."""
    for node in graph.node:
        yield node
        for body in bodies(node):
            yield from every_node(body)


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the tensor names that a node reads, including the bodies of its branches and loops."""
    yield from node.input
    for body in bodies(node):
        yield from (value.name for value in body.output)
        for inner in body.node:
            yield from names_read(inner)


def rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Rename the tensors that a node reads, and the graphs in it that see those names from outside."""
    node.input[:] = [names.get(name, name) for name in node.input]
    for body in bodies(node):
        seen = {before: after for before, after in names.items() if before not in {value.name for value in body.input}}
        for inner in body.node:
            rename(inner, seen)
        for output in body.output:
            output.name = seen.get(output.name, output.name)
