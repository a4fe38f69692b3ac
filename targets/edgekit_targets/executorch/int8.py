"""ExecuTorch (`.pte`) with XNNPACK, INT8 weights by PT2E quantization.

Linear layers have INT8 weights per output channel, and activations quantized per row at run time (XNNPACK's qd8
kernels). So no calibrated range can clip an unusual image. Convolutions have INT8 weights per channel, and activations
in ranges calibrated on the model's own samples. All else stays fp32, with all scoring, balancing and top-K. The first
convolutions and the last layers before a deciding output stay fp32 too, since nothing averages their rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import ExportError, reason
from edgekit.model.adapter import to_tensors
from edgekit.model.folder import load_model
from edgekit.model.program import load_program
from edgekit.model.spec import ORDERED, ModelSpec
from edgekit.runtime.logs import silent
from edgekit.target import INT8, ExportResult, Job, Need, Option, Place, Target, TargetDescription
from edgekit_targets.executorch import graph as graphs
from edgekit_targets.executorch import lower, partitions, xnnpack_passes
from edgekit_targets.onnx.quantization import calibration

if TYPE_CHECKING:
    import torch
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer

FLOAT = Option[tuple[str, ...]](name="float", default=(), help="modules to keep in fp32, by name, separated by commas")
ACTIVATIONS = Option(
    name="activations",
    default="static",
    help="ranges of the convolutions' inputs: calibrated, or measured at each run, which follows where the former is "
    "rejected. Depthwise convolutions then stay in fp32",
    choices=("static", "dynamic"),
)
CONVOLUTION = "aten.conv2d.default"
LAYERS = ("aten.linear.default", CONVOLUTION)
SAMPLES = 32
"""Count of calibration samples. The ranges of one convolution over images are stable after a few."""


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Convert the captured program to `model.pte` with INT8 weights."""
    spec = load_model(job.model)
    axes = lower.dynamic_axes(spec, job.get(lower.DYNAMIC))
    job.progress(0.1, "fixing the axes that do not stay dynamic")
    exported = lower.prepare_program(load_program(source), spec, axes, fold=False)
    float_parts = job.get(FLOAT)
    job.progress(0.3, "calibrating and quantizing")
    graph = exported.module()
    # The layers that stay in fp32: the last ones, and the first convolutions if other layers remain.
    last = _last_layers(spec, graph)
    both = {*last, *_first_convolutions(graph)}
    ends = sorted(both if {name for node in graph.graph.nodes if (name := _layer(node))} - both else last)
    is_dynamic = job.get(ACTIVATIONS) == "dynamic"
    quantized, layers = _quantize(spec, graph, axes, (*float_parts, *ends), is_dynamic)
    job.progress(0.5, "lowering to ExecuTorch and XNNPACK")
    lowered = lower.lower(spec, quantized, [partitions.xnnpack_partitioner()])
    (out / lower.ENTRY).write_bytes(lowered.data)
    float_note = f"; kept in fp32: {', '.join(dict.fromkeys((*float_parts, *ends)))}" if float_parts or ends else ""
    notes = (f"INT8 weights in {layers} linear and convolution layers, all else in fp32{float_note}", *lowered.notes())
    notes = (*notes, calibration.OF_SHIPPED) if calibration.unknown(spec) else notes
    return ExportResult(precision="int8", entry=lower.ENTRY, dynamic=axes, notes=notes)


def _first_convolutions(graph: torch.fx.GraphModule) -> set[str]:
    """Return the names of the convolutions that follow the inputs without another layer between.

    XNNPACK's INT8 convolutions round their results too, to one calibrated range. In arr-coc-tiny all later values are
    added to the first one's. On its worst photograph the NRMSE was 0.63 with it in INT8, and 14 % without. On the mean
    of 24 photographs it was 4.8 and 1.3 %.
    """
    # The results of layers, and the nodes after them.
    behind: set[torch.fx.Node] = set()
    names: set[str] = set()
    for node in graph.graph.nodes:
        if _layer(node):
            if str(node.target) == CONVOLUTION and node.all_input_nodes[0] not in behind:
                names.add(_layer(node))
            behind.add(node)
        elif any(all_input_node in behind for all_input_node in node.all_input_nodes):
            behind.add(node)
    return names


def _last_layers(spec: ModelSpec, graph: torch.fx.GraphModule) -> tuple[str, ...]:
    """Return the names of the layers that precede a deciding output without another layer between.

    On the worst photograph of arr-coc-tiny the NRMSE was 0.35 with them in INT8, and 0.18 without.
    """
    import torch

    arg = graph.graph.output_node().args[0]
    results = arg if isinstance(arg, (tuple, list)) else (arg,)
    outputs = zip(results, spec.outputs, strict=True)
    waiting = [node for node, o in outputs if o.role in ORDERED and isinstance(node, torch.fx.Node)]
    seen: set[torch.fx.Node] = set()
    names: set[str] = set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if layer := _layer(node):
            names.add(layer)
        else:
            waiting += node.all_input_nodes
    return tuple(sorted(names))


def _layer(node: torch.fx.Node) -> str:
    """Return the name of the module of a layer with a constant weight. Empty for other nodes."""
    return _weight(node).removesuffix(".weight")


def _weight(node: torch.fx.Node) -> str:
    """Return the name of a layer's weight. Empty for other operators, computed kernels and new matrices."""
    if str(node.target) not in LAYERS:
        return ""
    weight = node.all_input_nodes[1]
    own = weight.op == "get_attr" and not str(weight.target).startswith(xnnpack_passes.OWN)
    return str(weight.target) if own else ""


def _quantize(
    spec: ModelSpec,
    graph: torch.fx.GraphModule,
    axes: tuple[str, ...],
    float_parts: tuple[str, ...],
    is_dynamic: bool,
) -> tuple[torch.export.ExportedProgram, int]:
    """Return the program with quantized layers, and their count."""
    import torch

    samples = calibration.samples(spec, count=SAMPLES, least=1).batches(1)
    selected: set[str] = set()
    with silent(), torch.no_grad():
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

        try:
            prepared = prepare_pt2e(graph, _quantizer(_filter(float_parts, selected, is_dynamic), is_dynamic))
            for sample in samples:
                prepared(*to_tensors(spec, sample))
            converted = convert_pt2e(prepared)
            graphs.keep_float(converted)
            converted.recompile()
        except Exception as error:
            raise ExportError(f"PT2E cannot quantize '{spec.name}': {reason(error)}") from error
    if not selected:
        raise ExportError(f"'{spec.name}' has no linear or convolution layer to quantize. Use executorch")
    return lower.capture(spec, converted, axes), len(selected)


def _quantizer(is_selected: Callable[[torch.fx.Node], bool], is_dynamic: bool) -> XNNPACKQuantizer:
    import torch
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xnnpack
    from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY, QuantizationAnnotation

    moving = xnnpack.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    fixed = xnnpack.get_symmetric_quantization_config(is_per_channel=True)

    class Quantizer(xnnpack.XNNPACKQuantizer):  # type: ignore[misc]  # executorch has no types
        def transform_for_annotation(self, model: torch.fx.GraphModule) -> torch.fx.GraphModule:
            """Set up the quantizer without XNNPACK's own changes, which turn numbers added to indices into floats.

            A mean stays in fp32: where the batch grows, XNNPACK's INT8 one writes beyond its memory.
            """
            for node in model.graph.nodes:
                if node.target in graphs.means():
                    node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(_annotated=True)
            return model

    quantizer = Quantizer()
    quantizer.set_operator_type(torch.ops.aten.linear.default, moving)
    quantizer.set_operator_type(torch.ops.aten.conv2d.default, moving if is_dynamic else fixed)
    quantizer.set_filter_function(is_selected)
    return quantizer


def _filter(float_parts: tuple[str, ...], selected: set[str], is_dynamic: bool) -> Callable[[torch.fx.Node], bool]:
    """Return a test of whether a node may be quantized. It records the weights of such layers."""

    def is_wanted(node: torch.fx.Node) -> bool:
        name = _weight(node)
        if str(node.target) in LAYERS and (not name or any(name.startswith(f"{part}.") for part in float_parts)):
            return False
        # XNNPACK's depthwise convolutions take no ranges of a run.
        if is_dynamic and str(node.target) == CONVOLUTION and node.all_input_nodes[1].meta["val"].shape[1] == 1:
            return False
        if name:
            selected.add(name)
        return True

    return is_wanted


TARGET = Target(
    summary="ExecuTorch with XNNPACK, INT8 weights",
    about=TargetDescription(
        use_case="the same as `executorch`, a third of the size",
        proved_by="ExecuTorch's own runtime with XNNPACK on this processor",
        not_covered="phones' processors, GPUs and NPUs",
        audience="android",
    ),
    source="program",
    export=export,
    load=lower.load,
    places=(Place(name="cpu", tolerance=INT8),),
    needs=(Need("executorch", "executorch"), Need("torchao", "executorch")),
    groups=("mobile",),
    options=(lower.DYNAMIC, FLOAT, ACTIVATIONS),
    fallback={"activations": "dynamic"},
)
