"""A model in ONNX Runtime for `OrtSession.java`: inputs come by standard input, answers go to standard output."""

from __future__ import annotations

import struct
import sys
from math import prod

import numpy as np


def main() -> None:
    """Open the model, then answer until nothing comes any more."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(sys.argv[2])
    try:
        session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
    except Exception as error:
        _write(b"\0" + _text(str(error)))
        return
    _write(b"\1" + _text(onnxruntime.__version__))
    names = [output.name for output in session.get_outputs()]
    while True:
        inputs = dict(_input() for _ in range(_number(">i")))
        try:
            answers = dict(zip(names, session.run(None, inputs), strict=True))
        except Exception as error:
            _write(b"\0" + _text(str(error)))
            continue
        _write(b"\1" + struct.pack(">i", len(answers)) + b"".join(_output(*one) for one in answers.items()))


def _input() -> tuple[str, np.ndarray]:
    name = _read(_number(">H")).decode()
    kind = np.dtype(">f4") if _number(">?") else np.dtype(">i8")
    shape = [_number(">q") for _ in range(_number(">i"))]
    data = np.frombuffer(_read(prod(shape) * kind.itemsize), kind).reshape(shape)
    return name, data.astype(kind.newbyteorder("="))


def _output(name: str, array: np.ndarray) -> bytes:
    kind = ">f4" if array.dtype.kind == "f" else ">i8"
    sizes = struct.pack(f">i{array.ndim}q", array.ndim, *array.shape)
    return _text(name) + struct.pack(">?", array.dtype.kind == "f") + sizes + array.astype(kind).tobytes()


def _text(text: str) -> bytes:
    data = text.encode()[:60000]
    return struct.pack(">H", len(data)) + data


def _number(kind: str) -> int:
    return int(struct.unpack(kind, _read(struct.calcsize(kind)))[0])


def _read(size: int) -> bytes:
    data = sys.stdin.buffer.read(size)
    if len(data) < size:
        sys.exit()
    return data


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
