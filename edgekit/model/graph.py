"""Program: a module captured once as a graph by torch.export, and proved on a grid of shapes.

A Python `if` on a shape specialises silently and a Python `if` on a value bakes one branch in: capture can succeed and
be wrong. So the graph must match the module at every shape of the grid, and the module's outputs must depend only on
its inputs and weights.
"""

from __future__ import annotations

import contextlib
import random
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import CaptureError, EdgekitError, ModelError
from edgekit.model import complex_numbers, recurrent
from edgekit.model.adapter import copy_module, named_outputs, to_tensors, without_fast_path
from edgekit.model.capture_errors import FIXED_LENGTH, Guard, at, capture_error, collect_guards, open_length, sentence
from edgekit.model.constraints import constraint_hint
from edgekit.model.decompositions import pool_whole_pictures_by_mean
from edgekit.model.own_operators import check_registered, use_decompositions
from edgekit.model.shapes import example_sizes, grid
from edgekit.model.sources import onnx, script
from edgekit.model.spec import Array, ModelSpec

if TYPE_CHECKING:
    import torch

Ask = Callable[[Sequence["torch.Tensor"]], Mapping[str, Array]]
"""Runs the module on inputs and returns its outputs by name."""
# The graph has the module's own operators: only their order of summation may differ.
CAPTURE_TOLERANCE = 1e-5
# Random inputs that are compared at sizes that a guard of torch.export refuses.
UNGUARDED = 3
# Random inputs on which the lengths of the outputs are compared.
LENGTHS = 8


@dataclass(frozen=True)
class Program:
    """A captured module.

    Attributes:
        exported: The graph.
        dynamic: Names of the axes that stay dynamic.
        proof: Shapes at which the graph matched the module, as dictionaries of axis sizes.
    """

    exported: torch.export.ExportedProgram
    dynamic: tuple[str, ...]
    proof: tuple[Mapping[str, int], ...]


@without_fast_path()
def capture(spec: ModelSpec, dynamic: bool = True) -> Program:
    """Capture a model's module and prove the graph.

    Args:
        spec: The model.
        dynamic: True to keep its axes dynamic; otherwise all are fixed at their defaults.

    Raises:
        CaptureError: Naming the module's file and line if capture fails, or would fix a size or a branch.
    """
    onnx.refuse(spec)
    try:
        return _capture(spec, dynamic)
    except CaptureError as error:
        if name := _growing_tensor(spec):
            largest = ", ".join(f"{axis} {size}" for axis, size in _largest_sizes(spec).items())
            raise CaptureError(
                f"{error}. '{spec.name}' makes its tensor '{name}' larger for larger inputs. Run the module once at "
                f"the largest sizes ({largest}) before the export, so that it does not grow in the graph"
            ) from error
        raise


def _largest_sizes(spec: ModelSpec) -> dict[str, int]:
    return {name: axis.sizes[-1] for name, axis in spec.axes.items()}


def _growing_tensor(spec: ModelSpec) -> str:
    """Return the buffer or attribute whose shape changes if a copy of the module runs at the largest sizes."""
    import torch

    try:
        module = copy_module(spec.module)
        before = _tensor_shapes(module)
        with torch.no_grad():
            module(*to_tensors(spec, spec.random(0, _largest_sizes(spec))))
    # It fails there for another reason, which its own error says.
    except Exception:
        return ""
    after = _tensor_shapes(module)
    return next((name for name, shape in before.items() if after.get(name, shape) != shape), "")


def _tensor_shapes(module: torch.nn.Module) -> dict[str, torch.Size]:
    import torch

    return {
        f"{path}.{name}".lstrip("."): value.shape
        for path, part in module.named_modules()
        for name, value in (*vars(part).items(), *part.named_buffers(recurse=False))
        if isinstance(value, torch.Tensor)
    }


def _capture(spec: ModelSpec, dynamic: bool) -> Program:
    import torch

    check_registered(spec)
    axes = tuple(spec.axes) if dynamic else ()
    proof = grid(spec.axes) if dynamic else ({name: axis.default for name, axis in spec.axes.items()},)
    sizes = example_sizes(spec.axes) if dynamic else {}
    example = spec.random(seed=0, sizes=sizes)
    arguments = to_tensors(spec, example)
    shapes = tuple(
        {d: torch.export.Dim.DYNAMIC for d, size in enumerate(i.shape) if isinstance(size, str) and dynamic}
        for i in spec.inputs
    )
    _check_deterministic(spec, arguments, sizes)
    module = script.convert(spec.name, spec.module, arguments)
    # A worker that did not import the model's file does not know its operators.
    keep_operators = dynamic and bool(spec.factory)
    with (
        collect_guards() as guards,
        quiet(),
        torch.no_grad(),
        use_decompositions(spec, translated=keep_operators),
        recurrent.open_lengths(),
        # Its search for the order of products reads sizes as numbers, which fixes them.
        torch.backends.opt_einsum.flags(enabled=False),
    ):
        try:
            exported = complex_numbers.export(module, arguments, shapes)
        except Exception as error:
            raise CaptureError(capture_error(spec.name, error, guards)) from error
    recurrent.with_pytorch_operators(exported)
    _drop_type_checks(exported)
    pool_whole_pictures_by_mean(exported)
    _refuse_open_length(spec, exported)
    if dynamic:
        _refuse_narrow(spec, exported, guards)
    _prove(spec, exported, proof, guards)
    return Program(exported, axes, proof)


def _check_deterministic(spec: ModelSpec, arguments: tuple[torch.Tensor, ...], sizes: Mapping[str, int]) -> None:
    import torch

    if any(getattr(module, "training", False) for module in spec.module.modules()):
        raise CaptureError(f"'{spec.name}' has modules in training mode. Call .eval() before returning it")

    def ask(inputs: Sequence[torch.Tensor]) -> Mapping[str, Array]:
        with torch.no_grad():
            return named_outputs(spec, spec.module(*inputs))

    try:
        by_name = {i.name: tensor for i, tensor in zip(spec.inputs, arguments, strict=True)}
        _refuse_changes(spec.name, spec.module, by_name, ask)
    except EdgekitError:
        raise
    except Exception as error:
        failed = capture_error(spec.name, error, [])
        where = ", ".join(f"{axis} {size}" for axis, size in sizes.items() if size != spec.axes[axis].default)
        hint = f" (run at {where}: set axes to the dimensions that vary, {{}} for none)" if where else ""
        raise CaptureError(f"{failed}{hint}{constraint_hint(spec)}") from error


def _drop_type_checks(exported: torch.export.ExportedProgram) -> None:
    """Remove checks that an input is float64 or float16: artifacts take float32, from which the casts start too."""
    import torch

    for node in exported.graph.nodes:
        dtype = node.kwargs.get("dtype", next(iter(node.args[3:]), None))
        other = dtype in (torch.float64, torch.float16, torch.bfloat16)
        if node.target is torch.ops.aten._assert_tensor_metadata.default and other:
            exported.graph.erase_node(node)
    exported.graph_module.recompile()


def _refuse_open_length(spec: ModelSpec, exported: torch.export.ExportedProgram) -> None:
    """Refuse an output whose length depends on values, unless the length is the same for all of them."""
    import torch

    if not (operator := open_length(exported)):
        return
    shapes = []
    with torch.no_grad():
        constants = (spec.constant_inputs(0.0), spec.constant_inputs(1.0))
        for inputs in (*(spec.random(seed) for seed in range(LENGTHS)), *constants):
            # Any error of the module is reported when its reference outputs are recorded.
            with contextlib.suppress(Exception):
                answers = named_outputs(spec, spec.module(*to_tensors(spec, inputs)))
                shapes.append({name: array.shape for name, array in answers.items()})
    if differing := next((o.name for o in spec.outputs if len({each[o.name] for each in shapes}) > 1), ""):
        raise CaptureError(
            f"the output '{differing}' of '{spec.name}' has a length that depends on values, from {operator}. "
            f"Instead, {FIXED_LENGTH}"
        )


def _refuse_narrow(spec: ModelSpec, exported: torch.export.ExportedProgram, guards: list[Guard]) -> None:
    """Refuse a graph with a narrower axis than declared: a test of a shape can narrow an axis silently."""
    placeholders = [n for n in exported.graph.nodes if n.op == "placeholder"][-len(spec.inputs) :]
    for declared, node in zip(spec.inputs, placeholders, strict=True):
        for name, size in zip(declared.shape, node.meta["val"].shape, strict=True):
            if not isinstance(name, str):
                continue
            if isinstance(size, int):
                raise CaptureError(f"capturing '{spec.name}' fixed the axis '{name}' at {size}{at(guards)}")
            if name not in spec.axes:
                _widen_sum(exported, size.node.expr)
                continue
            axis = spec.axes[name]
            bounds = exported.range_constraints.get(size.node.expr)
            # torch.export treats sizes 0 and 1 apart, so a lower bound of 2 means nothing; the grid proves batch 1.
            if bounds is not None and (bounds.upper < axis.maximum or bounds.lower > max(axis.minimum, 2)):
                # The upper bound may be infinite.
                largest = bounds.upper if bounds.upper < axis.maximum else axis.maximum
                raise CaptureError(
                    f"'{spec.name}' declares the axis '{name}' as {axis.minimum} to {axis.maximum}, but its code was "
                    f"captured only for {bounds.lower} to {largest}{at(guards)}. Declare a range within that, or fix "
                    "the axis (minimum = maximum)"
                )


def _widen_sum(exported: torch.export.ExportedProgram, symbol: Any) -> None:
    """Widen a sum to the smallest sizes of its axes: torch.export assumes 2 or more for each, so 4 for a sum of two."""
    from torch.utils._sympy.value_ranges import ValueRanges

    if (bounds := exported.range_constraints.get(symbol)) is not None:
        exported.range_constraints[symbol] = ValueRanges(0, bounds.upper)


def _prove(
    spec: ModelSpec,
    exported: torch.export.ExportedProgram,
    shapes: tuple[Mapping[str, int], ...],
    guards: list[Guard],
) -> None:
    import torch

    graph = exported.module()
    ranks: dict[str, tuple[int, Mapping[str, int]]] = {}
    for seed, sizes in enumerate(shapes):
        arguments = to_tensors(spec, spec.random(seed, sizes))
        with torch.no_grad():
            try:
                expected = named_outputs(spec, spec.module(*arguments))
            except Exception as error:
                failed = f"'{spec.name}' fails at the declared sizes {sizes}: {sentence(error)}{constraint_hint(spec)}"
                raise ModelError(failed) from error
            try:
                got = named_outputs(spec, graph(*arguments))
            except Exception as error:
                if not _holds_without_guard(spec, exported, sizes, error):
                    raise CaptureError(_failing(spec.name, dict(sizes), error, guards)) from error
                continue
        for name in expected:
            now = expected[name].ndim
            rank, other = ranks.setdefault(name, (now, sizes))
            if now != rank:
                raise CaptureError(
                    f"the output '{name}' of '{spec.name}' has {rank} axes at {dict(other)} and {now} at "
                    f"{dict(sizes)}: squeeze() removes axes of size 1. Squeeze a named axis of fixed size, or let that "
                    "axis begin at 2"
                )
            if not _close(expected[name], got[name]):
                raise CaptureError(
                    f"the captured graph of '{spec.name}' differs from the module at {sizes} in output "
                    f"'{name}': a branch or a size was baked in"
                )


# Comparisons with 0, 1 or 2: torch.export adds them because it treats sizes 0 and 1 apart.
_OWN_GUARD = re.compile(r"Guard failed: .*(?:[<>!=]=?\s*[012]\b|\b[012]\s*[<>!=])")


def _holds_without_guard(
    spec: ModelSpec, exported: torch.export.ExportedProgram, sizes: Mapping[str, int], error: Exception
) -> bool:
    """Return whether only torch.export's own guard refuses the sizes: the program without guards equals the module.

    No artifact contains the guards. If the user's code has a branch, the outputs differ.
    """
    import torch

    if not _OWN_GUARD.search(str(error).split("\n")[0]):
        return False
    graph = exported.module(check_guards=False)
    for seed in range(UNGUARDED):
        arguments = to_tensors(spec, spec.random(seed, sizes))
        with torch.no_grad():
            try:
                expected, got = (named_outputs(spec, each(*arguments)) for each in (spec.module, graph))
            # The program fails without the guard too.
            except Exception:
                return False
        if any(not _close(expected[name], got[name]) for name in expected):
            return False
    return True


def _failing(name: str, sizes: dict[str, int], error: Exception, guards: list[Guard]) -> str:
    text = f"the captured graph of '{name}' fails at {sizes}: {sentence(error)}{at(guards)}"
    if "Guard failed" not in str(error):
        return text
    return (
        f"{text}; its code takes another branch at this size. Choose a range without this size, or fix the axis "
        "(minimum = maximum)"
    )


def _close(expected: Array, got: Array) -> bool:
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return False
    if expected.dtype.kind != "f":
        # Counts and indices follow from scores; the judge accounts for ties and rounding.
        return True
    scale = max(1.0, float(np.max(np.abs(expected[np.isfinite(expected)]), initial=0.0)))
    return bool(np.allclose(expected / scale, got / scale, rtol=0, atol=CAPTURE_TOLERANCE, equal_nan=True))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence deprecation warnings of PyTorch's export, save and load, which the user cannot fix."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
        # A recurrent layer of PyTorch lists its weights again each time it runs.
        warnings.filterwarnings("ignore", message=r"The tensor attributes? [^,]*\._flat_weights", category=UserWarning)
        yield


def _refuse_changes(name: str, module: torch.nn.Module, inputs: Mapping[str, torch.Tensor], ask: Ask) -> None:
    """Run a module three times on the same inputs; the last time with other random numbers.

    Raises:
        CaptureError: Naming the input that it changes, the state that it stores, or the output that varies.
    """
    import torch

    state = _state_digests(module)
    copies = {key: tensor.clone() for key, tensor in inputs.items()}
    with _fixed_seed(0):
        first = ask(list(copies.values()))
    for key, tensor in copies.items():
        if not torch.equal(torch.nan_to_num(tensor), torch.nan_to_num(inputs[key])):
            raise CaptureError(
                f"'{name}' changes its input '{key}' in place, which no artifact does. Copy it first "
                f"({key} = {key}.clone()), or write y = f(x) in place of f_(x)"
            )
    after = _state_digests(module)
    if changed := next((key for key in after if after[key] != state.get(key)), ""):
        raise CaptureError(
            f"'{name}' changes its own '{changed}' when it runs. Make the state an input and an output of forward"
        )
    with _fixed_seed(0):
        same = ask(list(inputs.values()))
    with _fixed_seed(1):
        other = ask(list(inputs.values()))
    for key in first:
        if not np.array_equal(first[key], same[key], equal_nan=True):
            raise CaptureError(
                f"'{name}' returns a different output '{key}' each time: it keeps a state in an attribute "
                "that is neither parameter nor buffer. Make the state an input and an output of forward"
            )
        if not np.array_equal(same[key], other[key], equal_nan=True):
            raise CaptureError(
                f"'{name}' returns a different output '{key}' each time: it draws random numbers. Make the noise an "
                "input of forward, or leave it out in eval mode"
            )


def _state_digests(module: torch.nn.Module) -> dict[str, int]:
    """Return a checksum of each parameter and buffer, which takes no memory as a copy does."""
    import torch

    return {
        key: zlib.crc32(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        for key, tensor in module.state_dict().items()
    }


@contextlib.contextmanager
def _fixed_seed(seed: int) -> Iterator[None]:
    """Seed the random generators of PyTorch, NumPy and Python, and restore their states afterwards."""
    import torch

    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
