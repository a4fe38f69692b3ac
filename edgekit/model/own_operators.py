"""Custom operators of a model (`torch.library.custom_op`) and their replacements in artifacts.

A model names for each, as "library::name", a function of ONNX operators (`ModelSpec.translations`), a function of
PyTorch's own operators (`ModelSpec.decompositions`), or both. The module itself always runs the original operator, so
the proof of the captured program and every verdict check the replacement against it.

An operator of another library (transformers, torchao) is registered when its module is imported. A stored program names
that module, so that its reader imports it first.
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
    """Run a model's decompositions in place of its operators in everything captured or traced inside.

    Args:
        spec: The model.
        translated: True to keep operators that have a translation to ONNX.

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
    """Return the model's own entries of `torch.onnx.export`'s `custom_translation_table`.

    A function compiled by onnxscript runs as written, node by node: the exporter's insertion of a compiled function
    fails for operators with a single output (PyTorch 2.13, onnxscript 0.7).

    Raises:
        ModelError: If an operator is not registered.
    """
    return {operator_of(spec, name): _as_written(function) for name, function in spec.translations.items()}


def replacements(spec: ModelSpec) -> tuple[Callable[..., Any], ...]:
    """Return the replacements of a model's operators, as Python functions."""
    return tuple(_as_written(function) for function in (*spec.translations.values(), *spec.decompositions.values()))


def _as_written(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the Python function behind an onnxscript function."""
    written: Callable[..., Any] = getattr(function, "function", function)
    return written


def check_registered(spec: ModelSpec) -> None:
    """Refuse a model that names an unregistered operator.

    Raises:
        ModelError: Naming it.
    """
    for name in (*spec.translations, *spec.decompositions):
        operator_of(spec, name)


def operator_of(spec: ModelSpec, name: str) -> Any:
    """Return the default overload of an operator by its name.

    Raises:
        ModelError: If it is not registered.
    """
    import torch

    library, _, operator = name.partition("::")
    try:
        return getattr(getattr(torch.ops, library), operator).default
    except (AttributeError, RuntimeError) as error:
        raise ModelError(
            f"'{spec.name}' names the operator '{name}', which is not registered. Write library::name, as in "
            "torch.library.custom_op, and import its library in the model's file"
        ) from error


def modules_of_operators(exported: torch.export.ExportedProgram) -> dict[str, str]:
    """Return the program's operators outside PyTorch, each with the module that registers it on import.

    Raises:
        CaptureError: If one is registered in a notebook or a script, which cannot be imported.
    """
    import torch

    graphs = (getattr(part, "graph", None) for part in exported.graph_module.modules())
    targets = {node.target for graph in graphs for node in getattr(graph, "nodes", ())}
    names = {target._schema.name for target in targets if isinstance(target, torch._ops.OpOverload)}
    modules = {name: _module_of(name) for name in sorted(names) if name.partition("::")[0] not in PYTORCH}
    if lost := next((name for name, module in modules.items() if module == "__main__"), ""):
        raise CaptureError(
            f"the operator '{lost}' is registered in this script or notebook, which the processes that run "
            "converters cannot import. Move it into a file and import that, or give a replacement in "
            "`ModelSpec.decompositions`"
        )
    return modules


def register(operators: Mapping[str, str]) -> None:
    """Import the modules that register a program's operators, as `modules_of_operators` names them.

    Raises:
        CaptureError: If a module cannot be imported here.
    """
    for operator, module in operators.items():
        try:
            importlib.import_module(module)
        # The initialisation of a library may raise anything.
        except Exception as error:
            raise CaptureError(
                f"the captured program uses the operator '{operator}' of '{module}', which cannot be "
                f"imported here ({type(error).__name__}: {error}). Install it"
            ) from error


def _module_of(name: str) -> str:
    """Return the module that registers an operator: by its function or its source line, else its library's name."""
    import torch
    from torch._library.custom_ops import OPDEFS

    if name in OPDEFS:
        return str(OPDEFS[name]._init_fn.__module__)
    # torch.library.Library.define records the file.
    files = _REGISTERED.findall(torch._C._dispatch_dump(name))
    modules = {getattr(module, "__file__", None): module.__name__ for module in list(sys.modules.values())}
    return next((modules[file] for file in files if file in modules), name.partition("::")[0])
