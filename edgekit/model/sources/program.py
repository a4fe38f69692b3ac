"""ModelSpec of a program written by `torch.export.save`, `model.pt2`.

The program becomes the module. Its signature names the inputs and outputs, its symbolic shapes and their ranges
are the axes, and the example of its export bounds the inputs. Opening a program can run its author's code, as importing
a factory does: it is opened only if the user names the file.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import warnings
import zipfile
from collections.abc import Iterator, Mapping
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
"""Upper bound of real sizes: torch.export writes infinity or the largest integer for an unlimited range."""
Dimensions = Mapping[str, tuple[Any, ...]]
"""For each input by name its sizes: an integer, or a SymPy expression if the size varies."""


def open_file(path: str, words: SpecOverrides, task: str) -> ModelSpec:
    """Return the model of a saved program that a user named, as `spec_of_program`."""
    return spec_of_program(Path(path), words)


def spec_of_program(path: Path, words: SpecOverrides = NOTHING) -> ModelSpec:
    """Describe a saved program by its signature and by the user's facts; it is named after the file.

    Args:
        path: File written by `torch.export.save`.
        words: The user's facts about its inputs, outputs and axes.

    Raises:
        ModelError: If the file holds no program, this PyTorch cannot read it, or it does not take its own example.
        UsageError: If the batch is fixed, an axis has no range, or a fact is about something that does not exist.
    """
    import torch
    from torch.utils import _pytree

    # Copying a program's structures warns each time; the user cannot change it.
    warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
    exported = _load(path)
    if exported.example_inputs is None:
        raise ModelError(f"the program '{path}' holds no example inputs. Write it with torch.export.save again")
    words.require_own_shapes()
    # Copy each tensor: an example may hold one tensor twice, and inputs are identified by their tensor.
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
        raise UsageError(f"no file '{path}'. Name a program written by torch.export.save") from error
    except (OSError, zipfile.BadZipFile) as error:
        raise ModelError(f"'{path}' is not a torch.export program ({reason(error)}). {_ADVICE}") from error
    if not any(name.endswith("/models/model.json") for name in names):
        kind = next((kind for part, kind in _OTHERS.items() if any(part in name for name in names)), "another archive")
        raise ModelError(f"'{path}' is not a torch.export program but {kind}. {_ADVICE}")
    try:
        with _quiet():
            return torch.export.load(path)
    # The reader may raise anything on a program of another version.
    except Exception as error:
        raise ModelError(
            f"torch {torch.__version__} cannot read the program '{path}' ({reason(error)}). Write it with this version "
            "of torch, and import the libraries that register its operators"
        ) from error


_ADVICE = "Write one with torch.export.save(torch.export.export(module, example, dynamic_shapes=...), 'model.pt2')"
_OTHERS = {"/aotinductor/": "compiled code of AOTInductor", "/code/": "TorchScript", "/data.pkl": "a checkpoint"}
"""Other contents of such an archive, by a part of their file names."""


def _wrap(exported: torch.export.ExportedProgram, name: str) -> torch.nn.Module:
    """Return the program as a module with its own class."""
    # A GraphModule would be treated as a module that returns a tuple.
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
    # Messages about the model show its class name.
    SavedProgram.__name__ = name
    return SavedProgram().eval()


def _sizes(exported: torch.export.ExportedProgram) -> list[tuple[Any, ...]]:
    """Return the sizes of each tensor input, in order."""
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
    """Name each dimension that varies, with the user's range, else the program's.

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
                    f"axes name dimension {dimension} of '{name}', which the program '{path}' fixes at {size}. Leave "
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
            # torch.export stores no names; the first dimension is the batch.
            usual = BATCH if dimension == 0 else usual_axis(dimension, len(shape))
            axis = axis or names.get(size) or (f"{name}_{dimension}" if usual in names.values() else usual)
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
            f"the program '{path}' has a fixed batch: dimension 0 of '{name}' is always {shape[0]}. Export it with "
            f"dynamic_shapes={{'{name}': {{0: torch.export.Dim('batch', min=1, max=8)}}}} and an example of 2 or more, "
            "or name the dimensions that vary with --axes (in Python axes={} if none does)"
        )


def _span(path: Path, exported: torch.export.ExportedProgram, size: Any, axis: str, place: str) -> Span | None:
    """Return the range of an axis; None gives the batch its usual one.

    Raises:
        UsageError: If the range has no end, or the size is more than a multiple of one other size.
    """
    step, symbol = size.as_coeff_Mul()
    bounds = exported.range_constraints.get(size)
    simple = symbol.is_Symbol and step.is_Integer and step > 0
    if not simple or bounds is None or bool(bounds.upper >= UNBOUNDED):
        if simple and axis == BATCH:
            return None
        why = "has no largest size" if simple else f"is {size}, which is not a separate axis"
        raise UsageError(
            f"dimension {place.rpartition(':')[2]} of '{place.rpartition(':')[0]}' in the program '{path}' {why}. "
            f"Add --axes {place}={axis}:MIN..MAX, or give torch.export.Dim a min and a max"
        )
    # torch.export treats sizes 0 and 1 separately, so a lower bound of 2 means nothing.
    lower = int(bounds.lower) if bounds.lower > 2 else 1
    return Span(-(-lower // int(step)) * int(step), int(bounds.upper), int(step))


def _drop_guards(exported: torch.export.ExportedProgram, dimensions: Dimensions, axes: Axes) -> None:
    """Remove guards that the declared axes replace."""
    # The smallest sum has the smallest sizes of its axes: torch.export guards a sum of two by 4. A batch may exceed the
    # program's range: the reference's speed is measured at a batch of 32 whatever the range.
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
    """Silence PyTorch's log of refused files and its deprecation warnings."""
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
