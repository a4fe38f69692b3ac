"""ONNX files that are well formed, and make a runtime crash, hang or take all memory when it opens or runs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Graph = tuple[str, onnx.ModelProto]
HUGE = 1 << 42  # elements: 16 TiB of float32
ENDLESS = 1 << 60  # times
FLOAT = TensorProto.FLOAT
ZERO, ONE = np.zeros(1, np.float32), np.ones(1, np.float32)
Array = np.ndarray[Any, Any]
Shape = Sequence[int | str] | None


def write_graphs(folder: Path) -> list[Path]:
    """Write each as `<name>.onnx`; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, model in graphs():
        path = folder / f"{name}.onnx"
        path.write_bytes(model.SerializeToString())
        paths.append(path)
    return paths


def graphs() -> Iterator[Graph]:
    """All of them, by name."""
    yield from _memory()
    yield from _shapes()
    yield from _attributes()
    yield from _loops()
    yield from _functions()
    yield from _inputs()
    yield from _broken()


def _memory() -> Iterator[Graph]:
    """A few bytes that ask for terabytes."""
    for size in (HUGE, 1 << 50, 1 << 62, (1 << 63) - 1, -5):
        yield f"constant_of_shape_{size}", _of([_node("ConstantOfShape", ["n"], "a"), _sum("a")], n=_ints(size))
        yield f"expand_{size}", _of([_node("Expand", ["x", "n"], "a"), _sum("a")], n=_ints(size, 4))
    yield "constant_of_shape_product", _of([_node("ConstantOfShape", ["n"], "a"), _sum("a")], n=_ints(*[1 << 30] * 3))
    yield "range", _of([_node("Range", ["a", "b", "c"], "r"), _sum("r")], a=_float(0), b=_float(1e15), c=_float(1))
    yield "range_zero", _of([_node("Range", ["a", "b", "c"], "r"), _sum("r")], a=_float(0), b=_float(9), c=_float(0))
    yield "tile", _of([_node("Tile", ["x", "n"], "a"), _sum("a")], n=_ints(1, HUGE))
    yield "pad", _of([_node("Pad", ["x", "n"], "a"), _sum("a")], n=_ints(0, HUGE, 0, HUGE))
    yield "pad_negative", _of([_node("Pad", ["x", "n"], "a"), _sum("a")], n=_ints(-HUGE, 0, 0, 0))
    one_hot = [_node("OneHot", ["i", "n", "v"], "a"), _sum("a")]
    yield "one_hot", _of(one_hot, i=_ints(0, 1), n=np.array(HUGE), v=np.zeros(2, np.float32))
    eye = _node("EyeLike", ["s"], "a")
    yield "eye_like", _of([_node("ConstantOfShape", ["n"], "s"), eye, _sum("a")], n=_ints(1 << 24, 1 << 24))
    for mode in ("nearest", "linear", "cubic"):
        resize = _node("Resize", ["i", "", "n"], "a", mode=mode)
        yield f"resize_{mode}", _of([resize, _sum("a")], i=_image(), n=np.array([1, 1, 1e8, 1e8], np.float32))
    sizes = _node("Resize", ["i", "", "", "n"], "a", mode="nearest")
    yield "resize_sizes", _of([sizes, _sum("a")], i=_image(), n=_ints(1, 1, 1 << 31, 1 << 31))
    yield "doubled", _of([*_doubled("x", 60), _sum("a60")])
    outer = [_node("Reshape", ["x", "n"], "c"), _node("Expand", ["c", "m"], "a"), _node("MatMul", ["a", "b"], "d")]
    wide = [_node("Expand", ["c", "k"], "b")]
    product = [outer[0], outer[1], *wide, outer[2], _sum("d")]
    yield "outer_product", _of(product, n=_ints(-1, 1), m=_ints(4, 1 << 30), k=_ints(1 << 30, 1 << 30))


def _shapes() -> Iterator[Graph]:
    """Indices and shapes that lie outside."""
    yield "gather", _of([_node("Gather", ["x", "i"], "a", axis=1), _sum("a")], i=_ints(HUGE))
    yield "gather_elements", _of([_node("GatherElements", ["x", "i"], "a", axis=1), _sum("a")], i=_ints(HUGE)[None])
    yield "gather_nd", _of([_node("GatherND", ["x", "i"], "a"), _sum("a")], i=_ints(0, -HUGE)[None])
    scatter = _node("ScatterND", ["x", "i", "u"], "a")
    yield "scatter_nd", _of([scatter, _sum("a")], i=_ints(0, 1 << 40)[None], u=ONE)
    yield "reshape", _of([_node("Reshape", ["x", "n"], "a"), _sum("a")], n=_ints(HUGE, HUGE))
    yield "slice", _of([_node("Slice", ["x", "n", "m"], "a"), _node("Reshape", ["a", "s"], "y")], **_slice())
    yield "split", _of([helper.make_node("Split", ["x", "n"], ["a", "b"]), _sum("a")], n=_ints(-1, 9))
    yield "top_k", _of([helper.make_node("TopK", ["x", "n"], ["a", "b"]), _sum("a")], n=_ints(HUGE))
    yield "squeeze", _of([_node("Squeeze", ["x", "n"], "a"), _sum("a")], n=_ints(HUGE))


def _attributes() -> Iterator[Graph]:
    """Attributes that kernels divide by, or index with."""
    kernel = np.zeros((1, 1, 1, 1), np.float32)
    yield "conv_group_zero", _of([_node("Conv", ["i", "w"], "a", group=0), _sum("a")], i=_image(), w=kernel)
    yield "conv_group_minus", _of([_node("Conv", ["i", "w"], "a", group=-1), _sum("a")], i=_image(), w=kernel)
    for name in ("strides", "dilations"):
        conv = _node("Conv", ["i", "w"], "a", **{name: [0, 0]})
        yield f"conv_{name}_zero", _of([conv, _sum("a")], i=_image(), w=kernel)
    conv = _node("Conv", ["i", "w"], "a", pads=[1 << 40] * 4)
    yield "conv_pads", _of([conv, _sum("a")], i=_image(), w=kernel)
    transposed = _node("ConvTranspose", ["i", "w"], "a", strides=[1 << 30, 1 << 30])
    yield "conv_transpose", _of([transposed, _sum("a")], i=_image(), w=kernel)
    pool = _node("MaxPool", ["i"], "a", kernel_shape=[0, 0])
    yield "pool_zero", _of([pool, _sum("a")], i=_image())
    pool = _node("AveragePool", ["i"], "a", kernel_shape=[1, 1], strides=[0, 0])
    yield "pool_strides", _of([pool, _sum("a")], i=_image())
    yield "depth_to_space", _of([_node("DepthToSpace", ["i"], "a", blocksize=0), _sum("a")], i=_image())
    yield "transpose", _of([_node("Transpose", ["x"], "a", perm=[7, -9]), _sum("a")])
    yield "div_zero", _of([_node("Div", ["i", "z"], "a"), _node("Cast", ["a"], "y", to=FLOAT)], i=_ints(5), z=_ints(0))
    yield "mod_zero", _of([_node("Mod", ["i", "z"], "a"), _node("Cast", ["a"], "y", to=FLOAT)], i=_ints(5), z=_ints(0))
    lowest = {"i": _ints(-(1 << 63)), "z": _ints(-1)}
    yield "div_overflow", _of([_node("Div", ["i", "z"], "a"), _node("Cast", ["a"], "y", to=FLOAT)], **lowest)


def _loops() -> Iterator[Graph]:
    """Loops that do not end."""
    yield "loop", _of([_loop("m", _body()), _sum("a")], m=np.array(ENDLESS), t=np.array(True), v=ZERO)
    yield ("loop_shorter", _of([_loop("m", _body()), _sum("a")], m=np.array(1 << 34), t=np.array(True), v=ZERO))
    inner = _body([_node("Identity", ["n"], "k"), _loop("m", _body("p"), "w", "k")], "w")
    nested = _of([_loop("m", inner), _sum("a")], m=np.array(1 << 22), t=np.array(True), v=ZERO)
    yield "loop_nested", nested
    forever = _of([_loop("", _body()), _sum("a")], t=np.array(True), v=ZERO)
    yield "loop_forever", forever


def _functions() -> Iterator[Graph]:
    """Functions that call each other, twice at each level, and one that calls itself."""
    yield "functions", _called([[f"f{i + 1}"] * 2 for i in range(30)])
    yield "functions_wide", _called([[f"f{i + 1}"] * 40 for i in range(5)])
    yield "function_itself", _called([["f0"]])
    yield "functions_circle", _called([["f1"], ["f0"]])


def _inputs() -> Iterator[Graph]:
    """Inputs that no array can be made for."""
    y = [_value("y", [1])]
    shapes: dict[str, Shape] = {"size": ["N", 1 << 40], "product": ["N", 1 << 20, 1 << 20], "minus": ["N", -7]}
    for name, shape in shapes.items():
        yield f"input_{name}", _model([_sum("x")], [_value("x", shape)], y)
    strings = helper.make_tensor_value_info("x", TensorProto.STRING, ["N", 4])
    yield "input_string", _model([_node("StringNormalizer", ["x"], "y")], [strings], y)
    yield "input_none", _model([_node("Identity", ["c"], "y")], [], y, c=ONE)
    for number, place in ((999, "input"), (999, "output")):
        unknown = _model([_node("Identity", ["x"], "y")], [_value("x", ["N", 4])], [_value("y", ["N", 4])])
        getattr(unknown.graph, place)[0].type.tensor_type.elem_type = number
        yield f"{place}_of_an_unknown_type", unknown
    yield "input_of_many_axes", _model([_sum("x")], [_value("x", ["N", *[1] * 5000])], y)
    many = [_value(f"x{number}", ["N", 1]) for number in range(3000)]
    yield "inputs_by_the_thousand", _model([_sum("x0")], many, y)
    sequence = helper.make_tensor_sequence_value_info("x", FLOAT, None)
    yield "input_sequence", _model([_node("SequenceLength", ["x"], "y")], [sequence], y)


def _broken() -> Iterator[Graph]:
    """Graphs that no order of nodes can run."""
    yield "circle", _of([_node("Add", ["x", "b"], "a"), _node("Add", ["x", "a"], "b"), _sum("b")])
    yield "unknown_operator", _of([_node("NoSuchOperator", ["x"], "a"), _sum("a")])
    yield "unknown_domain", _of([_node("Relu", ["x"], "a", domain="com.example"), _sum("a")])
    yield "lacks_a_tensor", _of([_node("Add", ["x", "nowhere"], "a"), _sum("a")])
    yield "lacks_its_output", _model([_sum("x", "z")], [_value("x", ["N", 4])], [_value("y", [1])])
    yield "output_of_another_type", _model([_node("Shape", ["x"], "y")], [_value("x", ["N", 4])], [_value("y", [2])])


def _of(nodes: Sequence[onnx.NodeProto], **constants: Array) -> onnx.ModelProto:
    """A model of the input x [N, 4], whose output y is one number."""
    return _model(nodes, [_value("x", ["N", 4])], [_value("y", None)], **constants)


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    **constants: Array,
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _called(calls: Sequence[Sequence[str]]) -> onnx.ModelProto:
    """A model of functions f0, f1, ...: each adds what the named ones answer; the last name is of one that copies."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    functions = []
    for place, names in enumerate(calls):
        nodes = [_node(name, ["x"], f"v{i}", domain="own") for i, name in enumerate(names)]
        nodes.append(_node("Sum", [f"v{i}" for i in range(len(names))], "y"))
        functions.append(helper.make_function("own", f"f{place}", ["x"], ["y"], nodes, opsets))
    last = helper.make_function("own", f"f{len(calls)}", ["x"], ["y"], [_node("Identity", ["x"], "y")], opsets)
    graph = helper.make_graph(
        [_node("f0", ["x"], "a", domain="own"), _sum("a")], "g", [_value("x", ["N", 4])], [_value("y", None)]
    )
    return helper.make_model(graph, opset_imports=opsets, functions=[*functions, last], ir_version=9)


def _doubled(name: str, times: int) -> list[onnx.NodeProto]:
    nodes = []
    for i in range(times):
        nodes.append(_node("Concat", [name, name], f"a{i + 1}", axis=1))
        name = f"a{i + 1}"
    return nodes


def _loop(count: str, body: onnx.GraphProto, name: str = "a", condition: str = "t") -> onnx.NodeProto:
    return helper.make_node("Loop", [count, condition, "v"], [name], body=body)


def _body(nodes: Sequence[onnx.NodeProto] | str = (), result: str = "w") -> onnx.GraphProto:
    """What a loop does each time: nodes, or a sum, and "go on"."""
    prefix = nodes if isinstance(nodes, str) else "n"
    own = list(nodes) if not isinstance(nodes, str) and nodes else [_node("Add", [f"{prefix}v", "one"], result)]
    own += [_node("Identity", [prefix if prefix != "n" else "n"], f"{prefix}go")]
    one = numpy_helper.from_array(ONE, "one")
    inputs = [
        helper.make_tensor_value_info(f"{prefix}i", TensorProto.INT64, []),
        helper.make_tensor_value_info(prefix, TensorProto.BOOL, []),
        helper.make_tensor_value_info(f"{prefix}v", FLOAT, [1]),
    ]
    outputs = [helper.make_tensor_value_info(f"{prefix}go", TensorProto.BOOL, []), _value(result, [1])]
    return helper.make_graph(own, f"body_{prefix}", inputs, outputs, [one])


def _node(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, list(inputs), [output], **attributes)


def _sum(name: str, output: str = "y") -> onnx.NodeProto:
    return _node("ReduceMean", [name], output, keepdims=0)


def _value(name: str, shape: Shape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, FLOAT, shape)


def _ints(*values: int) -> Array:
    return np.array(values, np.int64)


def _float(value: float) -> Array:
    return np.array(value, np.float32)


def _image() -> Array:
    return np.zeros((1, 1, 4, 4), np.float32)


def _slice() -> dict[str, Array]:
    return {"n": _ints(-HUGE), "m": _ints(HUGE), "s": _ints(3, 5)}
