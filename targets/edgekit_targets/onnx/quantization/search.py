"""The search for a recipe: uncut ranges, the least float work that passes the gate, then the least noise.

First, methods for ranges are tried on all groups of layers at once. Only if none passes, every group is quantized
alone: its signal-to-noise ratio is its sensitivity. From MinMax on, the most sensitive groups then return to float;
bisection finds their number. Work in float, not a clock, orders the candidates, so that the same search gives the same
recipe; the clock only fills a column of the table, and the judge decides whether INT8 is slower.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import TypeAdapter

from edgekit.errors import ExportError
from edgekit.evaluate import timing
from edgekit.judge.limits import INT8, TASK_DROP
from edgekit.model.onnx_write import pieces
from edgekit.model.shapes import shapes_between
from edgekit.model.spec import ModelSpec
from edgekit.reference.batches import Batch
from edgekit.runtime.processor import int8_arithmetic
from edgekit.storage.environment import package_digest
from edgekit.storage.files import digest_text, load_json
from edgekit.storage.verified_io import SEAL, seal_of
from edgekit_targets.onnx.passes import qdq
from edgekit_targets.onnx.passes.groups import (
    METHODS,
    Activation,
    Method,
    ObservedRange,
    QuantConfig,
    groups,
    multiplications,
    nodes_of,
)
from edgekit_targets.onnx.quantization import calibration
from edgekit_targets.onnx.quantization.calibration import Samples, at_shapes, extra_inputs
from edgekit_targets.onnx.quantization.evaluator import STRICTER, Evaluator, Quality, without_task

if TYPE_CHECKING:
    import onnx

Depth = Literal["quick", "full"]
Progress = Callable[[float, str], None]
HELD_BACK = {"quick": 32, "full": 100}
"""Number of samples that judge, the last of the set."""
SHOWN = {"quick": 96, "full": 200}
"""Number of samples that make the ranges, the first of the set."""
NEEDED = {depth: HELD_BACK[depth] + SHOWN[depth] for depth in ("quick", "full")}
"""Total number of samples: a quick search does not wait for a whole calibration set."""
TIMED_SECONDS, TIMED_RUNS = 0.4, 40
"""Minimum timing of each timed candidate: the table shows a median, and no verdict depends on it."""
BETWEEN_ROWS = 4
"""Real inputs at each size between the grid's: more than the judge's, since its inputs are others."""
FURTHER = 4
"""Largest number of groups that return to float, one by one, if no recipe passes between the grid's sizes."""
TIMED = 4
"""Number of timed candidates, including the chosen one."""
T = TypeVar("T")
LOG = "tried.jsonl"
TABLE = "trials.json"


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search.

    Attributes:
        depth: Extent of the search.
        methods: The methods for ranges.
        reduce_range: True to try only 7-bit weights.
        floats: Groups that stay in float arithmetic in every recipe.
        dynamic: The axes with open sizes.
        rank: Number of passing recipes to skip, the best first.
        more_floats: False to try no further groups in float, if another search follows.
    """

    depth: Depth = "quick"
    methods: tuple[Method, ...] = METHODS
    reduce_range: bool = False
    floats: tuple[str, ...] = ()
    dynamic: tuple[str, ...] = ()
    rank: int = 0
    more_floats: bool = True

    @property
    def recipes(self) -> list[QuantConfig]:
        """Recipes with every group in INT8 except `floats`; the graph itself was smoothed before (conditioning.py)."""
        recipes = [QuantConfig(method=method) for method in self.methods]
        if self.depth == "full":
            kinds: tuple[tuple[Activation, bool], ...] = (("uint8", True), ("int8", True), ("uint8", False))
            recipes += [
                QuantConfig(method=method, activation=activation, per_channel=per_channel)
                for method, (activation, per_channel) in itertools.product(self.methods, kinds)
            ]
        recipes += [QuantConfig(method=method, reduce_range=True) for method in self.methods]
        every = (replace(r, floats=self.floats, reduce_range=self.reduce_range or r.reduce_range) for r in recipes)
        return list(dict.fromkeys(every))


@dataclass(frozen=True)
class SearchResult:
    """The graph of the chosen recipe, its trial (the best one, if none passed), and the trial of rank 0."""

    graph: onnx.ModelProto
    chosen: Trial
    best: Trial


def split(samples: Samples, depth: Depth) -> tuple[Samples, Samples]:
    """Return the samples that make the ranges, and those that are held back to judge (a third of a small set)."""
    count = len(samples.names)
    judging = min(HELD_BACK[depth], count // 3)
    return samples.part(0, min(SHOWN[depth], count - judging)), samples.part(count - judging, count)


def search(
    spec: ModelSpec,
    graph: onnx.ModelProto,
    samples: Samples,
    folder: Path,
    progress: Progress,
    options: SearchOptions | None = None,
    truth: onnx.ModelProto | None = None,
) -> SearchResult:
    """Find a recipe for a graph.

    Args:
        spec: The model.
        graph: In fp32.
        samples: For calibration; the last are held back to judge.
        folder: Folder for the trials, so that an interrupted search can resume.
        progress: Called with the completed share and the current trial.
        options: Options of the search.
        truth: Graph to compare recipes with; default: `graph`.

    Raises:
        ExportError: If the rank exceeds the number of passing recipes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = options or SearchOptions()
    calibration_samples, held_back = split(samples, options.depth)
    with tempfile.TemporaryDirectory(prefix="edgekit-") as place:

        def evaluator(*batches: Batch, **more: Any) -> Evaluator:
            return Evaluator(spec, graph if truth is None else truth, held_back, Path(place), batches, **more)

        def tell(share: float) -> None:
            progress(0.2 * share, f"looking at activations on {len(calibration_samples.names)} samples")

        tell(0.0)
        observed = calibration.observe(graph, qdq.activations(graph), calibration_samples, options.methods, tell)
        judge = evaluator(*extra_inputs(spec, samples, options.dynamic))
        log = TrialLog(folder, _context(spec, graph, samples, options))
        parts = groups(graph)
        work = multiplications(graph, nodes_of(parts, ()), {n: o.elements for n, o in observed.items()})
        trials = _Trials(graph, observed, judge, log, parts, work, progress)
        between_sizes = at_shapes(spec, samples, options.dynamic, shapes_between(spec.axes), BETWEEN_ROWS)
        further = partial(evaluator, *between_sizes, tolerance=without_task(INT8)) if between_sizes else None
        return _Search(options, trials, further).run()


def _context(spec: ModelSpec, graph: onnx.ModelProto, samples: Samples, options: SearchOptions) -> str:
    """Return a digest of what trials depend on: graph, samples, options, code, the library and the processor."""
    import onnxruntime

    arrays = [hashlib.sha256(array.tobytes()).hexdigest() for array in samples.inputs.values()]
    arrays += [] if samples.truth is None else [hashlib.sha256(samples.truth.tobytes()).hexdigest()]
    source = hashlib.sha256()
    for piece in pieces(graph):
        source.update(piece)
    identity = repr((replace(options, rank=0, more_floats=True), spec.outputs, spec.inputs))
    host = [int8_arithmetic(), onnxruntime.__version__]
    return digest_text("\n".join([source.hexdigest(), identity, *host, package_digest("edgekit"), *arrays]))


@dataclass
class _Trials:
    """Graphs of recipes and their quality; nothing is judged twice.

    Attributes:
        graph: In fp32.
        observed: Ranges of its activations.
        evaluator: Judges the quantized graphs.
        log: Every trial so far.
        parts: The groups of layers.
        work: Multiplications of each layer.
        progress: Called with the completed share and the current trial.
        expected: Approximate number of trials.
    """

    graph: onnx.ModelProto
    observed: Mapping[str, ObservedRange]
    evaluator: Evaluator
    log: TrialLog
    parts: Mapping[str, tuple[str, ...]]
    work: Mapping[str, int]
    progress: Progress
    expected: int = 1

    def quantize(self, recipe: QuantConfig) -> onnx.ModelProto:
        return qdq.quantize_static(self.graph, recipe, self.observed)

    def judge(self, recipe: QuantConfig) -> Trial:
        if recipe.key in self.log.rows:
            return self.log.rows[recipe.key]
        share = min(0.2 + 0.7 * len(self.log.rows) / self.expected, 0.9)
        self.progress(share, f"recipe {len(self.log.rows) + 1}: {display_name(recipe, self.parts)}")
        graph = self.quantize(recipe)
        # Share of the multiplications of linear layers and convolutions in float.
        quantized = set(nodes_of(self.parts, recipe.floats))
        floats = sum(cost for name, cost in self.work.items() if name not in quantized)
        float_work = float(floats / max(sum(self.work.values()), 1))
        return self.log.add(Trial(recipe, self.evaluator.judge(graph), graph.ByteSize(), float_work))

    def latencies(self, chosen: Trial, trials: Sequence[Trial]) -> dict[str, float]:
        """Return the median latency of the best trials, measured together, by key."""
        self.progress(0.92, "timing the best")
        best = {trial.recipe.key: trial.recipe for trial in (chosen, *sorted(trials, key=_merit, reverse=True))}
        recipes = list(best.items())[:TIMED]
        opened = {key: self.evaluator.open_graph(self.quantize(r), str(i)) for i, (key, r) in enumerate(recipes)}
        latencies = timing.measure(opened, self.evaluator.sample, runs=TIMED_RUNS, seconds=TIMED_SECONDS)
        for runtime in opened.values():
            runtime.close()
        return {key: latency.percentile(50) for key, latency in latencies.items()}


@dataclass
class _Search:
    """The order of the trials.

    Attributes:
        options: Options of the search.
        trials: Judges recipes.
        further: Makes an evaluator of real inputs between the grid's sizes, or None.
    """

    options: SearchOptions
    trials: _Trials
    further: Callable[[], Evaluator] | None

    def run(self) -> SearchResult:
        """Try, choose and time recipes, and write the table."""
        options, judge, parts = self.options, self.trials.judge, self.trials.parts
        recipes = options.recipes
        self.trials.expected = len(recipes) + 2
        trials = [judge(recipe) for recipe in recipes]
        if options.more_floats and not any(trial.quality.passed for trial in trials):
            trials += self._with_floats(max(trials, key=lambda trial: (_uncut(trial), _merit(trial))))
        if options.depth == "full" and (options.more_floats or any(trial.quality.passed for trial in trials)):
            best = sorted(trials, key=_merit)[-3:]
            trials += [judge(trial.recipe.keeping(*options.floats, g)) for trial in best for g in self.order[:3]]
        ranked = sorted({trial.recipe.key: trial for trial in trials}.values(), key=_merit, reverse=True)
        passing = [trial for trial in ranked if trial.quality.passed]
        if passing and options.rank >= len(passing):
            # Ranks of the recipes before them stay.
            further = (trial for trial in self._further(ranked[0], 0) if trial not in passing)
            passing += itertools.islice(further, options.rank + 1 - len(passing))
        passing_keys = [trial.recipe.key for trial in passing]
        if options.rank and options.rank >= len(passing_keys):
            raise ExportError(
                f"rank {options.rank} does not exist: {len(passing_keys)} recipes passed, and ranks begin with 0"
            )
        candidates = [*passing, *(trial for trial in ranked if trial not in passing)]
        winner = self._between_sizes(candidates[options.rank :])
        log = self.trials.log
        write_table(log.folder, log.rows, winner, self.trials.latencies(winner, trials), parts, passing_keys)
        return SearchResult(self.trials.quantize(winner.recipe), winner, ranked[0])

    @cached_property
    def order(self) -> list[str]:
        """The groups that are not in float in every recipe, the most sensitive first; each costs a trial."""
        options, parts = self.options, self.trials.parts
        open_parts = [part for part in parts if part not in options.floats]
        self.trials.expected += len(open_parts)
        plain = QuantConfig(method=options.methods[0], reduce_range=options.reduce_range)
        alone = {g: self.trials.judge(plain.keeping(*(o for o in parts if o != g))).quality for g in open_parts}
        return sorted(alone, key=lambda group: _robustness(alone[group]))

    def _with_floats(self, base: Trial) -> list[Trial]:
        """Return trials with more groups in float, never all: half of them, then more or fewer until it is decided."""
        trials: list[Trial] = []
        failing, passing = 0, len(self.order)
        while passing - failing > 1:
            count = (failing + passing) // 2
            trials.append(self.trials.judge(base.recipe.keeping(*self.options.floats, *self.order[:count])))
            failing, passing = (failing, count) if trials[-1].quality.passed else (count, passing)
        return trials

    def _further(self, base: Trial, count: int) -> Iterator[Trial]:
        """Yield recipes that pass with `count` + 1 to `count` + FURTHER groups in float, never all."""
        for more in range(count + 1, min(count + FURTHER, len(self.order) - 1) + 1):
            trial = self.trials.judge(base.recipe.keeping(*self.options.floats, *self.order[:more]))
            if trial.quality.passed:
                yield trial

    def _between_sizes(self, ranked: Sequence[Trial]) -> Trial:
        """Return the first that passed and also passes between the grid's sizes; otherwise the nearest to that."""
        # Only the best are tested, since this costs as much as all other tests of a recipe. The limits are the gate's
        # own: only recipes that the judge would reject are skipped.
        passing = [trial for trial in ranked if trial.quality.passed]
        if not passing or self.further is None:
            return ranked[0]
        self.trials.progress(0.9, "asking the best between the sizes of the grid")

        evaluator = self.further()

        def count_failures(trial: Trial) -> int:
            quality = evaluator.judge(self.trials.quantize(trial.recipe))
            return 0 if quality.passed else len(quality.reasons)

        return fewest_broken(self._candidates(passing), count_failures)

    def _candidates(self, trials: Sequence[Trial]) -> Iterator[Trial]:
        """Yield those that passed; before the first with cut ranges, the best one with more groups in float."""
        uncut = [trial for trial in trials if _uncut(trial)]
        yield from uncut
        if uncut:
            most_floats = max(len(set(trial.recipe.floats) - set(self.options.floats)) for trial in uncut)
            yield from self._further(uncut[0], most_floats)
        yield from (trial for trial in trials if not _uncut(trial))


def _robustness(quality: Quality) -> tuple[bool, float, float]:
    """Return a key that is smallest for the most sensitive group: by the task metric first, if the samples have one."""
    return quality.passed, -max(round(quality.worst.get(TASK_DROP, 0.0), 4), 0.0), quality.snr_db


def _merit(trial: Trial) -> tuple[bool, bool, bool, float, float]:
    """Return the sort key: passing, activations that are fast everywhere, uncut ranges, little float work, accuracy.

    Methods that cut ranges are better on average and worse on pictures unlike the calibration set: with entropy's and
    percentile's ranges arr-coc-tiny failed on 3 and 2 of 144 images, with minmax on none, after all had passed here.
    """
    if not trial.quality.passed:
        return False, False, _uncut(trial), 0.0, trial.quality.snr_db
    return True, trial.recipe.activation == "uint8", _uncut(trial), -trial.work, trial.quality.snr_db


def _uncut(trial: Trial) -> bool:
    return trial.recipe.method == "minmax"


@dataclass(frozen=True)
class Fallback:
    """The groups that keep more bits than the others, and the artifact's quality.

    Attributes:
        groups: These groups, sorted.
        quality: Quality of the artifact with these, on samples held back from calibration.
        tried: Number of judged candidates.
    """

    groups: tuple[str, ...]
    quality: Quality
    tried: int

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user on the choice; the caller names the groups."""
        if self.quality.passed or self.quality.broken:
            return ()
        best = (
            f"nothing passed the gate, with {1.0 - STRICTER:.0%} of its room kept, on samples held back from "
            f"calibration: this is the best of {self.tried} ({self.quality.reasons[0]})"
        )
        return (best,)

    @property
    def failures(self) -> tuple[str, ...]:
        """Sentence on the gate's limit that even the best choice breaks."""
        if not self.quality.broken:
            return ()
        return (f"no choice holds the gate's limits on samples held back from calibration: {self.quality.broken[0]}",)


def fewest_broken(candidates: Iterable[T], broken: Callable[[T], int]) -> T:
    """Return the first candidate that breaks no limit, else the one that breaks fewest; at least one is required.

    Args:
        candidates: In order of preference.
        broken: Counts the limits that a candidate breaks.
    """
    counts: list[tuple[int, T]] = []
    for candidate in candidates:
        counts.append((broken(candidate), candidate))
        if not counts[-1][0]:
            break
    return min(counts, key=lambda each: each[0])[1]


def fallback(
    parts: Collection[str],
    judge: Callable[[tuple[str, ...]], Quality],
    snr: Callable[[tuple[str, ...]], float],
    progress: Callable[[float, str], None] = lambda share, text: None,
    work: Mapping[str, int] | None = None,
) -> Fallback:
    """Find the fewest groups that keep more bits (float instead of INT8, 8 instead of 4), most sensitive first.

    Bisection finds their number, assuming that if some groups suffice, more of them suffice too.

    Args:
        parts: All groups that can be quantized.
        judge: Returns the quality of a candidate in which these groups keep more bits.
        snr: Returns only its signal-to-noise ratio, in dB, which orders the groups.
        progress: Called with the completed share and the current trial.
        work: Multiplications of each group; if given, the groups are ordered by their noise per multiplication.
    """
    progress(0.0, "every group with few bits")
    qualities: dict[tuple[str, ...], Quality] = {(): judge(())}
    order: list[str] = []
    if not qualities[()].passed and len(parts) > 1:
        alone: dict[str, float] = {}
        for number, part in enumerate(parts):
            progress(0.1 + 0.4 * number / len(parts), f"only {part} with few bits")
            alone[part] = snr(tuple(sorted(other for other in parts if other != part)))
        # Decibels, so that the noise of a group that needs no work is finite too.
        order = sorted(alone, key=lambda part: alone[part] + 10.0 * math.log10(max(work[part], 1) if work else 1))

    failing, passing = 0, len(order)
    while passing - failing > 1:
        count = (failing + passing) // 2
        groups = tuple(sorted(order[:count]))
        progress(1.0 - 0.5 * (passing - failing) / len(order), f"with more bits: {', '.join(groups)}")
        qualities[groups] = judge(groups)
        failing, passing = (failing, count) if qualities[groups].passed else (count, passing)
    holding = [groups for groups, quality in qualities.items() if quality.passed]
    best = min(holding, key=len) if holding else max(qualities, key=lambda groups: qualities[groups].snr_db)
    return Fallback(best, qualities[best], len(qualities))


@dataclass(frozen=True)
class Trial:
    """One recipe and its result.

    Attributes:
        recipe: The recipe.
        quality: Quality on the samples held back.
        size: Bytes of the file.
        work: Share of the multiplications of linear layers and convolutions that stay in float.
    """

    recipe: QuantConfig
    quality: Quality
    size: int
    work: float


@dataclass
class TrialLog:
    """The rows of one search, in a folder; rows of another `context`, a digest, are ignored."""

    folder: Path
    context: str
    rows: dict[str, Trial] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the rows of an earlier search with the same context, except truncated or changed lines."""
        log = self.folder / LOG
        try:
            text = log.read_text(errors="replace")
        except OSError:
            return
        # Cut off by a kill: the next row begins a new line.
        if text and not text.endswith("\n"):
            with log.open("a") as end:
                end.write("\n")
        for line in text.splitlines():
            try:
                record = load_json(line)
                if record["context"] == self.context and record.get(SEAL) == seal_of(record):
                    row = TypeAdapter(Trial).validate_python(record)
                    self.rows[row.recipe.key] = row
            except (ValueError, KeyError, TypeError):
                continue

    def add(self, row: Trial) -> Trial:
        """Add a row to the log."""
        self.rows[row.recipe.key] = row
        record = {"context": self.context, **asdict(row)}
        with (self.folder / LOG).open("a") as log:
            log.write(json.dumps({**record, SEAL: seal_of(record)}) + "\n")
        return row


def write_table(
    folder: Path,
    rows: Mapping[str, Trial],
    trial: Trial,
    milliseconds: Mapping[str, float],
    parts: Collection[str],
    ranked: Sequence[str],
) -> None:
    """Write the table for reports.

    Args:
        folder: Destination.
        rows: By the recipe's key.
        trial: The row of the artifact.
        milliseconds: Median latency of the timed recipes, by key.
        parts: All groups.
        ranked: Keys of the recipes that passed, the best first.
    """
    best = _pareto(list(rows.values()))
    table = [
        {
            "name": display_name(row.recipe, parts),
            "chosen": row.recipe.key == trial.recipe.key,
            "passed": row.quality.passed,
            "pareto": row.recipe.key in best,
            "size": row.size,
            "measures": {**row.quality.worst, "snr": row.quality.snr_db},
            "float_groups": (
                "all others" if _sensitivity(row.recipe, parts) else ", ".join(row.recipe.floats) or "none"
            ),
            "float_work": f"{row.work:.1%}",
            **({"rank": ranked.index(key)} if key in ranked else {}),
            **({"p50_ms": milliseconds[key]} if key in milliseconds else {}),
        }
        for key, row in rows.items()
    ]
    (folder / TABLE).write_text(json.dumps(table, indent=2) + "\n")


def display_name(recipe: QuantConfig, parts: Collection[str]) -> str:
    """Return a recipe's name for people; a trial of one group's sensitivity is named after that group."""
    alone = set(parts) - set(recipe.floats)
    return f"{recipe.method}, only {alone.pop()}" if _sensitivity(recipe, parts) else recipe.name


def _sensitivity(recipe: QuantConfig, parts: Collection[str]) -> bool:
    return len(parts) > 2 and len(recipe.floats) == len(parts) - 1


def _pareto(rows: list[Trial]) -> set[str]:
    """Return the keys of the rows that no other beats in float work, size and noise at once."""
    costs = {row.recipe.key: (row.work, row.size, -row.quality.snr_db) for row in rows}
    return {
        key
        for key, cost in costs.items()
        if not any(other != cost and all(o <= c for o, c in zip(other, cost, strict=True)) for other in costs.values())
    }
