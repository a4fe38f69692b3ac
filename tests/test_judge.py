"""The judge on a really exported graph: every seeded fault must be rejected, no clean variant may be."""

from __future__ import annotations

import ast
import copy
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import helper, numpy_helper, version_converter
from onnxruntime.quantization import quantize_dynamic

from edgekit import program
from edgekit.arrcoc.presets import arr_coc_tiny
from edgekit.compare import Comparison, compare, failed
from edgekit.runtime.eager import EagerRuntime
from edgekit.spec import Array, Evaluation, ModelSpec
from edgekit.tolerance import FP16, FP32, INT8, Tolerance
from edgekit.verdict import Verdict, judge

IMAGES = 12
SHAPES = ({"batch": 2, "height": 128, "width": 128}, {"batch": 3, "height": 96, "width": 160})
Answers = dict[str, Array]
Value = Array | np.floating[Any]


@dataclass(frozen=True)
class Bench:
    """What was exported, what was asked, what the module answered in float32 and float64, and how far apart that is."""

    spec: ModelSpec
    exported: onnx.ModelProto
    evaluation: Evaluation
    asked: Mapping[str, Answers]
    answers: Mapping[str, Answers]
    exact: Mapping[str, Answers]
    noise: Mapping[str, float]


@pytest.fixture(scope="module")
def bench() -> Bench:
    spec = arr_coc_tiny()
    assert spec.evaluation is not None
    evaluation = spec.evaluation()
    asked = {"evaluation": {name: array[:IMAGES] for name, array in evaluation.inputs.items()}}
    flat = {i.name: np.full(spec.shape(i.name), 0.5, np.float32) for i in spec.inputs}
    asked["stress"] = {name: np.concatenate([array, flat[name]]) for name, array in spec.random(0).items()}
    asked |= {f"shape {i}": spec.random(i, sizes) for i, sizes in enumerate(SHAPES)}
    exported = export(spec)
    single = EagerRuntime(spec)
    answers = {name: run(single.run, inputs, size(name)) for name, inputs in asked.items()}
    wide = EagerRuntime(replace(spec, module=copy.deepcopy(spec.module)), double=True)
    exact = {name: run(wide.run, inputs, size(name)) for name, inputs in asked.items()}
    a, b = answers["evaluation"], exact["evaluation"]
    noise = {name: float(np.abs(a[name] - b[name]).max()) for name in ("relevance", "tokens")}
    return Bench(spec, exported, evaluation, asked, answers, exact, noise)


def export(spec: ModelSpec) -> onnx.ModelProto:
    """The ONNX graph with dynamic batch, height and width; nodes are named after modules and operators."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    arguments = program.tensors(spec, spec.random(0, {"batch": 2, "height": 224, "width": 192}))
    free = torch.export.Dim.DYNAMIC
    shapes = tuple({d: free for d, size in enumerate(i.shape) if isinstance(size, str)} for i in spec.inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        captured = torch.export.export(spec.module, arguments, dynamic_shapes=shapes, strict=False)
        names = [[i.name for i in spec.inputs], [o.name for o in spec.outputs]]
        made = torch.onnx.export(
            captured, (), dynamo=True, opset_version=20, verbose=False, input_names=names[0], output_names=names[1]
        )
    assert made is not None
    graph: onnx.ModelProto = made.model_proto
    del graph.graph.value_info[:]  # stale after a change
    seen: Counter[str] = Counter()
    for node in graph.graph.node:
        scopes = next((p.value for p in node.metadata_props if p.key == "pkg.torch.onnx.name_scopes"), "[]")
        path = next((s for s in reversed(ast.literal_eval(scopes)[:-1]) if s and not s.startswith("_")), "")
        seen[name := f"{path}/{node.op_type}"] += 1
        node.name = name if seen[name] == 1 else f"{name}_{seen[name]}"
    return graph


def size(batch: str) -> int:
    """Images are run one at a time, shapes as one batch."""
    return 99 if batch.startswith("shape") else 1


def run(answer: Callable[[Answers], Answers], inputs: Answers, rows: int) -> Answers:
    starts = range(0, len(inputs["images"]), rows)
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(lambda i: answer({name: a[i : i + rows] for name, a in inputs.items()}), starts))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def compared(
    bench: Bench, model: bytes, feed: Callable[[Array], Array] = np.asarray, rows: int = 1, **options: Any
) -> dict[str, Comparison]:
    """Run a graph over all batches; it must load, and run at the default shape."""
    settings = ort.SessionOptions()
    for name, value in ({"intra_op_num_threads": 1, "log_severity_level": 4} | options).items():
        setattr(settings, name, value)
    session = ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in bench.spec.outputs]

    def answer(inputs: Answers) -> Answers:
        fed = {name: feed(array) for name, array in inputs.items()}
        return dict(zip(outputs, session.run(outputs, fed), strict=True))

    found = {}
    for batch, inputs in bench.asked.items():
        names = [f"{batch} {i}" for i in range(len(inputs["images"]))]
        real = batch == "evaluation"
        try:
            given = run(answer, inputs, rows if real else size(batch))
        except Exception as error:
            if not batch.startswith("shape"):
                raise  # a graph that does not run at all tests no judge
            found[batch] = failed(names, str(error))
            continue
        truth = bench.evaluation.truth[:IMAGES] if real and bench.evaluation.truth is not None else None
        metric = bench.evaluation.metric if real else None
        found[batch] = compare(bench.spec.outputs, bench.answers[batch], given, names, metric=metric, truth=truth)
    return found


def judged(bench: Bench, found: Mapping[str, Comparison], tolerance: Tolerance = FP32) -> Verdict:
    shapes = [(sizes, found[f"shape {i}"]) for i, sizes in enumerate(SHAPES)]
    real, stress = [found["evaluation"]], [found["stress"]]
    return judge(tolerance, bench.noise, evaluation=real, stress=stress, grid=shapes)


class Graph:
    """A graph to be changed."""

    def __init__(self, exported: onnx.ModelProto) -> None:
        self.model = copy.deepcopy(exported)
        self.graph = self.model.graph
        self.made = 0

    def node(self, name: str) -> onnx.NodeProto:
        found: onnx.NodeProto = next(node for node in self.graph.node if node.name == name)
        return found

    def out(self, name: str) -> str:
        return str(self.node(name).output[0])

    def stored(self) -> dict[str, onnx.TensorProto]:
        return {value.name: value for value in self.graph.initializer}

    def weight(self, name: str) -> tuple[int, Array]:
        """A node's first input that is stored: its place and its value."""
        stored, inputs = self.stored(), self.node(name).input
        place = next(i for i, used in enumerate(inputs) if used in stored)
        return place, numpy_helper.to_array(stored[inputs[place]])

    def change(self, name: str, new: Callable[[Array], Array]) -> None:
        """Give one node another weight."""
        place, old = self.weight(name)
        self.node(name).input[place] = self.const(np.asarray(new(old), old.dtype))

    def become(self, name: str, op: str = "", **attributes: Any) -> None:
        """Give a node another operator or other attributes."""
        node = self.node(name)
        node.op_type = op or node.op_type
        kept = [a for a in node.attribute if a.name not in attributes]
        del node.attribute[:]
        node.attribute.extend([*kept, *(helper.make_attribute(key, value) for key, value in attributes.items())])

    def const(self, value: Value) -> str:
        self.made += 1
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(value, order="C"), f"made_{self.made}"))
        return f"made_{self.made}"

    def add(self, op: str, *inputs: str | Value, **attributes: Any) -> str:
        names = [each if isinstance(each, str) else self.const(each) for each in inputs]
        self.made += 1
        self.graph.node.append(helper.make_node(op, names, [f"made_{self.made}"], **attributes))
        return f"made_{self.made}"

    def wrap(self, tensor: str, new: Callable[[str], str]) -> None:
        """Put new nodes between a tensor and all that read it."""
        before = list(self.graph.node)
        if any(tensor == value.name for value in self.graph.input):
            made = new(tensor)
            for node in before:
                node.input[:] = [made if used == tensor else used for used in node.input]
            return
        for node in before:
            node.output[:] = [f"raw_{tensor}" if given == tensor else given for given in node.output]
        self.graph.node.append(helper.make_node("Identity", [new(f"raw_{tensor}")], [tensor]))

    def every(self, op: str, new: Callable[[onnx.NodeProto], str]) -> None:
        """Every node with an operator gives way to others."""
        for node in [node for node in self.graph.node if node.op_type == op]:
            self.graph.node.append(helper.make_node("Identity", [new(node)], [node.output[0]]))
            self.graph.node.remove(node)

    def finish(self) -> bytes:
        """Each node after those that it reads; outputs are of whatever type they became."""
        makers = {name: i for i, node in enumerate(self.graph.node) for name in node.output}
        needs = {i: {makers[x] for x in n.input if x in makers} for i, n in enumerate(self.graph.node)}
        ordered = [self.graph.node[i] for i in TopologicalSorter(needs).static_order()]
        del self.graph.node[:]
        self.graph.node.extend(ordered)
        for value in self.graph.output:
            value.ClearField("type")
        return bytes(self.model.SerializeToString())


Change = Callable[[Graph], object]
Weight = Callable[[Array], Array]
FEATURES, B = "texture.norm/LayerNormalization", "texture.blocks.2"
PRE, GELU = f"{B}.mlp.0/Add", f"{B}.mlp.1/Gelu"
ONE, HALF, ZERO = np.float32(1), np.float32(0.5), np.float32(0)
TYPES = ("FLOAT", "INT32", "FLOAT16", "DOUBLE", "BFLOAT16")
FLOAT, INT32, FLOAT16, DOUBLE, BFLOAT16 = (onnx.TensorProto.DataType.Value(name) for name in TYPES)
K = list(range(32))
EVIL = 7  # the evaluation image that some faults destroy


def shaken(share: float) -> Weight:
    return lambda w: w * (1 + share * np.random.default_rng(0).standard_normal(w.shape))


def flipped(bit: int, rank: int) -> Weight:
    """One bit of one weight, which has the given rank by magnitude."""

    def flip(w: Array) -> Array:
        bits = w.astype(np.float32).ravel().view(np.uint32)
        bits[np.argsort(np.abs(w), axis=None)[rank]] ^= np.uint32(1 << bit)
        return np.asarray(bits.view(np.float32).reshape(w.shape))

    return flip


def rounded(bits: int) -> Weight:
    return lambda w: np.round(w / (step := np.abs(w).max() / (2 ** (bits - 1) - 1))) * step


def columns(first: int, last: int, factor: float) -> Weight:
    return lambda w: w * np.where((np.arange(w.shape[1]) >= first) & (np.arange(w.shape[1]) < last), factor, 1)


def times(tensor: str, factor: float) -> Change:
    return lambda g: g.wrap(tensor, lambda x: g.add("Mul", x, np.float32(factor)))


def squeezed(tensor: str, to: int) -> Change:
    return lambda g: g.wrap(tensor, lambda x: g.add("Cast", g.add("Cast", x, to=to), to=FLOAT))


def backwards(tensor: str, axis: int = 1) -> Change:
    order = [np.array([a]) for a in (-1, -9999, axis, -1)]
    return lambda g: g.wrap(tensor, lambda x: g.add("Slice", x, *order))


def replaced(tensor: str, by: Callable[[Graph], str]) -> Change:
    return lambda g: g.wrap(g.out(tensor) if "/" in tensor else tensor, lambda x: by(g))


def weight(name: str, new: Weight) -> Change:
    return lambda g: g.change(name, new)


def operator(name: str, op: str = "", **attributes: Any) -> Change:
    return lambda g: g.become(name, op, **attributes)


def where(mask: Callable[[Graph], str], tensor: str, value: float | None) -> Change:
    """Where the mask says so, the tensor has a value, or 1 minus its own."""

    def broken(g: Graph, x: str) -> str:
        return g.add("Sub", ONE, x) if value is None else g.const(np.float32(value))

    return lambda g: g.wrap(tensor, lambda x: g.add("Where", mask(g), broken(g, x), x))


def patches(which: Callable[[Array], Array]) -> Callable[[Graph], str]:
    """[N] for any number of patches, of which the default image has 14 in a row."""
    table = which(np.arange(2048))
    return lambda g: g.add(
        "Slice", table, np.array([0]), g.add("Shape", g.out(FEATURES), start=1, end=2), np.array([0])
    )


def token(number: int) -> Callable[[Graph], str]:
    return lambda g: g.const((np.arange(32) == number)[:, None])


def photograph(bench: Bench) -> Callable[[Graph], str]:
    """[B, 1]: whether an image is a certain one of the evaluation set, told by its corner."""
    corner = bench.asked["evaluation"]["images"][EVIL][None, :, :4, :4]

    def mask(g: Graph) -> str:
        off = g.add("Sub", g.add("Slice", "images", np.array([0, 0]), np.array([4, 4]), np.array([2, 3])), corner)
        most = g.add("ReduceMax", g.add("Abs", off), np.array([1, 2, 3]), keepdims=0)
        return g.add("Unsqueeze", g.add("Less", most, np.float32(1e-6)), np.array([1]))

    return mask


def roughness(g: Graph) -> str:
    """[B, 1]: mean difference of neighbouring pixels: 0 of flat, 0.33 of random images, between them of photographs."""
    ends = ((0, -1), (1, 9999))
    left, right = (g.add("Slice", "images", np.array([a]), np.array([b]), np.array([3])) for a, b in ends)
    mean = g.add("ReduceMean", g.add("Abs", g.add("Sub", left, right)), np.array([1, 2, 3]), keepdims=0)
    return g.add("Unsqueeze", mean, np.array([1]))


def real(g: Graph) -> str:
    x = roughness(g)
    return g.add("And", g.add("Less", x, np.float32(0.2)), g.add("Greater", x, np.float32(1e-3)))


def leaves(name: str, change: Callable[[Graph, str], str]) -> Change:
    """Only what leaves the graph changes: what is computed from it inside does not."""

    def change_output(g: Graph) -> None:
        for node in g.graph.node:
            node.input[:] = [f"inner_{name}" if used == name else used for used in node.input]
            node.output[:] = [f"inner_{name}" if given == name else given for given in node.output]
        g.graph.node.append(helper.make_node("Identity", [change(g, f"inner_{name}")], [name]))

    return change_output


def ranks(order: Sequence[int]) -> Change:
    """The ranking is made of these places of a longer one."""

    def change(g: Graph) -> None:
        g.change("attending/TopK", lambda k: np.array([40]))
        g.wrap("indices", lambda x: g.add("Gather", x, np.array(order), axis=1))

    return change


def exchanged(first: str, i: int, second: str, j: int) -> Change:
    """Two nodes, or two places of one, take each other's input."""

    def change(g: Graph) -> None:
        a, b = g.node(first).input, g.node(second).input
        a[i], b[j] = b[j], a[i]

    return change


def reads(name: str, place: int, other: str) -> Change:
    return lambda g: g.node(name).input.__setitem__(place, g.out(other))


def both(*changes: Change) -> Change:
    return lambda g: [change(g) for change in changes]


def constant_over_batch(tensor: str, reduce: Callable[[Graph, str], str]) -> Change:
    return lambda g: g.wrap(tensor, lambda x: g.add("Add", g.add("Mul", x, ZERO), reduce(g, x)))


def tanh_gelu(g: Graph) -> None:
    g.every("Gelu", lambda node: g.add("Gelu", node.input[0], approximate="tanh"))


FAULTS: dict[str, Change] = {
    "weight perturbed by 1 %": weight(f"{B}.mlp.0/MatMul", shaken(0.01)),
    "weight of the content perturbed by 1 %": weight("query_content.content/MatMul", shaken(0.01)),
    "weight of the tokens perturbed by 1 %": weight("realizing.value/MatMul", shaken(0.01)),
    "largest weight lost an exponent bit": weight("texture.patch/Conv", flipped(28, -1)),
    "a column's sign flipped": weight(f"{B}.mlp.0/MatMul", columns(5, 6, -1)),
    "weight rounded to 4 bits": weight(f"{B}.mlp.0/MatMul", rounded(4)),
    "weight rounded to 8 bits": weight(f"{B}.attention.qkv/MatMul", rounded(8)),
    "bias dropped": weight(PRE, np.zeros_like),
    "balancer's bias dropped": weight("balancing.weigh.2/Add", np.zeros_like),
    "attention head zeroed": weight(f"{B}.attention.qkv/MatMul", columns(448, 512, 0)),
    "squashing off by 0.01": weight("balancing/Sub", lambda w: w + np.float32(0.01)),
    "patch kernel mirrored": weight("texture.patch/Conv", lambda w: w[..., ::-1]),
    "position rolled": weight("texture/Resize", lambda w: np.roll(w, 1, axis=3)),
    "position transposed": weight("texture/Resize", lambda w: w.swapaxes(2, 3)),
    "epsilon 0.1": operator(f"{B}.mlp_norm/LayerNormalization", epsilon=0.1),
    "epsilon of the features 0.1": operator(FEATURES, epsilon=0.1),
    "relu for gelu": replaced(GELU, lambda g: g.add("Relu", g.out(PRE))),
    "silu for gelu": replaced(GELU, lambda g: g.add("Mul", g.out(PRE), g.add("Sigmoid", g.out(PRE)))),
    "tanh form for gelu": tanh_gelu,
    "softmax over the queries": operator(f"{B}.attention/Softmax", axis=-2),
    "attention without its scale": weight(f"{B}.attention/Mul", np.ones_like),
    "query's scale off by 5 %": weight("query_content/Div", lambda w: w * 1.05),
    "query and key swapped": exchanged(f"{B}.attention/Gather", 1, f"{B}.attention/Gather_2", 1),
    "borders padded with zeros": operator("salience/Pad", mode="constant"),
    "clamped like an overflow": lambda g: g.wrap(g.out(PRE), lambda x: g.add("Clip", x, -ONE, ONE)),
    "scores rounded to fp16": squeezed("relevance", FLOAT16),
    "features rounded to bfloat16": lambda g: squeezed(g.out(FEATURES), BFLOAT16)(g),
    "another mean of the input": weight("texture/Sub", lambda w: w * 0.97),  # 0.485 for 0.5
    "input up to 256 / 255": times("images", 256 / 255),
}
GROSS: dict[str, Change] = {  # too large for any precision
    "weight transposed": weight(f"{B}.attention.out/MatMul", np.transpose),
    "exponent bit flipped": weight(f"{B}.mlp.2/MatMul", flipped(30, 1000)),
    "weights of two blocks exchanged": exchanged(f"{B}.mlp.0/MatMul", 1, "texture.blocks.4.mlp.0/MatMul", 1),
    "norm's scale dropped": weight(f"{B}.attention_norm/LayerNormalization", np.ones_like),
    "log-softmax over the patches": operator("information/LogSoftmax", axis=1),
    "entropy without its sign": operator("information/Neg", "Identity"),
    "residual dropped": replaced(f"{B}/Add", lambda g: g.out(f"{B}.attention.out/Add")),
    "block skipped": replaced(f"{B}/Add_2", lambda g: g.out("texture.blocks.1/Add_2")),
    "balancer stuck": lambda g: times(g.out("balancing.weigh.2/MatMul"), 0)(g),
    "mean for maximum": operator("balancing/ReduceMax", "ReduceMean"),
    "another scale of the input": weight("texture/Mul", lambda w: w / 0.45),  # 1 / 0.225 for 1 / 0.5
    "input up to 255": times("images", 255),
    "channels reversed": backwards("images"),
    "image mirrored": backwards("images", 3),
    "query ignored": times("queries", 0),
    "query a sum, no mean": times("queries", 2),
    "one patch destroyed": where(patches(lambda i: i == 100), "relevance", None),
    "one row of patches destroyed": where(patches(lambda i: i // 14 == 6), "relevance", None),
    "right for random images only": where(real, "relevance", None),
    "NaN for flat images": lambda g: g.wrap(
        "relevance", lambda x: g.add("Add", x, g.add("Mul", ZERO, g.add("Log", roughness(g))))
    ),
    "patch order reversed": backwards("relevance"),
    "patches in column order": lambda g: g.wrap(
        g.out("texture/Add"),
        lambda x: g.add(
            "Reshape",
            g.add("Transpose", g.add("Reshape", x, np.array([0, 14, 14, 192])), perm=[0, 2, 1, 3]),
            np.array([0, 196, 192]),
        ),
    ),
    "scores scaled by 0.7": times("relevance", 0.7),
    "another map given": leaves("relevance", lambda g, x: g.add("Sqrt", x)),
    "budgets cut, not rounded": weight("attending/Add", lambda w: w - HALF),
    "budgets rounded up": operator("attending/Floor", "Ceil"),
    "budgets up to 398": weight("attending/Mul", lambda w: w - 2),
    "budgets from 63": weight("attending/Add", lambda w: w - 1),
    "budgets doubled": leaves("budgets", lambda g, x: g.add("Mul", x, np.array(2))),
    "budgets in 32 bits": leaves("budgets", lambda g, x: g.add("Cast", x, to=INT32)),
    "the smallest chosen": operator("attending/TopK", largest=0),
    "ranking reversed": leaves("indices", lambda g, x: g.add("Gather", x, np.array(K[::-1]), axis=1)),
    "last place swapped": ranks([*K[:-1], 36]),
    "two places swapped": ranks([5, *K[1:5], 0, *K[6:]]),
    "a patch chosen twice": ranks([*K[:-1], 0]),
    "31 chosen": ranks(K[:-1]),
    "indices from one": leaves("indices", lambda g, x: g.add("Add", x, np.array(1))),
    "tokens in another order": backwards("tokens"),
    "tokens without their gate": replaced("tokens", lambda g: g.out("realizing.value/Add")),
    "tokens from before the norm": reads("realizing/GatherElements", 0, "texture.blocks.5/Add_2"),
    "one token destroyed": where(token(7), "tokens", 0),
    "Inf in one token": where(token(31), "tokens", np.inf),
}
SHAPE_FAULTS: dict[str, Change] = {  # right at batch 1 and 224 x 224
    "batch frozen": lambda g: g.wrap(g.out(FEATURES), lambda x: g.add("Reshape", x, np.array([1, -1, 192]))),
    "first query for all": constant_over_batch("queries", lambda g, x: g.add("Slice", x, np.array([0]), np.array([1]))),
    "batch mates mixed": lambda g: constant_over_batch(
        g.out(FEATURES), lambda g, x: g.add("ReduceMean", x, np.array([0]))
    )(g),
    "position frozen": replaced("texture/Resize", lambda g: g.node("texture/Resize").input[0]),
    "position by nearest neighbour": operator("texture/Resize", mode="nearest"),
    "position with aligned corners": operator("texture/Resize", coordinate_transformation_mode="align_corners"),
    "rows for columns": both(
        exchanged("salience/Concat", 1, "salience/Concat", 2), exchanged("salience/Concat_2", 2, "salience/Concat_2", 3)
    ),
}
IMAGE_FAULTS = {"one image destroyed": None, "NaN in one image": np.nan, "one image blank": 0.0}


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


def every(op: str, new: Callable[[Graph, onnx.NodeProto], str]) -> Change:
    return lambda g: g.every(op, lambda node: new(g, node))


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


def graph(bench: Bench, *changes: Change) -> bytes:
    made = Graph(bench.exported)
    for change in changes:
        change(made)
    return made.finish()


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_rejected(bench: Bench, fault: str) -> None:
    verdict = judged(bench, compared(bench, graph(bench, FAULTS[fault])))
    assert verdict.status == "rejected"
    assert "evaluation" in {reason.batch for reason in verdict.reasons}


@pytest.mark.parametrize("fault", GROSS)
def test_every_gross_fault_is_rejected_at_every_precision(bench: Bench, fault: str) -> None:
    found = compared(bench, graph(bench, GROSS[fault]))
    for tolerance in (FP32, FP16, INT8):
        assert judged(bench, found, tolerance).status == "rejected", tolerance.name


@pytest.mark.parametrize("fault", IMAGE_FAULTS)
def test_one_bad_image_is_rejected_and_named(bench: Bench, fault: str) -> None:
    found = compared(bench, graph(bench, where(photograph(bench), "relevance", IMAGE_FAULTS[fault])))
    for tolerance in (FP32, FP16, INT8):
        verdict = judged(bench, found, tolerance)
        assert verdict.status == "rejected"
        assert all(f"'evaluation {EVIL}'" in str(reason) for reason in verdict.reasons)


@pytest.mark.parametrize("fault", SHAPE_FAULTS)
def test_a_fault_of_other_shapes_is_rejected_and_proves_none_of_them(bench: Bench, fault: str) -> None:
    verdict = judged(bench, compared(bench, graph(bench, SHAPE_FAULTS[fault])))
    assert verdict.status == "rejected"
    assert all(reason.batch.startswith("batch") for reason in verdict.reasons)
    assert len(verdict.proved) < len(SHAPES)


@pytest.mark.parametrize("variant", CLEAN)
def test_no_clean_graph_is_rejected(bench: Bench, variant: str) -> None:
    verdict = judged(bench, compared(bench, graph(bench, CLEAN[variant])))
    assert verdict.status == "verified", verdict.reasons
    assert verdict.proved == SHAPES


@pytest.mark.parametrize("way", SESSIONS)
def test_no_way_of_running_it_is_rejected(bench: Bench, way: str) -> None:
    verdict = judged(bench, compared(bench, bench.exported.SerializeToString(), **SESSIONS[way]))
    assert verdict.status == "verified", verdict.reasons


@pytest.mark.parametrize("variant", CLEAN_FP16)
def test_no_clean_fp16_graph_is_rejected_within_its_limits(bench: Bench, variant: str) -> None:
    verdict = judged(bench, compared(bench, graph(bench, CLEAN_FP16[variant])), FP16)
    assert verdict.status == "verified", verdict.reasons


def test_a_tie_at_the_boundary_is_forgiven_with_a_note_and_a_swap_is_not(bench: Bench) -> None:
    tied = judged(bench, compared(bench, graph(bench, ties)))
    assert tied.status == "verified"
    assert any("forgiven ties at the boundary of the top K" in note for note in tied.notes)
    swapped = judged(bench, compared(bench, graph(bench, ranks([*K[:-1], 36]))))
    assert "swap gap of 'indices'" in str(swapped.reasons[0])


def test_a_double_reference_rejects_nothing(bench: Bench) -> None:
    double = replace(bench, answers=bench.exact)
    verdict = judged(double, compared(double, bench.exported.SerializeToString()))
    assert verdict.status == "verified", verdict.reasons


def test_a_sound_int8_graph_is_not_rejected_within_its_limits(bench: Bench, tmp_path: Path) -> None:
    onnx.save(Graph(bench.exported).model, tmp_path / "fp32.onnx")
    quantize_dynamic(tmp_path / "fp32.onnx", tmp_path / "int8.onnx", op_types_to_quantize=["MatMul"], per_channel=True)
    verdict = judged(bench, compared(bench, (tmp_path / "int8.onnx").read_bytes()), INT8)
    assert verdict.status == "verified", verdict.reasons
