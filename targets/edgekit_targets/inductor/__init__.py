"""Programs that TorchInductor compiles: ahead of time, and for NVIDIA GPUs."""

from __future__ import annotations

from edgekit.doors import PlaceRuntime

PLACE = PlaceRuntime(
    summary="PyTorch on an NVIDIA GPU, compiled, one CUDA graph per shape",
    library="torch",
    opener="edgekit_targets.inductor.cuda_runtime:TorchCudaRuntime",
    hint="pip install torch",
    opens=("program.pt2",),
    settings={"device": "cuda"},
    carried=("edgekit.runtime.cuda_graph", "edgekit_targets.inductor.cuda_runtime"),
)
