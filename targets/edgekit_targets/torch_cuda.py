"""The captured program for NVIDIA GPUs, its products in half precision; `edgekit.runtime.torch_cuda` compiles it."""

from __future__ import annotations

import io
import json
import operator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from edgekit.model.folder import load_model
from edgekit.model.program import load_program
from edgekit.runtime.torch_cuda import CPU, CUDA, DECLARED, TorchCudaRuntime
from edgekit.target import FP32, FP32_DELEGATED, About, Exported, Job, Place, Runtime, Target
from edgekit_targets._half import LIMITS, operator_name, precision_option, to_half
from edgekit_targets._torchscript import archive

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

    from edgekit.model.spec import ModelSpec
    from edgekit.target import Precision

ENTRY = "program.pt2"
PRECISION = precision_option("fp16")
STRIPPED = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node", "custom")
"""What a captured node says of the sources, whose paths are the host's."""
DROPPED = (".data/serialization_id",)


def export(source: Path, out: Path, job: Job) -> Exported:
    """Captured program -> program.pt2."""
    import torch

    spec = load_model(job.model)
    exported = load_program(source).exported
    precision = job.get(PRECISION)
    job.progress(0.3, f"putting products and their weights into {precision}")
    if precision != "fp32":
        multiply_patches(exported)
    to_half(exported, precision)
    _strip(exported)
    job.progress(0.7, "saving")
    saved = io.BytesIO()
    torch.export.save(exported, saved, extra_files={DECLARED: json.dumps(_declared(spec))})
    (out / ENTRY).write_bytes(archive.without(saved.getvalue(), DROPPED))
    return Exported(precision=cast("Precision", precision), entry=ENTRY, dynamic=job.dynamic, notes=_notes(precision))


def load(artifact: Path, place: Place) -> Runtime:
    """Run it in PyTorch, on a GPU compiled."""
    archive.require_whole(artifact / ENTRY, "a PyTorch program")
    return TorchCudaRuntime(artifact / ENTRY, place.settings)


def _strip(exported: torch.export.ExportedProgram) -> None:
    """Take out the example, what names the host's sources, and checks of the device that it was captured on."""
    exported.example_inputs = None
    for node in list(exported.graph.nodes):
        if operator_name(node) == "_assert_tensor_metadata":
            exported.graph.erase_node(node)
            continue
        for name in STRIPPED:
            node.meta.pop(name, None)
    exported.graph_module.recompile()


def multiply_patches(exported: torch.export.ExportedProgram) -> None:
    """Compute convolutions over patches that do not overlap as one matrix product, their weights stored as its matrix.

    cuDNN has no fp16 kernel for few channels and large kernels: it takes 47 of 254 microseconds of all kernels of
    arr-coc-tiny on an H100.
    """
    for node in list(exported.graph.nodes):
        if operator_name(node) == "conv2d" and _covers_patches(node) and _flatten(exported, node.args[1]):
            with exported.graph.inserting_before(node):
                node.replace_all_uses_with(_product(exported.graph, node))
            exported.graph.erase_node(node)


def _product(graph: torch.fx.Graph, node: Node) -> Node:
    """The operators that stand for such a convolution; its weight is a matrix already."""
    import torch

    def call(target: Any, *arguments: Any) -> Node:
        result = graph.call_function(target, arguments)
        result.meta["val"] = target(*torch.fx.map_arg(arguments, lambda one: one.meta["val"]))
        return result

    aten = torch.ops.aten
    arguments: Any = node.args
    image, weight, bias = (*arguments[:3], None)[:3]
    _, channels, height, width = node.meta["kernel"]
    batch = call(aten.sym_size.int, image, 0)
    rows = call(operator.floordiv, call(aten.sym_size.int, image, 2), height)
    columns = call(operator.floordiv, call(aten.sym_size.int, image, 3), width)
    cut = call(aten.slice.Tensor, image, 2, 0, call(operator.mul, rows, height))
    cut = call(aten.slice.Tensor, cut, 3, 0, call(operator.mul, columns, width))
    patches = call(aten.reshape.default, cut, [batch, channels, rows, height, columns, width])
    patches = call(aten.permute.default, patches, [0, 2, 4, 1, 3, 5])
    patches = call(aten.reshape.default, patches, [batch, rows, columns, channels * height * width])
    product = call(aten.linear.default, patches, weight, *([] if bias is None else [bias]))
    return call(aten.permute.default, product, [0, 3, 1, 2])


def _covers_patches(node: Node) -> bool:
    """Whether a convolution's kernel is as large as its stride, without padding, dilation or groups."""
    arguments: tuple[Any, ...] = node.args
    defaults: tuple[Any, ...] = ([1, 1], [0, 0], [1, 1], 1)
    stride, padding, dilation, groups = (*arguments[3:], *defaults[max(0, len(arguments) - 3) :])
    node.meta["kernel"] = kernel = tuple(arguments[1].meta["val"].shape)
    plain = padding == [0, 0] and dilation == [1, 1] and groups == 1
    return plain and (*stride,) == kernel[2:] and min(kernel[2:]) > 1 and arguments[0].meta["val"].dim() == 4


def _flatten(exported: torch.export.ExportedProgram, weight: Node) -> bool:
    """Store a weight that one operator reads as a matrix, a row for each output; False where others read it too."""
    import torch

    signature = exported.graph_signature
    name = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}.get(weight.name)
    if name is None or len(weight.users) != 1 or name not in exported.state_dict:
        return False
    exported.state_dict[name] = torch.nn.Parameter(exported.state_dict[name].detach().flatten(1), requires_grad=False)
    weight.meta["val"] = weight.meta["val"].flatten(1)
    return True


def _declared(spec: ModelSpec) -> dict[str, Any]:
    sizes = {name: axis.default for name, axis in spec.axes.items()}
    inputs = [
        {
            "name": one.name,
            "dtype": one.dtype,
            "shape": [sizes[size] if isinstance(size, str) else size for size in one.shape],
        }
        for one in spec.inputs
    ]
    return {"inputs": inputs, "outputs": [one.name for one in spec.outputs]}


def _notes(precision: str) -> tuple[str, ...]:
    import torch

    half = f"products and their weights in {precision}, all else in fp32; " if precision != "fp32" else ""
    return (f"{half}for PyTorch {torch.__version__.partition('+')[0]}, which compiles it when it is opened",)


TARGET = Target(
    summary="program for NVIDIA GPUs, compiled, CUDA graphs, fp16 products, dynamic batch and size",
    about=About(
        choose_for="servers with an NVIDIA GPU",
        proved_by="PyTorch on the GPU, compiled; where there is none the same program on the CPU",
        not_proved="other GPUs, other versions of PyTorch",
    ),
    source="program",
    export=export,
    load=load,
    places=(
        Place(name=CUDA, tolerance=FP32_DELEGATED, settings={"device": CUDA}, limits=LIMITS),
        Place(name=CPU, tolerance=FP32, settings={"device": CPU}, limits=LIMITS, timed=False),
    ),
    by_name=True,
    runs_code=True,
    options=(PRECISION,),
)
