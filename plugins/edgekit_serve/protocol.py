"""The Open Inference Protocol, version 2: tensors in JSON and in its binary extension, and refusals.

https://github.com/kserve/open-inference-protocol (specification/protocol), and for the extension
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md: the JSON object
comes first, its length in a header; tensors follow as little-endian bytes in the order of their names in it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from prometheus_client import REGISTRY

from edgekit.artifact.manifest import Manifest, TensorInfo
from edgekit.errors import EdgekitError
from edgekit.model.spec import Array

# A string, or the numbers of a tensor: these are read apart, as Python's own reader takes 10 times their size.
_NUMBERS = re.compile(rb'"data"\s*:\s*(\[[^"{}]*\])|"(?:[^"\\]|\\.?)*+"?', re.DOTALL)
# In a list of numbers, brackets that do not enclose whole values.
_MISPLACED = re.compile(rb"[^\s,\[]\s*\[|\]\s*[^\s,\]]")
_WITHOUT_BRACKETS = bytes.maketrans(b"[]", b"  ")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]"))
# Bytes of a list of numbers that are read at once; other threads run in between.
_PART = 1 << 16
# Bytes of a request's JSON without its numbers.
_MOST_TEXT = 1 << 20
LENGTH_HEADER = "Inference-Header-Content-Length"
DATATYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8",
    "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16", "float32": "FP32", "float64": "FP64",
}  # fmt: skip
"""NumPy's name -> the protocol's name."""
DTYPES = {name: np.dtype(dtype).newbyteorder("<") for dtype, name in DATATYPES.items()}
KINDS = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}
"""Kind of a dtype -> kinds of numbers in JSON that it accepts."""
MOST_DIMENSIONS = 16
SHORT = re.compile(r"[0-9]{1,4}")
"""Length of a JSON object, before bytes, that is parsed faster than another thread wakes up."""


@dataclass(frozen=True)
class Question:
    """A request for an inference.

    Attributes:
        id: The client's name for it; may be empty.
        inputs: Arrays by name.
        outputs: Requested names, each with True for bytes; empty: all, as `binary` says.
        binary: True to return unnamed outputs in bytes.
    """

    id: str
    inputs: Mapping[str, Array]
    outputs: Mapping[str, bool]
    binary: bool


def parse(body: bytes, header_length: str | None) -> Question:
    """Parse a request's body.

    Raises:
        RefusedError: Naming the error.
    """
    # Of the JSON at its start.
    length = len(body)
    if header_length is not None:
        is_number = header_length.isascii() and header_length.isdigit() and len(header_length) <= 12
        if not is_number or int(header_length) > len(body):
            raise RefusedError(
                f"the header {LENGTH_HEADER} is '{header_length[:40]}', but the body has {len(body)} bytes"
            )
        length = int(header_length)
    try:
        request = json.loads(_without_numbers(body, length))
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"the request is not JSON: {error}") from error
    tensors = _list(request, "inputs")
    if not tensors:
        raise RefusedError("the request has no 'inputs'. Send a list of tensors")
    inputs: dict[str, Array] = {}
    at = length
    for tensor in tensors:
        name, size = _name(tensor), _parameters(tensor).get("binary_data_size")
        if name in inputs:
            raise RefusedError(f"the input '{name}' occurs twice")
        if size is None:
            inputs[name] = _from_json(name, tensor, body)
        elif not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(body) - at:
            raise RefusedError(
                f"the input '{name}' has 'binary_data_size' {size!r}, but {len(body) - at} bytes are left"
            )
        else:
            data = memoryview(body)[at : at + size]
            shape, dtype = _form(name, tensor)
            if len(data) != math.prod(shape) * dtype.itemsize:
                raise RefusedError(
                    f"the input '{name}' has {len(data)} bytes, but {tensor['datatype']} {list(shape)} needs "
                    f"{math.prod(shape) * dtype.itemsize}"
                )
            inputs[name] = np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)
            at += size
    if at != len(body):
        raise RefusedError(f"{len(body) - at} bytes follow the last tensor")
    default = _parameters(request).get("binary_data_output", False) is True
    outputs = {_name(o): _parameters(o).get("binary_data", default) is True for o in _list(request, "outputs")}
    identifier = request.get("id", "")
    if not isinstance(identifier, str) or len(identifier) > 200 or not identifier.isprintable():
        raise RefusedError("'id' must be printable text of at most 200 characters")
    return Question(identifier, inputs, outputs, default)


def render(question: Question, manifest: Manifest, answers: Mapping[str, Array]) -> tuple[bytes, dict[str, str]]:
    """Return a response's body and headers.

    Raises:
        RefusedError: If a requested output does not exist, or one in JSON holds a value that JSON does not support.
    """
    outputs = question.outputs or dict.fromkeys(answers, question.binary)
    if unknown := [name for name in outputs if name not in answers]:
        raise RefusedError(f"'{manifest.name}' has no output '{unknown[0]}'. Its outputs: {', '.join(answers)}")
    listed, parts = [], []
    for name, binary in outputs.items():
        array = np.ascontiguousarray(answers[name])
        tensor: dict[str, Any] = {"name": name, "shape": [*array.shape], "datatype": DATATYPES[array.dtype.name]}
        if binary:
            data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
            parts.append(data)
            tensor["parameters"] = {"binary_data_size": len(data)}
        else:
            tensor["data"] = array.ravel().tolist()
        listed.append(tensor)
    response = {"model_name": manifest.name, "model_version": manifest.target, "outputs": listed}
    try:
        head = json.dumps(response | ({"id": question.id} if question.id else {}), allow_nan=False).encode()
    except ValueError as error:
        raise RefusedError(
            "an output holds NaN or infinity, which JSON does not support. Request it in bytes"
        ) from error
    if not parts:
        return head, {"Content-Type": "application/json"}
    headers = {LENGTH_HEADER: str(len(head)), "Content-Type": "application/octet-stream"}
    return b"".join((head, *parts)), headers


def metadata(manifest: Manifest, versions: list[str]) -> dict[str, Any]:
    """Return a model's metadata in the protocol; -1 is a size that varies."""
    return {
        "name": manifest.name,
        "versions": versions,
        "platform": f"edgekit_{manifest.target}",
        "inputs": [_describe(manifest, tensor) for tensor in manifest.inputs],
        "outputs": [_describe(manifest, tensor) for tensor in manifest.outputs],
    }


def statistics(model: str, version: str) -> dict[str, Any]:
    """Return what the metrics say of an artifact, in the form of the protocol's extension for statistics."""

    def sample(name: str, **labels: str) -> float:
        own = {"model": model, "target": version}
        return REGISTRY.get_sample_value(f"edgekit_{name}", own | labels) or 0.0

    def duration(*stages: str) -> dict[str, int]:
        seconds = sum(sample("stage_seconds_sum", stage=stage) for stage in stages)
        return {"count": int(sample("stage_seconds_count", stage=stages[0])), "ns": round(1e9 * seconds)}

    return {
        "name": model,
        "version": version,
        "last_inference": round(1e3 * sample("last_request_seconds")),
        "inference_count": int(sample("batch_rows_sum")),
        "execution_count": int(sample("runs_total")),
        "inference_stats": {
            "success": duration("run", "read", "queue", "write"),
            "fail": duration("failed"),
            "queue": duration("queue"),
            "compute_input": duration("read"),
            "compute_infer": duration("run"),
            "compute_output": duration("write"),
        },
        "batch_stats": [],
    }


def _describe(manifest: Manifest, tensor: TensorInfo) -> dict[str, Any]:
    def size(dimension: int | str) -> int:
        if isinstance(dimension, int):
            return dimension
        axis = manifest.axes.get(dimension)
        return -1 if axis is None or axis.dynamic else axis.default

    return {"name": tensor.name, "datatype": DATATYPES[tensor.dtype], "shape": [size(d) for d in tensor.shape]}


def _without_numbers(body: bytes, length: int) -> str:
    """Return a request's JSON with the place of each list of numbers, [start, end], instead of the list.

    Raises:
        ValueError: If it is not UTF-8.
        TooLargeError: If it is long without the numbers.
    """
    parts: list[bytes] = []
    at = numbers = 0
    for match in _NUMBERS.finditer(body, 0, length):
        start, end = match.span(1)
        if start >= 0:
            parts += body[at:start], b"[%d,%d]" % (start, end)
            at, numbers = end, numbers + end - start
        if match.end() - numbers > _MOST_TEXT:
            break
    if length - numbers > _MOST_TEXT:
        raise TooLargeError(f"the request's JSON has more than {_MOST_TEXT} bytes beside the numbers in 'data'")
    return b"".join((*parts, body[at:length])).decode()


def _from_json(name: str, tensor: Mapping[str, Any], body: bytes) -> Array:
    shape, dtype = _form(name, tensor)
    try:
        return _numbers(body, tensor["data"], math.prod(shape), dtype).reshape(shape)
    except KeyError as error:
        raise RefusedError(f"the input '{name}' has neither 'data' nor bytes") from error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise RefusedError(
            f"the data of the input '{name}' are not {tensor['datatype']} {list(shape)}: {error}"
        ) from error


def _numbers(body: bytes, place: object, count: int, dtype: np.dtype[Any]) -> Array:
    """Return the numbers of a list, or of nested lists, in their order; `place` is that of `_without_numbers`."""
    if not isinstance(place, list) or len(place) != 2 or any(type(end) is not int for end in place):
        raise TypeError("not a list of numbers")
    at, end = place
    if body.count(b",", at, end) + 1 != count:
        raise ValueError(f"{body.count(b',', at, end) + 1} values")
    array, filled, brackets = np.empty(count, dtype), 0, b""
    while at < end:
        comma = body.find(b",", min(at + _PART, end), end)
        part = body[at : comma if comma >= 0 else end]
        at += len(part) + 1
        if b"[" in part or b"]" in part:
            if _MISPLACED.search(part):
                raise ValueError("the lists are malformed")
            brackets += part.translate(None, _NOT_BRACKETS)
            part = part.translate(_WITHOUT_BRACKETS)
        leaves = json.loads(b"[%b]" % part)
        # NumPy would make huge arrays of other values.
        if others := set(map(type, leaves)) - {bool, int, float}:
            raise TypeError(f"a value is of the type {others.pop().__name__}")
        values = np.asarray(leaves)
        if values.dtype.kind not in KINDS[dtype.kind]:
            raise TypeError(f"values of {values.dtype}")
        with np.errstate(over="ignore"):
            fits = values.astype(dtype)
        if not (np.array_equal(fits, values) if dtype.kind in "iu" else np.isfinite(fits).all()):
            raise OverflowError("a value is out of range")
        array[filled : filled + len(fits)] = fits
        filled += len(fits)
    for _ in range(MOST_DIMENSIONS):
        if brackets == b"[]":
            break
        brackets = brackets.replace(b"[]", b"")
    if brackets != b"[]" or filled != count:
        raise ValueError("the lists are malformed or nested too deep")
    return array


def _form(name: str, tensor: Mapping[str, Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    shape, datatype = tensor.get("shape"), tensor.get("datatype")
    whole = isinstance(shape, list) and len(shape) <= MOST_DIMENSIONS
    if not whole or not all(type(size) is int and 0 < size < 1 << 31 for size in shape or ()):
        raise RefusedError(f"the input '{name}' has the shape {str(shape)[:80]}. It must be a list of sizes from 1")
    if not isinstance(datatype, str) or datatype not in DTYPES:
        raise RefusedError(f"the input '{name}' is {str(datatype)[:40]!r}. Possible: {', '.join(DTYPES)}")
    return tuple(shape or ()), DTYPES[datatype]


def _name(tensor: object) -> str:
    name = tensor.get("name") if isinstance(tensor, dict) else None
    if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
        raise RefusedError("a tensor has no printable 'name'")
    return name


def _parameters(record: Mapping[str, Any]) -> Mapping[str, Any]:
    value = record.get("parameters", {})
    if not isinstance(value, dict):
        raise RefusedError("'parameters' must be an object")
    return value


def _list(request: object, key: str) -> list[Any]:
    if not isinstance(request, dict):
        raise RefusedError("the request is not a JSON object")
    value = request.get(key) or []
    if not isinstance(value, list):
        raise RefusedError(f"'{key}' must be a list")
    return value


class RefusedError(EdgekitError):
    """A refused request; `status` is HTTP's, `reason` a word for the metrics."""

    status, reason = 400, "malformed"


class UnknownError(RefusedError):
    """An unknown model, or an unknown target of it."""

    status, reason = 404, "unknown"


class SlowClientError(RefusedError):
    """A body that did not arrive in time."""

    status, reason = 408, "slow"


class TooLargeError(RefusedError):
    """A body, picture or batch above its limit."""

    status, reason = 413, "large"


class BusyError(RefusedError):
    """A full queue."""

    status, reason = 429, "busy"


class ClientLeftError(RefusedError):
    """A client that disconnected before its body had arrived; nobody reads the answer."""

    status, reason = 499, "left"


class NotReadyError(RefusedError):
    """A server that is starting or stopping."""

    status, reason = 503, "not ready"


class TooSlowError(RefusedError):
    """A run that did not answer in time."""

    status, reason = 504, "timeout"
