"""Image preprocessing as a part of the model: mean, std, order of channels, layout.

Every artifact takes RGB, channels first, in [low, high], whatever its module expects: callers cannot get wrong what is
computed inside, and Python, browsers and phones need only one form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import ModelError
from edgekit.model.adapter import signature
from edgekit.model.spec import Array, Input, ModelSpec

if TYPE_CHECKING:
    import torch

COLOURS = 3
_PLAIN = Input("", ())


def check_image(i: Input, model: str) -> None:
    """Refuse an inconsistent image declaration.

    Raises:
        ModelError: Naming it, and the possible values.
    """
    declared = declares_preprocessing(i) or i.fit != _PLAIN.fit
    if declared and i.kind != "image":
        raise ModelError(f"'{i.name}' of '{model}' is not an image: mean, std and the like need kind=\"image\"")
    choices = {"channels": ("RGB", "BGR"), "layout": ("NCHW", "NHWC"), "fit": ("stretch", "crop", "letterbox")}
    for field, possible in choices.items():
        if (value := getattr(i, field)) not in possible:
            raise ModelError(f"unknown {field} '{value}' of '{i.name}'. Possible: {', '.join(possible)}")
    for field in ("mean", "std"):
        if len(values := getattr(i, field)) not in (0, COLOURS):
            raise ModelError(f"the {field} of '{i.name}' has {len(values)} numbers. Give one per channel, {COLOURS}")
    if not all(i.std):
        raise ModelError(f"the std of '{i.name}' is {list(i.std)}: an image cannot be divided by 0")
    if i.kind == "image" and len(i.shape) != COLOURS + 1:
        raise ModelError(
            f"'{i.name}' of '{model}' has the shape {list(i.shape)}. An image has batch, channels, height and width"
        )
    if declared and i.shape[_channel_axis(i)] != COLOURS:
        raise ModelError(
            f"'{i.name}' of '{model}' has the shape {list(i.shape)}. An image in {i.layout} has "
            f"{COLOURS} channels at dimension {_channel_axis(i)}"
        )


def with_plain_images(spec: ModelSpec) -> ModelSpec:
    """Return the model with plain images; a wrapper applies mean, std, channel order and layout."""
    if not any(declares_preprocessing(i) for i in spec.inputs):
        return spec
    return replace(spec, module=_module(spec.module, spec.inputs), inputs=tuple(map(plain, spec.inputs)))


def declares_preprocessing(i: Input) -> bool:
    """Return whether an image's preprocessing becomes a part of the artifact."""
    return bool(i.mean or i.std) or (i.channels, i.layout) != (_PLAIN.channels, _PLAIN.layout)


def _channel_axis(i: Input) -> int:
    return i.layout.index("C")


def plain(i: Input) -> Input:
    """Return an image input in the form that every artifact takes; any other input unchanged."""
    if not declares_preprocessing(i):
        return i
    shape = (i.shape[0], COLOURS, *(i.shape[1:3] if i.layout == "NHWC" else i.shape[2:]))
    return replace(i, shape=shape, mean=(), std=(), channels=_PLAIN.channels, layout=_PLAIN.layout)


def _module(inner: torch.nn.Module, inputs: Sequence[Input]) -> torch.nn.Module:
    import torch

    def row(values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32).reshape(1, COLOURS, 1, 1)

    class ImageInputs(torch.nn.Module):
        edgekit_adapter = True

        def __init__(self) -> None:
            super().__init__()
            self.inner = inner
            before = set(self.state_dict())
            for number, i in enumerate(inputs):
                if i.mean or i.std:
                    self.register_buffer(f"mean_{number}", row(i.mean or [0.0] * COLOURS))
                    self.register_buffer(f"std_{number}", row(i.std or [1.0] * COLOURS))
            self.edgekit_buffers = tuple(sorted(set(self.state_dict()) - before))

        def forward(self, *tensors: torch.Tensor) -> object:
            return self.inner(*(self.preprocess(number, x) for number, x in enumerate(tensors)))

        def preprocess(self, number: int, x: torch.Tensor) -> torch.Tensor:
            """Return an image in the form that the inner module takes; any other input unchanged."""
            i = inputs[number]
            if not declares_preprocessing(i):
                return x
            x = x.flip(1) if i.channels == "BGR" else x
            if i.mean or i.std:
                x = (x - self.get_buffer(f"mean_{number}")) / self.get_buffer(f"std_{number}")
            return x.permute(0, 2, 3, 1).contiguous() if i.layout == "NHWC" else x

        # torch.export reads the names and the number of inputs from here.
        forward.__signature__ = signature([i.name for i in inputs])  # type: ignore[attr-defined]

    return ImageInputs().eval()


def pixels_of(image: Array, low: float, high: float, exact: float) -> Array | None:
    """Return the bytes of an image.

    Args:
        image: [3, H, W], with `low` for the byte 0 and `high` for the byte 255.
        low: Smallest value.
        high: Largest value.
        exact: Largest allowed difference of a value from a byte, in bytes.

    Returns:
            [H, W, 3] uint8, or None if a value is not a byte.
    """
    scaled = (image.transpose(1, 2, 0).astype(np.float64) - low) / (high - low) * 255
    pixels = np.rint(scaled).clip(0, 255)
    return None if np.abs(scaled - pixels).max() > exact else pixels.astype(np.uint8)
