"""OpenVINO IR, in fp32, fp16 and INT8."""

from __future__ import annotations

from edgekit.doors import PlaceRuntime

PLACE = PlaceRuntime(
    summary="OpenVINO on the CPU, in fp32",
    library="openvino",
    opener="edgekit_targets.openvino.runtime:OpenvinoRuntime",
    extra="openvino",
    opens=(".onnx", ".xml"),
    settings={"INFERENCE_PRECISION_HINT": "f32"},
    carried=("edgekit_targets.openvino.runtime",),
    folder_index="buckets.json",
    folder_opener="edgekit_targets.onnx.buckets:BucketRuntime",
)
