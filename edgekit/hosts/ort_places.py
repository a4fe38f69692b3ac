"""The places of ONNX Runtime: each is one of its settings on the CPU or on an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.doors import PlaceRuntime

ONNX, BUCKETS = ".onnx", "buckets.json"
CUDA, TENSORRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"


def _place(summary: str, settings: Mapping[str, str], extra: str = "cpu", hint: str = "") -> PlaceRuntime:
    return PlaceRuntime(
        summary=summary,
        library="onnxruntime",
        opener="edgekit.runtime.ort_session:OrtSession",
        extra=extra,
        hint=hint,
        opens=(ONNX,),
        settings=settings,
        folder_index=BUCKETS,
        folder_opener="edgekit_targets.onnx.buckets:BucketRuntime",
    )


ORT = _place("ONNX Runtime on the CPU, as it is by default", {})
EXTENDED = _place("the same, without layout changes", {"optimization": "enable_extended"})
BASIC = _place("the same, with basic graph optimisations only", {"optimization": "enable_basic"})
OFF = _place("the same, without graph optimisations", {"optimization": "disable_all"})
FP32 = _place(
    "ONNX Runtime on an NVIDIA GPU, fp32 without TF32", {"provider": CUDA, "provider.use_tf32": "0"}, extra="gpu"
)
TF32 = _place("the same as it is by default, with TF32", {"provider": CUDA, "provider.use_tf32": "1"}, extra="gpu")
TENSORRT_ENGINES = _place(
    "ONNX Runtime on an NVIDIA GPU, in engines that TensorRT builds there, which no GPU has run yet",
    {"provider": TENSORRT},
    hint="pip install 'edgekit-export[gpu]', and TensorRT's libraries",
)
