"""Small picture files, sound ones and others."""

import io
import struct
import zlib

import numpy as np
from PIL import Image


def png(width: int, height: int, rows: int | None = None) -> bytes:
    """An RGB PNG whose header may promise more rows than there are."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"".join(b"\0" + bytes(range(3)) * width for _ in range(rows or height))
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(data)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def jpeg() -> bytes:
    noise = np.random.Generator(np.random.PCG64(1)).integers(0, 255, (64, 64, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noise).save(stream, "JPEG")
    return stream.getvalue()
