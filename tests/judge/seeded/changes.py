"""Changes of a graph, from which faults and variants are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from edgekit.model.spec import Array
from tests.judge.seeded.bench import Bench
from tests.judge.seeded.graph import Change, Graph, Weight

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


def reads(name: str, place: int, other: str) -> Change:
    return lambda g: g.node(name).input.__setitem__(place, g.out(other))


def both(*changes: Change) -> Change:
    return lambda g: [change(g) for change in changes]


def constant_over_batch(tensor: str, reduce: Callable[[Graph, str], str]) -> Change:
    return lambda g: g.wrap(tensor, lambda x: g.add("Add", g.add("Mul", x, ZERO), reduce(g, x)))


def tanh_gelu(g: Graph) -> None:
    g.every("Gelu", lambda node: g.add("Gelu", node.input[0], approximate="tanh"))


def every(op: str, new: Callable[[Graph, onnx.NodeProto], str]) -> Change:
    return lambda g: g.every(op, lambda node: new(g, node))
