"""ONNX: one portable file with dynamic axes, fp32.

The graph comes from torch.export through PyTorch's ONNX exporter, which folds constants and keeps LayerNormalization
and Gelu whole. A patch embedding becomes Gemm and attention loses its needless reshapes; nothing specific to one
runtime is added. The exporter's notes about its machine (absolute paths, source lines) are removed, and nodes are named
after their PyTorch modules.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import ExportError, UsageError, reason
from edgekit.model import capture_errors as causes
from edgekit.model import decompositions, own_operators, recurrent
from edgekit.model.capture_errors import refuse_bfloat16, refuse_open_pools
from edgekit.model.folder import load_declaration, load_model
from edgekit.model.graph import Program, capture
from edgekit.model.program import load_program
from edgekit.model.shapes import named_sizes
from edgekit.model.sources import onnx as onnx_file
from edgekit.runtime.ort import OrtRuntime
from edgekit.target import (
    FP32,
    ExportResult,
    Job,
    Need,
    Option,
    Place,
    Runtime,
    SourceRequirements,
    Target,
    TargetDescription,
)
from edgekit_targets.onnx.passes import fourier, integers, patterns
from edgekit_targets.onnx.passes import recurrent as recurrent_layers
from edgekit_targets.onnx.passes.graph import exact, module_path, name_constants, save_graph, strip_properties

if TYPE_CHECKING:
    import onnx
    import torch

    from edgekit.model.spec import ModelSpec

ENTRY = "model.onnx"
# 20 is the first with Gelu, 17 the first with LayerNormalization.
OPSET = Option(
    name="opset", default=20, choices=(17, 20, 21, 22, 23), help="ONNX opset version; 17 for runtimes of 2022"
)
# Opset of PyTorch's exporter. Older ones are converted from it.
LOWEST = 18
SHAPES = Option(
    name="shapes",
    default="dynamic",
    help="dynamic; static: batch and size fixed at the example's; or another size of the grid, such as 320x256",
)
SIGMOID = Option(
    name="sigmoid",
    default="operator",
    choices=("operator", "exponentials"),
    help="exponentials: for Qualcomm's NPU, whose own Sigmoid loses scores below 0.001",
)
_SYMBOL = re.compile(r"\bs\d+\b")


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Export a captured program, or an ONNX file that is the model, to model.onnx."""
    static = job.get(SHAPES) != "dynamic"
    spec = load_model(job.model) if static else load_declaration(job.model)
    sizes = size_of(spec, job.get(SHAPES))
    file = onnx_file.file_of(spec.module)
    job.progress(0.2, "translating the graph to ONNX")
    if file is None:
        axes = {name: replace(axis, default=sizes.get(name, axis.default)) for name, axis in spec.axes.items()}
        if static:
            captured = capture(replace(spec, axes=axes), dynamic=False)
        else:
            captured = load_program(source, mapped=True)
        refuse_bfloat16(spec.name, captured.exported)
        refuse_open_pools(spec, captured.exported)
        graph = _translate(spec, captured, max(job.get(OPSET), LOWEST))
        # Frees the program's weights.
        del captured
        _name_axes(graph, spec)
        # module.path/OpType, numbered if a module has several: error attribution and Netron show these names.
        seen: Counter[str] = Counter()
        for node in graph.graph.node:
            path = module_path({prop.key: prop.value for prop in node.metadata_props})
            base = f"{path}/{node.op_type}" if path else node.op_type
            seen[base] += 1
            node.name = base if seen[base] == 1 else f"{base}_{seen[base]}"
    elif static or job.get(OPSET) != OPSET.default:
        raise UsageError(f"'{spec.name}' is an ONNX file, which keeps its shapes and its opset. Leave out -O onnx.*")
    else:
        names = ([i.name for i in spec.inputs], [o.name for o in spec.outputs])
        model_file = onnx_file.read_graph(file)
        # A history of passes in the file would not be edgekit's.
        del model_file.metadata_props[:]
        graph = patterns.normalize_foreign(model_file, *names)
    job.progress(0.8, "checking the graph")
    if job.get(SIGMOID) == "exponentials":
        graph = patterns.sigmoid_by_exponentials(graph)
    _strip(graph)
    graph.graph.name = spec.name
    for key, value in spec.facts.items():
        entry = graph.metadata_props.add()
        entry.key, entry.value = key, value
    if job.get(OPSET) < LOWEST:
        graph = _lower_opset(graph, spec, job.get(OPSET))
    save_graph(graph, out / ENTRY)
    return ExportResult(
        precision="fp32", entry=ENTRY, dynamic=() if static else tuple(spec.axes), sizes=(sizes,) if sizes else ()
    )


def load(artifact: Path, place: Place) -> Runtime:
    """Open it in ONNX Runtime, which computes fp16 nodes without a kernel in fp32."""
    return OrtRuntime(artifact / ENTRY)


def size_of(spec: ModelSpec, name: str) -> Mapping[str, int]:
    """Return the sizes named by the option, by axis; empty for the defaults or open sizes.

    Raises:
        UsageError: If the reference has no outputs at these sizes.
    """
    if name in ("dynamic", "static"):
        return {}
    by_name = named_sizes(spec.axes)
    if name not in by_name:
        possible = ", ".join(("dynamic", "static", *by_name))
        raise UsageError(
            f"option 'onnx.shapes' cannot be '{name}'. Possible: {possible}, since '{spec.name}' is tested there"
        )
    return by_name[name] if name != next(iter(by_name)) else {}


@exact()
def _translate(spec: ModelSpec, captured: Program, opset: int) -> onnx.ModelProto:
    import onnx_ir as ir
    import onnxscript.optimizer
    import torch

    # The exporter warns of torchvision's operators, which no model here has, and of its own deprecated helpers.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    _lay_out(captured.exported)
    recurrent.with_own_operators(captured.exported)
    exported = decompositions.without_searches(captured.exported)
    # no_grad, since complex weights have fewer operators with gradients.
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            translated = torch.onnx.export(
                exported,
                (),
                dynamo=True,
                opset_version=opset,
                optimize=True,
                verbose=False,
                external_data=False,
                input_names=[i.name for i in spec.inputs],
                output_names=[o.name for o in spec.outputs],
                custom_translation_table=patterns.attention_translations()
                | recurrent_layers.translations()
                | integers.translations()
                | own_operators.translations(spec),
            )
        except Exception as error:
            cause = causes.why(error, captured.exported)
            raise ExportError(f"PyTorch's ONNX exporter cannot translate '{spec.name}': {cause}") from error
    if translated is None:
        raise ExportError(f"PyTorch's ONNX exporter returned nothing for '{spec.name}'")
    for declared, value in zip(spec.inputs, translated.model.graph.inputs, strict=True):
        # PyTorch 2.10 renames an input that is also an output.
        value.name = declared.name
    # The exporter may give an inner tensor the name of an input or output, so it is renamed.
    ends = (*translated.model.graph.inputs, *translated.model.graph.outputs)
    reserved = {value.name for value in ends}
    for value in [value for node in translated.model.graph.all_nodes() for value in node.outputs]:
        if value.name in reserved and not any(value is end for end in ends):
            value.name = f"{value.name}_inner"
    fourier.drop_own_lengths(translated.model)
    graph = patterns.patches_as_gemm(translated.model, _multiples(spec))
    if not captured.dynamic:
        # The passes' computations on shapes are now constant.
        onnxscript.optimizer.optimize(graph)
    return ir.to_proto(name_constants(graph))


def _lay_out(exported: torch.export.ExportedProgram) -> None:
    """Insert a copy before each view of a transposed tensor, which the exporter drops from the ONNX graph.

    When attention's output is transposed back, the capture saw the layout of PyTorch's kernel for this processor;
    the exporter decomposes attention, and its output then cannot be viewed in this way.
    """
    import torch

    aten, graph = torch.ops.aten, exported.graph_module.graph
    for node in list(graph.nodes):
        if node.target in (aten.view.default, aten.reshape.default) and node.args[0].target is aten.transpose.int:
            with graph.inserting_before(node):
                copy = graph.call_function(
                    aten.clone.default, (node.args[0],), {"memory_format": torch.contiguous_format}
                )
            copy.meta = dict(node.args[0].meta)
            node.replace_input_with(node.args[0], copy)
    exported.graph_module.recompile()


def _lower_opset(graph: onnx.ModelProto, spec: ModelSpec, opset: int) -> onnx.ModelProto:
    """Return the graph in an older opset, by ONNX's own converter, and in that opset's version of the file format.

    A runtime refuses a newer format, whatever the opset: ONNX Runtime 1.15 loads at most 9, and today's is 10.
    """
    from onnx import helper, version_converter

    try:
        lowered = version_converter.convert_version(graph, opset)
    except Exception as error:
        raise ExportError(f"cannot convert '{spec.name}' to opset {opset}: {reason(error)}") from error
    lowered.ir_version = helper.find_min_ir_version_for(list(lowered.opset_import))
    return lowered


def _multiples(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Return the divisor of each input size: the size itself if it is fixed."""
    return {
        i.name: tuple(
            size if isinstance(size, int) else (spec.axes[size].multiple_of if size in spec.axes else 1)
            for size in i.shape
        )
        for i in spec.inputs
    }


def _name_axes(graph: onnx.ModelProto, spec: ModelSpec) -> None:
    """Name the axes: the exporter calls them s77, s0 ..., and outputs' sizes are expressions of them."""
    axes: dict[str, str] = {}
    for declared, value in zip(spec.inputs, graph.graph.input, strict=True):
        for name, dimension in zip(declared.shape, value.type.tensor_type.shape.dim, strict=True):
            if isinstance(name, str) and dimension.dim_param:
                axes[dimension.dim_param] = name
    for value in (*graph.graph.input, *graph.graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param:
                renamed = _SYMBOL.sub(lambda match: axes.get(match[0], match[0]), dimension.dim_param)
                dimension.dim_param = renamed.replace("((", "(").replace("))", ")")


def _strip(graph: onnx.ModelProto) -> None:
    """Remove absolute paths and source lines, and the shapes of inner values, which later passes make stale."""
    strip_properties(graph)
    del graph.graph.metadata_props[:]
    del graph.graph.value_info[:]
    graph.doc_string = graph.graph.doc_string = ""
    for item in (*graph.graph.node, *graph.graph.initializer, *graph.graph.input, *graph.graph.output):
        item.doc_string = ""
        del item.metadata_props[:]


TARGET = Target(
    summary="ONNX, fp32, dynamic batch and size",
    about=TargetDescription(
        use_case="ONNX Runtime on servers, edge boxes and phones; the source of most other targets",
        proved_by="ONNX Runtime on the CPU",
        not_covered="GPUs and NPUs, ONNX Runtime's mobile builds, versions other than the installed one",
    ),
    reads=SourceRequirements(onnx=True),
    source="program",
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=FP32),),
    needs=(Need("onnxscript", "cpu"), Need("onnxruntime", "cpu")),
    groups=("onnx-all",),
    options=(OPSET, SHAPES, SIGMOID),
)
