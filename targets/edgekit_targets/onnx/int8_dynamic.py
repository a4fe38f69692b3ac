"""ONNX, dynamic INT8: weights in INT8, activations rounded in each run.

Needs no calibration; if the model has a calibration set, its graph is conditioned with it first.

A batch shares one range, so an image's output depends a little on its batch: send one image at a time if that
matters.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import ExportError, NeedlessExportError
from edgekit.model.evaluation_set import evaluation_of, unusual_shapes
from edgekit.model.folder import load_model
from edgekit.model.onnx_check import bodies, every_node
from edgekit.model.shapes import shapes_between
from edgekit.runtime import ort
from edgekit.target import INT8, ExportResult, Job, Need, Option, Place, Target, TargetDescription
from edgekit_targets.onnx.export import ENTRY, load
from edgekit_targets.onnx.passes import dynamic, weight_only
from edgekit_targets.onnx.passes.graph import RECURRENT, copy_graph, fold_constants, save_graph, set_weights
from edgekit_targets.onnx.passes.groups import CONV, ends, groups, multiplications, nodes_of
from edgekit_targets.onnx.quantization import calibration, conditioning
from edgekit_targets.onnx.quantization.calibration import Samples, at_shapes, extra_inputs
from edgekit_targets.onnx.quantization.conditioning import REDUCE_RANGE
from edgekit_targets.onnx.quantization.evaluator import (
    COMPARED_IMAGES,
    Evaluator,
    Quality,
    compare_processors,
    stricter,
    without_task,
)
from edgekit_targets.onnx.quantization.search import fallback

if TYPE_CHECKING:
    import onnx

    from edgekit.model.spec import ModelSpec
    from edgekit.reference.batches import Batch

HELD_BACK = 32
"""Number of calibration samples that choose between graphs."""
BETWEEN_ROWS = 2
"""Number of these at each size between the grid's."""
COARSE = "weights of its convolutions, GRUs or RNNs lose too much in INT8"
MOST_IN_FLOAT = 0.8
"""Share of the multiplications. With more in float, INT8 of three times the speed would save less than a seventh."""
ALIKE = 3.0
"""dB. Groups in float may remove most of the noise: of recipes as alike as this, they are tried with the fastest."""
UNJUDGED = Quality(True, 0.0, {})
"""Quality of a graph if there are too few samples to judge it."""
FLOAT = Option[tuple[str, ...]](
    name="float", default=(), help="groups of layers that stay in float, separated by commas"
)


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Export the ONNX artifact to model.onnx in INT8.

    Raises:
        ExportError: If nothing could be in INT8.
        NeedlessExportError: If INT8 would not be faster, and the user did not select it.
    """
    import onnx

    spec, graph = load_model(job.model), fold_constants(onnx.load(job.entry))
    parts = groups(graph, dynamic=True)
    floats = job.get(FLOAT)
    if unknown := [name for name in floats if name not in parts]:
        raise ExportError(f"no group '{unknown[0]}' to leave in float. Possible: {', '.join(parts)}")
    work = _work(spec, graph)
    share, in_float = _in_float(graph, work, set(nodes_of(parts, ())))
    if share > MOST_IN_FLOAT and not job.selected:
        raise NeedlessExportError(f"{in_float}. Select it with -t onnx-int8-dynamic")
    job.progress(0.1, "rounding the weights")
    result = _quantize(spec, graph, {part: sum(work[n] for n in nodes) for part, nodes in parts.items()}, job)
    if not parts and not weight_only.count_stored(result.graph):
        raise ExportError(_without_int8(spec, graph, result.lost))
    save_graph(result.graph, out / ENTRY)
    job.progress(0.7, "emulating processors without VNNI")
    notes = [in_float] if in_float else []
    notes += [f"in float arithmetic: {', '.join(result.recipe.floats)}"] if result.recipe.floats else []
    notes += [f"{COARSE} and are stored in fp16: {result.lost}"] if result.lost else []
    notes += [f"no choice of layers in float holds the limits of INT8: {result.reason}"] if result.reason else []
    # Compared on the first evaluation images, if there are any.
    evaluation = evaluation_of(spec)
    if evaluation is not None:
        every = Samples(evaluation.inputs, evaluation.names, unusual_shapes(spec.inputs))
        comparison = compare_processors(spec, graph, result.graph, every.part(0, COMPARED_IMAGES))
        notes.append(comparison.sentence("for such processors export with `-O onnx-int8-dynamic.reduce_range=yes`"))
    return ExportResult(precision="int8", entry=ENTRY, dynamic=job.dynamic, notes=tuple(notes))


def _work(spec: ModelSpec, graph: onnx.ModelProto) -> dict[str, int]:
    """Return the multiplications of each layer with constant weights on one input of the default sizes."""
    constants = {i.name for i in graph.graph.initializer}
    row, outputs, layers = spec.random(0), ends(graph), []
    for node in graph.graph.node:
        weights = weight_only.weights_of(node)
        if weights and constants >= set(weights) and node.input[0] not in constants:
            layers.append(node)
    tensors = [outputs[node.name] if node.op_type == CONV else node.input[0] for node in layers]
    values = {**row, **ort.open_with_taps(graph, [name for name in tensors if name not in row]).run(row)}
    elements = {name: np.size(values[name]) for name in tensors}
    return multiplications(graph, {node.name for node in layers}, elements)


def _in_float(graph: onnx.ModelProto, work: Mapping[str, int], quantized: Collection[str]) -> tuple[float, str]:
    """Return the share of the multiplications that dynamic INT8 leaves in float, and a sentence if users need it."""
    floats = {node.name: node.op_type for node in graph.graph.node if node.name in work and node.name not in quantized}
    share = sum(work[name] for name in floats) / max(sum(work.values()), 1)
    kinds = " and ".join(dict.fromkeys(floats.values()))
    why = f"{share:.0%} of the multiplications are in {kinds}, which ONNX Runtime computes in float"
    if share > MOST_IN_FLOAT:
        return share, f"weights only: smaller, not faster, since {why}"
    return share, f"{why}; their weights are stored in INT8" if set(floats.values()) & set(RECURRENT) else ""


@dataclass(frozen=True)
class _Recipe:
    """How a graph gets quantized.

    Attributes:
        source: The graph in fp32, conditioned or not.
        floats: Groups that stay in float.
        reduce_range: True for 7-bit weights.
        token_scales: True for a scale per token in front of tall layers.
        recurrent: The weights of LSTMs on their INT8 grid, by group.
        half: True to store the weights of convolutions, GRUs and RNNs in fp16.
    """

    source: onnx.ModelProto
    floats: tuple[str, ...]
    reduce_range: bool
    token_scales: bool = False
    recurrent: Mapping[str, Sequence[onnx.TensorProto]] = field(default_factory=dict)
    half: bool = False

    def quantize(self) -> onnx.ModelProto:
        """Return the INT8 graph."""
        source = copy_graph(self.source)
        # An LSTM in float keeps its own weights.
        rounded = {w.name: w for name, weights in self.recurrent.items() if name not in self.floats for w in weights}
        set_weights(source.graph, [rounded.get(i.name, i) for i in source.graph.initializer])
        return dynamic.quantize_dynamic(source, self.floats, self.reduce_range, self.token_scales, self.half)


@dataclass(frozen=True)
class _Result:
    """A trial.

    Attributes:
        graph: In INT8.
        recipe: Its recipe.
        quality: Its quality, or UNJUDGED.
        lost: The loss of convolutions' weights in INT8, if these are in fp16.
    """

    graph: onnx.ModelProto
    recipe: _Recipe
    quality: Quality
    lost: str = ""

    @property
    def reason(self) -> str:
        """The first limit that it breaks, or empty."""
        return "" if self.quality.passed else self.quality.reasons[0]


def _without_int8(spec: ModelSpec, graph: onnx.ModelProto, lost: str) -> str:
    """Return why nothing of a graph would be in INT8."""
    inside = any(every_node(body) for node in graph.graph.node for body in bodies(node))
    where = " outside of its branches and loops, which stay unchanged" if inside else ""
    text = f"'{spec.name}' has no linear layer and no LSTM whose weights dynamic INT8 could hold{where}"
    others = "use onnx" if inside else "use onnx-int8-static, onnx or onnx-fp16"
    if lost:
        return f"{text}, and {COARSE} ({lost}). Instead, {others}"
    least = f"of {weight_only.LEAST} weights or more that it could store"
    return f"{text}, and no convolution, GRU or RNN {least}. Instead, {others}"


def _quantize(spec: ModelSpec, graph: onnx.ModelProto, work: Mapping[str, int], job: Job) -> _Result:
    """Return the first of `_recipes` that passes, else one with more groups in float, else the one nearest to fp32.

    The decision uses samples unseen by the conditioning, also at other shapes, and random, extreme and changed
    inputs. Without a calibration set nothing is conditioned, and samples are photographs that ship with edgekit, or
    random inputs. `work` are the multiplications of each group.
    """
    between: tuple[Batch, ...] = ()
    plain = _Recipe(graph, job.get(FLOAT), job.get(REDUCE_RANGE))
    if spec.calibration is None:
        recipes: Iterable[_Recipe] = (plain,)
        held_back = samples = calibration.available(spec, HELD_BACK)
        tolerance = without_task(INT8)
    else:
        samples, tolerance = calibration.samples(spec, count=conditioning.SAMPLES + HELD_BACK, least=1), stricter(INT8)
        count = len(samples.names) - min(HELD_BACK, len(samples.names) // 3)
        recipes, held_back = _recipes(plain, samples.part(0, count)), samples.part(count, None)
        if not held_back.names:
            recipe = next(iter(recipes))
            return _Result(recipe.quantize(), recipe, UNJUDGED)
        between = at_shapes(spec, samples, job.dynamic, shapes_between(spec.axes), BETWEEN_ROWS)
    with tempfile.TemporaryDirectory(prefix="edgekit-") as place:
        extra = (*extra_inputs(spec, samples, job.dynamic), *between)
        are_real = spec.calibration is not None or calibration.unknown(spec)
        evaluator = Evaluator(spec, graph, held_back, Path(place), extra, tolerance=tolerance, are_real=are_real)
        trials: list[_Result] = []
        for recipe in chain(recipes, [replace(plain, half=True)]):
            quantized = recipe.quantize()
            # Several recipes are the same for a network of one kind of layer.
            if any(quantized.graph == trial.graph.graph for trial in trials):
                continue
            lost = trials[-1].reason if recipe.half else ""
            trials.append(_Result(quantized, recipe, evaluator.judge(quantized), lost))
            if not trials[-1].reason:
                return trials[-1]
        best = max(trials, key=lambda trial: trial.quality.snr_db)
        base = next(trial for trial in trials if trial.quality.snr_db > best.quality.snr_db - ALIKE)
        return _with_floats(evaluator, base, work, job) or best


def _with_floats(evaluator: Evaluator, base: _Result, work: Mapping[str, int], job: Job) -> _Result | None:
    """Return a result with more groups in float, those of the most noise per multiplication; None if none passes."""

    def quantize(floats: tuple[str, ...]) -> onnx.ModelProto:
        return replace(base.recipe, floats=(*base.recipe.floats, *floats)).quantize()

    def judge(floats: tuple[str, ...]) -> Quality:
        return evaluator.judge(quantize(floats)) if floats else base.quality

    def snr(floats: tuple[str, ...]) -> float:
        return evaluator.snr(evaluator.open_graph(quantize(floats), "candidate"))

    def tell(share: float, text: str) -> None:
        job.progress(0.2 + 0.5 * share, text)

    result = fallback([part for part in work if part not in base.recipe.floats], judge, snr, tell, work)
    if not result.quality.passed:
        return None
    recipe = replace(base.recipe, floats=tuple(sorted({*base.recipe.floats, *result.groups})))
    return replace(base, graph=recipe.quantize(), recipe=recipe, quality=result.quality)


def _recipes(plain: _Recipe, samples: Samples) -> Iterator[_Recipe]:
    """Yield recipes with their groups in float, the fastest first, and last the one without conditioning."""
    rounded = conditioning.round_recurrent(plain.source, samples, plain.reduce_range)
    for channel_scales in (False, True):
        ready = conditioning.condition(plain.source, samples, plain.floats, plain.reduce_range, channel_scales)
        conditioned = replace(plain, source=ready.graph, floats=ready.floats, recurrent=rounded)
        yield conditioned
    yield replace(conditioned, token_scales=True)
    yield plain


TARGET = Target(
    summary="ONNX, dynamic INT8",
    about=TargetDescription(
        use_case="INT8 without calibration data",
        proved_by="ONNX Runtime on the CPU",
        not_covered="processors of another kind: ARM, x86 without VNNI",
    ),
    source="onnx",
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=INT8),),
    needs=(Need("onnxruntime", "cpu"),),
    groups=("onnx-all",),
    options=(FLOAT, REDUCE_RANGE),
)
