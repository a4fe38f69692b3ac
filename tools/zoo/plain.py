"""Architectures of PyTorch's own layers, small, with seeded weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit.model.spec import Axis, Input, ModelSpec, Output
from tools.zoo.samples import BATCH, model, pictures, sounds, vectors

SIDE = Axis(32, 32, 64, 16)


class StatefulLstm(nn.Module):
    """One chunk of a sequence and the state -> answers and the next state."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(12, 16, num_layers=2, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (h, c) = self.lstm(x, (h.transpose(0, 1).contiguous(), c.transpose(0, 1).contiguous()))
        return self.head(y), h.transpose(0, 1), c.transpose(0, 1)


class BothWaysGru(nn.Module):
    """A sequence read from both ends -> classes."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(12, 16, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(x)[0].mean(1))  # type: ignore[no-any-return]


class UNet(nn.Module):
    """Pictures of any size -> a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = pair(3, 8), pair(8, 16), pair(16, 32)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.join2, self.join1 = pair(32, 16), pair(16, 8)
        self.head = nn.Conv2d(8, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        one = self.down1(images)
        two = self.down2(functional.max_pool2d(one, 2))
        low = self.middle(functional.max_pool2d(two, 2))
        two = self.join2(torch.cat([self.up2(low), two], 1))
        one = self.join1(torch.cat([self.up1(two), one], 1))
        return torch.sigmoid(self.head(one))


class VaeDecoder(nn.Module):
    """Latents -> pictures: group norms, SiLU, attention over positions, nearest neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(4, 32, 3, padding=1)
        self.blocks = nn.ModuleList([_Residual(32) for _ in range(3)])
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.ups = nn.ModuleList([nn.Conv2d(32, 32, 3, padding=1) for _ in range(2)])
        self.leave = nn.Conv2d(32, 3, 3, padding=1)

    def forward(self, latents: Tensor) -> Tensor:
        x = self.blocks[0](self.enter(latents))
        flat = x.flatten(2).transpose(1, 2)
        x = x + self.attention(flat, flat, flat, need_weights=False)[0].transpose(1, 2).reshape(x.shape)
        for block, up in zip(self.blocks[1:], self.ups, strict=True):
            x = block(up(functional.interpolate(x, scale_factor=2.0, mode="nearest")))
        return torch.tanh(self.leave(functional.silu(x)))


class Generator(nn.Sequential):
    """Noise -> pictures by transposed convolutions, as DCGAN's."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for before, after in ((16, 32), (32, 24), (24, 16)):
            stride = 1 if before == 16 else 2
            made = nn.ConvTranspose2d(before, after, 4, stride, 0 if stride == 1 else 1, bias=False)
            layers += [made, nn.BatchNorm2d(after), nn.ReLU()]
        super().__init__(*layers, nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh())


class Encoder(nn.Module):
    """PyTorch's own transformer encoder over vectors -> an embedding of length one."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(24, 4, 48, dropout=0.0, batch_first=True, activation="gelu")
        self.enter = nn.Linear(12, 24)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return functional.normalize(self.layers(self.enter(x)).mean(1), dim=1)


class Tcn(nn.Module):
    """Dilated causal convolutions over a sound -> one number a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv1d(1, 16, 1)
        self.layers = nn.ModuleList([nn.Conv1d(16, 32, 2, dilation=2**n) for n in range(5)])
        self.back = nn.ModuleList([nn.Conv1d(16, 16, 1) for _ in range(5)])
        self.leave = nn.Conv1d(16, 1, 1)

    def forward(self, sound: Tensor) -> Tensor:
        x = self.enter(sound)
        for number, (layer, back) in enumerate(zip(self.layers, self.back, strict=True)):
            gate, value = layer(functional.pad(x, (2**number, 0))).chunk(2, 1)
            x = x + back(torch.tanh(value) * torch.sigmoid(gate))
        return self.leave(x)  # type: ignore[no-any-return]


def lstm() -> ModelSpec:
    shapes = {"x": (10, 12), "h": (2, 16), "c": (2, 16)}
    inputs = tuple(Input(name, ("batch", *shape), low=-2.0, high=2.0) for name, shape in shapes.items())
    outputs = (Output("y"), Output("h_out", role="state"), Output("c_out", role="state"))
    return model("lstm", StatefulLstm(), inputs, outputs, vectors(**shapes))


def gru() -> ModelSpec:
    inputs = (Input("x", ("batch", 10, 12), low=-2.0, high=2.0),)
    return model("gru", BothWaysGru(), inputs, (Output("logits", role="logits"),), vectors(x=(10, 12)))


def unet() -> ModelSpec:
    inputs = (Input("images", ("batch", 3, "height", "width"), kind="image"),)
    axes = {"batch": BATCH, "height": SIDE, "width": SIDE}
    return model("unet", UNet(), inputs, (Output("mask", role="mask"),), pictures("images", 32), axes)


def vae_decoder() -> ModelSpec:
    inputs = (Input("latents", ("batch", 4, 8, 8), low=-2.0, high=2.0),)
    outputs = (Output("images", role="image"),)
    return model("vae-decoder", VaeDecoder(), inputs, outputs, vectors(latents=(4, 8, 8)))


def generator() -> ModelSpec:
    inputs = (Input("noise", ("batch", 16, 1, 1), low=-2.0, high=2.0),)
    return model("generator", Generator(), inputs, (Output("images", role="image"),), vectors(noise=(16, 1, 1)))


def encoder() -> ModelSpec:
    inputs = (Input("x", ("batch", 10, 12), low=-2.0, high=2.0),)
    return model("encoder", Encoder(), inputs, (Output("embedding", role="embedding"),), vectors(x=(10, 12)))


def tcn() -> ModelSpec:
    inputs = (Input("sound", ("batch", 1, 256), low=-1.0),)
    return model("tcn", Tcn(), inputs, (Output("y"),), sounds("sound", (1, 256)))


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, width), nn.GroupNorm(8, width)
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(functional.silu(self.norm1(x)))
        return x + self.conv2(functional.silu(self.norm2(y)))  # type: ignore[no-any-return]


def pair(before: int, after: int) -> nn.Sequential:
    """Two convolutions with batch norms."""
    layers: list[nn.Module] = []
    for width in (before, after):
        layers += [nn.Conv2d(width, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers)
