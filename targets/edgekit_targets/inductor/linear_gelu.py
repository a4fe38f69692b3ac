"""A linear layer and the GELU behind it as one product, for programs in half precision on NVIDIA GPUs.

cuBLAS computes GELU where the product's result leaves the tensor cores, so that it is not written in between and read
again: arr-coc-base at batch 32 takes 2.86 ms for 3.12 on an H200. It is GELU by tanh
(https://docs.nvidia.com/cuda/cublas/#cublasltepilogue-t), off by 5e-4 at most; the same layer's rounding to fp16 is off
by as much at 1. It is an operator of its own, which Inductor does not take apart. It needs PyTorch alone, and travels
in packs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SCHEMA = "(Tensor rows, Tensor weight, Tensor bias) -> Tensor"


def join_gelu(module: torch.fx.GraphModule) -> None:
    """Replace, in place, linear layers whose half-precision result is widened for GELU alone, and is halved again."""
    graph = module.graph
    found = [node for node in graph.nodes if _joins(node)]
    for gelu in found:
        linear = gelu.args[0].args[0]
        with graph.inserting_before(gelu):
            joined = graph.call_function(_linear_gelu(), linear.args)
        joined.meta = linear.meta
        for halved in list(gelu.users):
            halved.replace_all_uses_with(joined)
    if found:
        graph.eliminate_dead_code()
        module.recompile()


def _joins(gelu: Any) -> bool:
    import torch

    aten = torch.ops.aten
    if gelu.target is not aten.gelu.default or gelu.args[0].target is not aten.to.dtype:
        return False
    widened = gelu.args[0]
    linear = widened.args[0]
    if linear.target is not aten.linear.default or (*linear.args, None)[2] is None:
        return False
    half = linear.meta["val"].dtype
    alone = len(widened.users) == len(linear.users) == 1
    halved = all(user.target is aten.to.dtype and user.args[1] is half for user in gelu.users)
    return half in (torch.float16, torch.bfloat16) and alone and halved


@cache
def _linear_gelu() -> Callable[..., torch.Tensor]:
    """The operator: rows [..., K], weight [N, K], bias [N] -> [..., N], all of one dtype."""
    import torch

    def product(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        flat = torch._addmm_activation(bias, rows.reshape(-1, rows.shape[-1]), weight.t(), use_gelu=True)
        return flat.view(*rows.shape[:-1], weight.shape[0])

    def shape(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.empty((*rows.shape[:-1], weight.shape[0]), dtype=rows.dtype, device=rows.device)

    operator = torch.library.custom_op("edgekit::linear_gelu", product, mutates_args=(), schema=SCHEMA)
    operator.register_fake(shape)
    return operator._opoverload
