"""A TorchScript module as a model: it is kept as it is, and captured by PyTorch's own converter.

A ScriptModule has no Python code, and `torch.export` takes none. PyTorch's converter takes what was traced, and of what
was scripted most that has no loops and no arguments with defaults.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from edgekit.errors import CaptureError, reason

if TYPE_CHECKING:
    import torch

FILE = "script.pt"
FROM_HERE = "torchscript and torch-mobile"
_SOURCE = re.compile(r"\s*(#.*|, scope: .*)$", re.MULTILINE)


def is_script(module: torch.nn.Module) -> TypeGuard[torch.jit.ScriptModule]:
    """Whether a module is TorchScript."""
    import torch

    return isinstance(module, torch.jit.ScriptModule)


def constants(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that a frozen module holds as constants of its code; they are in no state_dict."""
    import torch

    for path, part in module.named_modules():
        if is_script(part) and hasattr(part, "forward"):
            const_mapping = part.code_with_constants[1].const_mapping
            yield from ((f"{path}.{n}", t) for n, t in const_mapping.items() if isinstance(t, torch.Tensor))


def write(module: torch.jit.ScriptModule, path: Path) -> str:
    """Write a module; returns what identifies its code: two archives of one module differ in their bytes."""
    import torch

    with _quiet():
        torch.jit.save(module, str(path))
    return hashlib.sha256(_SOURCE.sub("", str(module.inlined_graph)).encode()).hexdigest()


def read(path: Path) -> torch.nn.Module:
    """The module of a file that `write` wrote."""
    import torch

    with _quiet():
        module: torch.nn.Module = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
    return module


def convert(name: str, module: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> torch.nn.Module:
    """The module of the model `name` in a form that `torch.export` takes: itself where it is not TorchScript.

    Raises:
        CaptureError: If PyTorch cannot convert it, or it is Python that calls TorchScript.
    """
    if not is_script(module):
        if part := next((path for path, part in module.named_modules() if is_script(part)), ""):
            raise CaptureError(
                f"'{name}' calls TorchScript ('{part}'), which no program holds: export that module itself, with "
                "tensors as its inputs and a tensor or a tuple as its answer, or the module that it was made from"
            )
        return module
    from torch._export.converter import TS2EPConverter

    try:
        with _quiet():
            graph: torch.nn.Module = TS2EPConverter(module, arguments).convert().module(check_guards=False)
    except Exception as error:  # it raises errors of many kinds, and asserts
        why = "an assertion in its converter fails" if "INTERNAL ASSERT" in str(error) else reason(error)
        raise CaptureError(
            f"'{name}' is TorchScript, and PyTorch cannot convert it to a program ({why}): possible are {FROM_HERE}; "
            "for other targets export the module that it was made from"
        ) from error
    return graph


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """TorchScript is deprecated as a whole, and its converter warns of what it leaves out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
