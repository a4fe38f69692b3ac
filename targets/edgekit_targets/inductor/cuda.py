"""The captured program for NVIDIA GPUs, its products in half precision; `cuda_runtime.py` compiles it.

A convolution over patches stays one. As a matrix product it is quicker (0.248 ms instead of 0.294 of arr-coc-tiny on an
H100). But the judge rejected it there, by up to 0.99, at the batch sizes that Inductor of PyTorch 2.11 compiles with a
fixed height and width. It also rejected a custom operator whose answer lay in memory by patches and not by channels.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from edgekit.model.folder import load_model
from edgekit.model.program import load_program
from edgekit.storage import files as archive
from edgekit.target import FP32, FP32_DELEGATED, ExportResult, Job, Place, Runtime, Target, TargetDescription
from edgekit_targets.inductor.cuda_runtime import CPU, CUDA, DECLARED, TorchCudaRuntime
from edgekit_targets.inductor.half import LIMITS, operator_name, precision_option, to_half

if TYPE_CHECKING:
    import torch

    from edgekit.model.spec import ModelSpec
    from edgekit.target import Precision

ENTRY = "program.pt2"
PRECISION = precision_option("fp16")
STRIPPED = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node", "custom")
"""Metadata of a captured node about its sources, whose paths are the host's."""
DROPPED = (".data/serialization_id",)


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Convert the captured program to `program.pt2`."""
    import torch

    spec = load_model(job.model)
    exported = load_program(source).exported
    precision = job.get(PRECISION)
    job.progress(0.3, f"putting products and their weights into {precision}")
    to_half(exported, precision)
    strip(exported)
    job.progress(0.7, "saving")
    saved = io.BytesIO()
    torch.export.save(exported, saved, extra_files={DECLARED: json.dumps(declaration(spec))})
    (out / ENTRY).write_bytes(archive.without(saved.getvalue(), DROPPED))
    half = f"products and their weights in {precision}, all else in fp32, " if precision != "fp32" else ""
    note = f"{half}for PyTorch {torch.__version__.partition('+')[0]}, which compiles it when it is opened"
    return ExportResult(precision=cast("Precision", precision), entry=ENTRY, dynamic=job.dynamic, notes=(note,))


def load(artifact: Path, place: Place) -> Runtime:
    """Load the artifact in PyTorch, compiled if it runs on a GPU."""
    archive.require_whole(artifact / ENTRY, "a PyTorch program")
    return TorchCudaRuntime(artifact / ENTRY, place.settings)


def strip(exported: torch.export.ExportedProgram) -> None:
    """Remove the example, the names of the host's sources, and checks of the device of the capture."""
    exported.example_inputs = None
    for node in list(exported.graph.nodes):
        if operator_name(node) == "_assert_tensor_metadata":
            exported.graph.erase_node(node)
            continue
        for name in STRIPPED:
            node.meta.pop(name, None)
    exported.graph_module.recompile()


def declaration(spec: ModelSpec) -> dict[str, Any]:
    """Return the file's description of a model's inputs and outputs. The shapes are those that are compiled first."""
    inputs = [
        {"name": tensor.name, "dtype": tensor.dtype, "shape": list(spec.shape(tensor.name))} for tensor in spec.inputs
    ]
    return {"inputs": inputs, "outputs": [output.name for output in spec.outputs]}


TARGET = Target(
    summary="program for NVIDIA GPUs, compiled, CUDA graphs, fp16 products, dynamic batch and size",
    about=TargetDescription(
        use_case="servers with an NVIDIA GPU",
        proved_by="PyTorch on the GPU, compiled. Without a GPU the same program on the CPU",
        not_covered="other GPUs, other versions of PyTorch",
    ),
    source="program",
    export=export,
    load=load,
    places=(
        Place(name=CUDA, tolerance=FP32_DELEGATED, settings={"device": CUDA}, limits=LIMITS),
        Place(name=CPU, tolerance=FP32, settings={"device": CPU}, limits=LIMITS, timed=False),
    ),
    opt_in=True,
    runs_code=True,
    options=(PRECISION,),
)
