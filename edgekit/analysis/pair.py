"""The fp32 graph and an artifact's, run side by side on the tensors between modules."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from edgekit.analysis.cut import cut, layouts_in_float
from edgekit.analysis.smoothing import smoothed
from edgekit.model.spec import Array
from edgekit.runtime import ort

if TYPE_CHECKING:
    import onnx

RENAMED = ("{}", "{}_fp16", "{}_dequantized")
"""What a tensor may be called in the artifact; the first that is there in float counts."""
RANKING = {"TopK": 1, "ArgMax": 0, "ArgMin": 0, "NonMaxSuppression": 0, "NonZero": 0}
"""Operators that say which rows are taken, with the place of their indices among what they give."""
Row = Mapping[str, Array]


@dataclass
class Noise:
    """Sums over images, by tensor.

    Attributes:
        signal: Of squares.
        error: Of squared differences.
        kinds: Of the tensors: "f" for floats; of others the share of values that differ counts.
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
    """A tensor that both graphs have.

    Attributes:
        name: In the fp32 graph.
        called: In the artifact.
        factor: What its channels were divided by there.
    """

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
    """Both graphs, ready to run.

    Attributes:
        tensors: Those that both have.
        right: The fp32 graph.
        whole: The artifact's, which is given the fp32 graph's rankings alone.
        apart: The artifact's, cut at each of the tensors.
    """

    def __init__(self, right: onnx.ModelProto, other: onnx.ModelProto, names: Sequence[str], row: Row) -> None:
        other = layouts_in_float(other)
        self._constants = (_constants(right, names), _constants(other, names))
        made, there = ({name for node in graph.graph.node for name in node.output} for graph in (right, other))
        self.right = ort.tapped(right, [name for name in names if name in made])
        named = {c.format(name) for name in names for c in RENAMED}
        wanted = {**self._constants[0], **self.right.run(row)}
        found = {**self._constants[1], **ort.tapped(other, sorted(named & there)).run(row)}
        factors = smoothed(right, other)
        self.tensors: list[_Tensor] = []
        for name in names:
            called = (c.format(name) for c in RENAMED if c.format(name) in found)
            alike = (c for c in called if (found[c].dtype.kind == "f") == (wanted[name].dtype.kind == "f"))
            if (first := next(alike, None)) is not None:
                self.tensors.append(_Tensor(name, first, factors.get(name)))
        every = {one.called: found[one.called] for one in self.tensors}
        ranked = {one.called: found[one.called] for one in self.tensors if one.name in rankings(right)}
        tapped = [called for called in every if called in there]
        self.whole, self.apart = cut(other, ranked, tapped), cut(other, every, tapped)

    def compare(self, rows: Iterable[Row]) -> tuple[Noise, Noise]:
        """Noise in the whole artifact, and with every module given the fp32 graph's tensors."""
        whole, apart = Noise(), Noise()
        for row in rows:
            wanted = {**self._constants[0], **self.right.run(row)}
            given = {one.called: one.given(wanted[one.name]) for one in self.tensors}
            for noise, graph in ((whole, self.whole), (apart, self.apart)):
                got = {**self._constants[1], **graph.run(row, given)}
                for one in self.tensors:
                    noise.add(one.name, wanted[one.name], one.read(got[one.called]))
        return whole, apart


def rankings(graph: onnx.ModelProto) -> list[str]:
    """What says which rows are taken."""
    return [node.output[RANKING[node.op_type]] for node in graph.graph.node if node.op_type in RANKING]


def _constants(graph: onnx.ModelProto, names: Iterable[str]) -> dict[str, Array]:
    """The constants among some tensors."""
    from onnx import numpy_helper

    named = {c.format(name) for name in names for c in RENAMED}
    return {i.name: numpy_helper.to_array(i) for i in graph.graph.initializer if i.name in named}
