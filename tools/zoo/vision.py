"""Architectures of transformers that take pictures, small, with seeded weights."""

from __future__ import annotations

from typing import Any

import torch
import transformers as t
from torch import nn

from edgekit.model.spec import Input, ModelSpec, Output
from tools.zoo.samples import clips, model, pictures

LOGITS = (Output("logits", role="logits"),)
HIDDEN = (Output("last_hidden_state"),)
WIDE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
CLASSES = {"num_labels": 5}


def vit() -> ModelSpec:
    config = t.ViTConfig(**WIDE, **CLASSES, image_size=32, patch_size=8)
    return _pictures("vit", t.ViTForImageClassification(config), 32)


def swin() -> ModelSpec:
    config = t.SwinConfig(
        **CLASSES, image_size=32, patch_size=2, embed_dim=16, depths=[2, 1], num_heads=[2, 4], window_size=4
    )
    return _pictures("swin", t.SwinForImageClassification(config), 32)


def dinov2() -> ModelSpec:
    config = t.Dinov2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=42, patch_size=14)
    outputs = (*HIDDEN, Output("pooler_output", role="embedding"))
    return _pictures("dinov2", t.Dinov2Model(config), 42, outputs)


def beit() -> ModelSpec:
    config = t.BeitConfig(**WIDE, **CLASSES, image_size=32, patch_size=8, use_relative_position_bias=True)
    return _pictures("beit", t.BeitForImageClassification(config), 32)


def segformer() -> ModelSpec:
    config = t.SegformerConfig(
        **CLASSES,
        depths=[1, 1, 1, 1],
        hidden_sizes=[8, 16, 24, 32],
        num_attention_heads=[1, 2, 2, 4],
        decoder_hidden_size=32,
    )
    outputs = (Output("logits", role="logits", axes=("batch", "channels", "height", "width")),)
    return _pictures("segformer", t.SegformerForSemanticSegmentation(config), 64, outputs)


def efficientnet() -> ModelSpec:
    config = t.EfficientNetConfig(
        **CLASSES,
        image_size=64,
        width_coefficient=0.25,
        depth_coefficient=0.3,
        hidden_dim=320,
    )
    return _pictures("efficientnet", t.EfficientNetForImageClassification(config), 64)


def convnextv2() -> ModelSpec:
    config = t.ConvNextV2Config(**CLASSES, depths=[1, 1, 2, 1], hidden_sizes=[8, 16, 24, 32], image_size=64)
    return _pictures("convnextv2", t.ConvNextV2ForImageClassification(config), 64)


def mobilevit() -> ModelSpec:
    config = t.MobileViTConfig(
        **CLASSES, image_size=64, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 64]
    )
    return _pictures("mobilevit", t.MobileViTForImageClassification(config), 64)


def mobilenet_v2() -> ModelSpec:
    config = t.MobileNetV2Config(**CLASSES, image_size=64, depth_multiplier=0.25, finegrained_output=False)
    return _pictures("mobilenet-v2", t.MobileNetV2ForImageClassification(config), 64)


def regnet() -> ModelSpec:
    config = t.RegNetConfig(
        **CLASSES, embedding_size=8, hidden_sizes=[16, 16, 24, 32], depths=[1, 1, 2, 1], groups_width=8
    )
    return _pictures("regnet", t.RegNetForImageClassification(config), 64)


def resnet() -> ModelSpec:
    config = t.ResNetConfig(**CLASSES, embedding_size=16, hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 1, 1])
    return _pictures("resnet", t.ResNetForImageClassification(config), 64)


def detr() -> ModelSpec:
    backbone = t.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 1, 1], out_features=["stage4"]
    )
    config = t.DetrConfig(
        backbone_config=backbone,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        num_labels=4,
        d_model=32,
        num_queries=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
    )
    return _pictures("detr", t.DetrForObjectDetection(config), 64, (*LOGITS, Output("pred_boxes")))


def yolos() -> ModelSpec:
    config = t.YolosConfig(**WIDE, num_labels=4, image_size=[64, 64], patch_size=16, num_detection_tokens=8)
    return _pictures("yolos", t.YolosForObjectDetection(config), 64, (*LOGITS, Output("pred_boxes")))


def clip_vision() -> ModelSpec:
    config = t.CLIPVisionConfig(**WIDE, projection_dim=16, image_size=32, patch_size=8)
    outputs = (Output("image_embeds", role="embedding"),)
    return _pictures("clip-vision", t.CLIPVisionModelWithProjection(config), 32, outputs)


def depth_anything() -> ModelSpec:
    backbone = t.Dinov2Config(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=56,
        patch_size=14,
        out_features=["stage1", "stage2", "stage3", "stage4"],
        reshape_hidden_states=False,
    )
    config = t.DepthAnythingConfig(
        backbone_config=backbone,
        reassemble_hidden_size=32,
        neck_hidden_sizes=[8, 16, 32, 32],
        fusion_hidden_size=16,
        head_hidden_size=8,
    )
    outputs = (Output("predicted_depth", role="image"),)
    return _pictures("depth-anything", t.DepthAnythingForDepthEstimation(config), 56, outputs)


def videomae() -> ModelSpec:
    config = t.VideoMAEConfig(**WIDE, **CLASSES, image_size=32, patch_size=8, num_frames=4, tubelet_size=2)
    inputs = (Input("pixel_values", ("batch", 4, 3, 32, 32)),)
    module = t.VideoMAEForVideoClassification(config)
    return model("videomae", module, inputs, LOGITS, clips("pixel_values", 4, 32))


def _pictures(name: str, module: Any, side: int, outputs: tuple[Output, ...] = LOGITS) -> ModelSpec:
    inputs = (Input("pixel_values", ("batch", 3, side, side), kind="image"),)
    return model(name, Centred(module), inputs, outputs, pictures("pixel_values", side))


class Centred(nn.Module):
    """Pictures of [0, 1], to the mean and deviation that processors make of them."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, pixel_values: torch.Tensor) -> Any:
        return self.inner(pixel_values=(pixel_values - 0.5) / 0.25)
