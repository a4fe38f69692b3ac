"""Weight files (`weights/weight.bin`): Core ML's blob storage, version 2, read with every bound checked.

The format, little-endian, from coremltools' `mlmodel/src/MILBlob/Blob/StorageFormat.hpp`:

- a header of 64 bytes: uint32 number of blobs, uint32 version (2), the rest reserved;
- for each blob, at a multiple of 64: uint32 0xDEADBEEF, uint32 element type, uint64 size in bytes, uint64 offset of the
  data (again a multiple of 64), uint64 padding in bits (of sub-byte types), 32 reserved bytes.

A program names a blob by the offset of its 64-byte description.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from mil_interpreter.errors import PackageError
from mil_interpreter.records import WORKING_DTYPES, Array, TensorType

_ALIGNMENT = 64  # bytes
_VERSION = 2
_SENTINEL = 0xDEADBEEF
_HEADER = struct.Struct("<II56x")
_DESCRIPTION = struct.Struct("<IIQQQ32x")
_STORED: dict[str, tuple[int, str]] = {  # MIL element type -> (blob element type, NumPy dtype in the file)
    "fp16": (1, "<f2"),
    "fp32": (2, "<f4"),
    "uint8": (3, "u1"),
    "int8": (4, "i1"),
    "int16": (6, "<i2"),
    "uint16": (7, "<u2"),
    "int32": (14, "<i4"),
    "uint32": (15, "<u4"),
}


class WeightFile:
    """One weight file, opened once; `read` copies a blob out of it in its working dtype."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._bytes = np.memmap(path, dtype=np.uint8, mode="r")
        except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
            raise PackageError(f"the weight file '{path}' cannot be read ({error})") from error
        count, version = _HEADER.unpack(self._piece(0, _HEADER.size, "its header").tobytes())
        if version != _VERSION or count == 0:
            raise PackageError(f"the weight file '{path}' has no valid header (version {version})")

    def read(self, offset: int, declared: TensorType) -> Array:
        """The blob described at `offset`, which must be what the program declares.

        Raises:
            PackageError: If the description or the data lie outside the file or are of another type or size.
        """
        if offset % _ALIGNMENT or declared.dtype not in _STORED or None in declared.shape:
            raise self._damaged(offset, f"a tensor of {declared.dtype} cannot lie there")
        described = self._piece(offset, _DESCRIPTION.size, "a description").tobytes()
        sentinel, kind, size, start, _ = _DESCRIPTION.unpack(described)
        wanted_kind, dtype = _STORED[declared.dtype]
        shape = tuple(int(n or 0) for n in declared.shape)
        wanted_size = int(np.prod([1, *shape], dtype=object)) * np.dtype(dtype).itemsize
        if sentinel != _SENTINEL:
            raise self._damaged(offset, "no blob starts there")
        if kind != wanted_kind or size != wanted_size:
            raise self._damaged(offset, f"{size} bytes of type {kind}, the program says {wanted_size} of {wanted_kind}")
        if start % _ALIGNMENT:
            raise self._damaged(offset, f"its data start at {start}, which is not a multiple of {_ALIGNMENT}")
        stored = self._piece(start, size, "a blob").view(dtype).reshape(shape)
        return np.array(stored, dtype=WORKING_DTYPES[declared.dtype])

    def _piece(self, start: int, size: int, what: str) -> Array:
        if start < 0 or start + size > len(self._bytes):
            raise PackageError(
                f"the weight file '{self.path}' is cut off: {what} of {size} bytes at {start} lies beyond its "
                f"{len(self._bytes)} bytes"
            )
        return self._bytes[start : start + size]

    def _damaged(self, offset: int, why: str) -> PackageError:
        return PackageError(f"the weight file '{self.path}' is damaged at {offset} ({why})")
