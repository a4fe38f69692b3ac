"""Latency on a GPU: eager, compiled, and replayed as a CUDA graph, in fp32 without TF32, timed by CUDA events."""

from __future__ import annotations

import contextlib
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from edgekit.model.adapter import to_tensors
from edgekit.model.spec import Array, ModelSpec

if TYPE_CHECKING:
    import torch

WARM_UPS = 10
RUNS = 200


def timings(spec: ModelSpec, inputs: Mapping[str, Array]) -> dict[str, dict[str, object]]:
    """Percentiles in milliseconds of one batch, by way of running: eager, compiled, cuda graph."""
    import torch

    module = spec.module.to("cuda")
    arguments = tuple(t.to("cuda") for t in to_tensors(spec, inputs))
    found: dict[str, dict[str, object]] = {}
    with torch.inference_mode(), _any_algorithm():
        found["eager"] = _timed(lambda: module(*arguments))
        compiled = torch.compile(module)
        found["compiled"] = _timed(lambda: compiled(*arguments))
        found["cuda graph"] = _timed(_replayed(compiled, arguments))
    return found


def _replayed(module: Callable[..., object], arguments: tuple[torch.Tensor, ...]) -> Callable[[], object]:
    import torch

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch ships it untyped
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            module(*arguments)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module(*arguments)
    return graph.replay


def _timed(once: Callable[[], object]) -> dict[str, object]:
    import torch

    for _ in range(WARM_UPS):
        once()
    torch.cuda.synchronize()
    times = []
    for _ in range(RUNS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # likewise
        start.record()
        once()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {
        "device": f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}",
        "runs": RUNS,
        "p50": cuts[49],
        "p90": cuts[89],
        "p95": cuts[94],
        "p99": cuts[98],
        "mean": statistics.fmean(times),
        "std": statistics.pstdev(times),
    }


@contextlib.contextmanager
def _any_algorithm() -> Iterator[None]:
    """Latency is timed as a user would run it; only the recorded answers ask for deterministic algorithms."""
    import torch

    torch.use_deterministic_algorithms(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler recommends TF32, which the reference leaves off
            yield
    finally:
        torch.use_deterministic_algorithms(True)
