"""ONNX and the targets made from it: fp16, INT8, 4-bit weights, fixed sizes."""

from __future__ import annotations

from edgekit.doors import PlaceRuntime

QNN = PlaceRuntime(
    summary="the emulator of Qualcomm's NPU, in fp16, at the default sizes; not a phone",
    library="onnxruntime_qnn",
    opener="edgekit_targets.onnx.qnn:QnnRuntime",
    hint="pip install onnxruntime-qnn (Qualcomm's licence, 90 MB)",
    opens=(".onnx",),
    carried=("edgekit_targets.onnx.qnn",),
    folder_index="buckets.json",
    folder_opener="edgekit_targets.onnx.buckets:BucketRuntime",
    is_emulated=True,
    computes_half=True,
)

WEBGPU = PlaceRuntime(
    summary="ONNX Runtime's WebGPU provider without a browser, on this host's GPU",
    library="onnxruntime_ep_webgpu",
    opener="edgekit_targets.onnx.webgpu:open_webgpu",
    extra="webgpu",
    opens=(".onnx",),
    carried=("edgekit_targets.onnx.webgpu",),
    folder_index="buckets.json",
    folder_opener="edgekit_targets.onnx.buckets:BucketRuntime",
    status="edgekit_targets.onnx.webgpu:status",
)
