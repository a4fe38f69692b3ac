"""ONNX: one portable file with dynamic axes, fp32.

The graph comes from torch.export through PyTorch's ONNX exporter, which folds constants and keeps LayerNormalization
and Gelu whole. Linear layers become Gemm and attention loses its needless reshapes, which is faster in every runtime;
nothing that is only one runtime's is put in. What the exporter says of the machine that ran it (absolute paths, source
lines) is taken out, and nodes are named after the PyTorch modules that they come from.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import ExportError
from edgekit.model import causes, onnx_file, own_operators
from edgekit.model.graph import Program
from edgekit.model.program import load_program
from edgekit.model.source import load_model
from edgekit.onnxgraph import attention, foreign, gemm, patch_embed, save, split_qkv
from edgekit.onnxgraph.constant_names import module_path, name_constants
from edgekit.runtime.ort import OrtRuntime
from edgekit.target import FP32, Exported, Job, Need, Option, Place, Runtime, Target

if TYPE_CHECKING:
    import onnx
    import torch

    from edgekit.model.spec import ModelSpec

ENTRY = "model.onnx"
OPSET = Option(
    name="opset", default=20, choices=(20, 21, 22, 23), help="ONNX opset version"
)  # 20 is the first with Gelu
_SYMBOL = re.compile(r"\bs\d+\b")


def export(source: Path, out: Path, job: Job) -> Exported:
    """Captured program, or an ONNX file that is the model -> model.onnx."""
    spec = load_model(job.model)
    file = onnx_file.file_of(spec.module)
    job.progress(0.2, "translating the graph to ONNX")
    if file is None:
        graph = _translate(spec, load_program(source), job.get(OPSET))
        _name_axes(graph, spec)
        _name_nodes(graph)
    else:
        names = ([i.name for i in spec.inputs], [o.name for o in spec.outputs])
        graph = foreign.adopted(onnx_file.read_graph(file), *names)
    job.progress(0.8, "checking the graph")
    _strip(graph)
    _describe(graph, spec)
    save.save_graph(graph, out / ENTRY)
    return Exported(precision="fp32", entry=ENTRY, dynamic=tuple(spec.axes))


def load(artifact: Path, place: Place) -> Runtime:
    """Run it in ONNX Runtime."""
    return OrtRuntime(artifact / ENTRY)


def _translate(spec: ModelSpec, captured: Program, opset: int) -> onnx.ModelProto:
    import torch

    # It warns of torchvision's operators, which no model here has, and of its own deprecated helpers.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    _without_views(captured.exported)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            translated = torch.onnx.export(
                captured.exported,
                (),
                dynamo=True,
                opset_version=opset,
                optimize=True,
                verbose=False,
                external_data=False,
                input_names=[i.name for i in spec.inputs],
                output_names=[o.name for o in spec.outputs],
                custom_translation_table=attention.translations() | own_operators.translations(spec),
            )
        except Exception as error:
            cause = causes.why(error, captured.exported)
            raise ExportError(f"PyTorch's ONNX exporter cannot translate '{spec.name}': {cause}") from error
    if translated is None:
        raise ExportError(f"PyTorch's ONNX exporter returned nothing for '{spec.name}'")
    patch_embed.embed(translated.model, _multiples(spec))
    split_qkv.split(translated.model)
    gemm.flatten(translated.model)
    name_constants(translated.model)
    return translated.model_proto


def _without_views(exported: torch.export.ExportedProgram) -> None:
    """Views as reshapes: the exporter takes attention apart, and what it gives then lies otherwise in memory."""
    import torch

    for node in exported.graph_module.graph.nodes:
        if node.target is torch.ops.aten.view.default:
            node.target = torch.ops.aten.reshape.default
    exported.graph_module.recompile()


def _multiples(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """What each input's sizes are multiples of: the size itself where it is fixed."""
    return {
        i.name: tuple(spec.axes[size].multiple_of if isinstance(size, str) else size for size in i.shape)
        for i in spec.inputs
    }


def _name_axes(graph: onnx.ModelProto, spec: ModelSpec) -> None:
    """The exporter calls axes s77, s0 ...; outputs' sizes are expressions of them."""
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


def _name_nodes(graph: onnx.ModelProto) -> None:
    """module.path/OpType, numbered where a module has several: what error attribution and Netron show."""
    seen: Counter[str] = Counter()
    for node in graph.graph.node:
        path = module_path({prop.key: prop.value for prop in node.metadata_props})
        base = f"{path}/{node.op_type}" if path else node.op_type
        seen[base] += 1
        node.name = base if seen[base] == 1 else f"{base}_{seen[base]}"


def _strip(graph: onnx.ModelProto) -> None:
    """Drop absolute paths and source lines, and the shapes of inner values, which later passes make stale."""
    del graph.metadata_props[:]
    del graph.graph.metadata_props[:]
    del graph.graph.value_info[:]
    graph.doc_string = graph.graph.doc_string = ""
    for item in (*graph.graph.node, *graph.graph.initializer, *graph.graph.input, *graph.graph.output):
        item.doc_string = ""
        del item.metadata_props[:]


def _describe(graph: onnx.ModelProto, spec: ModelSpec) -> None:
    graph.graph.name = spec.name
    for key, value in spec.facts.items():
        entry = graph.metadata_props.add()
        entry.key, entry.value = key, value


TARGET = Target(
    summary="ONNX, fp32, dynamic batch and size",
    source="program",
    takes_onnx=True,
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=FP32),),
    needs=(Need("onnxscript", "cpu"), Need("onnxruntime", "cpu")),
    groups=("onnx-all",),
    options=(OPSET,),
)
