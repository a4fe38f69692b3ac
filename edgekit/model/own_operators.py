"""Operators that a model registers itself (`torch.library.custom_op`): what stands for them in an artifact.

A model names for each, as "library::name", a function of ONNX operators (`ModelSpec.translations`) or a function of
PyTorch's own operators (`ModelSpec.decompositions`), or both. The module itself always runs the operator as it is, so
that the proof of the captured program and every verdict hold the replacement against it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from edgekit.errors import ModelError
from edgekit.model.spec import ModelSpec


@contextlib.contextmanager
def decomposed(spec: ModelSpec, *, translated: bool = False) -> Iterator[None]:
    """Whatever is captured or traced inside runs a model's decompositions in place of its operators.

    Args:
        spec: The model.
        translated: Whether operators that have a translation to ONNX stay as they are.

    Raises:
        ModelError: If an operator is not registered.
    """
    from torch.overrides import TorchFunctionMode

    kept = set(spec.translations) if translated else set()
    table = {operator_of(spec, name): function for name, function in spec.decompositions.items() if name not in kept}

    class Replacing(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            overload = getattr(func, "default", func)
            function = table.get(overload, func) if callable(overload) else func
            return function(*args, **(kwargs or {}))

    with Replacing() if table else contextlib.nullcontext():
        yield


def translations(spec: ModelSpec) -> dict[Any, Callable[..., Any]]:
    """The part of `torch.onnx.export`'s `custom_translation_table` that is the model's own.

    A function that onnxscript has compiled is run as it was written, node by node: the exporter's own way of putting
    in a compiled one fails for operators with a single output (PyTorch 2.13, onnxscript 0.7).

    Raises:
        ModelError: If an operator is not registered.
    """
    return {operator_of(spec, name): _as_written(function) for name, function in spec.translations.items()}


def replacements(spec: ModelSpec) -> tuple[Callable[..., Any], ...]:
    """The functions that stand for a model's operators, as they were written."""
    return tuple(_as_written(function) for function in (*spec.translations.values(), *spec.decompositions.values()))


def _as_written(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the Python function behind an onnxscript function."""
    written: Callable[..., Any] = getattr(function, "function", function)
    return written


def check_registered(spec: ModelSpec) -> None:
    """Refuse a model that names an operator which is not registered.

    Raises:
        ModelError: Naming it.
    """
    for name in (*spec.translations, *spec.decompositions):
        operator_of(spec, name)


def operator_of(spec: ModelSpec, name: str) -> Any:
    """The default overload of an operator by its name.

    Raises:
        ModelError: If it is not registered.
    """
    import torch

    library, _, operator = name.partition("::")
    try:
        return getattr(getattr(torch.ops, library), operator).default
    except (AttributeError, RuntimeError) as error:
        raise ModelError(
            f"'{spec.name}' names the operator '{name}', which is not registered: the name is library::name, as in "
            "torch.library.custom_op, and the model's file has to import what registers it"
        ) from error
