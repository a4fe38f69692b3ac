"""ONNX, 4-bit weights: linear layers in blocks of 32 inputs, with a scale and a zero point for each.

If the limits of INT8 fail, the most sensitive groups of layers get 8 bits. Other weights are stored in INT8 or
fp16. The inputs of such a layer may be rounded to INT8 in blocks at run time (`accuracy_level` 4).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import ExportError
from edgekit.model.folder import load_model
from edgekit.target import INT8, ExportResult, Job, Need, Option, Place, Target, TargetDescription
from edgekit_targets.onnx.export import ENTRY, load
from edgekit_targets.onnx.passes import weight_only
from edgekit_targets.onnx.passes.dynamic import PackedWeights, quantize_blocks
from edgekit_targets.onnx.passes.graph import fold_constants, save_graph
from edgekit_targets.onnx.passes.groups import linear_groups, nodes_of
from edgekit_targets.onnx.quantization import calibration
from edgekit_targets.onnx.quantization.calibration import extra_inputs
from edgekit_targets.onnx.quantization.evaluator import Evaluator, Quality, strictest
from edgekit_targets.onnx.quantization.search import fallback

if TYPE_CHECKING:
    import onnx

SAMPLES = 64
"""Number of inputs that decide which groups need 8 bits."""
BLOCK = Option(name="block", default="32", choices=("16", "32", "64", "128"), help="inputs that share a scale")
ALTERNATIVES = "use onnx-int8-dynamic, onnx-fp16 or onnx"


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Export the ONNX artifact to model.onnx with 4-bit weights.

    Raises:
        ExportError: If no linear layer can be stored in 4 bits.
    """
    import onnx

    spec, graph = load_model(job.model), fold_constants(onnx.load(job.entry))
    parts = _parts(graph)
    if not parts:
        raise ExportError(
            f"'{spec.name}' has no linear layer of {weight_only.LEAST} weights or more, which 4 bits need. "
            f"Instead, {ALTERNATIVES}"
        )

    every, block = nodes_of(parts, ()), int(job.get(BLOCK))
    # A search tries many choices of the same layers in the same two widths.
    cache: dict[tuple[str, int], PackedWeights] = {}

    def quantize(eight: tuple[str, ...]) -> onnx.ModelProto:
        finer = [node for group in eight for node in parts[group]]
        return weight_only.quantize_weights(quantize_blocks(graph, every, finer, block, cache))

    samples = calibration.available(spec, SAMPLES)
    with tempfile.TemporaryDirectory(prefix="edgekit-") as place:
        extra = extra_inputs(spec, samples, job.dynamic)
        evaluator = Evaluator(spec, graph, samples, Path(place), extra, tolerance=strictest(INT8))

        def judge(eight: tuple[str, ...]) -> Quality:
            return evaluator.judge(quantize(eight))

        def snr(eight: tuple[str, ...]) -> float:
            return evaluator.snr(evaluator.open_graph(quantize(eight), "candidate"))

        result = fallback(parts, judge, snr, lambda share, text: job.progress(0.1 + 0.8 * share, text))
    save_graph(quantize(result.groups), out / ENTRY)
    notes = (f"in 8 bits: {', '.join(result.groups)}",) if result.groups else ()
    return ExportResult(
        precision="int4", entry=ENTRY, dynamic=job.dynamic, notes=(*notes, *result.notes), failures=result.failures
    )


def _parts(graph: onnx.ModelProto) -> dict[str, tuple[str, ...]]:
    """Return the linear layers that are large enough, by group."""
    sizes = {i.name: i.dims[0] * i.dims[1] for i in graph.graph.initializer if len(i.dims) == 2}
    weights = {node.name: node.input[1] for node in graph.graph.node if len(node.input) > 1}
    large = {
        group: tuple(node for node in nodes if sizes[weights[node]] >= weight_only.LEAST)
        for group, nodes in linear_groups(graph).items()
    }
    return {group: nodes for group, nodes in large.items() if nodes}


TARGET = Target(
    summary="ONNX, 4-bit weights in linear layers",
    about=TargetDescription(
        use_case="language models and other large linear layers in browsers and on phones, where size matters",
        proved_by="ONNX Runtime on the CPU",
        not_covered="WebGPU and other providers, which have their own kernels for such layers",
    ),
    source="onnx",
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=INT8),),
    needs=(Need("onnxruntime", "cpu"),),
    opt_in=True,
    options=(BLOCK,),
)
