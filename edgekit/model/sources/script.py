"""TorchScript modules as models: stored unchanged, and captured by PyTorch's own converter.

A ScriptModule has no Python code, and `torch.export` does not take it. PyTorch's converter takes traced modules, and
most scripted ones without loops and default arguments.
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
    """Return whether a module is TorchScript."""
    import torch

    return isinstance(module, torch.jit.ScriptModule)


def constants(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that a frozen module holds as constants of its code; its state_dict does not have them."""
    import torch

    for path, part in module.named_modules():
        if is_script(part) and hasattr(part, "forward"):
            const_mapping = part.code_with_constants[1].const_mapping
            yield from ((f"{path}.{n}", t) for n, t in const_mapping.items() if isinstance(t, torch.Tensor))


def write(module: torch.jit.ScriptModule, path: Path) -> str:
    """Write a module and return the hash of its code: two archives of one module differ in their bytes."""
    import torch

    with _quiet():
        torch.jit.save(module, str(path))
    return hashlib.sha256(_SOURCE.sub("", str(module.inlined_graph)).encode()).hexdigest()


def read(path: Path) -> torch.nn.Module:
    """Return the module of a file written by `write`."""
    import torch

    with _quiet():
        module: torch.nn.Module = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
    return module


def convert(name: str, module: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> torch.nn.Module:
    """Return the module of the model `name` in a form that `torch.export` takes: unchanged unless it is TorchScript.

    Raises:
        CaptureError: If PyTorch cannot convert it, or it is Python code that calls TorchScript.
    """
    if not is_script(module):
        if part := next((path for path, part in module.named_modules() if is_script(part)), ""):
            raise CaptureError(
                f"'{name}' calls TorchScript ('{part}'), which no program supports. Export that module itself, with "
                "tensors as its inputs and a tensor or a tuple as its output, or the module that it was made from"
            )
        return module
    from torch._export.converter import TS2EPConverter

    try:
        with _quiet():
            graph: torch.nn.Module = TS2EPConverter(module, arguments).convert().module(check_guards=False)
    # The converter raises errors of many kinds, and asserts.
    except Exception as error:
        why = "an assertion in its converter fails" if "INTERNAL ASSERT" in str(error) else reason(error)
        raise CaptureError(
            f"'{name}' is TorchScript, and PyTorch cannot convert it to a program ({why}). Possible: {FROM_HERE}; "
            "for other targets, export the original module"
        ) from error
    return graph


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the deprecation of TorchScript and its converter's warnings of dropped parts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
