"""The fp32 graph and an artifact's, run side by side on the tensors between modules.

An artifact's graph that is cut at tensors: what reads one of them reads what is given instead.

    x -> encoder -> a -> head -> y         cut at a:   x -> encoder -> a        a/given -> head -> y

Each part then answers to the fp32 graph's own tensors, so that its error is its own, whatever stands before it. A part
is all that lies between two cuts: the nodes that a quantizer added need no module.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.model.onnx_check import rename
from edgekit.model.spec import Array
from edgekit.runtime import ort
from edgekit_targets.onnx.passes.graph import copied, set_nodes
from edgekit_targets.onnx.passes.groups import LINEAR

if TYPE_CHECKING:
    import onnx

RENAMED = ("{}", "{}_fp16", "{}_dequantized")
"""What a tensor may be called in the artifact; the first that is there in float counts."""
STORED = ("{}", "{}_quantized", "{}_int8")
"""What a weight may be called in the artifact."""
RANKING = {"TopK": 1, "ArgMax": 0, "ArgMin": 0, "NonMaxSuppression": 0, "NonZero": 0}
"""Operators that say which rows are taken, with the place of their indices among what they give."""
Row = Mapping[str, Array]


@dataclass
class Noise:
    """Sums of squares and of squared differences over images, by tensor.

    Where a tensor holds no floats ("i" of `kinds`): its size, and how many of its values differ.
    """

    signal: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    error: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    kinds: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, right: Array, other: Array) -> None:
        """Compare a tensor on one image; one of another shape is left out.

        Where the right value is not finite, as in masks, nothing is compared; where only the other is not, it is lost.
        """
        if right.shape != other.shape:
            return
        self.kinds[name] = "f" if right.dtype.kind == "f" else "i"
        if right.dtype.kind != "f":
            self.signal[name] += right.size
            self.error[name] += int((right != other).sum())
            return
        there = np.isfinite(right)
        x, y = right[there].astype(np.float64), other[there].astype(np.float64)
        y = np.where(np.isfinite(y), y, 0.0)
        self.signal[name] += float((x * x).sum())
        self.error[name] += float(((x - y) ** 2).sum())

    def largest(self, names: Iterable[str]) -> float | None:
        """Of the noisiest of some tensors; of the floats, where there are any; None where none was compared."""
        known = [name for name in names if self.signal.get(name, 0.0) > 0]
        floats = [name for name in known if self.kinds[name] == "f"]
        if floats:
            return max(math.sqrt(self.error[name] / self.signal[name]) for name in floats)
        return max((self.error[name] / self.signal[name] for name in known), default=None)


@dataclass(frozen=True)
class _Tensor:
    """A tensor that both graphs have: its name in each, and what its channels were divided by in the artifact."""

    name: str
    called: str
    factor: Array | None

    def given(self, values: Array) -> Array:
        """The fp32 graph's values as the artifact has them."""
        return values if self.factor is None else values / self.factor

    def read(self, values: Array) -> Array:
        """The artifact's values as the fp32 graph has them."""
        return values if self.factor is None else values * self.factor


class Pair:
    """Both graphs, ready to run, with the tensors that both have.

    `right` is the fp32 graph; `whole` the artifact's, which is given the fp32 graph's rankings alone; `apart` the
    artifact's, cut at each of the tensors.
    """

    def __init__(self, right: onnx.ModelProto, other: onnx.ModelProto, names: Sequence[str], row: Row) -> None:
        other = layouts_in_float(other)
        self._constants = (_constants(right, names), _constants(other, names))
        produced, there = ({name for node in graph.graph.node for name in node.output} for graph in (right, other))
        self.right = ort.tapped(right, [name for name in names if name in produced])
        named = {c.format(name) for name in names for c in RENAMED}
        expected = {**self._constants[0], **self.right.run(row)}
        actual = {**self._constants[1], **ort.tapped(other, sorted(named & there)).run(row)}
        factors = smoothed(right, other)
        self.tensors: list[_Tensor] = []
        for name in names:
            called = (c.format(name) for c in RENAMED if c.format(name) in actual)
            alike = (c for c in called if (actual[c].dtype.kind == "f") == (expected[name].dtype.kind == "f"))
            if (first := next(alike, None)) is not None:
                self.tensors.append(_Tensor(name, first, factors.get(name)))
        every = {one.called: actual[one.called] for one in self.tensors}
        ranked = {one.called: actual[one.called] for one in self.tensors if one.name in rankings(right)}
        tapped = [called for called in every if called in there]
        self.whole, self.apart = cut(other, ranked, tapped), cut(other, every, tapped)

    def compare(self, rows: Iterable[Row]) -> tuple[Noise, Noise]:
        """Noise in the whole artifact, and with every module given the fp32 graph's tensors."""
        whole, apart = Noise(), Noise()
        for row in rows:
            expected = {**self._constants[0], **self.right.run(row)}
            inputs = {one.called: one.given(expected[one.name]) for one in self.tensors}
            for noise, graph in ((whole, self.whole), (apart, self.apart)):
                got = {**self._constants[1], **graph.run(row, inputs)}
                for one in self.tensors:
                    noise.add(one.name, expected[one.name], one.read(got[one.called]))
        return whole, apart


def rankings(graph: onnx.ModelProto) -> list[str]:
    """What says which rows are taken."""
    return [node.output[RANKING[node.op_type]] for node in graph.graph.node if node.op_type in RANKING]


def _constants(graph: onnx.ModelProto, names: Iterable[str]) -> dict[str, Array]:
    """The constants among some tensors."""
    from onnx import numpy_helper

    named = {c.format(name) for name in names for c in RENAMED}
    return {i.name: numpy_helper.to_array(i) for i in graph.graph.initializer if i.name in named}


def smoothed(right: onnx.ModelProto, other: onnx.ModelProto) -> dict[str, Array]:
    """What SmoothQuant divided each normalisation's output, and its reshaped twin, by, [K].

    A normalisation's scale / s and shift / s come with s W in the layers that read it
    (edgekit_targets/onnx/passes/smoothquant.py). The weights are rounded: of the quotients of scales and of shifts, the
    one is taken that explains the weights better. A scale that differs while the weights do not is an error of the
    normalisation.
    """
    one, two = ({i.name: i for i in graph.graph.initializer} for graph in (right, other))
    factors: dict[str, Array] = {}
    for node in right.graph.node:
        if node.op_type == "LayerNormalization":
            constants = [(_values(one, name), _values(two, name)) for name in node.input[1:]]
            quotients = [a / b for a, b in constants if a is not None and b is not None and a.all() and b.all()]
            weights = _weights(right, node.output[0], one, two)
            if not quotients or weights is None:
                continue
            before, after = weights
            distances = [float(((after - before * factor[:, None]) ** 2).sum()) for factor in quotients]
            if min(distances) < float(((after - before) ** 2).sum()):
                factors[node.output[0]] = quotients[distances.index(min(distances))]
        elif node.op_type == "Reshape" and node.input[0] in factors:
            factors[node.output[0]] = factors[node.input[0]]
    return factors


def _weights(
    right: onnx.ModelProto, name: str, one: Mapping[str, onnx.TensorProto], two: Mapping[str, onnx.TensorProto]
) -> tuple[Array, Array] | None:
    """The weights [K, N] of all linear layers that read a tensor, in the fp32 graph and in the artifact."""
    tensors, pairs = {name}, []
    for node in right.graph.node:
        if node.op_type == "Reshape" and node.input[0] in tensors:
            tensors.add(node.output[0])
        elif node.op_type in LINEAR and node.input[0] in tensors:
            before, after = _values(one, node.input[1]), _values(two, node.input[1])
            if before is not None and after is not None and before.shape == after.shape and before.ndim == 2:
                scales = _values(two, f"{node.input[0]}_channel_scales")  # a Mul of its own undoes these
                pairs.append((before, after if scales is None else after * scales[:, None]))
    if not pairs:
        return None
    before, after = (np.concatenate(each, axis=1) for each in zip(*pairs, strict=True))
    return before, after


def _values(weights: Mapping[str, onnx.TensorProto], name: str) -> Array | None:
    """A constant in float64, whatever it is stored in; in INT8 it has a scale for each column, or for each row."""
    from onnx import numpy_helper

    stored = next((weights[c.format(name)] for c in STORED if c.format(name) in weights), None)
    if stored is None:
        return None
    values = numpy_helper.to_array(stored).astype(np.float64)
    scale = weights.get(f"{name}_scale") if stored.name != name else None
    if scale is None:
        return values
    scales = numpy_helper.to_array(scale).astype(np.float64)
    if values.ndim == 3 and values.shape[1] == 1:  # as weight_only.py stores those with a scale for each row
        return values[:, 0, :] * scales[:, None]
    return values * scales if values.ndim == 2 else None


GIVEN = "{}/given"
LAYOUT = ("Reshape", "Transpose")
"""What INT8 moves as bytes."""


@dataclass(frozen=True)
class Cut:
    """A graph, cut, in ONNX Runtime, and the type of what is given in place of each tensor, by the tensor's name."""

    runtime: ort.OrtRuntime
    given: Mapping[str, np.dtype[Any]]

    def run(self, row: Mapping[str, Array], tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch, given tensors by name; larger values than a type holds become its largest."""
        fed = {GIVEN.format(name): _cast(tensors[name], kind) for name, kind in self.given.items()}
        return self.runtime.run({**row, **fed})


def cut(graph: onnx.ModelProto, at: Mapping[str, Array], tapped: Iterable[str]) -> Cut:
    """Cut a graph at some tensors, given with what they hold on some input; the given graph is not changed.

    It also answers with the tensors of `tapped`, which nodes make, beside the graph's outputs.
    """
    copy = copied(graph)
    names = {name: GIVEN.format(name) for name in at}
    for node in copy.graph.node:
        rename(node, names)
    copy.graph.input.extend(_declared(GIVEN.format(name), values) for name, values in at.items())
    return Cut(ort.tapped(copy, list(tapped)), {name: values.dtype for name, values in at.items()})


def layouts_in_float(graph: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph with Reshape and Transpose before rounding, not after it; the given one is not changed.

    `x -> QuantizeLinear -> Reshape -> DequantizeLinear` becomes `x -> Reshape -> QuantizeLinear -> DequantizeLinear`,
    which computes the same, and what Reshape gives is the tensor of that name in the fp32 graph.
    """
    from onnx import helper

    copy = copied(graph)
    rounded: dict[str, onnx.NodeProto] = {}
    added: set[str] = set()
    source: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []
    for node in copy.graph.node:
        first = node.input[0] if node.input else ""
        if node.op_type == "QuantizeLinear":
            rounded[node.output[0]], source[node.output[0]] = node, first
        elif node.op_type in LAYOUT and first in rounded:
            node.input[0] = source[first]
            rounded[node.output[0]], source[node.output[0]] = rounded[first], node.output[0]
        elif node.op_type == "DequantizeLinear" and source.get(first) == first:
            name = f"{first}/rounded"
            if name not in added:
                added.add(name)
                nodes.append(helper.make_node("QuantizeLinear", [first, *rounded[first].input[1:]], [name], name=name))
            node.input[0] = name
        nodes.append(node)
    set_nodes(copy.graph, nodes)
    return copy


def _declared(name: str, values: Array) -> onnx.ValueInfoProto:
    """An input of any sizes; a list of integers keeps its length, since Resize asks for that of a shape."""
    from onnx import helper

    listed = values.ndim == 1 and values.dtype.kind == "i"
    shape = [len(values)] if listed else [None] * values.ndim
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), shape)


def _cast(values: Array, kind: np.dtype[Any]) -> Array:
    if kind.kind == "f" and values.dtype.itemsize > kind.itemsize:
        most = float(np.finfo(kind.name).max)
        values = np.clip(values, -most, most)
    return values.astype(kind)
