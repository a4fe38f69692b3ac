"""A model in ONNX Runtime or MNN for `Session.java`: inputs come by standard input, answers go to standard output."""

from __future__ import annotations

import itertools
import os
import struct
import sys
from collections.abc import Callable
from math import prod

import numpy as np

Arrays = dict[str, np.ndarray]


def main() -> None:
    """Open the model, then answer until nothing comes any more."""
    runtime, model, threads = sys.argv[1:]
    global _answers
    _answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # MNN prints of every file that it opens
    try:
        version, run = {"onnxruntime": onnxruntime_session, "MNN": mnn_session}[runtime](model, int(threads))
    except Exception as error:
        _write(b"\0" + _text(str(error)))
        return
    _write(b"\1" + _text(version))
    trouble = TROUBLES[os.environ.get("PHONE_TROUBLE", "")]
    for run_number in itertools.count():
        inputs = dict(_input() for _ in range(_number(">i")))
        try:
            answers = trouble(run(inputs), run_number)
        except Exception as error:
            _write(b"\0" + _text(str(error)))
            continue
        _write(b"\1" + struct.pack(">i", len(answers)) + b"".join(_output(*one) for one in answers.items()))


def drifting(answers: Arrays, number: int) -> Arrays:
    """Answers that are others each time, by less than any limit."""
    return {name: a + np.float32(1e-7 * (number % 9)) if a.dtype.kind == "f" else a for name, a in answers.items()}


def failing(answers: Arrays, number: int) -> Arrays:
    """A runtime that gives up."""
    if number > 3:
        raise RuntimeError("it gave up")
    return answers


TROUBLES: dict[str, Callable[[Arrays, int], Arrays]] = {
    "": lambda answers, number: answers,
    "drift": drifting,
    "fail": failing,
}


def onnxruntime_session(model: str, threads: int) -> tuple[str, Callable[[Arrays], Arrays]]:
    """ONNX Runtime's version, and what answers."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return onnxruntime.__version__, lambda inputs: dict(zip(names, session.run(None, inputs), strict=True))


def mnn_session(model: str, threads: int) -> tuple[str, Callable[[Arrays], Arrays]]:
    """MNN's version, and a session of the interface that its Java classes call."""
    import MNN

    net = MNN.Interpreter(model)
    session = net.createSession({"numThread": threads})
    caffe, floats = MNN.Tensor_DimensionType_Caffe, MNN.Halide_Type_Float

    def run(inputs: Arrays) -> Arrays:
        for name, array in inputs.items():
            net.resizeTensor(net.getSessionInput(session, name), array.shape)
        net.resizeSession(session)
        for name, array in inputs.items():
            own = array if array.dtype.kind == "f" else array.astype(np.int32)
            kind = floats if own.dtype.kind == "f" else MNN.Halide_Type_Int
            net.getSessionInput(session, name).copyFrom(MNN.Tensor(own.shape, kind, own, caffe))
        net.runSession(session)
        answers = {}
        for name, one in net.getSessionOutputAll(session).items():
            held = np.zeros(one.getShape(), np.float32 if one.getDataType() == floats else np.int32)
            host = MNN.Tensor(one.getShape(), one.getDataType(), held, caffe)
            one.copyToHostTensor(host)
            answers[name] = np.array(host.getNumpyData())
        return answers

    return MNN.version(), run


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
    _answers.write(data)
    _answers.flush()


if __name__ == "__main__":
    main()
