"""ONNX, static INT8 in QDQ form: ranges from calibration samples, by the best recipe of a search.

The trials stay in the target's cache, where reports find their table and an interrupted search resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import ExportError
from edgekit.model.folder import load_model
from edgekit.target import INT8, ExportResult, Job, Need, Option, Place, Target, TargetDescription
from edgekit_targets.onnx.export import ENTRY, load
from edgekit_targets.onnx.passes import qdq
from edgekit_targets.onnx.passes.graph import fold_constants, save_graph
from edgekit_targets.onnx.passes.groups import METHODS, Method, QuantConfig, groups_after_extremes
from edgekit_targets.onnx.quantization import calibration, conditioning
from edgekit_targets.onnx.quantization.calibration import Samples, observe
from edgekit_targets.onnx.quantization.conditioning import REDUCE_RANGE, ConditionedGraph
from edgekit_targets.onnx.quantization.evaluator import STRICTER, compare_processors
from edgekit_targets.onnx.quantization.search import NEEDED, TABLE, Depth, SearchOptions, SearchResult, search

if TYPE_CHECKING:
    import onnx

    from edgekit.model.spec import ModelSpec

SEARCH = Option(
    name="search", default="quick", help="how many configurations are tried", choices=("quick", "full", "none")
)
METHOD = Option(name="method", default="auto", help="method for activation ranges", choices=("auto", *METHODS))
GAIN = 3.0
"""dB. Where channel scales halve the noise and cost next to nothing, a recipe that holds without them gets them too: of
MiniLM's sentences 95 % kept their nearest neighbour, and 91 % without them. arr-coc-tiny gains 1 to 2 dB."""
ALPHAS = (conditioning.ALPHA, 0.7)
"""The second for models that answer real inputs better with the first, and others worse: MiniLM on sorted words."""
NEGLIGIBLE = 0.0025
"""Share of the multiplications of the linear layers: MiniLM's scales have 0.0018, and its speed did not change."""
RANK = Option(
    name="rank",
    default=0,
    minimum=0,
    help="number of passing recipes to skip; for `edgekit quantize --place`",
)


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Export the ONNX artifact to model.onnx in INT8."""
    import onnx

    spec, graph = load_model(job.model), fold_constants(onnx.load(job.entry))
    if not qdq.activations(graph):
        raise ExportError(
            f"'{spec.name}' has no linear layer and no chain of convolutions with constant weights, which static "
            "INT8 needs. Use onnx-int8-dynamic for LSTMs, else onnx or onnx-fp16"
        )
    job.progress(0.0, "making the calibration samples")
    samples = calibration.samples(spec, job.get(calibration.FOLDER), NEEDED.get(job.get(SEARCH), calibration.COUNT))
    methods = tuple(m for m in METHODS if job.get(METHOD) in ("auto", m))
    if job.get(SEARCH) == "none":
        result, notes, failures = _quantize_once(_condition(graph, samples, job, True), samples, methods[0], job)
    else:
        result, notes, failures = _search(spec, graph, samples, methods, job)
    save_graph(result, out / ENTRY)
    job.progress(0.95, "emulating processors without VNNI")
    advice = "for such processors export with `-O onnx-int8-static.reduce_range=yes`"
    hint = " (-O onnx-int8-static.calibration=FOLDER)" * calibration.unknown(spec, job.get(calibration.FOLDER))
    notes = (*notes, calibration.note_of(spec, job.get(calibration.FOLDER), samples) + hint)
    notes = (*notes, compare_processors(spec, graph, result, samples).sentence(advice))
    return ExportResult(precision="int8", entry=ENTRY, dynamic=job.dynamic, notes=notes, failures=failures)


def _condition(
    graph: onnx.ModelProto, samples: Samples, job: Job, channel_scales: bool, alpha: float = conditioning.ALPHA
) -> ConditionedGraph:
    job.progress(0.02, "rounding the weights")
    floats = groups_after_extremes(graph)
    return conditioning.condition(graph, samples, floats, job.get(REDUCE_RANGE), channel_scales, alpha)


def _quantize_once(
    ready: ConditionedGraph, samples: Samples, method: Method, job: Job
) -> tuple[onnx.ModelProto, tuple[str, ...], tuple[str, ...]]:
    graph, recipe = ready.graph, QuantConfig(method=method, reduce_range=job.get(REDUCE_RANGE), floats=ready.floats)

    # The table of an earlier search, which did not make this artifact.
    (job.cache / TABLE).unlink(missing_ok=True)

    def tell(share: float) -> None:
        job.progress(0.1 + 0.7 * share, "looking at activations")

    observed = observe(graph, qdq.activations(graph), samples, (method,), tell)
    return qdq.quantize_static(graph, recipe, observed), (f"recipe: {recipe.name}; none was searched for",), ()


def _search(
    spec: ModelSpec,
    graph: onnx.ModelProto,
    samples: Samples,
    methods: tuple[Method, ...],
    job: Job,
) -> tuple[onnx.ModelProto, tuple[str, ...], tuple[str, ...]]:
    """Search without channel scales; with them if more groups would be in float, or if they halve the noise unpaid."""

    def tell(share: float, text: str) -> None:
        job.progress(0.1 + 0.85 * share, text)

    depth: Depth = "full" if job.get(SEARCH) == "full" else "quick"
    reduced = job.get(REDUCE_RANGE)
    rank = job.get(RANK)

    def find(ready: ConditionedGraph, more_floats: bool, folder: Path = job.cache) -> SearchResult:
        options = SearchOptions(depth, methods, reduced, ready.floats, job.dynamic, more_floats=more_floats)
        return search(spec, ready.graph, samples, folder, tell, options, truth=graph)

    ready = _condition(graph, samples, job, False)
    match = find(ready, False)
    scaled = _condition(graph, samples, job, True)
    if not _holds(ready, match):
        ready, match = scaled, find(scaled, True)
    elif 0.0 < scaled.scale_cost <= NEGLIGIBLE:
        milder = (partial(_condition, graph, samples, job, True, alpha) for alpha in ALPHAS[1:])
        better = _with_scales((lambda: scaled, *milder), find, match.chosen.quality.snr_db, job.cache)
        ready, match = better or (ready, match)
    if rank:
        options = SearchOptions(depth, methods, reduced, ready.floats, job.dynamic, rank)
        match = search(spec, ready.graph, samples, job.cache, tell, options, truth=graph)
    recipe = match.chosen.recipe
    notes = [f"recipe: {recipe.name}"]
    if recipe.floats:
        notes.append(f"in float arithmetic: {', '.join(recipe.floats)}")
    if rank:
        best, trial = match.best, match.chosen
        notes.append(
            f"rank {rank} of the recipes that passed; work in float {best.work:.1%} -> {trial.work:.1%}, "
            f"size {best.size} -> {trial.size} bytes, signal to noise {best.quality.snr_db:.1f} -> "
            f"{trial.quality.snr_db:.1f} dB"
        )
    quality = match.chosen.quality
    failures: tuple[str, ...] = ()
    if quality.broken:
        failures = (f"no recipe holds the gate's limits on samples held back from calibration: {quality.broken[0]}",)
    elif not quality.passed:
        notes.append(
            f"no recipe passed the gate, with {1.0 - STRICTER:.0%} of its room kept, on samples held back from"
            f" calibration: this is the best of them ({quality.reasons[0]})"
        )
    return match.graph, tuple(notes), failures


def _holds(ready: ConditionedGraph, result: SearchResult) -> bool:
    """Return whether a recipe passes with no more groups in float than the smallest."""
    return result.chosen.quality.passed and len(result.chosen.recipe.floats) == len(ready.floats)


def _with_scales(
    graphs: Iterable[Callable[[], ConditionedGraph]],
    find: Callable[[ConditionedGraph, bool, Path], SearchResult],
    snr_db: float,
    cache: Path,
) -> tuple[ConditionedGraph, SearchResult] | None:
    """Return the first graph with channel scales whose recipe holds with GAIN; its trials become the target's table.

    Args:
        graphs: Make the graphs, which differ in how much moves into the weights.
        find: Searches, in a folder.
        snr_db: Signal-to-noise ratio without scales.
        cache: The target's folder.
    """
    for number, condition in enumerate(graphs):
        ready, folder = condition(), cache / f"scales-{number}"
        match = find(ready, False, folder)
        # Another share changes nothing about a small gain.
        if match.chosen.quality.snr_db < snr_db + GAIN:
            return None
        if _holds(ready, match):
            (cache / TABLE).write_bytes((folder / TABLE).read_bytes())
            return ready, match
    return None


TARGET = Target(
    summary="ONNX, static INT8 by a searched recipe",
    about=TargetDescription(
        use_case="the smallest latency on a CPU with INT8 instructions",
        proved_by="ONNX Runtime on the CPU",
        not_covered="processors of another kind: ARM, x86 without VNNI",
    ),
    source="onnx",
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=INT8),),
    needs=(Need("onnxruntime", "cpu"),),
    groups=("onnx-all",),
    options=(SEARCH, METHOD, REDUCE_RANGE, RANK, calibration.FOLDER),
)
