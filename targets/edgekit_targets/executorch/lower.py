"""Lowering of a captured program to ExecuTorch's `.pte` with a delegate, and the delegate's share of it.

The pipeline's program is dynamic in all axes and proved. It is captured again from its own graph with the axes that the
artifact keeps. Symbols for height and width triple the time of lowering, and plan memory for the largest image.
Before that `graph.py` rewrites parts that ExecuTorch gets wrong. After it `xnnpack_passes.py` rewrites parts that
XNNPACK lacks.

Only XNNPACK's programs run in the runtime of ExecuTorch's wheel for Linux. Vulkan's and Core ML's are lowered here and
run where a build of ExecuTorch has that backend.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import DependencyError, ExportError, install_command, reason
from edgekit.model import capture_errors as causes
from edgekit.model import complex_numbers
from edgekit.model.adapter import to_tensors
from edgekit.model.conditions import select_branches
from edgekit.model.graph import Program
from edgekit.model.own_operators import use_decompositions
from edgekit.model.spec import ModelSpec, axes_in, size_of
from edgekit.runtime.logs import silent
from edgekit.target import Option, Place, Runtime
from edgekit_targets.executorch import graph as graphs
from edgekit_targets.executorch import partitions, runtime, xnnpack_passes
from edgekit_targets.executorch.runtime import ExecutorchRuntime

if TYPE_CHECKING:
    import torch
    from executorch.exir import ExecutorchProgramManager
    from executorch.exir.backend.partitioner import Partitioner

DYNAMIC = Option(
    name="dynamic",
    default="batch",
    help="axes that stay dynamic; batch includes those of a sum (a cache's). Memory is planned for the largest sizes",
    choices=("batch", "all", "none"),
)
_KEPT = {"batch": ("batch",), "none": ()}
ENTRY = "model.pte"
CYCLES = "Invalid partition, found dependency cycles"
APART = (
    "export the towers of a model with several as parts of an `edgekit.CompositeModel`, or export to onnx or openvino"
)
# Bookkeeping of tuples and sizes.
NO_OPERATORS = {"getitem", "sym_size", "mul", "add", "sub", "floordiv", "mod"}
PRODUCTS = ("linear", "convolution", "bmm", "mm", "addmm")
"""Operators whose multiplications are counted."""
XNNPACK, VULKAN, COREML = "xnnpack", "vulkan", "coreml"
BACKENDS = {XNNPACK: runtime.XNNPACK, VULKAN: runtime.VULKAN, COREML: runtime.COREML}
BACKEND = Option(
    name="backend",
    default=XNNPACK,
    choices=(XNNPACK, VULKAN, COREML, "qnn", "mediatek"),
    help="delegate that runs what it can. ExecuTorch's wheel for Linux runs no program of vulkan and coreml (in fp16). "
    "qnn and mediatek are refused, with the reason",
)
REFUSED = {
    "qnn": "its partitioner needs Qualcomm's AI Engine Direct SDK, which it downloads when it is imported. edgekit "
    "downloads nothing without a request and has lowered nothing with it",
    "mediatek": "its partitioner needs mtk_converter of MediaTek's NeuroPilot SDK, which is on no package index. "
    "edgekit has lowered nothing with it",
}
PACKAGE = re.compile(rb'\{\n    "fileFormatVersion".*?\n\}\n', re.DOTALL)
"""The table of contents of a Core ML package, as coremltools writes it."""
DRAWN = re.compile(rb'(?<="executorch_)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=")')
"""The identifier of a Core ML model in a program. A device keeps its compiled form under it."""


@dataclass(frozen=True)
class LoweredProgram:
    """A program for ExecuTorch.

    Attributes:
        data: The `.pte` file.
        delegated: Operators in the delegate's subgraphs.
        portable: Operators outside of them.
        subgraphs: Number of the delegate's subgraphs. Each costs one transfer in and one out.
        multiplications: Its share of the multiplications of layers and matrix products, from 0 to 1.
        left: Names of the operators outside.
        delegate: Its name.
    """

    data: bytes
    delegated: int
    portable: int
    subgraphs: int
    multiplications: float
    left: tuple[str, ...]
    delegate: str

    def notes(self) -> tuple[str, ...]:
        """Return the notes of the manifest on the delegate."""
        share = self.delegated / max(1, self.delegated + self.portable)
        graphs = f"{self.subgraphs} subgraph{'s' * (self.subgraphs != 1)}"
        return (
            f"{self.delegate} took {self.delegated} of {self.delegated + self.portable} operators ({share:.0%}) and "
            f"{self.multiplications:.1%} of the multiplications in {graphs}. ExecuTorch's own "
            f"kernels run {', '.join(self.left) or 'none'}",
            f"the share of time in {self.delegate} was not measured: this build of ExecuTorch has no event tracer",
        )


def dynamic_axes(spec: ModelSpec, option: str) -> tuple[str, ...]:
    """Return the axes that stay dynamic for a value of the option `dynamic`."""
    growing = {axis for total in _sums(spec) for axis in axes_in(total)} if option == "batch" else set()
    return tuple(a for a in spec.axes if option == "all" or a in growing or a in _KEPT[option])


def prepare_program(
    whole: Program, spec: ModelSpec, axes: tuple[str, ...], *, rewrite: bool = True, fold: bool = True
) -> torch.export.ExportedProgram:
    """Return the program in operators that ExecuTorch computes correctly, with some axes dynamic and others fixed.

    Args:
        whole: The captured program.
        spec: Its model.
        axes: Axes that stay dynamic.
        rewrite: Whether to replace what XNNPACK lacks. Other delegates take the operators unchanged.
        fold: Whether slopes of layer norms go into weights.

    Raises:
        ExportError: If the graph cannot be fixed like this.
    """
    module = capture(spec, graphs.apply_workarounds(spec.name, select_branches(whole.exported)), axes).module()
    graphs.fold_constants(module)
    if rewrite:
        xnnpack_passes.rewrite(module, fold=fold)
    return capture(spec, module, axes)


def capture(spec: ModelSpec, module: torch.fx.GraphModule, axes: tuple[str, ...]) -> torch.export.ExportedProgram:
    """Capture a graph with some axes dynamic within their bounds and the others at their defaults.

    Raises:
        ExportError: If the graph cannot be captured like this.
    """
    import torch

    # Sizes of 1 get no symbol, so the default is not used.
    sizes = {n: min(a.default + a.multiple_of, a.maximum) for n, a in spec.axes.items() if n in axes}
    arguments = to_tensors(spec, spec.random(0, sizes))
    with silent(), torch.no_grad(), use_decompositions(spec):
        try:
            return complex_numbers.export(module, arguments, _shapes(spec, axes))
        except Exception as error:
            names = ", ".join(a for a in spec.axes if a not in axes) or "none"
            raise ExportError(
                f"'{spec.name}' cannot be captured with these axes fixed: {names} ({reason(error)})"
            ) from error


def lower(
    spec: ModelSpec, exported: torch.export.ExportedProgram, partitioners: list[Partitioner], delegate: str = "XNNPACK"
) -> LoweredProgram:
    """Give the delegate the parts that it takes, and write the rest for ExecuTorch's own kernels.

    Raises:
        ExportError: If ExecuTorch cannot lower the program.
    """
    import torch

    with silent(), torch.no_grad():
        from executorch.devtools.backend_debug import get_delegation_info
        from executorch.exir import to_edge_transform_and_lower

        graphs.name_parts(exported)
        try:
            edge = to_edge_transform_and_lower(exported, [xnnpack_passes.simplify_views], partitioners)
            graph = edge.exported_program().graph_module
            info = get_delegation_info(graph)
            written = edge.to_executorch()
            _require_kernels(written)
            data = bytes(written.buffer)
        except Exception as error:
            why = causes.why(error, exported)
            why = f"XNNPACK's partitioner stops ({CYCLES}): {APART}" if CYCLES in why else why
            raise ExportError(f"ExecuTorch cannot lower '{spec.name}': {why}") from error
    operators = {n: o for n, o in info.delegation_by_operator.items() if n not in NO_OPERATORS}
    # The delegate's share of the multiplications for one sample.
    parts: list[Any] = [part for part in graph.children() if hasattr(part, "original_module")]
    inside = sum(_multiplications(node) for part in parts for node in part.original_module.graph.nodes)
    outside = sum(_multiplications(node) for node in graph.graph.nodes)
    return LoweredProgram(
        data=data,
        delegated=sum(o.delegated for o in operators.values()),
        portable=sum(o.non_delegated for o in operators.values()),
        subgraphs=info.num_delegated_subgraphs,
        multiplications=inside / (inside + outside) if inside + outside else 0.0,
        left=tuple(sorted(_plain(name) for name, o in operators.items() if o.non_delegated)),
        delegate=delegate,
    )


def _require_kernels(written: ExecutorchProgramManager) -> None:
    """Check that ExecuTorch's runtime has the operators that the program calls, else it would refuse the file.

    Raises:
        RuntimeError: If one is missing. The message names the first, in the words of the runtime.
    """
    from executorch.extension.pybindings import portable_lib

    operator_names = set(portable_lib._get_operator_names())
    for plan in written.executorch_program.execution_plan:
        for operator in plan.operators:
            name = f"{operator.name}.{operator.overload}" if operator.overload else operator.name
            if name not in operator_names:
                plain = name.removesuffix("_out").removesuffix(".out").replace("::", ".")
                raise RuntimeError(f"Missing out variants: {{'{plain}'}}")


def load(artifact: Path, place: Place) -> Runtime:
    """Load the artifact in ExecuTorch's own runtime."""
    return ExecutorchRuntime(artifact, ENTRY)


def _multiplications(node: torch.fx.Node) -> int:
    """Return the multiplications of a layer or matrix product for one sample, 0 for other operators."""
    kind = _plain(getattr(node.target, "__name__", "").replace(".", "_").removeprefix("aten_"))
    if kind not in PRODUCTS:
        return 0
    operands: list[torch.Tensor] = [operand.meta["val"] for operand in node.all_input_nodes]
    if kind in ("linear", "convolution"):
        transposed = kind == "convolution" and node.args[6]
        inputs, weight = operands[0].shape, operands[1]
        return _values(inputs if transposed else node.meta["val"].shape) * (weight.numel() // weight.shape[0])
    return _values(node.meta["val"].shape) * int(operands[-2].shape[-1])


def _values(sizes: torch.Size) -> int:
    """Return the number of values of one sample. An open size counts once."""
    return math.prod(size for size in sizes if isinstance(size, int))


def _shapes(spec: ModelSpec, axes: tuple[str, ...]) -> tuple[dict[int, object], ...]:
    """Return bounds for torch.export. ExecuTorch plans its memory for the upper ones."""
    import torch

    def dim(name: str) -> object:
        axis = spec.axes[name]
        steps = torch.export.Dim(name, min=axis.minimum // axis.multiple_of, max=axis.maximum // axis.multiple_of)
        return steps if axis.multiple_of == 1 else axis.multiple_of * steps

    dimensions = {name: dim(name) for name in axes}
    for total in _sums(spec):
        if set(axes_in(total)) & set(axes):
            # An axis that does not stay dynamic has its default.
            least, most = (
                {n: spec.axes[n].sizes[end] if n in axes else spec.axes[n].default for n in axes_in(total)}
                for end in (0, -1)
            )
            dimensions[total] = torch.export.Dim.DYNAMIC(min=size_of(total, least), max=size_of(total, most))
    return tuple(
        {d: dimensions[s] for d, s in enumerate(i.shape) if isinstance(s, str) and s in dimensions} for i in spec.inputs
    )


def _sums(spec: ModelSpec) -> set[str]:
    """Return the sizes that are sums of axes. One such axis grows from run to run, as a cache does."""
    return {size for i in spec.inputs for size in i.shape if isinstance(size, str) and size not in spec.axes}


def _plain(name: str) -> str:
    """Return the plain name: `aten_native_layer_norm_default` -> `native_layer_norm`."""
    for start in ("aten_", "dim_order_ops__"):
        name = name.removeprefix(start)
    return name.rsplit("_", 1)[0] if name.rsplit("_", 1)[-1] in ("default", "int", "self", "dim", "vec") else name


@dataclass(frozen=True)
class Delegate:
    """One of ExecuTorch's delegates: its name in sentences, and the partitioner that chooses its part of a graph."""

    words: str
    partitioner: Partitioner


def delegate(name: str) -> Delegate:
    """Return a delegate by the option's value.

    Raises:
        DependencyError: If this host cannot lower for it. The message says what is missing.
    """
    if name in REFUSED:
        raise DependencyError(f"executorch.backend={name} does not work here: {REFUSED[name]}. Choose another backend")
    with silent():
        return Delegate(runtime.DELEGATES[BACKENDS[name]], _partitioner(name))


def stable_identifiers(data: bytes) -> bytes:
    """Return a program with identifiers that follow from its content, since Core ML draws some at random.

    Raises:
        ExportError: If a Core ML package has another form than that of coremltools 9.0.
    """
    settled = PACKAGE.sub(_by_path, data)
    digest = hashlib.sha256(DRAWN.sub(b"", settled)).hexdigest()
    own = {
        name: str(uuid.uuid5(uuid.NAMESPACE_OID, f"{digest}{n}"))
        for n, name in enumerate(list(dict.fromkeys(DRAWN.findall(settled))))
    }
    return DRAWN.sub(lambda match: own[match[0]].encode(), settled)


def _by_path(match: re.Match[bytes]) -> bytes:
    """Return the table of contents with items named by their paths."""
    package = json.loads(match[0])
    entries = package["itemInfoEntries"]
    own = {name: str(uuid.uuid5(uuid.NAMESPACE_OID, entry["path"])) for name, entry in entries.items()}
    package["itemInfoEntries"] = {own[name]: entry for name, entry in entries.items()}
    package["rootModelIdentifier"] = own[package["rootModelIdentifier"]]
    text = json.dumps(package, indent=4, sort_keys=True).encode() + b"\n"
    if len(text) != len(match[0]):
        raise ExportError("the Core ML package in the program lacks the form of coremltools 9.0. Install that version")
    return text


def _partitioner(name: str) -> Partitioner:
    if name == XNNPACK:
        return partitions.xnnpack_partitioner()
    if name == VULKAN:
        from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

        return VulkanPartitioner()
    try:
        import coremltools
        from executorch.backends.apple.coreml.compiler import CoreMLBackend
        from executorch.backends.apple.coreml.partition import CoreMLPartitioner
    except ImportError as error:
        raise DependencyError(
            f"executorch.backend=coreml needs {error.name}. Install it: {install_command('coreml')}"
        ) from error
    specs = CoreMLBackend.generate_compile_specs(
        minimum_deployment_target=coremltools.target.iOS17, compute_precision=coremltools.precision.FLOAT16
    )
    return CoreMLPartitioner(compile_specs=specs)
