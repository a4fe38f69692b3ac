"""Networks of the common kinds, seeded and small, with calibration and evaluation sets: what INT8 is tried on."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.model.spec import Axis, EvaluationSet, Input, ModelSpec, Output

SIZE = 64
"""Pixels of a picture's edge."""


def resnet(width: int = 16) -> ModelSpec:
    """Residual blocks with batch norms, pooling, and a linear layer on means."""
    return _of_pictures("resnet", _ResNet(width), "logits")


def unet(width: int = 16) -> ModelSpec:
    """Convolutions down and up, transposed convolutions, concatenations: an answer for each pixel."""
    return _of_pictures("unet", _UNet(width), "mask")


def lstm() -> ModelSpec:
    """A recurrent layer over a sequence, and a linear layer."""

    def sequences(count: int, seed: int) -> EvaluationSet:
        steps = np.random.default_rng(seed).normal(0, 0.3, (count, 20, 16)).astype(np.float32)
        return _set("x", steps.cumsum(axis=1, dtype=np.float32))

    return ModelSpec(
        name="lstm",
        module=_seeded(_Sequence()),
        inputs=(Input("x", ("batch", 20, 16), low=-2.0, high=2.0),),
        outputs=(Output("y"),),
        axes={"batch": Axis(1, 1, 4)},
        evaluation=lambda: sequences(6, 1),
        calibration=lambda n: sequences(n, 2),
    )


def mlp() -> ModelSpec:
    """Linear layers."""

    def rows(count: int, seed: int) -> EvaluationSet:
        return _set("x", np.random.default_rng(seed).normal(0, 0.5, (count, 32)).astype(np.float32))

    return ModelSpec(
        name="mlp",
        module=_seeded(nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 8))),
        inputs=(Input("x", ("batch", 32), low=-2.0, high=2.0),),
        outputs=(Output("y"),),
        axes={"batch": Axis(1, 1, 4)},
        evaluation=lambda: rows(6, 1),
        calibration=lambda n: rows(n, 2),
    )


def pictures(count: int, seed: int, size: int = SIZE) -> EvaluationSet:
    """Discs on gradients with a little noise, [count, 3, size, size] in [0, 1]."""
    draw = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:size, 0:size] / size
    images = np.empty((count, 3, size, size), np.float32)
    for number in range(count):
        slope = draw.uniform(-0.5, 0.5, (3, 2))
        picture = 0.5 + slope[:, :1, None] * rows + slope[:, 1:, None] * columns
        for _ in range(4):
            middle, radius = draw.uniform(0.1, 0.9, 2), draw.uniform(0.05, 0.3)
            disc = (rows - middle[0]) ** 2 + (columns - middle[1]) ** 2 < radius**2
            picture = np.where(disc, draw.uniform(0, 1, 3)[:, None, None], picture)
        images[number] = np.clip(picture + draw.normal(0, 0.02, picture.shape), 0, 1)
    return _set("images", images)


def _set(name: str, values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> EvaluationSet:
    return EvaluationSet({name: values}, tuple(f"sample {number}" for number in range(len(values))))


def _of_pictures(name: str, module: nn.Module, output: str) -> ModelSpec:
    edge = Axis(SIZE, SIZE // 2, SIZE * 3 // 2, 32)
    return ModelSpec(
        name=name,
        module=_seeded(module),
        inputs=(Input("images", ("batch", 3, "height", "width"), kind="image"),),
        outputs=(Output(output),),
        axes={"batch": Axis(1, 1, 4), "height": edge, "width": edge},
        evaluation=lambda: pictures(6, 1),
        calibration=lambda n: pictures(n, 2),
    )


def _seeded(module: nn.Module) -> nn.Module:
    """Weights as of a trained network: activations keep their size, batch norms have statistics of their own."""
    generator = torch.Generator().manual_seed(1)

    def normal(like: Tensor, deviation: float) -> Tensor:
        return torch.randn(like.shape, generator=generator) * deviation

    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if name.endswith("running_var"):
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
            elif name.endswith("running_mean"):
                tensor.copy_(normal(tensor, 0.1))
            elif tensor.dim() > 1:
                tensor.copy_(normal(tensor, 1.4 / float(tensor[0].numel()) ** 0.5))
            elif tensor.is_floating_point():
                tensor.copy_(tensor + normal(tensor, 0.1))
    return module.eval()


def _block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = _block(inputs, outputs, stride)
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(self.first(x)) + self.down(x))


class _ResNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(_block(3, width, 2), nn.MaxPool2d(3, 2, 1))
        self.layer1 = _Residual(width, width, 1)
        self.layer2 = _Residual(width, 2 * width, 2)
        self.head = nn.Linear(2 * width, 10)

    def forward(self, images: Tensor) -> Tensor:
        found = self.layer2(self.layer1(self.stem(images)))
        return torch.as_tensor(self.head(found.mean((2, 3))))


class _UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.down1 = _block(3, width)
        self.down2 = _block(width, 2 * width)
        self.bottom = _block(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.side2 = _block(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.side1 = _block(2 * width, width)
        self.out = nn.Conv2d(width, 2, 1)

    def forward(self, images: Tensor) -> Tensor:
        first = self.down1(images)
        second = self.down2(nn.functional.max_pool2d(first, 2))
        third = self.bottom(nn.functional.max_pool2d(second, 2))
        second = self.side2(torch.cat([self.up2(third), second], 1))
        return torch.as_tensor(self.out(self.side1(torch.cat([self.up1(second), first], 1))))


class _Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 64, num_layers=2, batch_first=True)
        self.head = nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.lstm(x)[0]))
