"""Hostile files of every kind that edgekit reads: `python -m tests.core.hostile.corpus FOLDER` writes them.

Each is wrong in one way. None of them holds code that does harm: what would run, if it ran, writes a mark.
"""

from __future__ import annotations

import io
import pickle
import struct
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from edgekit.artifact.store import MANIFEST, read_artifact
from edgekit.model.folder import load_builds_model
from edgekit.model.records import CONFIG
from edgekit.model.sources import checkpoint
from edgekit.model.sources import onnx as onnx_file
from edgekit.model.spec import Input
from edgekit.reference import dataset
from edgekit.report.imports import read_imported
from tests.core.hostile import texts
from tests.core.hostile.texts import CALLED, Files
from tests.core.model.sources.test_checkpoint import HOSTILE
from tests.core.model.sources.test_torch_checkpoint import ARCHIVES, PICKLES, Calls, archived

IMAGE = Input("images", ("batch", 3, 32, 32), kind="image")
ROWS = Input("rows", ("batch", 4))


class _Spec:
    """As much of a model as the reader of a calibration folder asks for."""

    name = "small"
    inputs = (ROWS,)

    def shape(self, name: str, sizes: Mapping[str, int] | None = None) -> tuple[int, ...]:
        return (1, 4)


def _rows(path: Path) -> object:
    return dataset._rows(_Spec(), path.parent, ROWS, 8, None)  # type: ignore[arg-type]  # see `_Spec`


READERS: dict[str, Callable[[Path], object]] = {
    "onnx": onnx_file.read_graph,
    "image": lambda path: dataset._image(path, IMAGE, (1, 3, 32, 32)),
    "rows": _rows,
    "checkpoint": checkpoint.read_checkpoint,
    "result": lambda path: read_imported(path.parent),
    "manifest": lambda path: read_artifact(path.parent),
    "config": lambda path: load_builds_model(path.parent, trusted=False),
}
"""What opens each kind; all of it must raise an EdgekitError."""
NAMES = {"rows": "rows.npy", "result": "result.json", "manifest": MANIFEST, "config": CONFIG}
"""Files that are found by their name, each in a folder of its own."""


def write_corpus(folder: Path) -> list[tuple[str, Path]]:
    """Write all files; returns kind and path of each."""
    makers = {
        "onnx": _onnx,
        "image": _images,
        "rows": _arrays,
        "checkpoint": _checkpoints,
        "result": texts.results,
        "manifest": texts.manifests,
        "config": texts.configs,
    }
    made = []
    for kind, maker in makers.items():
        for number, (suffix, content) in enumerate(maker()):
            name = f"{kind}-{number:03}"
            path = folder / name / NAMES[kind] if kind in NAMES else folder / f"{name}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            made.append((kind, path))
    return made


def _field(number: int, content: bytes | int) -> bytes:
    """A field of Protocol Buffers."""
    if isinstance(content, int):
        return _varint(number << 3) + _varint(content)
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    made = b""
    while value > 0x7F:
        made, value = made + bytes([value & 0x7F | 0x80]), value >> 7
    return made + bytes([value])


NODE = _field(1, _field(1, b"x") + _field(2, b"y") + _field(4, b"Relu"))


def _model(graph: bytes) -> bytes:
    return _field(1, 10) + _field(8, _field(2, 21)) + _field(7, graph)


def _onnx() -> Files:
    good = _model(NODE + _field(5, _field(1, 4) + _field(2, 1) + _field(8, b"w") + _field(9, bytes(16))))
    yield from ((".onnx", good[:end]) for end in range(10, len(good)))
    yield from (
        (".onnx", text) for text in (b"", b"\0", b"<html>", b"PK\x03\x04", b"version https://git-lfs", b"\xff" * 64)
    )
    for shape in (
        (1 << 42,),
        (1 << 39, 1 << 3),
        (1 << 30, 1 << 30),
        (1 << 63,),
        (2,),
        (5,),
        (4, 4),
        (1,) * 70,
        (0, 1 << 41),
    ):
        for data in (_field(9, bytes(16)), b"", _field(4, bytes(16))[:0], _field(9, b"")):
            dims = b"".join(_field(1, size) for size in shape)
            yield ".onnx", _model(NODE + _field(5, dims + _field(2, 1) + _field(8, b"w") + data))
    for place in (b"/etc/passwd", b"../secret", b"w.bin", b"w.bin\0.txt", b"/proc/self/mem", b""):
        entry = _field(13, _field(1, b"location") + _field(2, place))
        for location in (_field(14, 1), b""):
            tensor = _field(1, 4) + _field(2, 1) + _field(8, b"w") + entry + location
            yield ".onnx", _model(NODE + _field(5, tensor))
            attribute = _field(1, _field(5, _field(1, b"value") + _field(5, tensor)) + _field(4, b"Constant"))
            yield ".onnx", _model(NODE + attribute)
            yield ".onnx", _model(NODE) + _field(25, _field(7, attribute[2:]))
    for depth in (60, 200, 2000):
        graph = NODE
        for _ in range(depth):
            graph = _field(1, _field(4, b"If") + _field(5, _field(1, b"then") + _field(6, graph)))
        yield ".onnx", _model(graph)
        kind = b""
        for _ in range(depth):
            kind = _field(4, _field(1, kind))
        yield ".onnx", _model(NODE + _field(11, _field(2, kind)))
    for tensor_type in (0, 8, 27, 99, 1 << 31):
        yield ".onnx", _model(NODE + _field(5, _field(1, 4) + _field(2, tensor_type) + _field(9, bytes(16))))


def _png(width: int, height: int, rows: int, least: bool = False) -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packer = zlib.compressobj(9)
    row = bytes(1 if least else 1 + width * 3)
    data = b"".join(packer.compress(row) for _ in range(rows)) + packer.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def _images() -> Files:
    yield ".png", _png(5000, 5000, 5000)
    for width, height in ((13_000, 13_000), (20_000, 20_000), (1 << 30, 1), (1, 1 << 30), (33, 32), (0, 32)):
        yield ".png", _png(width, height, 1, least=True)
    good = _png(32, 32, 32)
    yield from ((".png", good[:end]) for end in range(8, len(good) - 24, 3))
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 32 32\n(mark) (w) file closefile\nshowpage\n"
    for content in (
        eps,
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"GIF89a" + bytes(32),
        b"II*\0" + bytes(64),
        b"",
    ):
        for suffix in (".png", ".jpg", ".webp", ".bmp"):
            yield suffix, content
    for width, height in ((60_000, 60_000), (32, -(1 << 31)), (1 << 30, 32)):
        yield ".bmp", b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)


def _npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def _arrays() -> Files:
    told = "{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}"
    for kind in ("<f4", "|O", "<f8", "<U4", "|V8", "<M8[s]", "<c8"):
        for shape in ("(1000000000000,)", "(8, 4)", "(-1,)", "(4611686018427387904, 4)", "()"):
            yield ".npy", _npy(told.format(kind, shape), bytes(64))
    yield ".npy", _npy("__import__('os').system('touch mark')")
    yield ".npy", _npy("[" * 5000)
    yield ".npy", b"\x80\x04."
    stream = io.BytesIO()
    np.savez(stream, a=np.zeros(4, np.float32))
    yield ".npy", stream.getvalue()
    yield ".npy", b""


COUNTED = ("too many tensors", "a bomb of opcodes")
"""They are read up to the largest number that is taken, which is what two seconds are for."""


def _checkpoints() -> Files:
    """Those that the reader's own tests refuse by their sentence, and pickles of either kind that call a function."""
    yield from ((".safetensors", content) for name, (content, _) in HOSTILE.items() if name not in COUNTED)
    yield from ((".pt", archived(code)) for name, (code, _) in PICKLES.items() if name not in COUNTED)
    yield from ((".pt", content) for content, _ in ARCHIVES.values())
    for name in CALLED:
        module, _, attribute = name.rpartition(".")
        function = getattr(__import__(module, fromlist=[attribute]), attribute)
        for protocol in (2, 4):
            code = pickle.dumps({"weight": Calls(function, "open('mark', 'w')")}, protocol)
            yield ".pt", code
            yield ".pt", archived(code)
    yield ".bin", zlib.compress(bytes(1 << 20), 9)
    for text in (b"", b"{", b"GGUF", b"\x89HDF\r\n", b"<html>", b"version https://git-lfs.github.com/spec/v1\n"):
        yield ".safetensors", text


if __name__ == "__main__":
    print(len(write_corpus(Path(sys.argv[1]))), "files")
