"""The zoo's models by name, and the targets that each is exported to."""

from __future__ import annotations

from tools.zoo import plain, shipped, vision, words

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
"""Models of five kinds that are also made for browsers, for MNN and for IREE: a bundle takes minutes."""
ALSO = ("mnn", "mnn-int8", "iree", "web")
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
WORDS = ("bert", "distilbert", "clip_text", "gpt2", "t5_encoder", "whisper_encoder", "wav2vec2")
PLAIN = (
    *("lstm", "gru", "unet", "vae_decoder", "generator", "encoder", "tcn"),
    *("kv_decoder", "selective_scan", "graph_network", "fourier_operator", "mask_decoder"),
)
SHIPPED = ("crepe", "pnet", "rnet", "onet", "voice_encoder")
ROOMS = {vision: VISION, words: WORDS, plain: PLAIN, shipped: SHIPPED}
MODELS = {name: f"{room.__name__}:{name}" for room, names in ROOMS.items() for name in names}
"""Name -> factory, as the command line takes it."""


def targets_of(name: str) -> tuple[str, ...]:
    """What a model is exported to."""
    return (*TARGETS, *ALSO) if name in FIVE else TARGETS
