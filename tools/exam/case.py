"""The cases of one exported graph: a seeded draw of its faults, class by class, and all of its clean variants."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from edgekit.model.spec import Array, ModelSpec
from tests.core.judge.seeded.graph import Graph
from tools.exam.clean import Clean, changed, variants
from tools.exam.conditions import QUANTILES, conditional
from tools.exam.effect import DRAWN, FRESH, Answers, Effect, asked, effect_of, fresh
from tools.exam.faults import Fault, When, attributes, constants, operators, outputs, weights

DRAW_SEED = 2026
SHARE = {"weights": 8, "constants": 4, "attributes": 4, "operators": 5, "outputs": 3, "conditions": 8}
"""Faults of each class that are drawn from one graph, at most."""
PRECISIONS = {"onnx": "fp32", "onnx-fp16": "fp16", "onnx-int8-dynamic": "int8", "onnx-int8-static": "int8"}
"""Target -> row of limits."""
CLEAN = "clean"
NEAR, MORE = 2.0, 10
"""An effect within this factor of its limit, either way, is measured again on so many times as many fresh inputs."""


@dataclass(frozen=True)
class Case:
    """One file that the judge is shown.

    Attributes:
        model: One of `models.MODELS`.
        target: What the graph was exported to.
        kind: Class of the fault, or CLEAN.
        name: Unique among the cases of a model and target.
        graph: The file.
        effect: What the fault does to the task; None of a clean variant.
        threads: Of ONNX Runtime while it is judged.
    """

    model: str
    target: str
    kind: str
    name: str
    graph: bytes
    effect: Effect | None = None
    threads: int = 1

    @property
    def title(self) -> str:
        return f"{self.model} {self.target}: {self.name}"


class Paper:
    """The cases of one exported graph.

    Args:
        spec: The model.
        target: What it was exported to.
        exported: The unbroken graph.
    """

    def __init__(self, spec: ModelSpec, target: str, exported: onnx.ModelProto) -> None:
        self.spec, self.target, self.exported = spec, target, exported
        self.sound = bytes(exported.SerializeToString())
        self._answers: dict[str, Answers] = {}

    def cases(self) -> Iterator[Case]:
        """All cases; the same for the same graph."""
        yield from map(self.fault_case, self.drawn())
        yield from map(self.clean_case, self.clean())

    def clean(self) -> Iterable[Clean]:
        """The clean variants."""
        return variants(self.exported, PRECISIONS[self.target])

    def drawn(self) -> Iterator[Fault]:
        """Faults that change the file and leave a graph that answers at default sizes, class by class."""
        pools = itertools.groupby(self.pool(), lambda fault: fault.kind)
        for number, (kind, pool) in enumerate(pools):
            found = list(pool)
            draw = np.random.Generator(np.random.PCG64([DRAW_SEED, number, len(self.sound)]))
            usable = (found[i] for i in draw.permutation(len(found)) if self._answers_once(found[i]))
            yield from itertools.islice(usable, SHARE[kind])

    def clean_case(self, clean: Clean) -> Case:
        """A clean variant's case."""
        graph = clean.make(self.exported)
        return Case(self.spec.name, self.target, CLEAN, clean.name, graph, threads=clean.threads)

    def fault_case(self, fault: Fault) -> Case:
        """A fault's case with its measured effect."""
        graph = self._graph(fault)
        return Case(self.spec.name, self.target, fault.kind, fault.name, graph, self.effect(graph, fault.when))

    def effect(self, graph: bytes, when: When, precision: str = "") -> Effect:
        """What a broken graph does to the task where its condition holds, beside limits of a precision."""
        row = precision or PRECISIONS[self.target]
        effect = self._effect(graph, when, FRESH, row)
        return self._effect(graph, when, MORE * FRESH, row) if 1 / NEAR <= effect.times <= NEAR else effect

    def pool(self) -> Iterator[Fault]:
        """All faults that the graph allows, class by class."""
        graph = Graph(self.exported)
        for made in (weights, constants, attributes, operators, outputs):
            yield from made(graph)
        ranks = [len(o.type.tensor_type.shape.dim) for o in self.exported.graph.output]
        yield from conditional(self.spec, ranks, self.quantiles())

    def _effect(self, graph: bytes, when: When, count: int, row: str) -> Effect:
        runs, sound = self._sound(when, count)
        return effect_of(self.spec, row, sound, asked(graph, runs), when.above)

    def _graph(self, fault: Fault) -> bytes:
        return changed(fault.change)(self.exported)

    def _answers_once(self, fault: Fault) -> bool:
        """Whether the graph is another one that ONNX Runtime loads and runs: what does not is no exam."""
        try:
            graph = self._graph(fault)
            (answer,) = asked(graph, self._one())
        except Exception:  # ONNX and ONNX Runtime refuse a graph in many ways
            return False
        return answer is not None and graph != changed(lambda g: None)(self.exported)

    def _one(self) -> Sequence[dict[str, Array]]:
        return fresh(self.spec, When(), 1)

    def quantiles(self) -> list[float]:
        """Largest value of the first output at each of QUANTILES, over fresh inputs."""
        _, sound = self._sound(When(), FRESH)
        first = self.spec.outputs[0].name
        largest = [float(answer[first].max()) for answer in sound if answer is not None]
        return [float(np.quantile(largest, share)) for share in QUANTILES]

    def _sound(self, when: When, count: int) -> tuple[list[dict[str, Array]], Answers]:
        """So many fresh inputs for a condition, and the unbroken graph's answers."""
        runs = fresh(self.spec, when, count * (DRAWN if when.above is not None else 1))
        key = repr((sorted(when.sizes.items()), when.rows, when.brightness, when.above is not None, count))
        if key not in self._answers:
            self._answers[key] = asked(self.sound, runs)
        return runs, self._answers[key]
