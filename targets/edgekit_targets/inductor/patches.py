"""Convolutions over patches as matrix products, for programs on NVIDIA GPUs.

cuDNN has no quick fp16 kernel for patches of three channels: that of arr-coc-base took 0.24 of 3.4 ms for 32 images on
an H100, the product and its two copies take 0.08. It is an operator of its own, into which Inductor does not look, and
its answer lies in memory as the convolution's does: of the product's own layout Inductor of PyTorch 2.11 made wrong
answers for an open batch. It needs PyTorch alone, and travels in packs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SCHEMA = "(Tensor image, Tensor weight, Tensor? bias) -> Tensor"
TENSOR_CORE = 8
"""Channels that a tensor core takes at once: cuDNN's quick kernels need a multiple of it."""


def multiply_patches(module: torch.fx.GraphModule) -> None:
    """Replace, in place, the convolutions over patches that do not overlap and have as few channels as an image."""
    graph = module.graph
    patches = [node for node in graph.nodes if _covers_patches(node)]
    for node in patches:
        image, weight, bias = (*node.args[:3], None)[:3]
        with graph.inserting_before(node):
            product = graph.call_function(_product(), (image, weight, bias))
        product.meta = node.meta
        node.replace_all_uses_with(product)
        graph.erase_node(node)
    if patches:
        module.recompile()


def _covers_patches(node: torch.fx.Node) -> bool:
    import torch

    if node.target is not torch.ops.aten.conv2d.default:
        return False
    arguments: Any = node.args
    settings = [*arguments[3:], *([1, 1], [0, 0], [1, 1], 1)[len(arguments[3:]) :]]
    stride, padding, dilation, groups = settings
    channels, *kernel = arguments[1].meta["val"].shape[1:]
    plain = not any(padding) and {*dilation} == {1} and groups == 1 and arguments[0].meta["val"].dim() == 4
    return bool(plain and [*stride] == kernel and min(kernel) > 1 and channels % TENSOR_CORE)


@cache
def _product() -> Callable[..., torch.Tensor]:
    """The operator: image [B, C, H, W], weight [D, C, p, q], bias [D] or None -> [B, D, H // p, W // q]."""
    import torch

    def product(image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        wide, channels, down, across = weight.shape
        rows, columns = image.shape[2] // down, image.shape[3] // across
        whole = image[:, :, : rows * down, : columns * across]
        parts = whole.reshape(image.shape[0], channels, rows, down, columns, across).permute(0, 2, 4, 1, 3, 5)
        flat = parts.reshape(image.shape[0], rows, columns, channels * down * across)
        answer = torch.nn.functional.linear(flat, weight.reshape(wide, -1), bias).permute(0, 3, 1, 2)
        return answer.clone(memory_format=torch.contiguous_format)

    def shape(image: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        wide, _, down, across = weight.shape
        sizes = (image.shape[0], wide, image.shape[2] // down, image.shape[3] // across)
        return torch.empty(sizes, dtype=image.dtype, device=image.device)

    operator = torch.library.custom_op("edgekit::patch_product", product, mutates_args=(), schema=SCHEMA)
    operator.register_fake(shape)
    return operator._opoverload
