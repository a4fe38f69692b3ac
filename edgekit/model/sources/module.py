"""An `nn.Module` in memory and an example -> ModelSpec, for models that no factory makes."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.errors import ModelError
from edgekit.model.adapter import answered, in_float32
from edgekit.model.contract import checked
from edgekit.model.spec import Array, Axis, Input, ModelSpec, Output

if TYPE_CHECKING:
    import torch

BATCH = "batch"
MOST_IMAGES = 8  # of a batch, where the user says nothing
Axes = Mapping[str, Mapping[int, str | tuple[str, Axis]]]
"""For each input by name, dimension -> the name of its axis, with its range where it is not the batch."""


def spec_of_module(
    module: torch.nn.Module,
    example: Any,
    *,
    axes: Axes | None = None,
) -> ModelSpec:
    """Describe a module by an example of its inputs; it is named after its class, in lower case with dashes.

    Args:
        module: In eval mode; it is run once.
        example: One tensor, a sequence of tensors in the order of `forward`, or tensors by the names of its parameters.
        axes: Which dimensions vary; None lets the first dimension of every input be the batch, of 1 to 8, where the
            example has the size there that its first input has. The example's size is the default size of every other
            axis.

    Raises:
        ModelError: If the module does not take the example, or the axes do not fit it.
    """
    import torch

    if module.training:
        raise ModelError(f"'{type(module).__name__}' is in training mode: call .eval() before exporting it")
    tensors = _named_example(module, example)
    declared, shapes = _axes(tensors, axes)
    inputs = tuple(_input(n, tensor, shapes[n]) for n, tensor in tensors.items())
    single = in_float32(module)
    wide = {n: tensor.to(_wide(tensor)) for n, tensor in tensors.items()}
    try:
        with torch.no_grad():
            answer = answered(single, wide)
    except ModelError as error:
        raise ModelError(f"'{type(module).__name__}': {error}") from error
    except Exception as error:
        first = str(error).strip().splitlines()[:1]
        raise ModelError(f"'{type(module).__name__}' does not take the example: {' '.join(first)}") from error
    outputs = tuple(Output(n, dtype=_dtype(value)) for n, value in answer.items())
    name = _dashed(type(module).__name__)
    return checked(ModelSpec(name=name, module=single, inputs=inputs, outputs=outputs, axes=declared))


def _named_example(module: torch.nn.Module, example: Any) -> dict[str, torch.Tensor]:
    import torch

    parameters = [
        parameter.name
        for parameter in inspect.signature(module.forward).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if isinstance(example, Mapping):
        unknown = [name for name in example if name not in parameters]
        if unknown:
            known = ", ".join(parameters)
            raise ModelError(f"the example names '{unknown[0]}', which forward() does not take: possible are {known}")
        tensors = {name: example[name] for name in parameters if name in example}
    else:
        arguments = tuple(example) if isinstance(example, Sequence) and not isinstance(example, str) else (example,)
        names = [*parameters, *(f"input_{number}" for number in range(len(parameters), len(arguments)))]
        tensors = dict(zip(names, arguments, strict=False))
    wrong = [name for name, tensor in tensors.items() if not isinstance(tensor, torch.Tensor)]
    if wrong or not tensors:
        what = f"'{wrong[0]}' is {type(tensors[wrong[0]]).__name__}" if wrong else "it is empty"
        raise ModelError(f"the example must hold tensors, and {what}")
    for name, tensor in tensors.items():
        if not tensor.numel() or bool(torch.isnan(tensor).any()):
            what = "holds no value" if not tensor.numel() else "has a NaN"
            raise ModelError(
                f"the example's '{name}' {what}: give a real input, which bounds the inputs that are asked"
            )
    return tensors


def _axes(
    tensors: Mapping[str, torch.Tensor], axes: Axes | None
) -> tuple[dict[str, Axis], dict[str, tuple[int | str, ...]]]:
    """The declared axes, and the shape of each input with their names in it."""
    if axes is not None and not isinstance(axes, Mapping):
        raise ModelError(f"axes are a {type(axes).__name__}: write them by input, for example {{'x': {{0: 'batch'}}}}")
    if axes is None:
        first = next((tensor.shape[0] for tensor in tensors.values() if tensor.dim() > 0), 1)
        axes = {name: {0: BATCH} for name, tensor in tensors.items() if tensor.dim() > 0 and tensor.shape[0] == first}
    if unknown := [name for name in axes if name not in tensors]:
        raise ModelError(f"axes name the input '{unknown[0]}': possible are {', '.join(tensors)}")
    declared: dict[str, Axis] = {}
    shapes: dict[str, tuple[int | str, ...]] = {}
    for name, tensor in tensors.items():
        shape: list[int | str] = list(tensor.shape)
        for dimension, axis, size in _dimensions(name, axes.get(name, {})):
            if not 0 <= dimension < tensor.dim():
                raise ModelError(f"axes name dimension {dimension} of '{name}', which has {tensor.dim()}")
            if size is None and axis not in declared:
                if axis != BATCH:
                    raise ModelError(f"axis '{axis}' has no range: write ('{axis}', Axis(default, minimum, maximum))")
                size = Axis(1, 1, max(MOST_IMAGES, int(tensor.shape[dimension])))
            if size is not None:
                declared[axis] = size
            if not declared[axis].minimum <= tensor.shape[dimension] <= declared[axis].maximum:
                raise ModelError(
                    f"axis '{axis}' goes from {declared[axis].minimum} to {declared[axis].maximum}, and the example's "
                    f"'{name}' has {tensor.shape[dimension]} there: let the range include the example"
                )
            shape[dimension] = axis
        shapes[name] = tuple(shape)
    return declared, shapes


def _dimensions(name: str, axes: object) -> Iterator[tuple[int, str, Axis | None]]:
    """Dimension, axis and its range, as a user wrote them for one input."""
    entries = axes.items() if isinstance(axes, Mapping) else [(None, axes)]
    for dimension, entry in entries:
        axis, size = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, None)
        if isinstance(dimension, int) and isinstance(axis, str) and (size is None or isinstance(size, Axis)):
            yield dimension, axis, size
        else:
            raise ModelError(
                f"axes of '{name}' are {axes!r}: write a dimension and its axis, for example "
                "{0: 'batch', 2: ('height', Axis(224, 64, 512, 32))}"
            )


def _input(name: str, tensor: torch.Tensor, shape: tuple[int | str, ...]) -> Input:
    values: Array = tensor.detach().cpu().to(_wide(tensor)).numpy()
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    if values.dtype.kind == "f":  # another example of the same data gives the same range
        low, high = -_power(-low), _power(high)
    return Input(name, shape, dtype=_dtype(tensor), low=low, high=high if high > low else low + 1.0)


def _power(value: float) -> float:
    """The power of two at or above a value; 0 for what is not positive or not finite."""
    return 2.0 ** math.ceil(math.log2(value)) if 0 < value < math.inf else 0.0


def _wide(tensor: torch.Tensor) -> torch.dtype:
    """The dtype of a tensor; float32 for the shorter floats, whose values it holds."""
    import torch

    return torch.float32 if tensor.dtype in (torch.bfloat16, torch.float16) else tensor.dtype


def _dtype(tensor: torch.Tensor) -> str:
    return str(_wide(tensor)).removeprefix("torch.")


def _dashed(name: str) -> str:
    """A class's name as a model's: MyNet -> my-net."""
    words: Sequence[str] = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)
    return "-".join(word.lower() for word in words) or "model"
