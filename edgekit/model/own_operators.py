"""Operators that a model registers itself (`torch.library.custom_op`): what stands for them in an artifact.

A model names for each, as "library::name", a function of ONNX operators (`ModelSpec.translations`) or a function of
PyTorch's own operators (`ModelSpec.decompositions`), or both. The module itself always runs the operator as it is, so
that the proof of the captured program and every verdict hold the replacement against it.

An operator of another library (transformers, torchao) is registered when its module is imported: a program on disk says
which module that is, so that whoever opens it imports it first.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.errors import CaptureError, ModelError
from edgekit.model.spec import ModelSpec

if TYPE_CHECKING:
    import torch

PYTORCH = ("aten", "prim", "prims", "higher_order", "quantized", "inductor", "_operator")
"""Libraries of operators that PyTorch registers itself."""
_REGISTERED = re.compile(r"registered at (\S+\.py):\d+")


@contextlib.contextmanager
def use_decompositions(spec: ModelSpec, *, translated: bool = False) -> Iterator[None]:
    """Whatever is captured or traced inside runs a model's decompositions in place of its operators.

    Args:
        spec: The model.
        translated: Whether operators that have a translation to ONNX stay as they are.

    Raises:
        ModelError: If an operator is not registered.
    """
    from torch.overrides import TorchFunctionMode

    preserved = set(spec.translations) if translated else set()
    table = {
        operator_of(spec, name): function for name, function in spec.decompositions.items() if name not in preserved
    }

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


def modules_of_operators(exported: torch.export.ExportedProgram) -> dict[str, str]:
    """The operators of a program that are not PyTorch's, each with the module that registers it when it is imported.

    Raises:
        CaptureError: If one is registered in a notebook or a script, which nobody can import.
    """
    import torch

    targets = {node.target for part in exported.graph_module.modules() for node in _nodes(part)}
    names = {target._schema.name for target in targets if isinstance(target, torch._ops.OpOverload)}
    modules = {name: _module_of(name) for name in sorted(names) if name.partition("::")[0] not in PYTORCH}
    if lost := next((name for name, module in modules.items() if module == "__main__"), ""):
        raise CaptureError(
            f"the operator '{lost}' is registered in this script or notebook, which the processes that run "
            "converters cannot import: put it into a file and import that, or name what stands for it in "
            "`ModelSpec.decompositions`"
        )
    return modules


def register(operators: Mapping[str, str]) -> None:
    """Import what registers a program's operators, as `registered_by` names it.

    Raises:
        CaptureError: If a module cannot be imported here.
    """
    for operator, module in operators.items():
        try:
            importlib.import_module(module)
        except Exception as error:  # a library's own initialisation may raise anything
            raise CaptureError(
                f"the captured program uses the operator '{operator}', and '{module}', which registers it, cannot be "
                f"imported here ({type(error).__name__}: {error}): install it"
            ) from error


def _nodes(module: torch.nn.Module) -> Iterator[torch.fx.Node]:
    graph = getattr(module, "graph", None)
    yield from getattr(graph, "nodes", ())


def _module_of(name: str) -> str:
    """The module that registers an operator: of its function, of the line that registered it, or its library's name."""
    import torch
    from torch._library.custom_ops import OPDEFS

    if name in OPDEFS:
        return str(OPDEFS[name]._init_fn.__module__)
    files = _REGISTERED.findall(torch._C._dispatch_dump(name))  # what torch.library.Library.define notes
    modules = {getattr(module, "__file__", None): module.__name__ for module in list(sys.modules.values())}
    return next((modules[file] for file in files if file in modules), name.partition("::")[0])
