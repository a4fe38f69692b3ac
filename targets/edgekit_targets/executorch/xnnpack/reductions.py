"""Sums, means, maxima and what is made of them, in operators that XNNPACK has.

XNNPACK has no sum, and a mean over pictures only. A sum over an axis is a product with ones, a maximum a pool as long
as the axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit_targets.executorch.xnnpack import constants

if TYPE_CHECKING:
    import torch

PICTURE = 4  # dimensions


def write_out_reductions(module: torch.fx.GraphModule) -> None:
    """Replace those over axes whose sizes are numbers."""
    import torch

    aten = torch.ops.aten
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not node.all_input_nodes:
            continue
        read = node.all_input_nodes[0].meta.get("val")
        if not isinstance(read, torch.Tensor) or read.dtype != torch.float32:
            continue
        with module.graph.inserting_before(node):
            if node.target in (aten.mean.dim, aten.sum.dim_IntList):
                _write_out_sum(module, node, read)
            elif node.target is aten.layer_norm.default:
                _write_out_norm(module, node, read)
            elif node.target is aten.log_softmax.int and len(node.args) == 2 and _is_last(node.args[1], read):
                node.target, node.args = log_softmax, (node.args[0], _row(module, read.shape[-1:], mean=False))
            elif node.target is aten.amax.default and len(node.args) > 1 and _is_last(node.args[1], read):
                node.target, node.args = maximum, (node.args[0], *node.args[2:])
            elif node.target is aten.avg_pool2d.default and not any(constants.argument(node, 3, (0,))):
                node.target = average_pool


def _write_out_sum(module: torch.fx.GraphModule, node: torch.fx.Node, read: torch.Tensor) -> None:
    import torch

    mean = node.target is torch.ops.aten.mean.dim
    given = constants.argument(node, 1, None) or range(read.dim())
    axes = sorted(int(axis) % read.dim() for axis in given)
    sizes = [read.shape[axis] for axis in axes]
    if "dtype" in node.kwargs or len(node.args) > 3 or any(not isinstance(size, int) for size in sizes):
        return
    keep = bool(constants.argument(node, 2, False))
    if mean and read.dim() == PICTURE and axes == [2, 3]:
        node.target, node.args, node.kwargs = mean_picture, (node.args[0], keep), {}
        return
    row = _row(module, sizes, mean=mean)
    node.target, node.args, node.kwargs = weighted_sum, (node.args[0], row, axes, keep), {}


def _write_out_norm(module: torch.fx.GraphModule, node: torch.fx.Node, read: torch.Tensor) -> None:
    sizes = constants.argument(node, 1)
    if any(not isinstance(size, int) for size in sizes):
        return
    row = _row(module, sizes, mean=True)
    weight, bias = constants.argument(node, 2, None), constants.argument(node, 3, None)
    eps = constants.argument(node, 4, 1e-5)
    node.target, node.args, node.kwargs = layer_norm, (node.args[0], row, weight, bias, eps), {}


def layer_norm(
    x: torch.Tensor, mean: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> torch.Tensor:
    """Layer norm over the last axes, which have as many values as `mean`: [1, n], all 1 / n."""
    import torch

    # The first of the last axes that hold so many values.
    count = mean.shape[1]
    axis = x.dim() - 1
    while math.prod(x.shape[axis:]) < count:
        axis -= 1
    flat = x.flatten(axis)
    centred = flat - torch.nn.functional.linear(flat, mean)
    scale = torch.rsqrt(torch.nn.functional.linear(centred * centred, mean) + eps)
    normal = (centred * scale).reshape(x.shape)
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias


def log_softmax(x: torch.Tensor, ones: torch.Tensor) -> torch.Tensor:
    """Over the last axis, of n values; `ones` is [1, n]."""
    import torch

    shifted = x - maximum(x, True)
    return shifted - torch.log(torch.nn.functional.linear(torch.exp(shifted), ones))


def maximum(x: torch.Tensor, keep: bool = False) -> torch.Tensor:
    """Over the last axis: each row is a channel, which XNNPACK pools side by side, three times as fast."""
    import torch

    length = x.shape[-1]
    channels = x.reshape(-1 if x.dim() > 1 else 1, math.prod(x.shape[1:-1]), length, 1)
    largest = torch.nn.functional.max_pool2d(channels, (length, 1), (length, 1))
    return largest.reshape((*x.shape[:-1], 1) if keep else x.shape[:-1])


def weighted_sum(x: torch.Tensor, row: torch.Tensor, axes: Sequence[int], keep: bool) -> torch.Tensor:
    """Sum of the values along some axes times those of `row`: [1, n], n values along them."""
    import torch

    kept = [axis for axis in range(x.dim()) if axis not in axes]
    last = x if list(axes) == list(range(len(kept), x.dim())) else x.permute(*kept, *axes)
    total = torch.nn.functional.linear(last.flatten(len(kept)), row)
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape) if keep or axis not in axes]
    return total.reshape(shape)


def mean_picture(x: torch.Tensor, keep: bool) -> torch.Tensor:
    """Mean over height and width of [B, C, H, W]."""
    mean = x.mean((2, 3), keepdim=True)
    return mean if keep else mean.reshape(x.shape[:2])


def average_pool(x: torch.Tensor, kernel: Sequence[int], stride: Sequence[int] = (), *rest: object) -> torch.Tensor:
    """Without padding, hence none that would be counted."""
    import torch

    pool = torch.ops.aten.avg_pool2d.default
    pooled: torch.Tensor = pool(x, kernel, stride or kernel, 0, bool(rest[1:] and rest[1]), False, *rest[3:])
    return pooled


def _row(module: torch.fx.GraphModule, sizes: Sequence[int], *, mean: bool) -> torch.fx.Node:
    """A constant [1, n] of ones, or of 1 / n for a mean; n is the product of the sizes."""
    import torch

    count = math.prod(sizes)
    name, each = ("mean", 1.0 / count) if mean else ("sum", 1.0)
    return constants.add(module, f"{constants.OWN}{name}_{count}", torch.full((1, count), each))


def _is_last(axes: object, read: torch.Tensor) -> bool:
    given = list(axes) if isinstance(axes, (list, tuple)) else [axes]
    return given in ([-1], [read.dim() - 1]) and isinstance(read.shape[-1], int)
