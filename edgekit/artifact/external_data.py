"""Which other files an ONNX file takes weights from, found without a library: nothing is opened before it is checked.

ONNX is a protobuf. This walks its wire format (https://protobuf.dev/programming-guides/encoding) along the fields that
can hold a tensor (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto) and skips the weights themselves.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from edgekit.errors import ArtifactError

_MODEL = {7: "graph", 20: "training", 25: "function"}
_FIELDS: dict[str, dict[int, str]] = {
    "model": _MODEL,
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
    "entry": {},
}
_KEY, _VALUE, _LOCATION = 1, 2, b"location"
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # wire types
DEEPEST = 64  # graphs in graphs; real ones have two or three


def external_files(path: Path) -> tuple[str, ...]:
    """The names, as an ONNX file gives them, of the files that it takes weights from, each once.

    Raises:
        ArtifactError: If the file is no protobuf, or its graphs are nested too deeply.
    """
    if path.stat().st_size == 0:
        return ()
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return tuple(dict.fromkeys(_walk(data, 0, len(data), "model", 0)))
        except _BrokenError as error:
            raise ArtifactError(f"'{path}' is no ONNX file ({error}); export again") from error


class _BrokenError(Exception):
    """What does not hold in the wire format."""


def _walk(data: mmap.mmap, start: int, end: int, kind: str, depth: int) -> Iterator[str]:
    if depth > DEEPEST:
        raise _BrokenError(f"its graphs are nested more than {DEEPEST} deep")
    inner = _FIELDS[kind]
    for number, begin, stop in _fields(data, start, end):
        if (of := inner.get(number)) == "entry":
            entry = {n: data[b:s] for n, b, s in _fields(data, begin, stop) if s - b < 4096 or n == _VALUE}
            if entry.get(_KEY) == _LOCATION:
                yield entry.get(_VALUE, b"").decode("utf-8", "backslashreplace")
        elif of is not None:
            yield from _walk(data, begin, stop, of, depth + 1)


def _fields(data: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The fields of a message that hold bytes: number, where they begin, where they end."""
    while at < end:
        tag, at = _varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if wire == _BYTES:
            length, at = _varint(data, at, end)
            if length > end - at:
                raise _BrokenError("a field is longer than the file")
            yield number, at, at + length
            at += length
        elif wire == _VARINT:
            _, at = _varint(data, at, end)
        elif wire in (_EIGHT, _FOUR):
            at += 8 if wire == _EIGHT else 4
        else:
            raise _BrokenError(f"wire type {wire}")
    if at > end:
        raise _BrokenError("a field is longer than the file")


def _varint(data: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise _BrokenError("it ends in the middle of a field")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _BrokenError("a number has too many digits")
