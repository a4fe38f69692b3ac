"""Small models of twelve kinds with seeded weights and real inputs, which the exam exports and breaks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit.model.spec import Array, Axis, Input, ModelSpec, Output
from edgekit.testing.models import small_model
from tools.exam.families import FAMILIES
from tools.exam.pictures import CHANNELS, TOKENS, TRUTH, evaluation, pictures, queries, sequences

ROWS = 48
"""Inputs of each evaluation set."""
SIDE = 32
"""Default height and width of a picture, in pixels; ARR-COC takes 96."""
CLASSES = 6
WAVES = 0.25
"""Of the pictures of ARR-COC: equal patches have no order, which INT8 is asked to keep."""
BATCH = Axis(1, 1, 8)
MODELS = ("arrcoc", "classifier", "detector", "segmentation", "embedding", "classes", *FAMILIES)


class Classifier(nn.Module):
    """Pictures of any size -> logits and the class."""

    def __init__(self, classes: int = CLASSES) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 24, 3, padding=1)
        self.second = nn.Conv2d(24, 48, 3, stride=2, padding=1)
        self.norm = nn.LayerNorm(96)
        self.hidden = nn.Linear(96, 64)
        self.classes = nn.Linear(64, classes)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = functional.max_pool2d(functional.relu(self.first(images - 0.5)), 2)
        x = functional.relu(self.second(x))
        x = torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1)
        logits = self.classes(functional.gelu(self.hidden(self.norm(x))))
        return logits, logits.argmax(1)


class Detector(nn.Module):
    """Pictures of 32 x 32 -> sixteen boxes in pixels, each with its confidence."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.SiLU(), nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.ReLU()
        )
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(24, 5)
        rows, columns = torch.meshgrid(torch.arange(4) * 8.0 + 4, torch.arange(4) * 8.0 + 4, indexing="ij")
        self.centres: Tensor
        self.register_buffer("centres", torch.stack([columns.ravel(), rows.ravel()], 1))

    def forward(self, images: Tensor) -> Tensor:
        y = self.head(self.pool(self.trunk(images - 0.5)).flatten(2).transpose(1, 2))
        middle, size = self.centres + 6 * torch.tanh(y[..., :2]), 4 + 12 * torch.sigmoid(y[..., 2:4])
        return torch.cat([middle - size, middle + size, torch.sigmoid(y[..., 4:])], 2)


class Segmentation(nn.Module):
    """Pictures of any size -> two masks of one shape: the share of each pixel that is in one class and in another."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(16, 16, 3, padding=1)
        self.mixed = nn.Linear(16, 16)
        self.up = nn.ConvTranspose2d(16, 12, 2, stride=2)
        self.head = nn.Conv2d(15, 2, 3, padding=1)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = images - 0.5
        y = functional.relu(self.down(x))
        y = functional.relu(self.middle(y)) + y
        y = y + functional.gelu(self.mixed(y.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        y = self.up(y)
        masks = torch.sigmoid(self.head(torch.cat([y, x], 1)))
        return masks[:, :1], masks[:, 1:]


class Encoder(nn.Module):
    """Sequences of twelve vectors -> an embedding of length one, by attention."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(CHANNELS, 24)
        self.before, self.after = nn.LayerNorm(24), nn.LayerNorm(24)
        self.query, self.key, self.value = nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 24)
        self.wide, self.narrow = nn.Linear(24, 48), nn.Linear(48, 24)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.enter(tokens)
        y = self.before(x)
        shares = torch.softmax(self.query(y) @ self.key(y).transpose(1, 2) / 24**0.5, 2)
        x = x + shares @ self.value(y)
        x = x + self.narrow(functional.gelu(self.wide(self.after(x))))
        return functional.normalize(x.mean(1), dim=1)


def arrcoc() -> ModelSpec:
    """ARR-COC's interface in miniature, with larger sets of real inputs than `edgekit.testing` has."""

    def some(count: int, seed: int) -> dict[str, Array]:
        return {"images": pictures(count, seed, 96, 96, WAVES), "queries": queries(count, seed)}

    spec, sides = small_model(), Axis(96, 96, 128, 16)
    with torch.no_grad():  # scores of which none is 0 or 1: these are equal, and equal scores have no order
        for name in ("weight", "bias"):
            getattr(spec.module.question, name).mul_(0.25)
    return replace(
        spec,
        name="arrcoc",
        axes={"batch": BATCH, "height": sides, "width": sides},
        evaluation=lambda: evaluation(some(ROWS // 2, TRUTH)),
        calibration=lambda n: evaluation(some(n, TRUTH + 1)),
    )


def classifier() -> ModelSpec:
    """A picture classifier."""
    outputs = (Output("logits", role="logits"), Output("label", role="labels", of="logits", dtype="int64"))
    return of_pictures("classifier", seeded(Classifier(), 21), outputs)


def classes() -> ModelSpec:
    """A picture classifier of 100 classes."""
    outputs = (Output("logits", role="logits"), Output("label", role="labels", of="logits", dtype="int64"))
    return of_pictures("classes", seeded(Classifier(100), 25), outputs)


def detector() -> ModelSpec:
    """A detector at one size, since its anchors are stored."""
    outputs = (Output("boxes", role="boxes", axes=("batch", "anchors", "channels")),)
    return of_pictures("detector", seeded(Detector(), 22), outputs, dynamic=False)


def segmentation() -> ModelSpec:
    """A segmentation net."""
    outputs = (Output("thing", role="mask"), Output("edge", role="mask"))
    return of_pictures("segmentation", seeded(Segmentation(), 23), outputs)


def embedding() -> ModelSpec:
    """An embedding of sequences."""
    return ModelSpec(
        "embedding",
        seeded(Encoder(), 24),
        (Input("tokens", ("batch", TOKENS, CHANNELS), low=-1.0),),
        (Output("embedding", role="embedding"),),
        {"batch": BATCH},
        evaluation=lambda: evaluation({"tokens": sequences(ROWS, TRUTH)}),
        calibration=lambda n: evaluation({"tokens": sequences(n, TRUTH + 1)}),
    )


def of_pictures(name: str, module: nn.Module, outputs: tuple[Output, ...], dynamic: bool = True) -> ModelSpec:
    """A model whose only input is a picture."""
    side = Axis(SIDE, SIDE, 64, 16)
    return ModelSpec(
        name,
        module,
        (Input("images", ("batch", 3, "height", "width") if dynamic else ("batch", 3, SIDE, SIDE), kind="image"),),
        outputs,
        {"batch": BATCH, "height": side, "width": side} if dynamic else {"batch": BATCH},
        evaluation=lambda: evaluation({"images": pictures(ROWS, TRUTH, SIDE, SIDE)}),
        calibration=lambda n: evaluation({"images": pictures(n, TRUTH + 1, SIDE, SIDE)}),
    )


def seeded(module: nn.Module, seed: int) -> nn.Module:
    """The module in eval mode with seeded weights; what scales a norm stays near one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                parameter.copy_(
                    0.1 * drawn + (1.0 if name.endswith(("before.weight", "after.weight", "norm.weight")) else 0)
                )
            else:
                parameter.copy_(drawn * (1.8 / parameter[0].numel() ** 0.5))
    return module.eval()


def family(name: str) -> ModelSpec:
    """One of the families of `families.py`."""
    return FAMILIES[name].spec(name, seeded(FAMILIES[name].make(), 30 + list(FAMILIES).index(name)))


points, kelvin, text, pair, table, audio = (functools.partial(family, name) for name in FAMILIES)
SPECS: dict[str, Callable[[], ModelSpec]] = {
    "arrcoc": arrcoc,
    "classifier": classifier,
    "detector": detector,
    "segmentation": segmentation,
    "embedding": embedding,
    "classes": classes,
    **dict(zip(FAMILIES, (points, kelvin, text, pair, table, audio), strict=True)),
}
