"""How a runtime and its process speak: a letter, then arrays or a text; `multiprocessing.connection` frames it.

Both sides import this file by itself: the process runs in another interpreter, without the rest of edgekit.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

RUN, CLOCK, ANSWER, TEXT, REFUSED = b"R", b"C", b"A", b"T", b"E"
"""Asked to run, asked to time; arrays, a JSON object, what went wrong."""
NARROW = {"int64": "int32", "float64": "float32"}
"""The programs have no 64-bit numbers: inputs are handed over in 32 bits."""


def packed(arrays: Mapping[str, Any]) -> bytes:
    """Arrays by name as bytes."""
    held = io.BytesIO()
    np.savez(held, **{f"_{name}": array for name, array in arrays.items()})  # a leading letter: "file" is an argument
    return held.getvalue()


def unpacked(content: bytes) -> dict[str, Any]:
    """Bytes as arrays by name."""
    with np.load(io.BytesIO(content), allow_pickle=False) as held:
        return {name[1:]: held[name] for name in held.files}
