"""Views of a program in ExecuTorch's operators as XNNPACK takes them: at most one size that it computes itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch.fx.passes.infra.pass_base import PassResult


def simplify_views(module: torch.fx.GraphModule) -> PassResult:
    """A pass for ExecuTorch's `transform_passes`: squeezes become views, sizes that grow -1, two permutations one."""
    from executorch.exir.dialects._ops import ops
    from torch.fx.passes.infra.pass_base import PassResult

    aten = ops.edge.aten
    squeezes = (aten.squeeze_copy.dims, aten.squeeze_copy.dim, aten.unsqueeze_copy.default)
    for node in list(module.graph.nodes):
        if node.target is aten.expand_copy.default and (
            tuple(node.meta["val"].shape) == tuple(node.args[0].meta["val"].shape)
        ):
            node.replace_all_uses_with(node.args[0])
        elif node.target is aten.permute_copy.default and node.args[0].target is aten.permute_copy.default:
            first = node.args[0]
            node.args = (first.args[0], [first.args[1][axis] for axis in node.args[1]])
        elif node.target in (*squeezes, aten.view_copy.default):
            shape = list(node.meta["val"].shape)
            if sizes := _sizes(shape):
                node.target, node.args = aten.view_copy.default, (node.args[0], sizes)
    module.graph.eliminate_dead_code()
    module.recompile()
    return PassResult(module, True)


def _sizes(shape: Sequence[object]) -> list[int] | None:
    """-1 for the size that grows; None where several do."""
    sizes = [size if isinstance(size, int) else -1 for size in shape]
    return sizes if sizes.count(-1) <= 1 else None
