"""How a runtime and its process speak: a letter, a length, and arrays or a text.

Both sides import this file by itself: the process runs in another interpreter, without the rest of edgekit.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

RUN, CLOCK, ANSWER, TEXT, REFUSED = b"R", b"C", b"A", b"T", b"E"
"""Asked to run, asked to time; arrays, a JSON object, what went wrong."""
HEAD = 8  # bytes of a length
NARROW = {"int64": "int32", "float64": "float32"}
"""The programs have no 64-bit numbers: inputs are handed over in 32 bits."""


def send(stream: BinaryIO, kind: bytes, content: bytes) -> None:
    """Write one frame."""
    stream.write(kind + len(content).to_bytes(HEAD, "big"))
    stream.write(content)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[bytes, bytes]:
    """Read one frame; an empty letter where the other side is gone."""
    head = stream.read(1 + HEAD)
    if len(head) < 1 + HEAD:
        return b"", b""
    length = int.from_bytes(head[1:], "big")
    content = stream.read(length)
    return (head[:1], content) if len(content) == length else (b"", b"")


def packed(arrays: Mapping[str, Any]) -> bytes:
    """Arrays by name as bytes."""
    held = io.BytesIO()
    np.savez(held, **{f"_{name}": array for name, array in arrays.items()})  # a leading letter: "file" is an argument
    return held.getvalue()


def unpacked(content: bytes) -> dict[str, Any]:
    """Bytes as arrays by name."""
    with np.load(io.BytesIO(content), allow_pickle=False) as held:
        return {name[1:]: held[name] for name in held.files}


def told(**facts: object) -> bytes:
    """Facts as bytes."""
    return json.dumps(facts).encode()
