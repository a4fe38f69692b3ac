"""Models of strangers, for tests: what a user might name as `package.module:factory`."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn

from edgekit.model.overrides import words_of
from edgekit.model.sources.onnx import spec_of_onnx
from edgekit.model.spec import Axis, EvaluationSet, Input, ModelSpec, Output
from edgekit.testing import small_model

AXES = {"batch": Axis(1, 1, 4), "height": Axis(96, 64, 128, 32), "width": Axis(96, 64, 128, 32)}
IMAGES = (Input("images", ("batch", 3, "height", "width"), kind="image"),)


def spec(name: str, module: nn.Module) -> ModelSpec:
    return ModelSpec(name=name, module=module.eval(), inputs=IMAGES, outputs=(Output("answer"),), axes=AXES)


class Function(nn.Module):
    """A function as a module; the parameter keeps weights in play."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((), 1.5))
        self.function = function

    def forward(self, images: Tensor) -> Tensor:
        return self.function(images, self.scale)


def branch_on_values(x: Tensor, scale: Tensor) -> Tensor:
    if x.mean() > 0.5:
        return x.mean((2, 3)) * scale
    return x.amax((2, 3))


def branch_on_size(x: Tensor, scale: Tensor) -> Tensor:
    if x.shape[2] == 64:
        return x.mean((2, 3)) * scale
    return x.sum((2, 3)) * scale


def narrow(x: Tensor, scale: Tensor) -> Tensor:
    return x.mean((2, 3)) * (scale if x.shape[2] > 80 else 2 * scale)


def fixed_size(x: Tensor, scale: Tensor) -> Tensor:
    return x.reshape(x.shape[0], 3, 64 * 64).mean(2) * scale


def value_in_python(x: Tensor, scale: Tensor) -> Tensor:
    return x.mean((2, 3)) * float(x.max()) * scale


def random_numbers(x: Tensor, scale: Tensor) -> Tensor:
    return (x + torch.rand_like(x)).mean((2, 3)) * scale


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, images: Tensor) -> Tensor:
        return torch.as_tensor(self.drop(images).mean((2, 3)))


def raising() -> ModelSpec:
    raise ValueError("the weights are on another machine")


def no_spec() -> object:
    return nn.Linear(1, 1)


def odd_size() -> ModelSpec:
    return dataclasses.replace(small_model(), axes={**small_model().axes, "height": Axis(100, 96, 160, 16)})


def resnet() -> ModelSpec:
    from transformers import ResNetConfig, ResNetModel

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    return _vision("resnet", ResNetModel(config))


def vit() -> ModelSpec:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=256, patch_size=16
    )
    return _vision("vit", ViTModel(config, add_pooling_layer=False), interpolate_pos_encoding=True)


class Vision(nn.Module):
    """A transformers model as images -> last hidden state."""

    def __init__(self, inner: nn.Module, **named: object) -> None:
        super().__init__()
        self.inner = inner
        self.named = named

    def forward(self, images: Tensor) -> Tensor:
        return torch.as_tensor(self.inner(images, **self.named).last_hidden_state)


def _vision(name: str, inner: nn.Module, **named: object) -> ModelSpec:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in inner.parameters():
            if parameter.dim() > 1:
                fan = max(parameter[0].numel(), 1)
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / fan**0.5)
    return spec(name, Vision(inner, **named))


class Plain(nn.Module):
    """Answers with its input: what is computed in front of it shows."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 1


def plain() -> nn.Module:
    return Plain().eval()


def onnx_file() -> ModelSpec:
    """Two linear layers in an ONNX file, with a calibration and an evaluation set."""
    draw = np.random.default_rng(0)
    weights = {"a": draw.normal(0, 0.1, (64, 256)), "b": draw.normal(0, 0.1, (256, 8))}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], name="first/MatMul"),
        helper.make_node("Relu", ["h"], ["r"], name="bend/Relu"),
        helper.make_node("MatMul", ["r", "b"], ["y"], name="last/MatMul"),
    ]
    sizes = {"x": 64, "y": 8}
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["batch", size]) for n, size in sizes.items())
    constants = [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()]
    graph = helper.make_graph(nodes, "tiny", [x], [y], constants)
    path = Path(tempfile.mkdtemp(prefix="edgekit-")) / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)

    def rows(count: int, seed: int) -> EvaluationSet:
        values = np.random.default_rng(seed).uniform(-1, 1, (count, 64)).astype(np.float32)
        return EvaluationSet({"x": values}, tuple(map(str, range(count))))

    spec = spec_of_onnx(path, words_of(("x:0=batch",), ("x:range=-1..1",), ()))
    return dataclasses.replace(spec, evaluation=lambda: rows(16, 1), calibration=lambda count: rows(count, 2))
