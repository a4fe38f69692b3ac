"""Eager fp32 beside `torch-cuda` in fp16 on an NVIDIA GPU, without a build: for models whose export takes long.

    python -m tools.bench.cuda arr-coc-base --batch 1 --batch 32

Inputs lie on the GPU. "replayed" is the CUDA graph of the compiled program with its buffers bound, "whole" a run from
NumPy arrays to NumPy arrays. Times are medians, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from edgekit.cli.console import print_table
from edgekit.model.graph import capture
from edgekit.model.sources import resolve_model
from edgekit.model.spec import ModelSpec
from edgekit_targets.inductor import cuda as torch_cuda
from edgekit_targets.inductor.cuda_runtime import DECLARED, TorchCudaRuntime
from edgekit_targets.inductor.half import to_half

RUNS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, action="append")
    arguments = parser.parse_args()
    spec = resolve_model(arguments.model)
    runtime = _opened(spec)
    module = spec.module.cuda().eval()
    rows = [_row(spec, module, runtime, batch) for batch in arguments.batch or (1,)]
    print(runtime.device)
    print_table(("batch", "eager", "replayed", "whole", "eager / replayed", "max abs of the first output"), rows)


def _opened(spec: ModelSpec) -> TorchCudaRuntime:
    exported = capture(spec).exported
    to_half(exported, "fp16")
    torch_cuda.strip(exported)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / torch_cuda.ENTRY
        torch.export.save(exported, file, extra_files={DECLARED: json.dumps(torch_cuda.declaration(spec))})
        return TorchCudaRuntime(file)


def _row(spec: ModelSpec, module: torch.nn.Module, runtime: TorchCudaRuntime, batch: int) -> tuple[str, ...]:
    feed = spec.random(0, {"batch": batch})
    tensors = [torch.from_numpy(feed[one.name]).cuda() for one in spec.inputs]

    def eager() -> torch.Tensor:
        answer = module(*tensors)
        torch.cuda.synchronize()
        first: torch.Tensor = answer[0] if isinstance(answer, tuple) else answer
        return first

    with torch.inference_mode():
        first = eager().cpu().numpy()
        answer = runtime.run(feed)[spec.outputs[0].name]
        (bound,) = (make() for _, make in runtime.modes(feed))
        times = [_median(run) for run in (eager, lambda: bound.run(feed), lambda: runtime.run(feed))]
    return (
        str(batch),
        *(f"{one:.3f}" for one in times),
        f"{times[0] / times[1]:.1f}",
        f"{np.abs(answer - first).max():.2g}",
    )


def _median(run: Callable[[], object]) -> float:
    times = []
    for number in range(RUNS + 20):
        start = time.perf_counter()
        run()
        if number >= 20:
            times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


if __name__ == "__main__":
    main()
