"""The judge on really exported graphs: every seeded fault must be rejected, no clean variant may be."""

from __future__ import annotations

import ast
import copy
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import helper, numpy_helper

from edgekit import program
from edgekit.arrcoc.presets import arr_coc_tiny
from edgekit.compare import Comparison, compare, failed
from edgekit.runtime.eager import EagerRuntime
from edgekit.spec import Array, Metric, ModelSpec
from edgekit.tolerance import FP16, FP32, INT8, Tolerance
from edgekit.verdict import Verdict, judge, score_tolerance

IMAGES = 12
SHAPES = ({"batch": 2, "height": 224, "width": 224}, {"batch": 3, "height": 96, "width": 160})
Feed = Callable[[dict[str, Array]], dict[str, Array]]


class Graph:
    """An exported graph to be changed; nodes go by the module they come from and their operator."""

    def __init__(self, exported: onnx.ModelProto) -> None:
        self.model = copy.deepcopy(exported)
        self.graph = self.model.graph
        del self.graph.value_info[:]  # what it says is stale after a change
        self.made = 0

    def node(self, name: str) -> onnx.NodeProto:
        return next(node for node in self.graph.node if node.name == name)

    def out(self, name: str) -> str:
        return self.node(name).output[0]

    def weight(self, name: str) -> tuple[int, Array]:
        """The node's first input that is a weight: its place and its value."""
        stored = {i.name: i for i in self.graph.initializer}
        place = next(i for i, used in enumerate(self.node(name).input) if used in stored)
        return place, numpy_helper.to_array(stored[self.node(name).input[place]]).copy()

    def change(self, name: str, new: Callable[[Array], Array]) -> None:
        """Give one node another weight."""
        place, old = self.weight(name)
        self.node(name).input[place] = self.const(np.asarray(new(old), old.dtype))

    def become(self, name: str, op: str = "", **attributes: Any) -> None:
        """Give a node another operator or other attributes."""
        node = self.node(name)
        node.op_type = op or node.op_type
        for key, value in attributes.items():
            left = [a for a in node.attribute if a.name != key]
            del node.attribute[:]
            node.attribute.extend([*left, helper.make_attribute(key, value)])

    def fresh(self) -> str:
        self.made += 1
        return f"made_{self.made}"

    def const(self, value: Array) -> str:
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(value, order="C"), name := self.fresh()))
        return name

    def add(self, op: str, *inputs: str | Array, **attributes: Any) -> str:
        names = [each if isinstance(each, str) else self.const(np.asarray(each)) for each in inputs]
        self.graph.node.append(helper.make_node(op, names, [made := self.fresh()], **attributes))
        return made

    def wrap(self, tensor: str, new: Callable[[str], str]) -> None:
        """Put new nodes between a tensor and all that read it."""
        raw, before = self.fresh(), list(self.graph.node)
        if any(tensor == i.name for i in self.graph.input):
            made = new(tensor)
            for node in before:
                node.input[:] = [made if used == tensor else used for used in node.input]
            return
        for node in before:
            node.output[:] = [raw if given == tensor else given for given in node.output]
        self.graph.node.append(helper.make_node("Identity", [new(raw)], [tensor]))

    def finish(self) -> bytes:
        """In an order in which each node comes after what it reads."""
        given = {"", *(i.name for i in self.graph.initializer), *(i.name for i in self.graph.input)}
        waiting, ordered = list(self.graph.node), []
        while waiting:
            ready = [node for node in waiting if given.issuperset(node.input)]
            assert ready, "a circle"
            given.update(name for node in ready for name in node.output)
            ordered += ready
            waiting = [node for node in waiting if not given.issuperset(node.output)]
        del self.graph.node[:]
        self.graph.node.extend(ordered)
        for value in self.graph.output:
            value.ClearField("type")  # what the changed graph makes of it
        return bytes(self.model.SerializeToString())


@dataclass(frozen=True)
class Bench:
    """What was exported, what was asked and what the module answered."""

    spec: ModelSpec
    exported: onnx.ModelProto
    asked: Mapping[str, dict[str, Array]]
    answers: Mapping[str, dict[str, Array]]
    noise: Mapping[str, float]
    metric: Metric | None
    truth: Array


@pytest.fixture(scope="module")
def bench() -> Bench:
    spec = arr_coc_tiny()
    evaluation = spec.evaluation() if spec.evaluation else None
    assert evaluation is not None
    assert evaluation.truth is not None
    asked = {"evaluation": {name: array[:IMAGES] for name, array in evaluation.inputs.items()}}
    made = [spec.random(0), {i.name: np.full(spec.shape(i.name), 0.5, np.float32) for i in spec.inputs}]
    asked["stress"] = {name: np.concatenate([each[name] for each in made]) for name in made[0]}
    asked |= {f"shape {i}": spec.random(i, sizes) for i, sizes in enumerate(SHAPES)}
    exported = export(spec)
    single = EagerRuntime(spec)
    answers = {name: run(single.run, inputs, rows(name)) for name, inputs in asked.items()}
    double = EagerRuntime(replace(spec, module=copy.deepcopy(spec.module)), double=True)
    wide = run(double.run, asked["evaluation"], 1)
    noise = {n: float(np.abs(a - wide[n]).max()) for n, a in answers["evaluation"].items() if a.dtype == np.float32}
    return Bench(spec, exported, asked, answers, noise, evaluation.metric, evaluation.truth[:IMAGES])


def export(spec: ModelSpec) -> onnx.ModelProto:
    axes = ({0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC},)
    sizes = {"batch": 2, "height": 224, "width": 192}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments = program.tensors(spec, spec.random(0, sizes))
        shapes = (*axes, {0: torch.export.Dim.DYNAMIC})
        captured = torch.export.export(spec.module, arguments, dynamic_shapes=shapes, strict=False)
        names = {"input_names": [i.name for i in spec.inputs], "output_names": [o.name for o in spec.outputs]}
        made = torch.onnx.export(captured, (), dynamo=True, opset_version=20, verbose=False, **names)
    assert made is not None
    proto: onnx.ModelProto = made.model_proto
    seen: Counter[str] = Counter()
    for node in proto.graph.node:
        scopes = next((p.value for p in node.metadata_props if p.key == "pkg.torch.onnx.name_scopes"), "[]")
        path = next((s for s in reversed(ast.literal_eval(scopes)[:-1]) if s and not s.startswith("_")), "")
        seen[f"{path}/{node.op_type}"] += 1
        node.name = f"{path}/{node.op_type}" + (
            f"_{seen[f'{path}/{node.op_type}']}" if seen[f"{path}/{node.op_type}"] > 1 else ""
        )
    return proto


def rows(batch: str) -> int:
    """Real and stress images are run one at a time, shapes as one batch."""
    return 0 if batch.startswith("shape") else 1


def run(
    answer: Callable[[dict[str, Array]], dict[str, Array]], inputs: Mapping[str, Array], size: int
) -> dict[str, Array]:
    n = len(next(iter(inputs.values())))
    size = size or n
    parts = [answer({name: a[i : i + size] for name, a in inputs.items()}) for i in range(0, n, size)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def judged(
    bench: Bench,
    model: bytes,
    tolerance: Tolerance = FP32,
    feed: Feed = lambda inputs: inputs,
    batch: int = 1,
    **options: Any,
) -> Verdict:
    settings = ort.SessionOptions()
    for name, value in ({"intra_op_num_threads": 2, "log_severity_level": 4} | options).items():
        setattr(settings, name, value)
    names = [output.name for output in bench.spec.outputs]
    limit = score_tolerance(tolerance, bench.noise["relevance"])
    compared: dict[str, Comparison] = {}
    session = ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    for kind, inputs in bench.asked.items():
        images = [f"{kind} {i}" for i in range(len(next(iter(inputs.values()))))]
        real = kind == "evaluation"
        metric, truth = (bench.metric, bench.truth) if real else (None, None)
        try:
            answer = lambda each: dict(zip(names, session.run(names, feed(each)), strict=True))  # noqa: E731
            found = run(answer, inputs, batch if real else rows(kind))
        except Exception as error:
            compared[kind] = failed(images, str(error))
            continue
        against = bench.answers[kind]
        compared[kind] = compare(
            bench.spec.outputs, against, found, images, score_tolerance=limit, metric=metric, truth=truth
        )
    shapes = [(sizes, compared[f"shape {i}"]) for i, sizes in enumerate(SHAPES)]
    real, stress = [compared["evaluation"]], [compared["stress"]]
    return judge(tolerance, bench.noise, evaluation=real, stress=stress, grid=shapes)


B, NORM, FEATURES = "texture.blocks.2", "LayerNormalization", "texture.norm/LayerNormalization"
HALF, ONE, ZERO = np.float32(0.5), np.float32(1), np.float32(0)
Change = Callable[[Graph], object]


def shaken(share: float) -> Callable[[Array], Array]:
    return lambda w: w * (1 + share * np.random.default_rng(0).standard_normal(w.shape))


def flipped(bit: int) -> Callable[[Array], Array]:
    """One bit of the weight of median magnitude."""

    def flip(w: Array) -> Array:
        bits = w.astype(np.float32).ravel().view(np.uint32).copy()
        bits[np.argsort(np.abs(w), axis=None)[w.size // 2]] ^= np.uint32(1 << bit)
        return bits.view(np.float32).reshape(w.shape)

    return flip


def rounded(bits: int) -> Callable[[Array], Array]:
    return lambda w: np.round(w / (step := np.abs(w).max() / (2 ** (bits - 1) - 1))) * step


def columns(of: slice, factor: float) -> Callable[[Array], Array]:
    return lambda w: np.concatenate([w[:, : of.start], w[:, of] * factor, w[:, of.stop :]], axis=1)


def scale(g: Graph, tensor: str, factor: float) -> None:
    g.wrap(tensor, lambda x: g.add("Mul", x, np.float32(factor)))


def where(g: Graph, mask: str, tensor: str, broken: Callable[[str], str | Array]) -> None:
    g.wrap(tensor, lambda x: g.add("Where", mask, broken(x), x))


def inverted(g: Graph, mask: str) -> None:
    where(g, mask, "relevance", lambda x: g.add("Sub", ONE, x))


def patches(g: Graph, which: Callable[[Array], Array]) -> str:
    """[N] bool for any number of patches; the grid is taken to be 14 wide."""
    count = g.add("Shape", g.out(FEATURES), start=1, end=2)
    return g.add("Slice", which(np.arange(2048)), np.array([0]), count, np.array([0]))


def image(g: Graph, like: Array) -> str:
    """[B, 1] bool: whether an image is a certain one, told by its corner."""
    corner = g.add("Slice", "images", np.array([0, 0]), np.array([4, 4]), np.array([2, 3]))
    off = g.add("Abs", g.add("Sub", corner, like[None, :, :4, :4]))
    most = g.add("ReduceMax", off, np.array([1, 2, 3]), keepdims=0)
    return g.add("Unsqueeze", g.add("Less", most, np.float32(1e-6)), np.array([1]))


def roughness(g: Graph) -> str:
    """[B, 1]: mean difference of neighbouring pixels; 0 for flat, 0.33 for random images, less for photographs."""
    left, right = (
        g.add("Slice", "images", np.array([a]), np.array([b]), np.array([3])) for a, b in ((0, -1), (1, 9999))
    )
    mean = g.add("ReduceMean", g.add("Abs", g.add("Sub", left, right)), np.array([1, 2, 3]), keepdims=0)
    return g.add("Unsqueeze", mean, np.array([1]))


def between(g: Graph, x: str, low: float, high: float) -> str:
    return g.add("And", g.add("Less", x, np.float32(high)), g.add("Greater", x, np.float32(low)))


def leaves(g: Graph, name: str, made: Callable[[str], str]) -> None:
    """Only what leaves the graph changes: what is computed from it inside stays."""
    inner = f"inner_{name}"
    for node in g.graph.node:
        node.input[:] = [inner if used == name else used for used in node.input]
        node.output[:] = [inner if given == name else given for given in node.output]
    g.graph.node.append(helper.make_node("Identity", [made(inner)], [name]))


def instead(g: Graph, last: str, first: str) -> None:
    """What reads the last tensor reads the first; both may be names of nodes."""
    old, new = (g.out(each) if "/" in each else each for each in (last, first))
    for node in g.graph.node:
        node.input[:] = [new if used == old else used for used in node.input]


def instead_at(g: Graph, node: str, place: int, of: str) -> None:
    g.node(node).input[place] = g.out(of)


def twice(g: Graph, first: str, second: str) -> None:
    """A node takes another one's weight."""
    g.node(first).input[g.weight(first)[0]] = g.node(second).input[g.weight(second)[0]]


def exchange(g: Graph, first: str, i: int, second: str, j: int) -> None:
    a, b = g.node(first).input, g.node(second).input
    a[i], b[j] = b[j], a[i]


def ranks(g: Graph, order: Sequence[int]) -> None:
    """The ranking is made of these places of a longer one."""
    g.change("attending/TopK", lambda k: np.array([40]))
    g.wrap("indices", lambda x: g.add("Gather", x, np.array(order), axis=1))


def backwards(g: Graph, x: str, axis: int = 1) -> str:
    return g.add("Slice", x, np.array([-1]), np.array([-9999]), np.array([axis]), np.array([-1]))


def squeezed(g: Graph, to: int) -> Callable[[str], str]:
    return lambda x: g.add("Cast", g.add("Cast", x, to=to), to=1)


def every(g: Graph, op: str, change: Callable[[onnx.NodeProto], object]) -> None:
    for node in [n for n in g.graph.node if n.op_type == op]:
        change(node)


K = list(range(32))
GELU, PRE = f"{B}.mlp.1/Gelu", f"{B}.mlp.0/Add"
FAULTS: dict[str, Change] = {
    # Weights.
    "weight transposed": lambda g: g.change(f"{B}.attention.out/MatMul", lambda w: w.T),
    "weight perturbed by 1 %": lambda g: g.change(f"{B}.mlp.0/MatMul", shaken(0.01)),
    "content weight perturbed by 1 %": lambda g: g.change("query_content.content/MatMul", shaken(0.01)),
    "value weight perturbed by 1 %": lambda g: g.change("realizing.value/MatMul", shaken(0.01)),
    "exponent bit flipped": lambda g: g.change(f"{B}.mlp.2/MatMul", flipped(30)),
    "lower exponent bit flipped": lambda g: g.change("texture.patch/Conv", flipped(28)),
    "one column's sign": lambda g: g.change(f"{B}.mlp.0/MatMul", columns(slice(5, 6), -1)),
    "weights rounded to 4 bits": lambda g: g.change(f"{B}.mlp.0/MatMul", rounded(4)),
    "weights rounded to 8 bits": lambda g: g.change(f"{B}.attention.qkv/MatMul", rounded(8)),
    "another block's weight": lambda g: twice(g, f"{B}.mlp.0/MatMul", "texture.blocks.4.mlp.0/MatMul"),
    "bias dropped": lambda g: g.change(f"{B}.mlp.0/Add", np.zeros_like),
    "balancer's bias dropped": lambda g: g.change("balancing.weigh.2/Add", np.zeros_like),
    "attention head zeroed": lambda g: g.change(f"{B}.attention.qkv/MatMul", columns(slice(448, 512), 0)),
    "norm's scale dropped": lambda g: g.change(f"{B}.attention_norm/LayerNormalization", np.ones_like),
    "squashing off by 0.01": lambda g: g.change("balancing/Sub", lambda w: w + np.float32(0.01)),
    "patch kernel mirrored": lambda g: g.change("texture.patch/Conv", lambda w: w[..., ::-1]),
    "position rolled by one": lambda g: g.change("texture/Resize", lambda w: np.roll(w, 1, axis=3)),
    "position transposed": lambda g: g.change("texture/Resize", lambda w: w.swapaxes(2, 3)),
    # Operators.
    "LayerNorm epsilon 0.1": lambda g: g.become(f"{B}.mlp_norm/LayerNormalization", epsilon=0.1),
    "LayerNorm epsilon 1e-3": lambda g: g.become(FEATURES, epsilon=1e-3),
    "gelu became relu": lambda g: instead(g, GELU, g.add("Relu", g.out(PRE))),
    "gelu became silu": lambda g: instead(g, GELU, g.add("Mul", g.out(PRE), g.add("Sigmoid", g.out(PRE)))),
    "gelu became its tanh form": lambda g: every(g, "Gelu", lambda n: g.become(n.name, approximate="tanh")),
    "softmax over the queries": lambda g: g.become(f"{B}.attention/Softmax", axis=-2),
    "log-softmax over the patches": lambda g: g.become("information/LogSoftmax", axis=1),
    "entropy's sign": lambda g: g.become("information/Neg", "Identity"),
    "attention's scale": lambda g: g.change(f"{B}.attention/Mul", np.ones_like),
    "query's scale off by 5 %": lambda g: g.change("query_content/Div", lambda w: w * np.float32(1.05)),
    "query and key swapped": lambda g: exchange(g, f"{B}.attention/Gather", 1, f"{B}.attention/Gather_2", 1),
    "residual dropped": lambda g: instead(g, f"{B}/Add", f"{B}.attention.out/Add"),
    "block skipped": lambda g: instead(g, f"{B}/Add_2", "texture.blocks.1/Add_2"),
    "borders padded with zeros": lambda g: g.become("salience/Pad", mode="constant"),
    "balancer stuck": lambda g: scale(g, g.out("balancing.weigh.2/MatMul"), 0),
    "maximum became mean": lambda g: g.become("balancing/ReduceMax", "ReduceMean"),
    "clamped like an overflow": lambda g: g.wrap(g.out(PRE), lambda x: g.add("Clip", x, -ONE, ONE)),
    "scores rounded to fp16": lambda g: g.wrap("relevance", squeezed(g, 10)),
    "features rounded to bfloat16": lambda g: g.wrap(g.out(FEATURES), squeezed(g, 16)),
    # Inputs.
    "wrong mean": lambda g: g.change("texture/Sub", lambda w: w * np.float32(0.97)),
    "wrong scale": lambda g: g.change("texture/Mul", lambda w: w * np.float32(0.99)),
    "channels reversed": lambda g: g.wrap("images", lambda x: backwards(g, x)),
    "image mirrored": lambda g: g.wrap("images", lambda x: backwards(g, x, 3)),
    "query ignored": lambda g: scale(g, "queries", 0),
    "query a sum, not a mean": lambda g: scale(g, "queries", 2),
    # Scores.
    "one patch destroyed": lambda g: inverted(g, patches(g, lambda i: i == 100)),
    "one row of patches destroyed": lambda g: inverted(g, patches(g, lambda i: i // 14 == 6)),
    "one image destroyed": lambda g: inverted(g, image(g, PHOTOGRAPH[0])),
    "wrong for photographs only": lambda g: inverted(g, between(g, roughness(g), 1e-3, 0.2)),
    "NaN in one image": lambda g: where(g, image(g, PHOTOGRAPH[0]), "relevance", lambda x: np.float32("nan")),
    "NaN in flat images": lambda g: g.wrap("relevance", lambda x: g.add("Add", x, g.add("Mul", ZERO, g.add("Log", roughness(g))))),
    "patch order reversed": lambda g: g.wrap("relevance", lambda x: backwards(g, x)),
    "patches in column order": lambda g: g.wrap(
        g.out("texture/Add"), lambda x: g.add("Transpose", x, perm=[0, 1, 3, 2])
    ),
    "scores scaled by 0.7": lambda g: scale(g, "relevance", 0.7),
    "another map put out": lambda g: leaves(g, "relevance", lambda x: g.add("Sqrt", x)),
    # Budgets.
    "budgets cut, not rounded": lambda g: g.change("attending/Add", lambda w: w - HALF),
    "budgets rounded up": lambda g: g.become("attending/Floor", "Ceil"),
    "budgets up to 398": lambda g: g.change("attending/Mul", lambda w: w - np.float32(2)),
    "budgets from 63": lambda g: g.change("attending/Add", lambda w: w - ONE),
    "budgets twice": lambda g: g.wrap("budgets", lambda x: g.add("Mul", x, np.array(2))),
    "budgets of 32 bits": lambda g: g.wrap("budgets", lambda x: g.add("Cast", x, to=6)),
    # Ranking and tokens.
    "the smallest chosen": lambda g: g.become("attending/TopK", largest=0),
    "ranking reversed": lambda g: leaves(g, "indices", lambda x: backwards(g, x)),
    "last place swapped": lambda g: ranks(g, [*K[:-1], 36]),
    "two places swapped": lambda g: ranks(g, [5, *K[1:5], 0, *K[6:]]),
    "a patch twice": lambda g: ranks(g, [*K[:-1], 0]),
    "31 chosen": lambda g: ranks(g, K[:-1]),
    "indices from one": lambda g: leaves(g, "indices", lambda x: g.add("Add", x, np.array(1))),
    "tokens of other patches": lambda g: g.wrap("tokens", lambda x: backwards(g, x)),
    "tokens without their gate": lambda g: g.wrap("tokens", lambda x: g.out("realizing.value/Add")),
    "one token destroyed": lambda g: where(
        g, g.add("Reshape", np.arange(32) == 7, np.array([32, 1])), "tokens", lambda x: ZERO
    ),
    "Inf in one token": lambda g: where(
        g, g.add("Reshape", np.arange(32) == 31, np.array([32, 1])), "tokens", lambda x: np.float32("inf")
    ),
    "tokens from before the norm": lambda g: instead_at(g, "realizing/GatherElements", 0, "texture.blocks.5/Add_2"),
    # Shapes: right at batch 1 and 224 x 224.
    "batch frozen": lambda g: g.wrap(g.out(FEATURES), lambda x: g.add("Reshape", x, np.array([1, -1, 192]))),
    "first query for all": lambda g: g.wrap(
        "queries", lambda x: g.add("Add", g.add("Mul", x, ZERO), g.add("Slice", x, np.array([0]), np.array([1])))
    ),
    "batch mates mixed": lambda g: g.wrap(
        g.out(FEATURES), lambda x: g.add("Add", g.add("Mul", x, ZERO), g.add("ReduceMean", x, np.array([0])))
    ),
    "position frozen": lambda g: g.wrap(g.out("texture/Resize"), lambda x: g.node("texture/Resize").input[0]),
    "position by nearest neighbour": lambda g: g.become("texture/Resize", mode="nearest"),
    "position with aligned corners": lambda g: g.become(
        "texture/Resize", coordinate_transformation_mode="align_corners"
    ),
    "rows and columns mixed up": lambda g: exchange(g, "salience/Concat", 2, "salience/Concat", 3),
}
PHOTOGRAPH: list[Array] = []


def replaced(g: Graph, op: str, new: Callable[[onnx.NodeProto], str]) -> None:
    """Every node with this operator gives way to nodes that compute the same."""
    for node in [n for n in g.graph.node if n.op_type == op]:
        made = new(node)
        g.graph.node.remove(node)
        g.graph.node.append(helper.make_node("Identity", [made], [node.output[0]]))


def plain_norm(g: Graph, node: onnx.NodeProto) -> str:
    x, weight, bias = node.input
    off = g.add("Sub", x, g.add("ReduceMean", x, np.array([-1])))
    variance = g.add("ReduceMean", g.add("Mul", off, off), np.array([-1]))
    epsilon = next(a.f for a in node.attribute if a.name == "epsilon")
    deviation = g.add("Sqrt", g.add("Add", variance, np.float32(epsilon)))
    return g.add("Add", g.add("Mul", g.add("Div", off, deviation), weight), bias)


def plain_gelu(g: Graph, node: onnx.NodeProto) -> str:
    x = node.input[0]
    erf = g.add("Erf", g.add("Mul", x, np.float32(0.5**0.5)))
    return g.add("Mul", g.add("Mul", x, HALF), g.add("Add", erf, ONE))


def plain_softmax(g: Graph, node: onnx.NodeProto) -> str:
    x = node.input[0]
    made = g.add("Exp", g.add("Sub", x, g.add("ReduceMax", x, np.array([-1]))))
    return g.add("Div", made, g.add("ReduceSum", made, np.array([-1])))


def in_halves(g: Graph, node: onnx.NodeProto, axis: int) -> str:
    """A product with a weight as the sum (axis 0) or the concatenation (axis 1) of two."""
    stored = {i.name: i for i in g.graph.initializer}
    x, name = node.input
    if name not in stored:
        return g.add("MatMul", x, name)
    first, second = np.array_split(numpy_helper.to_array(stored[name]), 2, axis=axis)
    if axis == 1:
        return g.add("Concat", g.add("MatMul", x, first), g.add("MatMul", x, second), axis=-1)
    left = g.add("Slice", x, np.array([0]), np.array([len(first)]), np.array([-1]))
    right = g.add("Slice", x, np.array([len(first)]), np.array([9999]), np.array([-1]))
    return g.add("Add", g.add("MatMul", left, first), g.add("MatMul", right, second))


def cast(g: Graph, node: onnx.NodeProto, to: int) -> str:
    """A product in another type: 11 is double, 10 half."""
    return g.add("Cast", g.add(node.op_type, *(g.add("Cast", each, to=to) for each in node.input)), to=1)


def transposed(g: Graph, node: onnx.NodeProto) -> str:
    """A product with a weight that is stored transposed."""
    x, name = node.input
    stored = {i.name: i for i in g.graph.initializer}
    if name not in stored:
        return g.add("MatMul", x, name)
    return g.add("MatMul", x, g.add("Transpose", numpy_helper.to_array(stored[name]).T.copy(), perm=[1, 0]))


def commuted(g: Graph, node: onnx.NodeProto) -> str:
    return g.add(node.op_type, *reversed(node.input))


def folded(g: Graph) -> None:
    """The image's scale and mean go into the patch kernel."""
    kernel = g.weight("texture.patch/Conv")[1]
    node = g.node("texture.patch/Conv")
    stored = {i.name: numpy_helper.to_array(i) for i in g.graph.initializer}
    bias = stored[node.input[2]] if len(node.input) > 2 else np.zeros(len(kernel), np.float32)
    both = ["images", g.const(kernel * np.float32(2)), g.const((bias - kernel.sum((1, 2, 3))).astype(np.float32))]
    node.input[:] = both


def constants(g: Graph) -> None:
    for value in list(g.graph.initializer):
        g.graph.node.append(helper.make_node("Constant", [], [value.name], value=value))
    del g.graph.initializer[:]


def stored_in_half(g: Graph) -> None:
    """Weights are stored in fp16 and used in fp32."""
    for value in [i for i in g.graph.initializer if i.data_type == 1 and len(i.dims) > 1]:
        name = value.name
        half = numpy_helper.from_array(numpy_helper.to_array(value).astype(np.float16), f"half_{name}")
        g.graph.initializer.remove(value)
        g.graph.initializer.append(half)
        g.graph.node.append(helper.make_node("Cast", [f"half_{name}"], [name], to=1))


def opset(g: Graph, version: int) -> None:
    g.model = onnx.version_converter.convert_version(g.model, version)
    g.graph = g.model.graph


def ties(g: Graph) -> None:
    """The ranking is taken from scores that are off by less than a float's rounding."""
    noise = np.random.default_rng(0).uniform(-2e-6, 2e-6, 2048).astype(np.float32)
    node = g.node("attending/TopK")
    node.input[0] = g.add("Add", node.input[0], patches(g, lambda i: noise))


CLEAN: dict[str, Change] = {
    "as exported": lambda g: None,
    "identity before every output": lambda g: [g.wrap(o.name, lambda x: x) for o in g.graph.output],
    "identity after every input": lambda g: [g.wrap(i.name, lambda x: g.add("Identity", x)) for i in g.graph.input],
    "sums commuted": lambda g: replaced(g, "Add", lambda n: commuted(g, n)),
    "products commuted": lambda g: replaced(g, "Mul", lambda n: commuted(g, n)),
    "times one": lambda g: scale(g, g.out(FEATURES), 1),
    "plus zero": lambda g: g.wrap("relevance", lambda x: g.add("Add", x, ZERO)),
    "transposed twice": lambda g: g.wrap(
        g.out(PRE), lambda x: g.add("Transpose", g.add("Transpose", x, perm=[0, 2, 1]), perm=[0, 2, 1])
    ),
    "reshaped to itself": lambda g: g.wrap(g.out(PRE), lambda x: g.add("Reshape", x, g.add("Shape", x))),
    "weights stored transposed": lambda g: replaced(g, "MatMul", lambda n: transposed(g, n)),
    "nodes without names": lambda g: [n.ClearField("name") for n in g.graph.node],
    "a node that nobody reads": lambda g: g.add("Exp", "relevance"),
    "constants as nodes": constants,
    "documented": lambda g: [setattr(n, "doc_string", "seen") for n in g.graph.node],
    "norms in pieces": lambda g: replaced(g, "LayerNormalization", lambda n: plain_norm(g, n)),
    "gelu in pieces": lambda g: replaced(g, "Gelu", lambda n: plain_gelu(g, n)),
    "softmax in pieces": lambda g: replaced(g, "Softmax", lambda n: plain_softmax(g, n)),
    "sigmoid in pieces": lambda g: replaced(
        g, "Sigmoid", lambda n: g.add("Reciprocal", g.add("Add", g.add("Exp", g.add("Neg", n.input[0])), ONE))
    ),
    "matrix products summed in halves": lambda g: replaced(g, "MatMul", lambda n: in_halves(g, n, 0)),
    "matrix products put together": lambda g: replaced(g, "MatMul", lambda n: in_halves(g, n, 1)),
    "matrix products in double": lambda g: replaced(g, "MatMul", lambda n: cast(g, n, 11)),
    "differences as sums": lambda g: replaced(g, "Sub", lambda n: g.add("Add", n.input[0], g.add("Neg", n.input[1]))),
    "negation as a product": lambda g: replaced(g, "Neg", lambda n: g.add("Mul", n.input[0], -ONE)),
    "root as a power": lambda g: replaced(g, "Sqrt", lambda n: g.add("Pow", n.input[0], HALF)),
    "no clip": lambda g: replaced(g, "Clip", lambda n: n.input[0]),
    "scale on one side": lambda g: [
        g.change(f"{B}.attention/Mul", lambda w: w * w), g.change(f"{B}.attention/Mul_2", np.ones_like)
    ],
    "input's scale in the kernel": folded,
    "weights off by rounding": lambda g: [g.change(f"texture.blocks.{i}.mlp.0/MatMul", shaken(1e-7)) for i in range(6)],
    "ranking cut from a longer one": lambda g: ranks(g, K),
    "ties broken otherwise": ties,
    "opset 21": lambda g: opset(g, 21),
    "opset 22": lambda g: opset(g, 22),
    "opset 23": lambda g: opset(g, 23),
}
FINE: set[str] = set()
LEVELS = ort.GraphOptimizationLevel
SESSIONS: dict[str, dict[str, Any]] = {
    "unoptimised": {"graph_optimization_level": LEVELS.ORT_DISABLE_ALL},
    "basic": {"graph_optimization_level": LEVELS.ORT_ENABLE_BASIC},
    "extended": {"graph_optimization_level": LEVELS.ORT_ENABLE_EXTENDED},
    "one thread": {"intra_op_num_threads": 1},
    "three threads": {"intra_op_num_threads": 3},
    "parallel": {"execution_mode": ort.ExecutionMode.ORT_PARALLEL, "inter_op_num_threads": 2},
    "no arena": {"enable_cpu_mem_arena": False, "enable_mem_pattern": False},
    "deterministic": {"use_deterministic_compute": True},
    "batches of 2": {"batch": 2},
    "batches of 4": {"batch": 4},
    "batches of 5": {"batch": 5},
    "one batch": {"batch": IMAGES},
}
FEEDS: dict[str, Callable[[Array], Array]] = {
    "column-major": np.asfortranarray,
    "channels last": lambda a: np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 1, -1)), -1, 1),
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "backwards in memory": lambda a: a[..., ::-1].copy()[..., ::-1],
    "from double": lambda a: a.astype(np.float64).astype(np.float32),
}
HALVES: dict[str, Change] = {
    "weights stored in fp16": stored_in_half,
    "products in fp16": lambda g: replaced(g, "MatMul", lambda n: cast(g, n, 10)),
    "features rounded to fp16": lambda g: g.wrap(g.out(FEATURES), squeezed(g, 10)),
    "scores rounded to fp16": lambda g: g.wrap("relevance", squeezed(g, 10)),
}


@pytest.fixture(scope="module", autouse=True)
def _photograph(bench: Bench) -> None:
    PHOTOGRAPH[:] = [bench.asked["evaluation"]["images"][7]]


def changed(bench: Bench, change: Change) -> bytes:
    g = Graph(bench.exported)
    change(g)
    return g.finish()


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_rejected(bench: Bench, fault: str) -> None:
    verdict = judged(bench, changed(bench, FAULTS[fault]))
    assert verdict.status == "rejected"
    assert verdict.reasons


@pytest.mark.parametrize("fault", [f for f in FAULTS if f not in FINE])
@pytest.mark.parametrize("tolerance", [FP16, INT8], ids=["fp16", "int8"])
def test_gross_faults_are_rejected_at_lower_precision_too(bench: Bench, fault: str, tolerance: Tolerance) -> None:
    assert judged(bench, changed(bench, FAULTS[fault]), tolerance).status == "rejected"


@pytest.mark.parametrize("variant", CLEAN)
def test_no_clean_graph_is_rejected(bench: Bench, variant: str) -> None:
    verdict = judged(bench, changed(bench, CLEAN[variant]))
    assert verdict.status == "verified", verdict.reasons
    assert len(verdict.proved) == len(SHAPES)


@pytest.mark.parametrize("variant", SESSIONS)
def test_no_way_of_running_it_is_rejected(bench: Bench, variant: str) -> None:
    verdict = judged(bench, bench.exported.SerializeToString(), **SESSIONS[variant])
    assert verdict.status == "verified", verdict.reasons


@pytest.mark.parametrize("layout", FEEDS)
def test_no_layout_of_the_inputs_is_rejected(bench: Bench, layout: str) -> None:
    feed = {name: FEEDS[layout] for name in ("images", "queries")}
    verdict = judged(bench, bench.exported.SerializeToString(), feed=lambda i: {n: feed[n](a) for n, a in i.items()})
    assert verdict.status == "verified", verdict.reasons


@pytest.mark.parametrize("variant", HALVES)
def test_no_fp16_graph_is_rejected_by_its_own_limits(bench: Bench, variant: str) -> None:
    verdict = judged(bench, changed(bench, HALVES[variant]), FP16)
    assert verdict.status == "verified", verdict.reasons
