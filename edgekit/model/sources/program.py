"""A program that `torch.export.save` wrote, `model.pt2` -> ModelSpec.

The program is the module from here on. Its signature names the inputs and outputs, its symbolic shapes and their ranges
are the axes, and the example that it was exported with bounds the inputs. Opening a program can run code of whoever
wrote it, as importing a factory does: it is opened where a user names the file, and nowhere else.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import warnings
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import ModelError, UsageError, reason
from edgekit.model.adapter import in_eval
from edgekit.model.contract import check_name, check_spec
from edgekit.model.overrides import BATCH, NOTHING, Axes, Span, SpecOverrides, require_dimension, require_known
from edgekit.model.sources.arguments import arguments_of
from edgekit.model.sources.checkpoint import slug
from edgekit.model.sources.module import spec_of_module
from edgekit.model.sources.onnx import usual_axis
from edgekit.model.spec import SUM, Axis, ModelSpec

if TYPE_CHECKING:
    import torch

SUFFIX = ".pt2"
UNBOUNDED = 1 << 31
"""A size that no axis has: torch.export writes infinity or the largest integer where a range has no end."""
Dimensions = Mapping[str, tuple[Any, ...]]
"""For each input by name its sizes: an integer, or an expression of SymPy where the size varies."""


def open_file(path: str, words: SpecOverrides, task: str) -> ModelSpec:
    """Return the model of a saved program that a user named; as `spec_of_program`."""
    return spec_of_program(Path(path), words)


def spec_of_program(path: Path, words: SpecOverrides = NOTHING) -> ModelSpec:
    """Describe a saved program by its signature and by what the user says; it is named after the file.

    Args:
        path: What `torch.export.save` wrote.
        words: What the user says of its inputs, outputs and axes.

    Raises:
        ModelError: If the file holds no program, this PyTorch cannot read it, or it does not take its own example.
        UsageError: If the batch is fixed, an axis has no range, or the user says something of what it has not.
    """
    import torch
    from torch.utils import _pytree

    # Copies of a program's structures say so each time; nobody who exports can change it.
    warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
    exported = _load(path)
    if exported.example_inputs is None:
        raise ModelError(f"the program '{path}' holds no example inputs: write it with torch.export.save again")
    words.require_own_shapes()
    # A copy of each tensor: an example may hold one tensor twice, and inputs are told apart by theirs.
    tensors, structure = _pytree.tree_flatten(exported.example_inputs)
    tensors = [value.clone() if isinstance(value, torch.Tensor) else value for value in tensors]
    args, kwargs = _pytree.tree_unflatten(tensors, structure)
    sizes = _sizes(exported)
    owners = {id(tensor): shape for tensor, shape in zip(filter(torch.is_tensor, tensors), sizes, strict=True)}
    with _quiet():
        try:
            inputs = arguments_of(_wrap(exported, path.stem), (args, kwargs)).tensors
            dimensions = {name: owners[id(tensor)] for name, tensor in inputs.items()}
            axes = _axes(path, exported, dimensions, words.axes)
            _drop_guards(exported, dimensions, axes)
            spec = spec_of_module(_wrap(exported, path.stem), (args, kwargs), replace(words, axes=axes))
        except ModelError as error:
            raise ModelError(f"the program '{path}' cannot be used: {error}") from error
    spec = replace(spec, name=slug(path.stem) or "model", words=words)
    check_name(spec.name)
    return check_spec(spec)


def _load(path: Path) -> torch.export.ExportedProgram:
    import torch

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except FileNotFoundError as error:
        raise UsageError(f"no file '{path}': name a program that torch.export.save wrote") from error
    except (OSError, zipfile.BadZipFile) as error:
        raise ModelError(f"'{path}' is not a program of torch.export ({reason(error)}): {_ADVICE}") from error
    if not any(name.endswith("/models/model.json") for name in names):
        kind = next((kind for part, kind in _OTHERS.items() if any(part in name for name in names)), "another archive")
        raise ModelError(f"'{path}' is not a program of torch.export, it is {kind}: {_ADVICE}")
    try:
        with _quiet():
            return torch.export.load(path)
    except Exception as error:  # whatever a program of another version makes of its reader
        raise ModelError(
            f"torch {torch.__version__} cannot read the program '{path}' ({reason(error)}): write it with this version "
            "of torch, and import the libraries that register its operators"
        ) from error


_ADVICE = "write one with torch.export.save(torch.export.export(module, example, dynamic_shapes=...), 'model.pt2')"
_OTHERS = {"/aotinductor/": "compiled code of AOTInductor", "/code/": "TorchScript", "/data.pkl": "a checkpoint"}
"""What else lies in such an archive, by a part of the names in it."""


def _wrap(exported: torch.export.ExportedProgram, name: str) -> torch.nn.Module:
    """Return the program as a module of an own class: a GraphModule is taken for one that answers with a tuple."""
    import torch

    graph = in_eval(exported.module())

    class SavedProgram(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = graph

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.inner(*args, **kwargs)

    own = inspect.signature(graph.forward)
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [first, *own.parameters.values()]
    SavedProgram.forward.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    SavedProgram.__name__ = name  # sentences about the model show its class
    return SavedProgram().eval()


def _sizes(exported: torch.export.ExportedProgram) -> list[tuple[Any, ...]]:
    """The sizes of each tensor that a user gives, in order."""
    from torch.export.graph_signature import InputKind, TensorArgument

    nodes = {node.name: node for node in exported.graph.nodes if node.op == "placeholder"}
    names = [
        spec.arg.name
        for spec in exported.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)
    ]
    shapes = [nodes[name].meta["val"].shape for name in names]
    return [tuple(size if isinstance(size, int) else size.node.expr for size in shape) for shape in shapes]


def _axes(path: Path, exported: torch.export.ExportedProgram, dimensions: Dimensions, overrides: Axes | None) -> Axes:
    """Name each dimension that varies, with its range: as the user says, else by the program.

    Raises:
        UsageError: If the batch is fixed and the user names no axes, a range has no end, or sizes depend on each other.
    """
    require_known(dimensions, overrides or {}, "axes name the input")
    names: dict[Any, str] = {}
    spans = {
        axis: span for entries in (overrides or {}).values() for axis, span in entries.values() if span is not None
    }
    for name, entries in (overrides or {}).items():
        for dimension, (axis, _) in entries.items():
            size = dimensions[name][require_dimension(name, dimension, len(dimensions[name]))]
            if isinstance(size, int):
                raise UsageError(
                    f"axes name dimension {dimension} of '{name}', which the program '{path}' fixes at {size}: leave "
                    "it out, or name the dimension in dynamic_shapes of torch.export.export"
                )
            names.setdefault(size, axis)
    if overrides is None:
        _check_batch(path, dimensions)
    axes: dict[str, dict[int, tuple[str, Axis | Span | None]]] = {}
    for name, shape in dimensions.items():
        for dimension, size in enumerate(shape):
            if isinstance(size, int):
                continue
            axis, _ = (overrides or {}).get(name, {}).get(dimension, ("", None))
            axis = axis or names.get(size) or _new_name(name, dimension, len(shape), names.values())
            names.setdefault(size, axis)
            span = spans.get(axis)
            if SUM not in axis and span is None:
                span = _span(path, exported, size, axis, f"{name}:{dimension}")
            axes.setdefault(name, {})[dimension] = axis, span
    return axes


def _check_batch(path: Path, dimensions: Dimensions) -> None:
    name, shape = next(iter(dimensions.items()))
    if shape and isinstance(shape[0], int):
        raise UsageError(
            f"the program '{path}' has a fixed batch: dimension 0 of '{name}' is always {shape[0]}; export it with "
            f"dynamic_shapes={{'{name}': {{0: torch.export.Dim('batch', min=1, max=8)}}}} and an example of 2 or more, "
            "or name the dimensions that do vary with --axes (in Python axes={} if none does)"
        )


def _new_name(name: str, dimension: int, rank: int, reserved: Collection[str]) -> str:
    """A name for an axis: torch.export keeps none. The first dimension of the first input is the batch."""
    usual = BATCH if dimension == 0 else usual_axis(dimension, rank)
    return f"{name}_{dimension}" if usual in reserved else usual


def _span(path: Path, exported: torch.export.ExportedProgram, size: Any, axis: str, place: str) -> Span | None:
    """The range of an axis; None lets the batch have its usual one.

    Raises:
        UsageError: If the range has no end, or the size depends on others in another way than as a multiple of one.
    """
    step, symbol = size.as_coeff_Mul()
    bounds = exported.range_constraints.get(size)
    simple = symbol.is_Symbol and step.is_Integer and step > 0
    if not simple or bounds is None or bool(bounds.upper >= UNBOUNDED):
        if simple and axis == BATCH:
            return None
        why = "has no largest size" if simple else f"is {size}, which no axis of its own is"
        raise UsageError(
            f"dimension {place.rpartition(':')[2]} of '{place.rpartition(':')[0]}' in the program '{path}' {why}: "
            f"write --axes {place}={axis}:MIN..MAX, or give torch.export.Dim a min and a max"
        )
    # torch.export takes sizes of 0 and 1 apart, so a lower bound of 2 says nothing.
    lower = int(bounds.lower) if bounds.lower > 2 else 1
    return Span(-(-lower // int(step)) * int(step), int(bounds.upper), int(step))


def _drop_guards(exported: torch.export.ExportedProgram, dimensions: Dimensions, axes: Axes) -> None:
    """Take guards away that the declared axes stand for.

    A sum may be as small as its axes are: torch.export guards a sum of two by 4. A batch may be larger than the program
    says: the reference's speed is measured at a batch of 32 whatever the range.
    """
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    for name, entries in axes.items():
        for dimension, (axis, _) in entries.items():
            size = dimensions[name][dimension]
            if (SUM in axis or axis == BATCH) and (bounds := exported.range_constraints.get(size)) is not None:
                lower, upper = (bounds.lower, int_oo) if axis == BATCH else (0, bounds.upper)
                exported.range_constraints[size] = ValueRanges(lower, upper)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """PyTorch logs a traceback where it refuses a file, and warns of its own deprecations."""
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
