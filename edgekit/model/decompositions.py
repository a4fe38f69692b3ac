"""Replacements for operators that a converter does not have or converts wrongly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def table() -> dict[Any, Callable[..., Any]]:
    """Return the replacement of each operator; PyTorch's own decomposition if it has one."""
    import torch
    from torch._decomp import get_decompositions

    aten = torch.ops.aten
    whole_operators = (aten.new_ones, aten.lstm.input, aten.gru.input, aten.upsample_bicubic2d.vec)
    return {
        **get_decompositions(whole_operators),
        # Core ML needs the logical operator for booleans, and has only that one of `^`.
        aten.__and__.Tensor: _by_dtype(torch.logical_and, torch.bitwise_and),
        aten.__or__.Tensor: _by_dtype(torch.logical_or, torch.bitwise_or),
        aten.alias.default: lambda x: x,
        aten.__xor__.Tensor: _by_dtype(torch.logical_xor, torch.bitwise_xor),
        aten.bitwise_xor.Tensor: _by_dtype(torch.logical_xor, torch.bitwise_xor),
        # Coremltools makes it a matrix product, which takes one type.
        aten.outer.default: lambda x, y: x.unsqueeze(-1) * y,
        aten.fmod.Scalar: _truncated_remainder,
        aten.fmod.Tensor: _truncated_remainder,
        **searches(),
        aten.diff.default: _difference,
        aten.prelu.default: prelu,
        aten.where.ScalarOther: lambda condition, tensor, other: torch.where(
            condition, tensor, torch.full((), other, dtype=tensor.dtype)
        ),
        aten.max_pool2d.default: _max_pool,
        aten.zeros.default: _zeros,
    }


def searches() -> dict[Any, Callable[..., Any]]:
    """Return replacements of searches in sorted values, which only PyTorch has."""
    import torch

    aten = torch.ops.aten
    return {
        aten.bucketize.Tensor: lambda x, boundaries, **options: _search_sorted(boundaries, x, **options),
        aten.searchsorted.Tensor: _search_sorted,
        aten.searchsorted.Scalar: _search_sorted,
    }


def without_searches(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return the program without searches in sorted values; the same program if it has none."""
    replacements = searches()
    if any(node.target in replacements for node in exported.graph.nodes):
        exported = exported.run_decompositions(replacements)
    return exported


def drop_detach(module: torch.fx.GraphModule) -> None:
    """Remove `detach` nodes: `torch.tensor` in a forward leaves `detach_`, which a second capture refuses on views."""
    import torch

    for node in module.graph.nodes:
        if node.target in (torch.ops.aten.detach_.default, torch.ops.aten.detach.default):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)


def prelu(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return PReLU; Core ML's own takes a slope for each channel only for images."""
    slopes = weight.reshape(along_channels(x.dim())) if weight.numel() > 1 else weight
    return prelu_of_any_rank(x, slopes)


def along_channels(axes: int) -> list[int]:
    """Return the shape that broadcasts a number per channel to a tensor with so many axes."""
    return [-1 if axis == 1 else 1 for axis in range(axes)]


def prelu_of_any_rank(x: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
    """Return PReLU with slopes that have the input's rank, or are a single number."""
    import torch

    return torch.relu(x) - slopes * torch.relu(-x)


def _by_dtype(logical: Callable[..., Any], bitwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator that is logical for booleans and bitwise for integers."""
    import torch

    return lambda tensor, other: (logical if tensor.dtype == other.dtype == torch.bool else bitwise)(tensor, other)


def _truncated_remainder(x: torch.Tensor, divisor: torch.Tensor | float) -> torch.Tensor:
    """Return `fmod`, which has the sign of the dividend."""
    import torch

    return x - torch.div(x, divisor, rounding_mode="trunc") * divisor


def remainder(x: torch.Tensor, divisor: torch.Tensor | float) -> torch.Tensor:
    """Return `x % divisor`, which has the sign of the divisor."""
    import torch

    return x - torch.div(x, divisor, rounding_mode="floor") * divisor


def _search_sorted(
    boundaries: torch.Tensor,
    x: torch.Tensor | float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return how many boundaries are below each value (or not above it, if `right`)."""
    import torch

    values = (x if isinstance(x, torch.Tensor) else torch.full((), x)).unsqueeze(-1)
    if sorter is not None:
        boundaries = boundaries.gather(-1, sorter)
    if boundaries.dim() > 1:
        boundaries = boundaries.unsqueeze(-2)
    passed = boundaries <= values if right or side == "right" else boundaries < values
    if values.is_floating_point():
        # PyTorch places NaN after the last boundary.
        passed = torch.logical_or(passed, torch.isnan(values))
    return passed.sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def _difference(
    x: torch.Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: torch.Tensor | None = None,
    append: torch.Tensor | None = None,
) -> torch.Tensor:
    import torch

    parts = [part for part in (prepend, x, append) if part is not None]
    whole = torch.cat(parts, dim) if len(parts) > 1 else x
    for _ in range(n):
        length = whole.shape[dim] - 1
        whole = whole.narrow(dim, 1, length) - whole.narrow(dim, 0, length)
    return whole


def _max_pool(
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil_mode: bool = False,
) -> torch.Tensor:
    """Return the max pooling with its stride given."""
    import torch

    # PyTorch omits a stride that equals the kernel size; coremltools requires it.
    pooled: tuple[torch.Tensor, torch.Tensor] = torch.ops.aten.max_pool2d_with_indices(
        x, kernel_size, stride or kernel_size, padding, dilation, ceil_mode
    )
    return pooled[0]


def _zeros(size: Sequence[int], *, dtype: torch.dtype | None = None, **_: object) -> torch.Tensor:
    """Return zeros of the given type."""
    import torch

    # Coremltools makes zeros float whatever their type; it reads the type of `full`.
    return torch.full(size, 0, dtype=dtype or torch.get_default_dtype())


def pool_whole_pictures_by_mean(exported: torch.export.ExportedProgram) -> None:
    """Write a pool whose window holds any picture whole as a mean; transformers' EfficientNet pools like this.

    PyTorch cuts the window to the picture in `ceil_mode`, and OpenVINO refuses it.
    """
    import torch

    graph = exported.graph
    for node in graph.nodes:
        if node.target is not torch.ops.aten.avg_pool2d.default or not _holds_whole_pictures(node):
            continue
        with graph.inserting_after(node):
            mean = graph.call_function(torch.ops.aten.mean.dim, (node.args[0], [-2, -1], True))
        mean.meta = dict(node.meta)
        node.replace_all_uses_with(mean, propagate_meta=False)
        graph.erase_node(node)
        # The signature names the results.
        for output in exported.graph_signature.output_specs:
            output.arg = replace(output.arg, name=mean.name) if output.arg.name == node.name else output.arg
    exported.graph_module.recompile()


def _holds_whole_pictures(pool: torch.fx.Node) -> bool:
    defaults: tuple[Any, ...] = ([], [0], False, True, None)
    given: list[Any] = [*pool.args[1:], *defaults[len(pool.args) - 2 :]]
    kernel, stride, padding, ceil_mode, _, divisor = given
    sizes = pool.all_input_nodes[0].meta["val"].shape[-2:]
    windows = [kernel[n % len(kernel)] for n in range(2)]
    steps = [stride[n % len(stride)] for n in range(2)] if stride else windows
    held = all(isinstance(size, int) and size <= window for size, window in zip(sizes, windows, strict=True))
    return bool(ceil_mode and divisor is None and not any(padding) and held and steps == windows)
