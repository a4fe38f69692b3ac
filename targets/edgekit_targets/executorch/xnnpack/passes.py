"""The passes over a captured graph, in their order; `views` follows in ExecuTorch's own operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit_targets.executorch.xnnpack.norms import fold_norms
from edgekit_targets.executorch.xnnpack.reductions import write_out_reductions
from edgekit_targets.executorch.xnnpack.scales import fold_scales
from edgekit_targets.executorch.xnnpack.slices import combine_slices
from edgekit_targets.executorch.xnnpack.splits import split_linears

if TYPE_CHECKING:
    import torch


def rewrite(module: torch.fx.GraphModule, *, fold: bool) -> None:
    """Write a graph in operators that XNNPACK takes, each pass on what those before it left.

    Args:
        module: Changed in place; its nodes say their shapes (`meta["val"]`), and some of its operators become
            functions, so that it has to be captured again.
        fold: Whether slopes of layer norms go into weights.
    """
    split_linears(module)
    fold_scales(module)
    if fold:
        fold_norms(module)
    combine_slices(module)
    write_out_reductions(module)
    module.recompile()
