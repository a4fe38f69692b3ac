"""Clean variants: other files that compute the same, which the judge must never reject."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from tests.core.judge.seeded.changes import every
from tests.core.judge.seeded.graph import Change, Graph
from tests.core.judge.seeded.variants import constants, gelu, norm, opset, same, sigmoid, softmax

LEVELS = {
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,  # with the processor's own layout of convolutions
}
OPSETS = (21, 22, 23)
DRAWS, MOVED = 12, 1e-4
"""Of INT8: variants whose scales are moved by up to this share, by chance; another calibration moves them more."""


@dataclass(frozen=True)
class Clean:
    """A variant.

    Attributes:
        name: Unique in its graph.
        make: Graph -> the bytes of another file.
        threads: What EDGEKIT_THREADS is while it is judged.
    """

    name: str
    make: Callable[[onnx.ModelProto], bytes]
    threads: int = 1


def variants(model: onnx.ModelProto, precision: str) -> Iterator[Clean]:
    """All variants that a graph allows; what is written in float32 is for fp32 alone."""
    yield Clean("as exported", lambda m: bytes(m.SerializeToString()))
    yield Clean("two threads", lambda m: bytes(m.SerializeToString()), threads=2)
    for name, level in LEVELS.items():
        yield Clean(f"optimised by onnxruntime, {name}", functools.partial(optimised, level))
    for name, change in _rewrites(model).items():
        yield Clean(name, changed(change))
    operators = {node.op_type for node in model.graph.node}
    for seed in range(DRAWS if precision == "int8" else 0):
        yield Clean(f"scales moved, draw {seed}", functools.partial(redrawn, seed))
    if precision == "fp32":
        for version in OPSETS:
            yield Clean(f"opset {version}", changed(opset(version)))
        for op, (name, change) in PIECES.items():
            if op in operators:
                yield Clean(name, changed(change))


def changed(change: Change) -> Callable[[onnx.ModelProto], bytes]:
    """A file made by a change of the graph."""

    def make(model: onnx.ModelProto) -> bytes:
        graph = Graph(model)
        change(graph)
        return graph.finish()

    return make


def redrawn(seed: int, model: onnx.ModelProto) -> bytes:
    """A file whose scales of quantization are others by chance, each by up to MOVED of itself."""
    draw = np.random.Generator(np.random.PCG64(seed))
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    quantizers = [node for node in copy.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    static = {node.input[1] for node in quantizers}
    for stored in copy.graph.initializer:
        if stored.name in static or stored.name.endswith("_scale"):  # what multiplies an integer product has this name
            scale = numpy_helper.to_array(stored)
            moved = scale * (1 + MOVED * draw.uniform(-1, 1, scale.shape)).astype(scale.dtype)
            stored.CopyFrom(numpy_helper.from_array(moved, stored.name))
    return bytes(copy.SerializeToString())


def optimised(level: ort.GraphOptimizationLevel, model: onnx.ModelProto) -> bytes:
    """What ONNX Runtime makes of a graph at a level of optimisation, written to a file."""
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        options.optimized_model_filepath = str(Path(folder) / "model.onnx")
        options.log_severity_level = 3  # it warns that the file is for this kind of processor
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return (Path(folder) / "model.onnx").read_bytes()


def _rewrites(model: onnx.ModelProto) -> dict[str, Change]:
    """What fits any graph with float32 outputs, whatever its arithmetic is."""
    outputs = [o for o in model.graph.output if o.type.tensor_type.elem_type == onnx.TensorProto.FLOAT]
    names = [o.name for o in outputs]
    ranks = {o.name: len(o.type.tensor_type.shape.dim) for o in outputs}
    inputs = [i.name for i in model.graph.input]
    numbers = [i.name for i in model.graph.input if i.type.tensor_type.elem_type == onnx.TensorProto.FLOAT]

    def swapped(g: Graph, x: str, rank: int) -> str:
        perm = [0, *reversed(range(1, rank))]
        return g.add("Transpose", g.add("Transpose", x, perm=perm), perm=perm)

    def halves(g: Graph, x: str) -> str:
        parts = [
            g.add("Slice", x, np.array([a]), np.array([b]), np.array([-1]))
            for a, b in ((0, 5), (5, np.iinfo("i8").max))
        ]
        return g.add("Concat", *parts, axis=-1)

    return {
        "identities before outputs": lambda g: [
            g.wrap(n, lambda x: g.add("Identity", g.add("Identity", x))) for n in names
        ],
        "identities after inputs": lambda g: [
            g.wrap(n, lambda x: g.add("Identity", g.add("Identity", x))) for n in inputs
        ],
        "times one": lambda g: [g.wrap(n, lambda x: g.add("Mul", x, np.float32(1))) for n in names],
        "plus zero": lambda g: [g.wrap(n, lambda x: g.add("Add", x, np.float32(0))) for n in numbers],
        "transposed twice": lambda g: [g.wrap(n, lambda x, n=n: swapped(g, x, ranks[n])) for n in names],
        "split and joined": lambda g: [g.wrap(n, lambda x: halves(g, x)) for n in names],
        "reshaped to itself": lambda g: [g.wrap(n, lambda x: g.add("Reshape", x, g.add("Shape", x))) for n in names],
        "sums commuted": every("Add", lambda g, n: same(g, n, *reversed(n.input))),
        "constants as nodes": constants,
        "nodes without names": lambda g: [node.ClearField("name") for node in g.graph.node],
        "a node that nobody reads": lambda g: g.add("Neg", names[0]),
    }


def gemm(g: Graph, node: onnx.NodeProto) -> str:
    """Gemm as MatMul and Add."""
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if given.get("transA", 0) or given.get("alpha", 1.0) != 1.0 or given.get("beta", 1.0) != 1.0:
        return same(g, node)
    weight = g.add("Transpose", node.input[1], perm=[1, 0]) if given.get("transB", 0) else node.input[1]
    return g.add("Add", g.add("MatMul", node.input[0], weight), node.input[2])


def stored_transposed(g: Graph, node: onnx.NodeProto) -> str:
    """Gemm with its weight stored the other way round."""
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.input[1] not in (stored := g.stored()):
        return same(g, node)
    weight = numpy_helper.to_array(stored[node.input[1]]).T
    return g.add("Gemm", node.input[0], weight, node.input[2], **{**given, "transB": 1 - given.get("transB", 0)})


def conv(g: Graph, node: onnx.NodeProto) -> str:
    """A convolution whose channels are computed in two halves."""
    stored, given = g.stored(), {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if any(name not in stored for name in node.input[1:]) or len(node.input) < 3 or given.get("group", 1) != 1:
        return same(g, node)
    w, b = (numpy_helper.to_array(stored[name]) for name in node.input[1:])
    half = max(len(w) // 2, 1)
    if half == len(w):
        return same(g, node)
    parts = [g.add("Conv", node.input[0], w[p], b[p], **given) for p in (slice(0, half), slice(half, None))]
    return g.add("Concat", *parts, axis=1)


def tanh(g: Graph, node: onnx.NodeProto) -> str:
    doubled = g.add("Sigmoid", g.add("Mul", node.input[0], np.float32(2)))
    return g.add("Sub", g.add("Mul", doubled, np.float32(2)), np.float32(1))


PIECES: dict[str, tuple[str, Change]] = {
    "LayerNormalization": ("norm in pieces", every("LayerNormalization", norm)),
    "Gelu": ("gelu in pieces", every("Gelu", gelu)),
    "Softmax": ("softmax in pieces", every("Softmax", softmax)),
    "Sigmoid": ("sigmoid in pieces", every("Sigmoid", sigmoid)),
    "Tanh": ("tanh by the logistic function", every("Tanh", tanh)),
    "Relu": ("relu as a maximum", every("Relu", lambda g, n: g.add("Max", n.input[0], np.float32(0)))),
    "Gemm": ("gemm as a product and a sum", every("Gemm", gemm)),
    "Conv": ("convolutions in halves", every("Conv", conv)),
    "Sub": ("differences as sums", every("Sub", lambda g, n: g.add("Add", n.input[0], g.add("Neg", n.input[1])))),
}
