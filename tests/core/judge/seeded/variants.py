"""Variants that the judge must let pass: other ways of computing the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper, version_converter

from tests.core.judge.seeded.bench import IMAGES
from tests.core.judge.seeded.changes import (
    DOUBLE,
    FLOAT,
    FLOAT16,
    HALF,
    ONE,
    K,
    both,
    every,
    patches,
    ranks,
    shaken,
    weight,
)
from tests.core.judge.seeded.faults import FAULTS
from tests.core.judge.seeded.graph import Change, Graph


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


def product(g: Graph, node: onnx.NodeProto) -> str:
    """A matrix product with a stored weight, summed of two halves."""
    x, name = node.input
    if name not in (stored := g.stored()):
        return same(g, node)
    a, b = np.array_split(numpy_helper.to_array(stored[name]), 2)
    ends = ((0, len(a)), (len(a), 9999))
    left, right = (g.add("Slice", x, np.array([i]), np.array([j]), np.array([-1])) for i, j in ends)
    return g.add("Add", g.add("MatMul", left, a), g.add("MatMul", right, b))


def constants(g: Graph) -> None:
    for value in list(g.graph.initializer):
        g.graph.node.append(helper.make_node("Constant", [], [value.name], value=value))
    del g.graph.initializer[:]


def opset(version: int) -> Change:
    def change(g: Graph) -> None:
        g.model = version_converter.convert_version(g.model, version)
        g.graph = g.model.graph

    return change


def ties(g: Graph) -> None:
    """The ranking is taken from scores that are off, two by at most 8e-5: less than they may differ by."""
    node, noise = g.node("attending/TopK"), np.random.default_rng(0).uniform(-4e-5, 4e-5, 2048).astype(np.float32)
    node.input[0] = g.add("Add", node.input[0], patches(lambda i: noise)(g))


CLEAN: dict[str, Change] = {
    "as exported": lambda g: None,
    "sums commuted": every("Add", lambda g, n: same(g, n, *reversed(n.input))),
    "norm in pieces": every("LayerNormalization", norm),
    "gelu in pieces": every("Gelu", gelu),
    "softmax in pieces": every("Softmax", softmax),
    "sigmoid in pieces": every("Sigmoid", sigmoid),
    "matrix products summed of halves": every("MatMul", product),
    "matrix products in double": every("MatMul", in_type(DOUBLE)),
    "weights off by rounding": both(*(weight(f"texture.blocks.{i}.mlp.0/MatMul", shaken(1e-7)) for i in range(6))),
    "ranking cut from a longer one": ranks(K),
    "opset 23": opset(23),
}
CLEAN_FP16: dict[str, Change] = {
    "matrix products in fp16": every("MatMul", in_type(FLOAT16)),
    "scores rounded to fp16": FAULTS["scores rounded to fp16"],
    "features rounded to bfloat16": FAULTS["features rounded to bfloat16"],
}
SESSIONS: dict[str, dict[str, Any]] = {
    "not optimised": {"graph_optimization_level": ort.GraphOptimizationLevel.ORT_DISABLE_ALL},
    "two threads": {"intra_op_num_threads": 2},
    "one batch": {"rows": IMAGES},
}
