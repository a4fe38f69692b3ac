"""Faults that are made from a graph by rule: of its weights, constants, attributes, operators and outputs.

Every function yields all faults of its class that a graph allows, in the order of the graph; `case.py` draws from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.model.spec import Array
from tests.core.judge.seeded.graph import Change, Graph
from tools.exam.damage import DAMAGES, NUMBERS, VECTORS
from tools.exam.settings import EXCHANGED, SETTINGS, no_settings

LEAST_WEIGHTS = 16
"""Values. A smaller stored tensor is a constant, not a weight."""
FLOATS = ("float32", "float16")


@dataclass(frozen=True)
class When:
    """Where a fault with a condition shows; the defaults are everywhere.

    Attributes:
        sizes: Height and width of the pictures.
        rows: Rows of a run.
        first: The first of these rows that is wrong.
        brightness: Lowest and highest mean of the first input, as a share of its range.
        above: Only rows whose largest value of the first output is above this.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    rows: int = 1
    first: int = 0
    brightness: tuple[float, float] | None = None
    above: float | None = None


@dataclass(frozen=True)
class Fault:
    """A change that makes a graph another one.

    Attributes:
        kind: Its class.
        name: Unique in its graph.
        change: Makes it.
        when: Where it shows.
    """

    kind: str
    name: str
    change: Change
    when: When = When()


def weights(graph: Graph) -> Iterator[Fault]:
    """Every kind of damage to every stored matrix or kernel."""
    for name, value in graph.stored().items():
        array = numpy_helper.to_array(value)
        if array.ndim > 1 and array.size >= LEAST_WEIGHTS and array.dtype.name in (*FLOATS, "int8", "uint8"):
            for word, damage in DAMAGES.items():
                yield Fault("weights", f"{name} {word}", stored(name, damage))


def constants(graph: Graph) -> Iterator[Fault]:
    """Biases, norms, scales and single numbers."""
    for name, value in graph.stored().items():
        array = numpy_helper.to_array(value)
        if array.dtype.name in FLOATS and array.ndim <= 1:
            for word, damage in (NUMBERS if array.size == 1 else VECTORS).items():
                yield Fault("constants", f"{name} {word}", stored(name, damage))


def attributes(graph: Graph) -> Iterator[Fault]:
    """Other values of what a node is told."""
    for node in graph.graph.node:
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        for word, values in SETTINGS.get(node.op_type, no_settings)(given):
            yield Fault("attributes", f"{node.name} {word}", becoming(node.name, node.op_type, {**given, **values}))


def operators(graph: Graph) -> Iterator[Fault]:
    """An operator for another one that takes the same inputs."""
    for node in graph.graph.node:
        for op in EXCHANGED.get(node.op_type, ()):
            known = onnx.defs.get_schema(op, 20).attributes
            given = {a.name: helper.get_attribute_value(a) for a in node.attribute if a.name in known}
            yield Fault("operators", f"{node.name} to {op}", becoming(node.name, op, given))


def outputs(graph: Graph) -> Iterator[Fault]:
    """Outputs in another order: along an axis, between rows, between outputs of one shape."""
    values = list(graph.graph.output)
    for value in values:
        shape = value.type.tensor_type.shape.dim
        for axis in range(1, len(shape)):
            yield Fault("outputs", f"{value.name} reversed along {axis}", around(value.name, backwards(axis)))
            yield Fault("outputs", f"{value.name} rolled along {axis}", around(value.name, rolled(axis)))
        yield Fault("outputs", f"{value.name} rows reversed", around(value.name, backwards(0)), When(rows=4))
        yield Fault("outputs", f"{value.name} rows rolled", around(value.name, rolled(0)), When(rows=3))
        yield Fault("outputs", f"{value.name} of the first row", around(value.name, first_row), When(rows=2))
    for i, one in enumerate(values):
        for other in values[i + 1 :]:
            if one.type.tensor_type == other.type.tensor_type:
                yield Fault("outputs", f"{one.name} and {other.name} exchanged", exchanged(one.name, other.name))


def stored(name: str, damage: Callable[[Array], Array]) -> Change:
    """Give a stored tensor other values of its own type."""

    def change(g: Graph) -> None:
        value = g.stored()[name]
        old = numpy_helper.to_array(value)
        new = np.asarray(damage(old.astype(np.float64) if old.dtype.kind == "f" else old.astype(np.int64)))
        if old.dtype.kind in "iu":
            new = np.clip(np.round(new), np.iinfo(old.dtype).min, np.iinfo(old.dtype).max)
        value.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(new.reshape(old.shape).astype(old.dtype)), name))

    return change


def becoming(name: str, op: str, values: Mapping[str, object]) -> Change:
    """Give a node another operator and all of its attributes."""

    def change(g: Graph) -> None:
        node = g.node(name)
        node.op_type = op
        del node.attribute[:]
        node.attribute.extend(helper.make_attribute(key, value) for key, value in values.items())

    return change


def around(output: str, new: Callable[[Graph, str], str]) -> Change:
    """Change what leaves the graph, not what is computed from it inside."""

    def change(g: Graph) -> None:
        for node in g.graph.node:
            for names in (node.input, node.output):
                names[:] = [f"inner_{output}" if used == output else used for used in names]
        g.graph.node.append(helper.make_node("Identity", [new(g, f"inner_{output}")], [output]))

    return change


def backwards(axis: int) -> Callable[[Graph, str], str]:
    order = [np.array([a]) for a in (-1, -9999, axis, -1)]
    return lambda g, x: g.add("Slice", x, *order)


def rolled(axis: int) -> Callable[[Graph, str], str]:
    ends = [(np.array([1]), np.array([9999])), (np.array([0]), np.array([1]))]
    return lambda g, x: g.add("Concat", *(g.add("Slice", x, a, b, np.array([axis])) for a, b in ends), axis=axis)


def first_row(g: Graph, x: str) -> str:
    return g.add("Expand", g.add("Slice", x, np.array([0]), np.array([1]), np.array([0])), g.add("Shape", x))


def exchanged(one: str, other: str) -> Change:
    def change(g: Graph) -> None:
        taken = {one: other, other: one}
        for node in g.graph.node:
            node.input[:] = [taken.get(name, name) for name in node.input]
            node.output[:] = [taken.get(name, name) for name in node.output]

    return change
