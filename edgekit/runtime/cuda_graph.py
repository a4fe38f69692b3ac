"""CUDA graphs: a module's kernels, recorded once and replayed. It needs only torch, and is part of packs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

WARM_UPS = 3
"""Runs before a capture: they compile kernels and allocate memory, which is impossible inside a capture."""


def capture_graph(module: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> tuple[Callable[[], None], Any]:
    """Return a module's replay as a CUDA graph on GPU tensors, and the output that each replay overwrites.

    The graph reads the module's weights in place: they must outlive it.
    """
    import torch

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch ships it untyped
    side.wait_stream(torch.cuda.current_stream())
    with torch.inference_mode(), torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            module(*tensors)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        answer = module(*tensors)
    return graph.replay, answer
