"""Changes of a graph, from which faults and variants are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from edgekit.model.spec import Array
from tests.core.judge.seeded.graph import Change, Graph, Weight

FEATURES, B = "texture.norm/LayerNormalization", "texture.blocks.2"
PRE, GELU = f"{B}.mlp.0/Add", f"{B}.mlp.1/Gelu"
ONE, HALF = np.float32(1), np.float32(0.5)
TYPES = ("FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16")
FLOAT, FLOAT16, DOUBLE, BFLOAT16 = (onnx.TensorProto.DataType.Value(name) for name in TYPES)
K = list(range(32))


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


def borders_of_zeros(g: Graph) -> None:
    """What salience puts around its map is zero, not the map's own border."""
    for number in ("", "_2", "_3", "_4"):
        times(g.out(f"salience/Slice{number}"), 0.0)(g)


def replaced(tensor: str, by: Callable[[Graph], str]) -> Change:
    return lambda g: g.wrap(g.out(tensor) if "/" in tensor else tensor, lambda x: by(g))


def weight(name: str, new: Weight) -> Change:
    return lambda g: g.change(name, new)


def operator(name: str, op: str = "", **attributes: Any) -> Change:
    return lambda g: g.become(name, op, **attributes)


def patches(which: Callable[[Array], Array]) -> Callable[[Graph], str]:
    """[N] for any number of patches, of which the default image has 14 in a row."""
    table = which(np.arange(2048))
    return lambda g: g.add(
        "Slice", table, np.array([0]), g.add("Shape", g.out(FEATURES), start=1, end=2), np.array([0])
    )


def first_row(g: Graph, x: str) -> str:
    """A batch of its own first row."""
    return g.add("Expand", g.add("Slice", x, np.array([0]), np.array([1]), np.array([0])), g.add("Shape", x))


def ranks(order: Sequence[int]) -> Change:
    """The ranking is made of these places of a longer one."""

    def change(g: Graph) -> None:
        g.change("attending/TopK", lambda k: np.array([40]))
        g.wrap("indices", lambda x: g.add("Gather", x, np.array(order), axis=1))

    return change


def both(*changes: Change) -> Change:
    return lambda g: [change(g) for change in changes]


def tanh_gelu(g: Graph) -> None:
    g.every("Gelu", lambda node: g.add("Gelu", node.input[0], approximate="tanh"))


def every(op: str, new: Callable[[Graph, onnx.NodeProto], str]) -> Change:
    return lambda g: g.every(op, lambda node: new(g, node))
