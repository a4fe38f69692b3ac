"""Checks of a ModelSpec before export, and its normalization to one form."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from edgekit.errors import ModelError
from edgekit.model.adapter import adapt, in_eval
from edgekit.model.image_input import check_image, with_plain_images
from edgekit.model.spec import MOST_SIZES, MOST_VALUES, SUM, Axis, Input, ModelSpec, Output, axes_in, size_of

if TYPE_CHECKING:
    import torch

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Pattern of a model's name, which becomes the name of a folder and of files."""
TENSOR = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
"""Pattern of the name of an input, output or axis: the common subset of ONNX, Core ML and TypeScript."""

QUANTIZED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")
"""Packages of the modules with PyTorch's own INT8 kernels."""
LONGEST_NAME = 200
MOST_INPUTS, MOST_AXES = 512, 32


def check_spec(spec: ModelSpec) -> ModelSpec:
    """Return the model in the common form: consistent names and axes, a module in eval mode.

    An axis with one possible size becomes a number in the inputs' shapes. Image normalization becomes a part of the
    module.

    Raises:
        ModelError: Naming the inconsistency, and the possible values.
    """
    check_name(spec.name)
    _check_tensors(spec)
    spec = replace(spec, module=in_eval(spec.module))
    refuse_quantized(spec.name, spec.module)
    refuse_weightless(spec.name, spec.module)
    for name, axis in spec.axes.items():
        _check_word(spec.name, "an axis", name)
        _check_axis(spec.name, name, axis)
    spec = replace(spec, inputs=tuple(_with_bounds(spec, i) for i in spec.inputs))
    for i in spec.inputs:
        check_image(i, spec.name)
        check_size(spec, i)
    spec.module.eval()
    return with_plain_images(adapt(_without_fixed_axes(spec)))


def refuse_quantized(name: str, module: torch.nn.Module) -> None:
    """Refuse a module that `torch.ao.quantization` has changed into one with its own kernels.

    Raises:
        ModelError: Naming the first such submodule, and the way out.
    """
    for path, part in module.named_modules():
        kind = type(part)
        if "torchao.quantization.pt2e" in kind.__module__:
            raise ModelError(
                f"'{name}' is prepared for PT2E quantization but not converted ('{path or name}' is {kind.__name__}). "
                "Export the result of torchao's convert_pt2e"
            )
        if kind.__module__.startswith(QUANTIZED) or kind.__name__ == "FusedMovingAvgObsFakeQuantize":
            raise ModelError(
                f"'{name}' was changed by torch.ao.quantization ('{path or name}' is {kind.__name__}), whose operators "
                "no converter supports. Export the float module to the INT8 targets, or a module that torchao's "
                "QATConfig prepared or converted"
            )


def refuse_weightless(name: str, module: torch.nn.Module) -> None:
    """Refuse a module whose weights hold no values, or are not stored as an array.

    Raises:
        ModelError: Naming the first such weight, and the way out.
    """
    import torch

    for weight, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.device.type == "meta":
            raise ModelError(f"'{name}' has no values in '{weight}', which is on the device 'meta'. Load its weights")
        if not torch.nn.parameter.is_lazy(tensor) and tensor.layout is not torch.strided:
            raise ModelError(f"'{name}' stores '{weight}' as {tensor.layout}. Edge runtimes need it dense")


def check_name(name: str) -> None:
    """Refuse a model's name that is not a valid file name.

    Raises:
        ModelError: Naming it.
    """
    if not NAME.fullmatch(name):
        raise ModelError(f"'{name}' is not a valid model name. Use letters, digits, dots, dashes and underscores")


def _check_tensors(spec: ModelSpec) -> None:
    if not spec.inputs:
        raise ModelError(f"'{spec.name}' has no inputs, so its outputs never change. Declare an input")
    if len(spec.inputs) > MOST_INPUTS:
        raise ModelError(f"'{spec.name}' has {len(spec.inputs)} inputs, more than {MOST_INPUTS}. Join some")
    names = [i.name for i in spec.inputs] + [o.name for o in spec.outputs]
    for name in names:
        _check_word(spec.name, "an input or output", name)
    if twice := next((name for name, count in Counter(names).items() if count > 1), None):
        raise ModelError(f"'{spec.name}' has more than one input or output '{twice}'. Give each a unique name")
    if odd := next((o for o in spec.outputs if o.threshold is not None and not _decides(o)), None):
        raise ModelError(
            f"the output '{odd.name}' of '{spec.name}' is {odd.role!r} with the threshold {odd.threshold}. Only scores "
            "and detections can have a threshold, within their range"
        )
    named_axes = {axis for i in spec.inputs for d in i.shape for axis in axes_in(d)}
    if unknown := sorted(named_axes - set(spec.axes)):
        raise ModelError(f"the inputs of '{spec.name}' use the axis '{unknown[0]}'. Declare it in axes")


def _decides(output: Output) -> bool:
    scored = output.role in ("scores", "detections")
    return scored and output.threshold is not None and output.low < output.threshold <= output.high


def _check_word(model: str, what: str, name: str) -> None:
    if not TENSOR.fullmatch(name):
        raise ModelError(f"'{name}' is not a valid name for {what} of '{model}'. Use letters, digits and underscores")
    if len(name) > LONGEST_NAME:
        raise ModelError(
            f"the name '{name[:20]}...' of {what} of '{model}' has {len(name)} letters. The limit is {LONGEST_NAME}"
        )


def check_size(spec: ModelSpec, declared: Input) -> None:
    """Refuse an input that is too large to generate.

    Raises:
        ModelError: Naming it, and the largest possible size.
    """
    if len(declared.shape) > MOST_AXES:
        raise ModelError(f"'{declared.name}' of '{spec.name}' has {len(declared.shape)} axes, more than {MOST_AXES}")
    shape = spec.shape(declared.name)
    if min(shape, default=1) < 0 or math.prod(shape) > MOST_VALUES:
        raise ModelError(
            f"the input '{declared.name}' of '{spec.name}' is {list(shape)} at its default sizes. Sizes must be at "
            f"least 0, and it can hold at most {MOST_VALUES} values"
        )


def _check_axis(model: str, name: str, axis: Axis) -> None:
    if min(axis.default, axis.minimum + 1, axis.multiple_of) < 1 or axis.maximum < axis.minimum:
        raise ModelError(
            f"axis '{name}' of '{model}' goes from {axis.minimum} to {axis.maximum} in steps of {axis.multiple_of}. "
            "The default and steps must be at least 1, the minimum at least 0, and the maximum at least the minimum"
        )
    if axis.maximum // axis.multiple_of > MOST_SIZES:
        raise ModelError(
            f"axis '{name}' of '{model}' goes to {axis.maximum} in steps of {axis.multiple_of}. It can have at most "
            f"{MOST_SIZES} sizes: declare a smaller range, or larger steps"
        )
    if axis.default % axis.multiple_of or not axis.minimum <= axis.default <= axis.maximum:
        raise ModelError(
            f"axis '{name}' of '{model}': the default {axis.default} is not a multiple of {axis.multiple_of} "
            f"in [{axis.minimum}, {axis.maximum}]"
        )
    if axis.minimum % axis.multiple_of:
        above = -(-axis.minimum // axis.multiple_of) * axis.multiple_of
        raise ModelError(
            f"axis '{name}' of '{model}': the minimum {axis.minimum} is not a multiple of {axis.multiple_of}. "
            f"The next multiple is {above}"
        )


def _with_bounds(spec: ModelSpec, i: Input) -> Input:
    """Return an input whose highest value is at most that of its bound at the largest sizes."""
    for bound in filter(None, (i.at_most, i.below)):
        if unknown := next((axis for axis in axes_in(bound) if axis not in spec.axes), ""):
            axes = ", ".join(spec.axes) or "none"
            raise ModelError(
                f"the values of '{i.name}' are bounded by '{unknown}', which is no axis of '{spec.name}'. Its axes: "
                f"{axes}. Declare the axis, or write a number"
            )
    return replace(i, high=i.largest({name: axis.maximum for name, axis in spec.axes.items()}))


def _without_fixed_axes(spec: ModelSpec) -> ModelSpec:
    fixed = {n: a.default for n, a in spec.axes.items() if a.minimum > a.maximum - a.multiple_of}
    inputs = tuple(
        replace(
            i,
            shape=tuple(_with_sizes(d, fixed) for d in i.shape),
            at_most=str(_with_sizes(i.at_most, fixed)) if i.at_most else "",
            below=str(_with_sizes(i.below, fixed)) if i.below else "",
        )
        for i in spec.inputs
    )
    return replace(spec, inputs=inputs, axes={n: a for n, a in spec.axes.items() if n not in fixed})


def _with_sizes(dimension: int | str, fixed: Mapping[str, int]) -> int | str:
    """Return a dimension with fixed axes replaced by their sizes."""
    if not set(axes_in(dimension)) <= set(fixed):
        return SUM.join(str(fixed.get(term, term)) for term in str(dimension).split(SUM))
    return size_of(dimension, fixed)
