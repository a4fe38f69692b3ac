"""ModelSpec of an `nn.Module` in memory and an example, for models without a factory."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from edgekit.errors import ModelError
from edgekit.model.adapter import in_eval, in_float32, unique
from edgekit.model.capture_errors import line_of, sentence
from edgekit.model.contract import check_spec, refuse_quantized, refuse_weightless
from edgekit.model.overrides import BATCH, NOTHING, Axes, SpecOverrides, range_of, require_dimension, require_known
from edgekit.model.sources.arguments import arguments_of
from edgekit.model.spec import SUM, Array, Axis, Input, ModelSpec, Output

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


def spec_of_module(
    module: torch.nn.Module,
    example: Any,
    words: SpecOverrides = NOTHING,
) -> ModelSpec:
    """Describe a module by an example of its inputs; its name is its class name, in lower case with dashes.

    Args:
        module: In eval mode; it is run once.
        example: One tensor, a sequence in the order of `forward`, values by the names of its parameters, or a tuple
            and a dictionary for both. A value is a tensor, a structure of tensors (each is an input, named by its
            keys), or a number, a text or None, which stays fixed.
        words: The user's facts. Without axes, the first dimension of every input is the batch, of 1 to 8, if its
            size equals that of the first input. The example's size is the default of every axis without one.

    Raises:
        ModelError: If the module does not take the example, or the axes do not fit it.
    """
    import torch

    from edgekit.model.detector import Detector

    module = in_eval(module)
    # Frozen TorchScript does not have this attribute.
    if getattr(module, "training", False):
        raise ModelError(f"'{type(module).__name__}' is in training mode. Call .eval() before exporting it")
    refuse_quantized(_as_name(type(module).__name__), module)
    refuse_weightless(_as_name(type(module).__name__), module)
    single = in_float32(module)
    arguments = arguments_of(single, example)
    tensors = arguments.tensors
    declared, shapes = _axes(tensors, words.axes)
    wide = {n: tensor.to(_wide(tensor)) for n, tensor in tensors.items()}
    try:
        with torch.no_grad():
            answer, rows = _run_with_tables(lambda: arguments.run_module(single, wide), wide)
    except ModelError as error:
        raise ModelError(f"'{type(module).__name__}': {error}") from error
    except Exception as error:
        cast = "" if single is module else ", with its weights in float32, which every artifact uses"
        raise ModelError(
            f"'{type(module).__name__}' does not take the example{line_of(error)}{cast}: {sentence(error)}"
        ) from error
    if not answer:
        raise ModelError(f"'{type(module).__name__}' returns no tensor. Let forward() return one")
    inputs = words.of_inputs(_input(n, tensor, shapes[n], rows.get(n, 0)) for n, tensor in tensors.items())
    names = unique([name for name, _ in answer], list(tensors))
    outputs = tuple(Output(n, dtype=_dtype(value)) for n, (_, value) in zip(names, answer, strict=True))
    outputs = module.outputs if isinstance(module, Detector) else outputs
    plain = arguments.in_order and names == [name for name, _ in answer]
    spec = ModelSpec(
        name=_as_name(type(module).__name__),
        module=single if plain else arguments.flat(single),
        inputs=inputs,
        outputs=words.of_outputs(outputs),
        axes=declared,
        notes=tuple(f"'{name}' is fixed at {value!r}" for name, value in arguments.constants.items()),
    )
    return check_spec(spec)


def _axes(
    tensors: Mapping[str, torch.Tensor], axes: Axes | None
) -> tuple[dict[str, Axis], dict[str, tuple[int | str, ...]]]:
    """Return the declared axes, and the shape of each input with their names in it."""
    if axes is None:
        first = next((tensor.shape[0] for tensor in tensors.values() if tensor.dim() > 0), 1)
        has = {name for name, tensor in tensors.items() if tensor.dim() > 0 and tensor.shape[0] == first}
        axes = {name: {0: (BATCH, None)} for name in tensors if name in has}
    require_known(tensors, axes, "axes name the input")
    declared: dict[str, Axis] = {}
    shapes: dict[str, tuple[int | str, ...]] = {}
    for name, tensor in tensors.items():
        shape: list[int | str] = list(tensor.shape)
        for dimension, (axis, override) in axes.get(name, {}).items():
            size = int(tensor.shape[require_dimension(name, dimension, tensor.dim())])
            if SUM in axis:
                shape[dimension] = axis
                continue
            axis_range = declared[axis] = range_of(axis, override, size, declared.get(axis))
            if not axis_range.minimum <= size <= axis_range.maximum:
                raise ModelError(
                    f"axis '{axis}' goes from {axis_range.minimum} to {axis_range.maximum}, but the example's "
                    f"'{name}' has {size} there. Let the range include the example"
                )
            shape[dimension] = axis
        shapes[name] = tuple(shape)
    return declared, shapes


def _run_with_tables(run: Callable[[], T], tensors: Mapping[str, torch.Tensor]) -> tuple[T, dict[str, int]]:
    """Return what a call returns, and the number of rows of the table that each input indexes."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    rows: dict[str, int] = {}

    class Tables(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch declares no types here
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # Skipping it would import the compiler, which takes a second that an unchanged run does not have.
            return False

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if "embedding" in function.name() and len(args) > 1:
                table, indices = args[:2]
                for name, tensor in tensors.items():
                    if tensor.dtype == indices.dtype and torch.equal(tensor.flatten(), indices.flatten()):
                        rows[name] = len(table)
            return function(*args, **(kwargs or {}))

    try:
        with Tables():  # type: ignore[no-untyped-call]  # likewise
            return run(), rows
    except NotImplementedError as error:
        if "HigherOrderOperator" not in str(error):
            raise
    # `torch.cond` and its like run under no such mode, and what they compiled under it would fail without it.
    torch._dynamo.reset()
    return run(), {}


def _input(name: str, tensor: torch.Tensor, shape: tuple[int | str, ...], rows: int) -> Input:
    """Return an input whose values lie around the example's; one that indexes a table takes all of its rows."""
    low, high = range_in(tensor.detach().cpu().to(_wide(tensor)).numpy())
    if rows:
        low, high = min(low, 0.0), rows - 1.0
    return Input(name, shape, dtype=_dtype(tensor), low=low, high=high)


def range_in(values: Array) -> tuple[float, float]:
    """Return the range of an input from sample values: exact for integers, else the powers of two around them."""
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    # Another example of the same data should give the same range.
    if values.dtype.kind == "f":
        low, high = -_power(-low), _power(high)
    return low, high if high > low else low + 1.0


def _power(value: float) -> float:
    """Return the power of two at or above a value; 0 if it is not positive or not finite."""
    return 2.0 ** math.ceil(math.log2(value)) if 0 < value < math.inf else 0.0


def _wide(tensor: torch.Tensor) -> torch.dtype:
    """Return the dtype of a tensor; float32 for bfloat16 and float16, whose values it holds."""
    import torch

    return torch.float32 if tensor.dtype in (torch.bfloat16, torch.float16) else tensor.dtype


def _dtype(tensor: torch.Tensor) -> str:
    return str(_wide(tensor)).removeprefix("torch.")


def _as_name(name: str) -> str:
    """Return a class name as a model's name: MyNet -> my-net."""
    words: Sequence[str] = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)
    return "-".join(word.lower() for word in words) or "model"
