"""The zoo's models by name, and the targets that each is exported to."""

from __future__ import annotations

from tools.zoo import files, plain, shipped, vision, words

TARGETS = (
    "onnx",
    "onnx-fp16",
    "onnx-int8-static",
    "onnx-int8-dynamic",
    "torchscript",
    "torch-mobile",
    "executorch",
    "executorch-int8",
    "openvino",
    "coreai",
    "coreml",
    "coreml-int8",
)
FIVE = ("vit", "resnet", "bert", "lstm", "unet")
"""Models of five kinds that are also asked of targets that take long, each a minute or more a cell."""
ALSO = ("litert", "litert-int8", "mnn", "mnn-int8", "iree", "coreai-int8", "openvino-int8", "aoti", "web")
BUCKETS = "onnx-buckets"
SIZES = (
    *("bert", "distilbert", "clip_text", "gpt2", "t5_encoder", "clip", "t5_decoder", "whisper_decoder"),
    *("unet", "kv_decoder", "text_finder"),
)
"""Models with an open size beside the batch: only these have buckets."""
OF_FILES = ("onnx", "onnx-fp16", "onnx-int8-static", "onnx-int8-dynamic", "openvino", "mnn", "mnn-int8", "iree")
"""Targets that take an ONNX file, which holds no code of PyTorch."""
VISION = (
    "vit",
    "swin",
    "dinov2",
    "beit",
    "segformer",
    "efficientnet",
    "convnextv2",
    "mobilevit",
    "mobilenet_v2",
    "regnet",
    "resnet",
    "detr",
    "yolos",
    "clip_vision",
    "depth_anything",
    "videomae",
)
WORDS = (
    *("bert", "distilbert", "clip_text", "gpt2", "t5_encoder", "whisper_encoder", "wav2vec2"),
    *("t5_decoder", "whisper_decoder", "clip"),
)
PLAIN = (
    *("lstm", "gru", "unet", "vae_decoder", "generator", "encoder", "tcn"),
    *("kv_decoder", "selective_scan", "graph_network", "fourier_operator", "mask_decoder"),
    *("detector", "qat"),
)
SHIPPED = ("crepe", "pnet", "rnet", "onet", "voice_encoder")
FILES = ("silero", "magika", "text_angle", "text_finder", "notes")
ROOMS = {vision: VISION, words: WORDS, plain: PLAIN, shipped: SHIPPED, files: FILES}
MODELS = {name: f"{room.__name__}:{name}" for room, names in ROOMS.items() for name in names}
"""Name -> factory, as the command line takes it."""


def targets_of(name: str) -> tuple[str, ...]:
    """What a model is exported to."""
    asked = OF_FILES if name in FILES else (*TARGETS, *ALSO) if name in FIVE else TARGETS
    return (*asked, BUCKETS) if name in SIZES else asked
