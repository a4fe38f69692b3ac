"""What `edgekit/capture.py` wrote elsewhere -> ModelSpec: `capture:FOLDER`; and what it writes of a named factory.

Its program is the module from here on. It is held against the answers that were recorded where the module ran: another
version of PyTorch or another processor may answer otherwise, and what is verified here would be of another model.
Opening a program can run code of whoever wrote it, as importing a factory does: hence the prefix, which a user writes.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.capture import ANSWERS, DECLARED, PROGRAM, RECORD, NotCapturedError, capture, distance
from edgekit.errors import CaptureError, ModelError, UsageError, reason
from edgekit.model.capture_errors import sentence
from edgekit.model.contract import check_name, checked
from edgekit.model.declared import declaration, declared_spec
from edgekit.model.kept_sets import SETS, with_sets, write_sets
from edgekit.model.sources import factory
from edgekit.model.sources.module import spec_of_module
from edgekit.model.spec import ModelSpec
from edgekit.model.words import Words, axes_in_words, words_of
from edgekit.storage import door
from edgekit.storage.files import scratch

if TYPE_CHECKING:
    import torch

PREFIX = "capture:"
LIMIT = 1e-4
"""Of an output's largest value: as far as an artifact in fp32 may be from its reference."""


@dataclass(frozen=True)
class _Run:
    """What the module was asked where it was captured, and what it answered."""

    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]


def spec_of_capture(folder: Path, words: Words) -> ModelSpec:
    """Describe a captured module, whose program answers here as the module did there.

    Args:
        folder: What `capture` wrote.
        words: What is said of its inputs and outputs; its axes are those that it was captured with.

    Raises:
        ModelError: If the folder is none or was changed, this PyTorch cannot read its program, or it answers otherwise.
        UsageError: If axes are said.
    """
    from torch.utils import _pytree

    if words.axes is not None:
        raise UsageError(f"'{folder}' was captured with its axes: leave --axes out, or capture it with others")
    record = _record(folder)
    program, here = _program(folder, record), _here()
    # Copies of a program's structures say so each time; nobody who exports can change it.
    warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
    args, kwargs = program.example_inputs
    module: torch.nn.Module = program.module()
    for part in module.modules():
        part.training = False  # captured in eval mode
    for refused in ("train", "eval"):  # an exported module has its own, which raise
        vars(module).pop(refused, None)
    structure = _pytree.tree_structure((args, kwargs))
    leaves = _pytree.tree_leaves((args, kwargs))
    runs = _runs(folder, record)

    def given(run: _Run) -> tuple[tuple[Any, ...], dict[str, Any]]:
        tensors = iter(run.inputs)
        filled = [next(tensors) if hasattr(leaf, "shape") else leaf for leaf in leaves]
        example: tuple[tuple[Any, ...], dict[str, Any]] = _pytree.tree_unflatten(filled, structure)
        return example

    there = str(record["made_by"]["torch"])
    furthest = max(_distance(folder, module, given(run), run, there, here) for run in runs)
    if declared := record.get(DECLARED):
        spec = with_sets(words.of_spec(declared_spec(declared, module)), folder, declared["sets"])
    else:
        said = replace(words, axes=words_of(record["axes"], None, None).axes)
        spec = spec_of_module(module, given(runs[0]), said)
    spec = replace(spec, name=str(record["name"]))
    check_name(spec.name)
    note = (
        f"captured with torch {there}: of {len(runs)} recorded answers the program's here (torch {here}) differ by "
        f"{furthest:.1e} of an output's largest value at most (limit {LIMIT:.0e})"
    )
    return checked(replace(spec, notes=(*spec.notes, note)))


def write_capture(name: str, folder: Path, words: Words, own_name: str = "") -> Path:
    """Write the module of a factory down with `capture`, asked random inputs at its default sizes.

    Args:
        name: `package.module:factory`, which returns a module or a ModelSpec; of that its files, its reference and what
            stands for its own operators are left behind.
        folder: Where to write; it must not exist.
        words: What is said of it, as for `edgekit export`.
        own_name: Of the model, in place of its own.

    Returns:
        The folder.

    Raises:
        UsageError: If the name is not one of a factory, or it returns a model of parts.
        ModelError: If the factory cannot be imported, raises, or returns something else.
        CaptureError: If the module cannot be captured, or the folder exists.
    """
    import torch

    if ":" not in name or name.startswith((PREFIX, "transformers:", "timm:")) or Path(name).exists():
        raise UsageError(f"'{name}' is no package.module:factory: `edgekit export` takes other models where they are")
    spec = factory.single(factory.named(name, words))
    example = tuple(torch.from_numpy(np.asarray(array)) for array in spec.random(0).values())
    names, said = _parameters(spec), axes_in_words(spec.inputs, spec.axes)
    axes = {name: said[i.name] for name, i in zip(names, spec.inputs, strict=True) if i.name in said}
    with scratch() as place:
        declared = {**declaration(spec), "sets": write_sets(spec, place)}
        files = sorted(place.iterdir())
        try:
            return capture(
                _named(spec, names), example, folder, axes, own_name or spec.name, declared=declared, files=files
            )
        except NotCapturedError as error:
            raise CaptureError(str(error)) from error


def _parameters(spec: ModelSpec) -> list[str]:
    """The inputs' names, where a parameter may have them."""
    return [
        i.name if i.name.isidentifier() and not iskeyword(i.name) else f"input_{number}"
        for number, i in enumerate(spec.inputs)
    ]


def _named(spec: ModelSpec, parameters: Iterable[str]) -> torch.nn.Module:
    """A model's module with parameters of these names, of a class that has the model's name: errors show both."""
    import torch

    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = spec.module

        def forward(self, *tensors: torch.Tensor) -> Any:
            return self.inner(*tensors)

    own = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("self", *parameters)]
    Named.forward.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]  # capture() names them so
    Named.__name__ = spec.name
    return Named().eval()


def is_capture(folder: Path) -> bool:
    """Whether a folder is one that `capture` wrote."""
    return (folder / RECORD).is_file()


def _record(folder: Path) -> dict[str, Any]:
    try:
        record = door.read_record(folder, RECORD)
        sets = record.get(DECLARED, {}).get("sets", {})
        for name in (PROGRAM, ANSWERS, *(SETS[one] for one in sets)):
            door.check_file(folder, name, None, str(record["files"][name]))
        str(record["name"]), dict(record["axes"]), int(record["runs"]), str(record["made_by"]["torch"])
    except (door.RefusedError, LookupError, TypeError, ValueError) as error:
        why = str(error) if isinstance(error, door.RefusedError) else f"lacks {error}"
        raise ModelError(
            f"'{folder}' is no captured module ({why}): capture it again with edgekit/capture.py"
        ) from error
    return record


def _program(folder: Path, record: dict[str, Any]) -> torch.export.ExportedProgram:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.load(folder / PROGRAM)
    except Exception as error:  # whatever a program of another version makes of its reader
        raise ModelError(
            f"the program in '{folder}' was written by torch {record['made_by']['torch']}, and torch {_here()} cannot "
            f"read it ({reason(error)}): install that version beside edgekit"
        ) from error


def _runs(folder: Path, record: dict[str, Any]) -> list[_Run]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        arrays = load_file(folder / ANSWERS)

        def side(run: int, which: str) -> list[torch.Tensor]:
            count = sum(name.startswith(f"{run}/{which}/") for name in arrays)
            return [arrays[f"{run}/{which}/{number}"] for number in range(count)]

        return [_Run(side(run, "in"), side(run, "out")) for run in range(int(record["runs"]))]
    except (OSError, LookupError, SafetensorError) as error:
        raise ModelError(f"the answers in '{folder}' cannot be read ({error}): capture the module again") from error


def _distance(folder: Path, module: Any, given: Any, run: _Run, there: str, here: str) -> float:
    """How far the program's answer is from the recorded one, as a share of the largest value of an output.

    Raises:
        ModelError: If it is further than the limit, or the program fails.
    """
    import torch
    from torch.utils import _pytree

    args, kwargs = given
    try:
        with torch.no_grad():
            answer = _pytree.tree_leaves(module(*args, **kwargs))
    except Exception as error:
        raise ModelError(f"the program in '{folder}' fails with torch {here}: {sentence(error)}") from error
    found = distance(run.outputs, answer)
    if found > LIMIT:
        raise ModelError(
            f"the program in '{folder}' answers otherwise with torch {here} than the module with torch {there} "
            f"({found:.1e} of an output's largest value, limit {LIMIT:.0e}): export with that version"
        )
    return found


def _here() -> str:
    import torch

    return torch.__version__
