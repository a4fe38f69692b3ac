"""Variants that the judge must let pass: other ways of computing the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper, version_converter

from tests.judge.seeded.bench import IMAGES
from tests.judge.seeded.changes import (
    DOUBLE,
    FEATURES,
    FLOAT,
    FLOAT16,
    HALF,
    ONE,
    PRE,
    ZERO,
    B,
    K,
    both,
    every,
    patches,
    ranks,
    shaken,
    weight,
)
from tests.judge.seeded.faults import FAULTS
from tests.judge.seeded.graph import Change, Graph


def norm(g: Graph, node: onnx.NodeProto) -> str:
    x, scale, bias = node.input
    off = g.add("Sub", x, g.add("ReduceMean", x, np.array([-1])))
    variance = g.add("ReduceMean", g.add("Mul", off, off), np.array([-1]))
    epsilon = np.float32(next(a.f for a in node.attribute if a.name == "epsilon"))
    return g.add("Add", g.add("Mul", g.add("Div", off, g.add("Sqrt", g.add("Add", variance, epsilon))), scale), bias)


def gelu(g: Graph, node: onnx.NodeProto) -> str:
    erf = g.add("Erf", g.add("Mul", node.input[0], np.float32(0.5**0.5)))
    return g.add("Mul", g.add("Mul", node.input[0], HALF), g.add("Add", erf, ONE))


def softmax(g: Graph, node: onnx.NodeProto) -> str:
    made = g.add("Exp", g.add("Sub", node.input[0], g.add("ReduceMax", node.input[0], np.array([-1]))))
    return g.add("Div", made, g.add("ReduceSum", made, np.array([-1])))


def sigmoid(g: Graph, node: onnx.NodeProto) -> str:
    return g.add("Reciprocal", g.add("Add", g.add("Exp", g.add("Neg", node.input[0])), ONE))


def same(g: Graph, node: onnx.NodeProto, *inputs: str) -> str:
    return g.add(
        node.op_type, *(inputs or node.input), **{a.name: helper.get_attribute_value(a) for a in node.attribute}
    )


def in_type(to: int) -> Callable[[Graph, onnx.NodeProto], str]:
    return lambda g, n: g.add("Cast", same(g, n, *(g.add("Cast", each, to=to) for each in n.input)), to=FLOAT)


def product(how: str) -> Callable[[Graph, onnx.NodeProto], str]:
    """A matrix product with a stored weight: summed or joined of two halves, or with the weight stored transposed."""

    def change(g: Graph, node: onnx.NodeProto) -> str:
        x, name = node.input
        if name not in (stored := g.stored()):
            return same(g, node)
        w = numpy_helper.to_array(stored[name])
        if how == "transposed":
            return g.add("MatMul", x, g.add("Transpose", w.T, perm=[1, 0]))
        a, b = np.array_split(w, 2, axis=0 if how == "summed" else 1)
        if how == "joined":
            return g.add("Concat", g.add("MatMul", x, a), g.add("MatMul", x, b), axis=-1)
        ends = ((0, len(a)), (len(a), 9999))
        left, right = (g.add("Slice", x, np.array([i]), np.array([j]), np.array([-1])) for i, j in ends)
        return g.add("Add", g.add("MatMul", left, a), g.add("MatMul", right, b))

    return change


def folded(g: Graph) -> None:
    """The image's scale and mean go into the patch kernel."""
    node, stored = g.node("texture.patch/Conv"), g.stored()
    kernel, bias = (numpy_helper.to_array(stored[name]) for name in node.input[1:])
    node.input[:] = ["images", g.const(kernel * np.float32(2)), g.const(bias - kernel.sum((1, 2, 3)))]


def constants(g: Graph) -> None:
    for value in list(g.graph.initializer):
        g.graph.node.append(helper.make_node("Constant", [], [value.name], value=value))
    del g.graph.initializer[:]


def halves(g: Graph) -> None:
    """Weights are stored in fp16 and used in fp32."""
    for name, value in g.stored().items():
        if value.data_type == FLOAT and len(value.dims) > 1:
            g.graph.initializer.remove(value)
            half = g.const(numpy_helper.to_array(value).astype(np.float16))
            g.graph.node.append(helper.make_node("Cast", [half], [name], to=FLOAT))


def opset(version: int) -> Change:
    def change(g: Graph) -> None:
        g.model = version_converter.convert_version(g.model, version)
        g.graph = g.model.graph

    return change


def ties(g: Graph) -> None:
    """The ranking is taken from scores that are off, two by at most 8e-5: less than they may differ by."""
    node, noise = g.node("attending/TopK"), np.random.default_rng(0).uniform(-4e-5, 4e-5, 2048).astype(np.float32)
    node.input[0] = g.add("Add", node.input[0], patches(lambda i: noise)(g))


def around(new: Callable[[Graph, str], str], *tensors: str) -> Change:
    def change(g: Graph) -> None:
        for tensor in tensors:
            g.wrap(g.out(tensor) if "/" in tensor else tensor, lambda x: new(g, x))

    return change


OUTPUTS = ("relevance", "budgets", "indices", "tokens")
CLEAN: dict[str, Change] = {
    "as exported": lambda g: None,
    "identity after inputs": around(lambda g, x: g.add("Identity", x), "images", "queries"),
    "identity before outputs": around(lambda g, x: g.add("Identity", x), *OUTPUTS),
    "times one": around(lambda g, x: g.add("Mul", x, ONE), FEATURES),
    "plus zero": around(lambda g, x: g.add("Add", x, ZERO), "relevance"),
    "reshaped to itself": around(lambda g, x: g.add("Reshape", x, g.add("Shape", x)), PRE),
    "transposed twice": around(
        lambda g, x: g.add("Transpose", g.add("Transpose", x, perm=[0, 2, 1]), perm=[0, 2, 1]), PRE
    ),
    "sums commuted": every("Add", lambda g, n: same(g, n, *reversed(n.input))),
    "products commuted": every("Mul", lambda g, n: same(g, n, *reversed(n.input))),
    "differences as sums": every("Sub", lambda g, n: g.add("Add", n.input[0], g.add("Neg", n.input[1]))),
    "negation as a product": every("Neg", lambda g, n: g.add("Mul", n.input[0], -ONE)),
    "root as a power": every("Sqrt", lambda g, n: g.add("Pow", n.input[0], HALF)),
    "norm in pieces": every("LayerNormalization", norm),
    "gelu in pieces": every("Gelu", gelu),
    "softmax in pieces": every("Softmax", softmax),
    "sigmoid in pieces": every("Sigmoid", sigmoid),
    "no clip": every("Clip", lambda g, n: n.input[0]),
    "matrix products summed of halves": every("MatMul", product("summed")),
    "matrix products joined of halves": every("MatMul", product("joined")),
    "weights stored transposed": every("MatMul", product("transposed")),
    "matrix products in double": every("MatMul", in_type(DOUBLE)),
    "norms in double": every("LayerNormalization", in_type(DOUBLE)),
    "attention's scale on one side": both(
        weight(f"{B}.attention/Mul", lambda w: w * w), weight(f"{B}.attention/Mul_2", np.ones_like)
    ),
    "input's scale in the kernel": folded,
    "weights off by rounding": both(*(weight(f"texture.blocks.{i}.mlp.0/MatMul", shaken(1e-7)) for i in range(6))),
    "ranking cut from a longer one": ranks(K),
    "near ties ranked otherwise": ties,
    "constants as nodes": constants,
    "a node that nobody reads": lambda g: g.add("Exp", "relevance"),
    "nodes without names": lambda g: [node.ClearField("name") for node in g.graph.node],
    "opset 21": opset(21),
    "opset 23": opset(23),
}
CLEAN_FP16: dict[str, Change] = {
    "weights stored in fp16": halves,
    "matrix products in fp16": every("MatMul", in_type(FLOAT16)),
    "scores rounded to fp16": FAULTS["scores rounded to fp16"],
    "features rounded to bfloat16": FAULTS["features rounded to bfloat16"],
}
LEVEL, MODE = ort.GraphOptimizationLevel, ort.ExecutionMode
SESSIONS: dict[str, dict[str, Any]] = {
    "not optimised": {"graph_optimization_level": LEVEL.ORT_DISABLE_ALL},
    "extended": {"graph_optimization_level": LEVEL.ORT_ENABLE_EXTENDED},
    "two threads": {"intra_op_num_threads": 2},
    "parallel": {"execution_mode": MODE.ORT_PARALLEL, "inter_op_num_threads": 2},
    "no arena": {"enable_cpu_mem_arena": False, "enable_mem_pattern": False},
    "batches of 5": {"rows": 5},
    "one batch": {"rows": IMAGES},
    "column-major inputs": {"feed": np.asfortranarray},
    "channels-last inputs": {"feed": lambda a: np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 1, -1)), -1, 1)},
    "strided inputs": {"feed": lambda a: np.repeat(a, 2, axis=-1)[..., ::2]},
    "inputs backwards in memory": {"feed": lambda a: a[..., ::-1].copy()[..., ::-1]},
}
