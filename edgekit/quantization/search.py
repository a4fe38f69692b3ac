"""The search for a recipe: ranges that cut nothing, the least float work that passes the gate, then the least noise.

First every group of layers is quantized alone: its signal-to-noise ratio says how sensitive it is. Then ways of
making ranges are tried on all groups at once. From MinMax on, the most sensitive groups go back to float, one by
one. Work in float, not a clock, orders the candidates, so that the same search gives the same recipe; the clock
only fills a column of the table, and the judge says where INT8 is slower.
"""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgekit.errors import ExportError
from edgekit.judge import latency
from edgekit.judge.tolerance import INT8
from edgekit.model.shapes import between
from edgekit.model.spec import ModelSpec
from edgekit.onnxgraph import qdq, saturation
from edgekit.onnxgraph.groups import groups, nodes_of
from edgekit.onnxgraph.quant_config import METHODS, Activation, Method, ObservedRange, QuantConfig
from edgekit.onnxgraph.work import multiplications
from edgekit.quantization import observers
from edgekit.quantization.beside import at_shapes, beside
from edgekit.quantization.calibration import Samples
from edgekit.quantization.evaluator import Evaluator, untasked
from edgekit.quantization.retreat import given_back, least_broken
from edgekit.quantization.trials import Trial, TrialLog, display_name, write_table
from edgekit.storage.files import digest_text
from edgekit.storage.packages import package_digest

if TYPE_CHECKING:
    import onnx

Depth = Literal["quick", "full"]
Tell = Callable[[float, str], None]

HELD_BACK = {"quick": 32, "full": 100}
"""Samples that judge, the last of the set."""
SHOWN = {"quick": 96, "full": 200}
"""Samples that make the ranges, the first of the set."""
NEEDED = {depth: HELD_BACK[depth] + SHOWN[depth] for depth in ("quick", "full")}
"""Samples in all: a quick search does not wait for a whole calibration set to be drawn."""
TIMED_SECONDS, TIMED_RUNS = 0.4, 40
"""Of each candidate that is timed, at least: the table shows a median, no verdict hangs on it."""
BETWEEN_ROWS = 8
"""Real inputs at each size between the grid's: more than the judge asks there, since it asks others."""
FURTHER = 4
"""Groups that go back to float at most, one by one, where no recipe holds between the sizes of the grid."""
TIMED = 4
"""Candidates that are timed, the chosen one among them."""


@dataclass(frozen=True)
class Found:
    """What a search ended with.

    Attributes:
        graph: The quantized graph of the chosen row.
        chosen: The row; the best there was, if none passed.
        best: The row of rank 0.
    """

    graph: onnx.ModelProto
    chosen: Trial
    best: Trial


def divided(samples: Samples, depth: Depth) -> tuple[Samples, Samples]:
    """The samples that make the ranges, and those that are held back to judge: a third of few."""
    count = len(samples.names)
    held = min(HELD_BACK[depth], count // 3)
    return samples.part(0, min(SHOWN[depth], count - held)), samples.part(count - held, count)


def search(
    spec: ModelSpec,
    graph: onnx.ModelProto,
    samples: Samples,
    depth: Depth,
    folder: Path,
    tell: Tell,
    methods: tuple[Method, ...] = METHODS,
    reduce_range: bool = False,
    floats: tuple[str, ...] = (),
    truth: onnx.ModelProto | None = None,
    dynamic: tuple[str, ...] = (),
    rank: int = 0,
) -> Found:
    """Find a recipe for a graph.

    Args:
        spec: The model.
        graph: In fp32.
        samples: For calibration; the last are held back to judge.
        depth: How much is tried.
        folder: Where rows are kept, so that an interrupted search goes on.
        tell: Told the share done and what is tried.
        methods: The ways of making ranges to try.
        reduce_range: Whether only 7-bit weights are tried.
        floats: Groups that stay in float arithmetic in every recipe.
        truth: What recipes are compared with; default: the graph.
        dynamic: The axes whose sizes the graph leaves open.
        rank: How many of the recipes that passed are passed over, the best first.

    Raises:
        ExportError: If not so many recipes passed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="edgekit-") as place:
        right = graph if truth is None else truth
        given = (spec, graph, right, samples, depth, folder, tell, methods, reduce_range, floats, dynamic)
        return _Search(*given, Path(place)).run(rank)


@dataclass
class _Search:
    spec: ModelSpec
    graph: onnx.ModelProto
    truth: onnx.ModelProto
    samples: Samples
    depth: Depth
    folder: Path
    tell: Tell
    methods: tuple[Method, ...]
    reduce_range: bool
    floats: tuple[str, ...]
    dynamic: tuple[str, ...]
    place: Path
    parts: dict[str, tuple[str, ...]] = field(init=False)
    held_back: Samples = field(init=False)
    observed: dict[str, ObservedRange] = field(init=False)
    evaluator: Evaluator = field(init=False)
    tried: TrialLog = field(init=False)
    work: dict[str, int] = field(init=False)
    expected: int = 1

    def __post_init__(self) -> None:
        shown, self.held_back = divided(self.samples, self.depth)
        self.parts = groups(self.graph)
        self.tell(0.0, f"looking at activations on {len(shown.names)} samples")
        self.observed = observers.observe(
            self.graph,
            qdq.activations(self.graph),
            shown,
            self.methods,
            lambda done: self.tell(0.2 * done, f"looking at activations on {len(shown.names)} samples"),
        )
        self.work = multiplications(self.graph, nodes_of(self.parts, ()), self.observed)
        asked = beside(self.spec, self.samples, self.dynamic)
        self.evaluator = Evaluator(self.spec, self.truth, self.held_back, self.place, asked)
        self.tried = TrialLog(self.folder, self._context())

    def run(self, rank: int) -> Found:
        """Try, choose, time, and write the table."""
        plain = QuantConfig(method=self.methods[0], reduce_range=self.reduce_range)
        kept = [
            replace(way.keeping(*self.floats), reduce_range=self.reduce_range or way.reduce_range)
            for way in self._ways()
        ]
        ways, open_parts = list(dict.fromkeys(kept)), [part for part in self.parts if part not in self.floats]
        self.expected = len(open_parts) + len(ways) + 2
        alone = {g: self._judged(plain.keeping(*(o for o in self.parts if o != g))).quality for g in open_parts}
        order = sorted(alone, key=lambda group: (alone[group].passed, alone[group].snr_db))
        rows = [self._judged(way) for way in ways]
        rows += self._retreat(max(rows, key=lambda row: (_uncut(row), _merit(row))).recipe, order)
        if self.depth == "full":
            rows += [
                self._judged(r.recipe.keeping(*self.floats, g))
                for r in sorted(rows, key=_merit)[-3:]
                for g in order[:3]
            ]
        ranked = sorted({row.recipe.key: row for row in rows}.values(), key=_merit, reverse=True)
        passed = [row.recipe.key for row in ranked if row.quality.passed]
        if rank and rank >= len(passed):
            raise ExportError(f"rank {rank} is none of the {len(passed)} recipes that passed: ranks begin with 0")
        chosen = self._held_between(ranked[rank:], order)
        write_table(self.folder, self.tried.rows, chosen, self._times(chosen, rows), self.parts, passed)
        return Found(self._made(chosen.recipe), chosen, ranked[0])

    def _ways(self) -> Iterator[QuantConfig]:
        """Recipes with every group in INT8; without smoothing, which the graph brings with it (conditioning.py)."""
        yield from (QuantConfig(method=method) for method in self.methods)
        if self.depth == "full":
            kinds: tuple[tuple[Activation, bool], ...] = (("uint8", True), ("int8", True), ("uint8", False))
            yield from (
                QuantConfig(method=method, activation=activation, per_channel=per_channel)
                for method, (activation, per_channel) in itertools.product(self.methods, kinds)
            )
        yield from (QuantConfig(method=method, reduce_range=True) for method in self.methods)

    def _retreat(self, way: QuantConfig, order: list[str]) -> list[Trial]:
        """Give the most sensitive groups back to float until the gate holds; one of them where it held before."""

        def judged(floats: tuple[str, ...]) -> Trial:
            return self._judged(way.keeping(*self.floats, *floats))

        return given_back(order, judged, lambda row: row.quality.passed)

    def _held_between(self, ranked: Sequence[Trial], order: list[str]) -> Trial:
        """The first that passed and holds between the sizes of the grid as well; where none does, the nearest to that.

        Asked of the best alone, since it costs as much as all else that a recipe is asked, and held to the gate's own
        limits: what the judge would reject is passed over, and nothing else.
        """
        passed = [row for row in ranked if row.quality.passed]
        asked = at_shapes(self.spec, self.samples, self.dynamic, between(self.spec.axes), BETWEEN_ROWS)
        if not passed or not asked:
            return ranked[0]
        self.tell(0.9, "asking the best between the sizes of the grid")
        given = (self.spec, self.truth, self.held_back, self.place)
        halves = [Evaluator(*given, asked[half::2], tolerance=untasked(INT8)) for half in (0, 1)]  # one may be enough

        def broken(half: Evaluator, row: Trial) -> int:
            quality = half.judge(self._made(row.recipe))
            return 0 if quality.passed else len(quality.reasons)

        return least_broken(self._candidates(passed, order), [partial(broken, half) for half in halves])

    def _candidates(self, passed: Sequence[Trial], order: list[str]) -> Iterator[Trial]:
        """Those that passed; before the first whose ranges are cut, the best with more groups in float."""
        uncut = [row for row in passed if _uncut(row)]
        yield from uncut
        if uncut:
            tried = max(len(set(row.recipe.floats) & set(order)) for row in uncut)
            more = (order[:count] for count in range(tried + 1, min(tried + FURTHER, len(order) - 1) + 1))
            given = (self._judged(uncut[0].recipe.keeping(*self.floats, *floats)) for floats in more)
            yield from (row for row in given if row.quality.passed)
        yield from (row for row in passed if not _uncut(row))

    def _judged(self, recipe: QuantConfig) -> Trial:
        if recipe.key in self.tried.rows:
            return self.tried.rows[recipe.key]
        done = min(0.2 + 0.7 * len(self.tried.rows) / self.expected, 0.9)
        self.tell(done, f"recipe {len(self.tried.rows) + 1}: {display_name(recipe, self.parts)}")
        made = self._made(recipe)
        row = Trial(recipe, self.evaluator.judge(made), made.ByteSize(), self._work(recipe))
        return self.tried.add(row)

    def _made(self, recipe: QuantConfig) -> onnx.ModelProto:
        return qdq.quantize_static(self.graph, recipe, self.observed)

    def _work(self, recipe: QuantConfig) -> float:
        """Share of the multiplications of linear layers and convolutions that stays in float."""
        quantized = set(nodes_of(self.parts, recipe.floats))
        floats = sum(cost for name, cost in self.work.items() if name not in quantized)
        return float(floats / max(sum(self.work.values()), 1))

    def _times(self, chosen: Trial, rows: list[Trial]) -> dict[str, float]:
        """Median latency of the best rows, measured together, by key."""
        self.tell(0.92, "timing the best")
        best = {row.recipe.key: row.recipe for row in (chosen, *sorted(rows, key=_merit, reverse=True))}
        chosen_few = list(best.items())[:TIMED]
        opened = {key: self.evaluator.opened(self._made(recipe), str(i)) for i, (key, recipe) in enumerate(chosen_few)}
        timed = latency.measure(opened, self.evaluator.one, runs=TIMED_RUNS, seconds=TIMED_SECONDS)
        for runtime in opened.values():
            runtime.close()
        return {key: one.percentile(50) for key, one in timed.items()}

    def _context(self) -> str:
        """What rows depend on: graph, samples, how much is tried, the code that judges, the library and processor."""
        import onnxruntime

        shown = [hashlib.sha256(array.tobytes()).hexdigest() for array in self.samples.inputs.values()]
        made = hashlib.sha256(self.graph.SerializeToString(deterministic=True)).hexdigest()
        asked = [
            self.depth,
            *self.methods,
            str(self.reduce_range),
            *self.floats,
            *self.dynamic,
            repr(self.spec.outputs),
            repr(self.spec.inputs),
        ]
        host = [saturation.processor().name, onnxruntime.__version__]
        return digest_text("\n".join([made, *asked, *host, package_digest("edgekit"), *shown]))


def _merit(row: Trial) -> tuple[bool, bool, bool, float, float]:
    """What passes comes first; then activations that are fast everywhere, uncut ranges, little float work, accuracy.

    Methods that cut ranges are better on the mean and worse on pictures unlike the calibration set: with entropy's and
    percentile's ranges arr-coc-tiny failed on 3 and 2 of 144 images, with minmax on none, after all had passed here.
    """
    if not row.quality.passed:
        return False, False, _uncut(row), 0.0, row.quality.snr_db
    return True, row.recipe.activation == "uint8", _uncut(row), -row.work, row.quality.snr_db


def _uncut(row: Trial) -> bool:
    return row.recipe.method == "minmax"
