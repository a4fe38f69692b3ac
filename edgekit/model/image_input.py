"""Image preprocessing as a part of the model: mean, std, order of channels, layout, bytes.

Every artifact takes RGB, channels first, in [low, high], whatever its module expects: callers cannot get wrong what is
computed inside, and Python, browsers and phones need only one form. On request (`Input.takes`) an artifact takes bytes,
channels last, or both. Sets and batches are then made as planes (float32, NCHW, in the module's range) and packed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from edgekit.errors import ModelError, UsageError
from edgekit.model.adapter import signature
from edgekit.model.spec import Array, EvaluationSet, Input, ModelSpec

if TYPE_CHECKING:
    import torch

COLOURS = 3
BYTE = 255
TAKES = ("uint8", "nhwc")
TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Orders of the dimensions that turn NCHW into NHWC, and back."""
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
    if odd := next((form for form in i.takes if form not in TAKES), ""):
        raise ModelError(f"'{i.name}' cannot take '{odd}'. Possible: {', '.join(TAKES)}")
    if "uint8" in i.takes and not (i.dtype in ("float32", "uint8") and i.low < i.high):
        raise ModelError(
            f"'{i.name}' of '{model}' is {i.dtype} from {i.low:g} to {i.high:g}. Only a float32 image can take uint8"
        )
    if "nhwc" in i.takes and COLOURS in _sizes(i):
        raise ModelError(
            f"'{i.name}' of '{model}' is {COLOURS} pixels high or wide, which nhwc cannot tell from its channels"
        )


def with_plain_images(spec: ModelSpec) -> ModelSpec:
    """Return the model with plain images; a wrapper applies mean, std, channel order and layout."""
    if not any(declares_preprocessing(i) for i in spec.inputs):
        return spec
    return replace(spec, module=_module(spec.module, spec.inputs), inputs=tuple(map(plain, spec.inputs)))


def declares_preprocessing(i: Input) -> bool:
    """Return whether an image's preprocessing becomes a part of the artifact."""
    return bool(i.mean or i.std) or (i.channels, i.layout, i.dtype) != (_PLAIN.channels, *_form(i))


def _form(i: Input) -> tuple[Literal["NCHW", "NHWC"], str]:
    """Return the layout and the dtype that artifacts take."""
    return "NHWC" if "nhwc" in i.takes else "NCHW", "uint8" if "uint8" in i.takes else i.dtype


def _channel_axis(i: Input) -> int:
    return i.layout.index("C")


def _sizes(i: Input) -> tuple[int | str, ...]:
    """Return the height and width of an image input."""
    return i.shape[1:3] if i.layout == "NHWC" else i.shape[2:]


def _with_layout(i: Input, layout: Literal["NCHW", "NHWC"]) -> Input:
    shape = (*_sizes(i), i.shape[_channel_axis(i)]) if layout == "NHWC" else (i.shape[_channel_axis(i)], *_sizes(i))
    return replace(i, layout=layout, shape=(i.shape[0], *shape))


def plain(i: Input) -> Input:
    """Return an image input in the form that its artifacts take; any other input unchanged."""
    if not declares_preprocessing(i):
        return i
    layout, dtype = _form(i)
    i = replace(_with_layout(i, layout), mean=(), std=(), channels=_PLAIN.channels)
    return i if dtype == i.dtype else replace(i, dtype=dtype, float_range=(i.low, i.high), low=0.0, high=float(BYTE))


def normalization(i: Input) -> dict[str, Array]:
    """Return "mean" and "std" of an input in the shape in which they broadcast, in bytes if its artifacts take bytes.

    The mean is subtracted first. Both are absent if the values stay as they are. Planes of an image that came with its
    channels last are flattened for it (3 dimensions): ONNX Runtime moves a transposition behind arithmetic, which is
    slow where channels are last, but not behind a change of shape.
    """
    layout, dtype = _form(i)
    values = {"mean": i.mean or (0.0,) * COLOURS, "std": i.std or (1.0,) * COLOURS}
    if dtype != i.dtype:
        unit = (i.high - i.low) / BYTE
        values = {
            "mean": tuple((m - i.low) / unit for m in values["mean"]),
            "std": tuple(s / unit for s in values["std"]),
        }
        # A single number is quicker than one per channel.
        if all(len(set(each)) == 1 for each in values.values()):
            return {name: np.array(each[:1], np.float32) for name, each in values.items()}
    shape: tuple[int, ...] = (1, COLOURS, 1, 1)
    if layout == "NHWC":
        shape = (COLOURS,) if i.layout == layout else (1, COLOURS, 1)
    changes = dtype != i.dtype or i.mean or i.std
    return {name: np.array(each, np.float32).reshape(shape) for name, each in values.items()} if changes else {}


def spec_in_planes(spec: ModelSpec) -> ModelSpec:
    """Return a model's declaration with float32 NCHW images in the module's range in place of other forms."""
    if not any(i.takes for i in spec.inputs):
        return spec

    def planes(i: Input) -> Input:
        i = replace(_with_layout(i, "NCHW"), takes=())
        return (
            replace(i, dtype="float32", low=i.float_range[0], high=i.float_range[1], float_range=())
            if i.float_range
            else i
        )

    return replace(spec, inputs=tuple(planes(i) if i.takes else i for i in spec.inputs))


def to_planes(spec: ModelSpec, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return inputs with the images in the form of `spec_in_planes`."""
    planes = dict(arrays)
    for i in (i for i in spec.inputs if i.takes and i.name in arrays):
        array = arrays[i.name].transpose(TO_FIRST) if i.layout == "NHWC" else arrays[i.name]
        if i.float_range:
            low, high = map(np.float32, i.float_range)
            array = low + (high - low) * (array.astype(np.float32) / np.float32(BYTE))
        planes[i.name] = np.ascontiguousarray(array)
    return planes


def from_planes(spec: ModelSpec, arrays: Mapping[str, Array], rounded: bool = True) -> dict[str, Array]:
    """Return inputs with the images in the model's own form; bytes stay floats unless `rounded`."""
    images = dict(arrays)
    for i in (i for i in spec.inputs if i.takes and i.name in arrays):
        array = arrays[i.name]
        if i.float_range:
            low, high = i.float_range
            array = (array.astype(np.float32) - np.float32(low)) * np.float32(BYTE / (high - low))
            array = np.rint(array).clip(0, BYTE).astype(np.uint8) if rounded else array
        images[i.name] = np.ascontiguousarray(array.transpose(TO_LAST) if i.layout == "NHWC" else array)
    return images


def set_in_planes(spec: ModelSpec, every: EvaluationSet) -> EvaluationSet:
    """Return a set with the images in the form of `spec_in_planes`."""
    return _with_images(spec, every, to_planes)


def pack_set(spec: ModelSpec, every: EvaluationSet) -> EvaluationSet:
    """Return a set with the images in the model's own form, as `pack_images` does."""
    return _with_images(spec, every, pack_images)


def _with_images(
    spec: ModelSpec, every: EvaluationSet, change: Callable[[ModelSpec, Mapping[str, Array]], dict[str, Array]]
) -> EvaluationSet:
    if not any(i.takes for i in spec.inputs):
        return every
    return replace(every, inputs=change(spec, every.inputs), others=tuple(change(spec, row) for row in every.others))


def pack_images(spec: ModelSpec, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return inputs with the images in the model's own form: from floats in the module's range, or another layout.

    Raises:
        ModelError: If floats do not fit the module's range.
    """
    result = dict(arrays)
    for i in (i for i in spec.inputs if i.takes and i.name in arrays):
        array = np.asarray(arrays[i.name])
        if array.ndim != COLOURS + 1 or not array.size:
            continue
        layout = "NHWC" if array.shape[3] == COLOURS != array.shape[1] else "NCHW"
        if i.float_range and array.dtype.kind == "f":
            _check_range(i, array)
            array = from_planes(spec, {i.name: array.transpose(TO_FIRST) if layout == "NHWC" else array})[i.name]
        elif layout != i.layout:
            array = np.ascontiguousarray(array.transpose(TO_LAST if i.layout == "NHWC" else TO_FIRST))
        result[i.name] = array
    return result


def _check_range(i: Input, array: Array) -> None:
    """Refuse floats of another range than the module's, such as [0, 1] for [0, 255]: most would be black."""
    low, high = i.float_range
    levels = (array.astype(np.float32) - low) * (BYTE / (high - low))
    # A byte beyond the range is rounding.
    is_wider = not (levels.min() >= -1 and levels.max() <= BYTE + 1)
    if is_wider or (levels.max() < 2 and np.abs(levels - np.rint(levels)).max() > 0.1):
        raise ModelError(
            f"the images '{i.name}' are {array.dtype} from {array.min():g} to {array.max():g}, but the module takes "
            f"{low:g} to {high:g}. Give floats in this range, or bytes (uint8)"
        )


def refuse_other_forms(inputs: Iterable[Input], user: str) -> None:
    """Refuse images of bytes or with channels last.

    Args:
        inputs: A model's inputs.
        user: What cannot feed them.

    Raises:
        UsageError: Naming the input, and the way out.
    """
    if odd := next((i for i in inputs if i.takes), None):
        raise UsageError(
            f"'{odd.name}' takes {', '.join(odd.takes)}, and {user} float32 pictures with channels first. Export "
            f"another build for it, without '{','.join(odd.takes)}'"
        )


def _module(inner: torch.nn.Module, inputs: Sequence[Input]) -> torch.nn.Module:
    import torch

    normalizations = [normalization(i) if declares_preprocessing(i) else {} for i in inputs]
    subtracts = [bool(values) and bool(values["mean"].any()) for values in normalizations]
    divides = [bool(values) and bool((values["std"] != 1).any()) for values in normalizations]

    class ImageInputs(torch.nn.Module):
        edgekit_adapter = True

        def __init__(self) -> None:
            super().__init__()
            self.inner = inner
            before = set(self.state_dict())
            for number, values in enumerate(normalizations):
                for name, array in values.items():
                    self.register_buffer(f"{name}_{number}", torch.tensor(array))
            self.edgekit_buffers = tuple(sorted(set(self.state_dict()) - before))

        def forward(self, *tensors: torch.Tensor) -> object:
            return self.inner(*(self.preprocess(number, x) for number, x in enumerate(tensors)))

        def preprocess(self, number: int, x: torch.Tensor) -> torch.Tensor:
            """Return an image in the form that the inner module takes; any other input unchanged."""
            i = inputs[number]
            if not declares_preprocessing(i):
                return x
            layout, dtype = _form(i)
            stays_last = i.layout == layout == "NHWC"
            # Bytes are moved before they become floats of four times their size.
            x = x.permute(TO_FIRST).contiguous() if layout == "NHWC" and not stays_last else x
            x = x.flip(3 if stays_last else 1) if i.channels == "BGR" else x
            shape, is_flat = x.shape, bool(normalizations[number]) and normalizations[number]["mean"].ndim == COLOURS
            x = x.flatten(2) if is_flat else x
            x = x.to(self.get_buffer(f"std_{number}").dtype) if dtype != i.dtype else x
            x = x - self.get_buffer(f"mean_{number}") if subtracts[number] else x
            x = x / self.get_buffer(f"std_{number}") if divides[number] else x
            x = x.reshape(shape) if is_flat else x
            return x.permute(TO_LAST).contiguous() if i.layout == "NHWC" and not stays_last else x

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
