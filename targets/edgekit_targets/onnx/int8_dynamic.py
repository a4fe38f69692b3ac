"""ONNX, dynamic INT8: weights in INT8, activations rounded in each run.

Needs no calibration; if the model has a calibration set, its graph is conditioned with it first.

A batch shares one range, so an image's output depends a little on its batch: send one image at a time if that
matters.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import ExportError
from edgekit.model.evaluation_set import evaluation_of, unusual_shapes
from edgekit.model.folder import load_model
from edgekit.model.onnx_check import bodies, every_node
from edgekit.model.shapes import shapes_between
from edgekit.runtime.ort import OrtRuntime
from edgekit.target import INT8, ExportResult, Job, Need, Option, Place, Runtime, Target, TargetDescription
from edgekit_targets.onnx.passes import dynamic, weight_only
from edgekit_targets.onnx.passes.graph import fold_constants, save_graph
from edgekit_targets.onnx.passes.groups import groups
from edgekit_targets.onnx.quantization import calibration, conditioning
from edgekit_targets.onnx.quantization.calibration import Samples, at_shapes, extra_inputs
from edgekit_targets.onnx.quantization.conditioning import REDUCE_RANGE
from edgekit_targets.onnx.quantization.evaluator import COMPARED_IMAGES, Evaluator, compare_processors, without_task

if TYPE_CHECKING:
    import onnx

    from edgekit.model.spec import ModelSpec

ENTRY = "model.onnx"
HELD_BACK = 32
"""Number of calibration samples that choose between graphs."""
BETWEEN_ROWS = 2
"""Number of these at each size between the grid's."""
COARSE = "weights of its convolutions lose too much in INT8"
FLOAT = Option[tuple[str, ...]](
    name="float", default=(), help="groups of layers that stay in float, separated by commas"
)


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Export the ONNX artifact to model.onnx in INT8."""
    import onnx

    spec, graph = load_model(job.model), fold_constants(onnx.load(job.entry))
    parts = groups(graph, dynamic=True)
    floats = job.get(FLOAT)
    if unknown := [name for name in floats if name not in parts]:
        raise ExportError(f"no group '{unknown[0]}' to leave in float. Possible: {', '.join(parts)}")
    job.progress(0.1, "rounding the weights")
    result = _quantize(spec, graph, floats, job)
    stored = weight_only.count_stored(result.graph)
    if not parts and not stored:
        raise ExportError(_without_int8(spec, graph, result))
    save_graph(result.graph, out / ENTRY)
    job.progress(0.6, "emulating processors without VNNI")
    only = () if parts else (f"{stored} weights are stored in INT8; all arithmetic is in float",)
    float_notes = (f"in float arithmetic: {', '.join(result.floats)}",) if result.floats else ()
    half = (f"{COARSE} and are stored in fp16: {result.lost}",) if result.lost else ()
    # Compared on the first evaluation images, if there are any.
    elsewhere: tuple[str, ...] = ()
    evaluation = evaluation_of(spec)
    if evaluation is not None:
        every = Samples(evaluation.inputs, evaluation.names, unusual_shapes(spec.inputs))
        comparison = compare_processors(spec, graph, result.graph, every.part(0, COMPARED_IMAGES))
        elsewhere = (comparison.sentence("for such processors export with `-O onnx-int8-dynamic.reduce_range=yes`"),)
    notes = (*only, *float_notes, *half, *elsewhere)
    return ExportResult(precision="int8", entry=ENTRY, dynamic=job.dynamic, notes=notes)


@dataclass(frozen=True)
class _QuantizedGraph:
    """An INT8 graph and its groups in float.

    `lost` is the loss of the convolutions' weights in INT8, if these are in fp16.
    """

    graph: onnx.ModelProto
    floats: tuple[str, ...]
    lost: str = ""


def _without_int8(spec: ModelSpec, graph: onnx.ModelProto, result: _QuantizedGraph) -> str:
    """Return why nothing of a graph would be in INT8."""
    inside = any(every_node(body) for node in graph.graph.node for body in bodies(node))
    where = " outside of its branches and loops, which stay unchanged" if inside else ""
    text = f"'{spec.name}' has no linear or recurrent layer whose weights dynamic INT8 could hold{where}"
    others = "use onnx" if inside else "use onnx-int8-static, onnx or onnx-fp16"
    if result.lost:
        return f"{text}, and {COARSE} ({result.lost}). Instead, {others}"
    return f"{text}, and no convolution of {weight_only.LEAST} or more that it could store. Instead, {others}"


def _quantize(spec: ModelSpec, graph: onnx.ModelProto, floats: tuple[str, ...], job: Job) -> _QuantizedGraph:
    """Return the INT8 graph: the first of `_candidates` that passes, or the one nearest to fp32.

    The decision uses samples unseen by the conditioning, also at other shapes, and random, extreme and changed
    inputs. Without a calibration set nothing is conditioned.
    """
    if spec.calibration is None:
        return _by_what_is_stored(spec, graph, floats, job)
    samples = calibration.samples(spec, count=conditioning.SAMPLES + HELD_BACK, least=1)
    held_back = min(HELD_BACK, len(samples.names) // 3)
    calibration_samples = samples.part(0, len(samples.names) - held_back)
    candidates = _candidates(graph, calibration_samples, floats, job.get(REDUCE_RANGE))
    if not held_back:
        return next(candidates)
    with tempfile.TemporaryDirectory(prefix="edgekit-") as place:
        held_back_samples = samples.part(len(calibration_samples.names), None)
        further = at_shapes(spec, samples, job.dynamic, shapes_between(spec.axes), BETWEEN_ROWS)
        extra = (*extra_inputs(spec, samples, job.dynamic), *further)
        evaluator = Evaluator(spec, graph, held_back_samples, Path(place), extra)
        noise: list[tuple[float, _QuantizedGraph]] = []
        for candidate in candidates:
            quality = evaluator.judge(candidate.graph)
            if quality.passed:
                return candidate
            noise.append((quality.snr_db, candidate))
    return max(noise, key=lambda each: each[0])[1]


def _by_what_is_stored(spec: ModelSpec, graph: onnx.ModelProto, floats: tuple[str, ...], job: Job) -> _QuantizedGraph:
    """Return the graph without calibration; convolutions' weights are in fp16 if the gate's limits fail in INT8.

    It is judged on photographs that ship with edgekit, or random inputs, and on the judge's own inputs.
    """
    reduce_range = job.get(REDUCE_RANGE)
    result = dynamic.quantize_dynamic(graph, floats, reduce_range)
    if not (stored := weight_only.count_stored(result)):
        return _QuantizedGraph(result, floats)
    samples = calibration.available(spec, HELD_BACK)
    extra = extra_inputs(spec, samples, job.dynamic)
    with tempfile.TemporaryDirectory(prefix="edgekit-") as place:
        quality = Evaluator(spec, graph, samples, Path(place), extra, tolerance=without_task(INT8)).judge(result)
    if quality.passed or not quality.reasons:
        return _QuantizedGraph(result, floats)
    half = dynamic.quantize_dynamic(graph, floats, reduce_range, convolutions=False)
    return (
        _QuantizedGraph(half, floats, quality.reasons[0])
        if weight_only.count_stored(half) < stored
        else _QuantizedGraph(result, floats)
    )


def _candidates(
    graph: onnx.ModelProto, samples: Samples, floats: tuple[str, ...], reduce_range: bool
) -> Iterator[_QuantizedGraph]:
    """Yield INT8 graphs with their groups in float, the fastest first, and last the graph without conditioning."""
    light = conditioning.condition(graph, samples, floats, reduce_range, channel_scales=False)
    yield _QuantizedGraph(dynamic.quantize_dynamic(light.graph, light.floats, reduce_range), light.floats)
    ready = conditioning.condition(graph, samples, floats, reduce_range)
    yield _QuantizedGraph(dynamic.quantize_dynamic(ready.graph, ready.floats, reduce_range), ready.floats)
    yield _QuantizedGraph(
        dynamic.quantize_dynamic(ready.graph, ready.floats, reduce_range, token_scales=True), ready.floats
    )
    yield _QuantizedGraph(dynamic.quantize_dynamic(graph, floats, reduce_range), floats)


def load(artifact: Path, place: Place) -> Runtime:
    """Open it in ONNX Runtime."""
    return OrtRuntime(artifact / ENTRY)


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
