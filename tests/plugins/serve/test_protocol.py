"""What the protocol's parser takes and refuses."""

from __future__ import annotations

import json
import re
import tracemalloc

import numpy as np
import pytest

from edgekit.artifact.manifest import AxisInfo, TensorInfo
from edgekit_serve.protocol import DTYPES, RefusedError, metadata, parse
from tests.manifests import manifest


def body(**tensor: object) -> bytes:
    return json.dumps(
        {"inputs": [{"name": "x", "shape": [2, 1], "datatype": "FP32", "data": [1, 2]} | tensor]}
    ).encode()


@pytest.mark.parametrize("datatype", DTYPES)
@pytest.mark.parametrize("nested", [False, True])
def test_json_of_every_datatype(datatype: str, nested: bool) -> None:
    values = [True, False] if datatype == "BOOL" else [1, 0]
    data = [[value] for value in values] if nested else values
    array = parse(body(datatype=datatype, data=data), None).inputs["x"]
    assert array.dtype == DTYPES[datatype]
    assert array.tolist() == [[value] for value in values]


@pytest.mark.parametrize("datatype", DTYPES)
def test_bytes_of_every_datatype(datatype: str) -> None:
    array = np.array([[1], [0]], DTYPES[datatype])
    tensor = {"name": "x", "shape": [2, 1], "datatype": datatype, "parameters": {"binary_data_size": array.nbytes}}
    head = json.dumps({"inputs": [tensor]}).encode()
    assert np.array_equal(parse(head + array.tobytes(), str(len(head))).inputs["x"], array)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"nothing", "the request is not JSON"),
        (b"[" * 100_000, "the request is not JSON"),
        (b"[]", "the request is not a JSON object"),
        (b"{}", "has no 'inputs'"),
        (b'{"inputs": 3}', "'inputs' must be a list"),
        (b'{"inputs": [3]}', "a tensor has no printable 'name'"),
        (body(shape=[2, 2]), "are not FP32 [2, 2]: 2 values"),
        (body(shape=[-1, 2]), "It must be a list of sizes from 1"),
        (body(shape=[1] * 17), "It must be a list of sizes from 1"),
        (body(shape=[True, 2]), "It must be a list of sizes from 1"),
        (body(datatype="BYTES"), "is 'BYTES'. Possible: BOOL"),
        (body(data=["a", "b"]), "not a list of numbers"),
        (body(data=["x" * 900_000, *["a"] * 400]), "not a list of numbers"),
        (body(data=["x" * 1_100_000]), "more than 1048576 bytes beside the numbers"),
        (body(data=[None, 2]), "a value is of the type NoneType"),
        (body(data=[1, []]), "are not FP32"),
        (body().replace(b"[1, 2]}", b"[1, 2}"), "is not JSON"),
        (body().replace(b"[1, 2]}", b"[1], 2]}"), "are not FP32"),
        (body().replace(b"[1, 2]}", b"[1,] 2]}"), "the lists are malformed"),
        (body().replace(b"[1, 2]}", b"[1], [2]}"), "the lists are malformed"),
        (body().replace(b"[1, 2]}", b"1, 2}"), "is not JSON"),
        (b'"' + b'\\"' * 100_000 + b"\\", "is not JSON"),
        (body(data=[1e300, 2]), "out of range"),
        (body(data=[float("nan"), 2]), "out of range"),
        (body(data=[[[[1]]] * 30]), "30 values"),
        (body(name="\ud800"), "printable"),
        (body(data=[[1], [2, 3]]), "are not FP32"),
        (body(datatype="INT64", data=[1.5, 2]), "are not INT64"),
        (body(datatype="UINT8", data=[256, 2]), "are not UINT8"),
        (body(datatype="INT8", data=[-129, 2]), "are not INT8"),
        (body(data=None), "are not FP32"),
        (body(parameters={"binary_data_size": 8}), "0 bytes are left"),
        (body(parameters={"binary_data_size": -8}), "0 bytes are left"),
        (body(parameters=[]), "'parameters' must be an object"),
        (
            json.dumps({"id": 3, "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}).encode(),
            "'id'",
        ),
    ],
)
def test_what_is_malformed_is_named(data: bytes, sentence: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(sentence)):
        parse(data, None)


@pytest.mark.parametrize("length", ["-1", "1e3", "99999", "٣", "9" * 400, ""])
def test_a_wrong_length_of_the_header_is_named(length: str) -> None:
    with pytest.raises(RefusedError, match="the body has"):
        parse(body(), length)


def test_a_large_request_takes_at_most_four_times_its_size() -> None:
    numbers = np.random.default_rng(0).integers(0, 9, 1 << 20) / 10
    tensor = {"name": "x", "shape": [1 << 20], "datatype": "FP32", "data": numbers.tolist()}
    data = json.dumps({"inputs": [tensor]}).encode()
    tracemalloc.start()
    try:
        array = parse(data, None).inputs["x"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.array_equal(array, numbers.astype(np.float32))
    assert peak + len(data) <= 4 * len(data)


def test_bytes_that_nobody_names_are_refused() -> None:
    with pytest.raises(RefusedError, match="4 bytes follow the last tensor"):
        parse(body() + b"more", str(len(body())))


def test_the_sizes_of_an_output_are_told_as_they_are() -> None:
    axis = AxisInfo(default=8, minimum=4, maximum=32, multiple_of=1, dynamic=True)
    axes = {"batch": axis, "time": axis.model_copy(update={"dynamic": False})}
    output = TensorInfo(name="y", dtype="float32", shape=("batch", "time", "y_2", 5))
    assert metadata(manifest(axes=axes, outputs=(output,)), ["onnx"])["outputs"][0]["shape"] == [-1, 8, -1, 5]
