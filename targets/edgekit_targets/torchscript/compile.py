"""A module as TorchScript that is right for every input, or none.

Scripting compiles the module's source, with branches and loops. A module that cannot be scripted is traced, and a trace
holds one path and often one size. So it is returned only where the module's Python reads no values (`values_read`).
An axis stays dynamic only where the program answered like the module on the whole grid of shapes. For a trace, also no
decision of the module may depend on its size (`sizes_decided`). Branches that depend on values, and of which only one
side was taken, are reported (`one_sided`), since nothing proves the other side.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from edgekit.errors import CaptureError, EdgekitError, ExportError, ModelError
from edgekit.model import capture_errors as causes
from edgekit.model.adapter import copy_module, named_outputs, to_tensors
from edgekit.model.evaluation_set import evaluation_of, runs_of
from edgekit.model.own_operators import use_decompositions
from edgekit.model.shapes import grid
from edgekit.model.sources import onnx as onnx_file
from edgekit.model.spec import Array, Axis, ModelSpec

if TYPE_CHECKING:
    import sympy  # type: ignore[import-untyped]  # ships no types
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

OPERATORS = {"aten", "prim", "prims", "prepacked", "quantized"}
"""Libraries whose operators are part of PyTorch's own runtimes."""
Finish = Callable[["torch.jit.ScriptModule"], "torch.jit.ScriptModule"]
# Sizes of one axis at which a condition is evaluated one by one.
MOST_SIZES = 64
DESCRIPTIONS = ("_subclasses/", "_prims", "_refs/", "_decomp/", "_meta_registrations.py", "_library/", "fx/")
ROWS, SEEDS = 64, 32
"""Count of evaluation inputs and of random inputs at the default sizes. Each point of the grid adds one input."""
FIRST = 4
"""Count of random inputs after which a module that read no value counts as one that reads none."""
Line = tuple[str, int]
# Of the peak: the most by which two runs of the same operators may differ by their order of summation.
SAME = 1e-5
ROUNDED = 1e-4
"""Of the peak: a program that differs by more is not the module's.

It is the judge's limit on fp32 of any scale. The judge tests the artifact afterwards and knows the module's own
rounding.
"""
# Share of integers that may flip where a score lies on a boundary.
SAME_COUNTS = 0.02


class Proof:
    """The module's own answers on the grid of shapes, computed once, and checks of programs against them."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._wanted: dict[tuple[int, ...], Mapping[str, Array]] = {}
        # Another kernel may rank two equal scores either way. The judge knows of ties, and this check does not.
        self._following = {o.name for o in spec.outputs if o.role in ("ranking", "features")}

    def check(self, call: Callable[..., object], axes: tuple[str, ...]) -> None:
        """Check that a program answers like the module at all sizes of the named axes.

        Raises:
            CaptureError: If the answers differ. The message names the sizes and the output.
        """
        spec = self._spec
        for sizes in grid({name: spec.axes[name] for name in axes}) or ({},):
            got = answer(spec, call, seed=1, sizes=sizes)
            for name, array in self._answer(sizes).items():
                same_kind = array.shape == got[name].shape and array.dtype == got[name].dtype
                is_different = differs(array, got[name], ROUNDED)
                if not same_kind or (name not in self._following and is_different):
                    at = ", ".join(f"{axis} {size}" for axis, size in sizes.items()) or "the declared sizes"
                    raise CaptureError(f"the program answers differently from '{spec.name}' in '{name}' at {at}")

    def _answer(self, sizes: Mapping[str, int]) -> Mapping[str, Array]:
        key = tuple(sizes.get(name, axis.default) for name, axis in self._spec.axes.items())
        if key not in self._wanted:
            self._wanted[key] = answer(self._spec, self._spec.module, seed=1, sizes=sizes)
        return self._wanted[key]


@dataclass(frozen=True)
class CompiledScript:
    """A proved TorchScript program.

    Attributes:
        module: The program.
        dynamic: Names of the axes that stay dynamic.
        notes: How it was made and what was fixed, one sentence each.
        proof: Checks of the saved files against the same answers.
    """

    module: torch.jit.ScriptModule
    dynamic: tuple[str, ...]
    notes: tuple[str, ...]
    proof: Proof


def compile_module(spec: ModelSpec, finish: Finish) -> CompiledScript:
    """Script or trace a module, finish it with a target's passes, and prove the result against the module.

    Raises:
        ExportError: If the module has only its captured program here, which TorchScript cannot take, or it uses a
            custom operator.
        CaptureError: If the module draws random numbers or is in training mode. Also if it can neither be scripted nor
            be traced without a fixed decision.
    """
    import torch

    # The captured program, without its code.
    if not spec.factory and isinstance(spec.module, torch.fx.GraphModule):
        raise ExportError(
            f"TorchScript compiles the module itself, and '{spec.name}' was given in memory, so only its captured "
            "program is here. Put it into a file with a function that returns its ModelSpec, and export "
            "'package.module:function'"
        )
    onnx_file.refuse(spec)
    check_deterministic(spec)
    proof = Proof(spec)
    scripted, why = _script(spec, finish, proof)
    if scripted is not None:
        _refuse_own_operators(spec, scripted.module)
        return replace(scripted, notes=(*scripted.notes, *one_sided_branches(spec)))
    read = values_read(spec)
    if read:
        raise CaptureError(
            f"'{spec.name}' decides in Python on values of tensors ({read}), which a trace would bake in, and it "
            f"cannot be scripted ({why}). Use torch.where, or write forward in TorchScript's subset of Python"
        )
    return _trace(spec, finish, proof, why)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings that TorchScript is deprecated, which the docs of the targets say."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*(torch\.jit|Lite Interpreter)")
        yield


def _script(spec: ModelSpec, finish: Finish, proof: Proof) -> tuple[CompiledScript | None, str]:
    import torch

    if spec.decompositions:
        return None, "its custom operators are replaced while it is traced"
    try:
        with quiet():
            module = finish(torch.jit.script(copy_module(spec.module)))
            axes, notes = _proven_axes(spec, proof, tuple(spec.axes), lambda _: module)
    # The compiler raises many kinds of errors, all about the user's source.
    except Exception as error:
        lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
        kind = type(error).__name__
        why = f"{kind}: {lines[0].rstrip(':')}" if lines else kind
        return None, str(error) if isinstance(error, EdgekitError) else why
    return CompiledScript(module, axes, ("scripted: branches and loops are kept", *notes), proof), ""


def _trace(spec: ModelSpec, finish: Finish, proof: Proof, why: str) -> CompiledScript:
    free, fixed = _undecided_axes(spec)
    script_modules: dict[tuple[str, ...], torch.jit.ScriptModule] = {}

    def trace(axes: tuple[str, ...]) -> torch.jit.ScriptModule:
        script_modules[axes] = finish(_trace_once(spec, axes))
        return script_modules[axes]

    axes, notes = _proven_axes(spec, proof, free, trace)
    _refuse_own_operators(spec, script_modules[axes])
    head = f"traced, since it cannot be scripted ({why}). No value decides in Python, and every size was proved"
    return CompiledScript(script_modules[axes], axes, (head, *fixed, *notes), proof)


def _refuse_own_operators(spec: ModelSpec, module: torch.jit.ScriptModule) -> None:
    import torch

    operator_names = torch.jit.export_opnames(module)  # type: ignore[no-untyped-call]  # untyped
    if own := sorted(name for name in operator_names if name.partition("::")[0] not in OPERATORS):
        rounds = own[0].startswith(causes.ROUNDS)
        way_out = causes.ROUNDED if rounds else "name its replacement in `ModelSpec.decompositions`"
        raise ExportError(f"'{spec.name}' uses the operator '{own[0]}', which TorchScript's runtimes lack: {way_out}")


def _undecided_axes(spec: ModelSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the axes whose sizes decide nothing in the module, and a note on the others."""
    reason = ""
    for axes in _choices(tuple(spec.axes)):
        decided = decision_on_size(spec, axes) if axes else ""
        if not decided:
            return axes, ((_fixed_note(spec, axes, reason),) if reason else ())
        reason = reason or f"a trace would bake in {decided}"
    return (), (_fixed_note(spec, (), reason),)


def _proven_axes(
    spec: ModelSpec, proof: Proof, axes: tuple[str, ...], make: Callable[[tuple[str, ...]], torch.jit.ScriptModule]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the most axes for which the program holds, and a note where those are fewer."""
    reason: CaptureError | None = None
    for some in _choices(axes):
        try:
            with quiet():
                proof.check(make(some), some)
            return some, ((_fixed_note(spec, some, str(reason)),) if reason else ())
        except CaptureError as error:
            reason = error
    raise reason or CaptureError(f"'{spec.name}' has no shape at which it can be proved")


def _choices(axes: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return all axes, then only the batch, then no axes."""
    return list(dict.fromkeys([axes, tuple(a for a in axes if a == "batch"), ()]))


def _fixed_note(spec: ModelSpec, axes: tuple[str, ...], reason: str) -> str:
    names = ", ".join(f"{name} at {axis.default}" for name, axis in spec.axes.items() if name not in axes)
    return f"fixed: {names} ({reason})"


def _trace_once(spec: ModelSpec, axes: tuple[str, ...]) -> torch.jit.ScriptModule:
    import torch

    # A size of 1 broadcasts, which would hide a fixed batch, so the trace uses another size than the default.
    sizes = {name: min(axis.default + axis.multiple_of, axis.maximum) for name, axis in spec.axes.items()}
    arguments = to_tensors(spec, spec.random(0, {name: sizes[name] for name in axes}))
    # TracerWarning: `values_read` and the guards detect more than it does.
    with quiet(), warnings.catch_warnings(action="ignore"), torch.no_grad(), use_decompositions(spec):
        traced: torch.jit.ScriptModule = torch.jit.trace(  # type: ignore[no-untyped-call]  # untyped
            copy_module(spec.module), arguments, check_trace=False, strict=False
        )
        return traced


def values_read(spec: ModelSpec) -> str:
    """Return a place where the module's Python reads a tensor's value, as "operator at file:line (source)".

    The result is empty if it reads none. A module is run once on fake tensors, which have shapes and no values
    (torch._subclasses.fake_tensor). Any read of a value raises there: `if x.sum() > 0`, `.item()`, `.tolist()`,
    `.numpy()`, `torch.equal` ... Weights keep their values, since they are constants of an artifact. PyTorch's own
    TracerWarning misses `torch.equal`, `torch.allclose` and indexing a list with a tensor.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    module = copy_module(spec.module)
    environment = ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=True)
    fakes = FakeTensorMode(allow_non_fake_inputs=True, shape_env=environment)
    arguments = [fakes.from_tensor(t, static_shapes=True) for t in to_tensors(spec, spec.random(0))]
    names: list[str] = []

    def note(operator: object, frames: Sequence[traceback.FrameSummary]) -> None:
        names.append(f"{operator}{at(frames)}")

    try:
        with warnings.catch_warnings(action="ignore"), fakes, watch_values(note):
            module(*arguments)
    except Exception as error:
        names.append(f"{error_text(error)}")
    return names[0] if names else ""


def decision_on_size(spec: ModelSpec, axes: tuple[str, ...]) -> str:
    """Return a decision of the module's Python that would change at some declared size of an axis.

    With symbols as sizes, the module leaves a guard for each decision on a size. Each guard is evaluated at the sizes
    that the axes declare. So `if x.shape[0] == 5` is found although no test would try 5.

    Returns:
        "condition at file:line", or why sizes cannot be followed. Empty if the module makes no such decision.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    module = copy_module(spec.module)
    environment = ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=True, duck_shape=False)
    fakes = FakeTensorMode(allow_non_fake_inputs=True, shape_env=environment)
    axis_of: dict[sympy.Basic, str] = {}
    arguments = [_symbolic(fakes, spec, axes, place, axis_of) for place in range(len(spec.inputs))]
    try:
        with warnings.catch_warnings(action="ignore"), fakes, watch_values(lambda *_: None):
            module(*arguments)
    except Exception as error:
        return f"{error_text(error)}"
    for guard in environment.guards:
        frame: object = guard.sloc.framework_loc
        if not isinstance(frame, traceback.FrameSummary):
            continue
        # Guards from the descriptions of operators for fake tensors are in no trace.
        _, torch_folder, inner = frame.filename.replace("\\", "/").rpartition("/torch/")
        if torch_folder and inner.startswith(DESCRIPTIONS):
            continue
        if _turns(guard.expr, axis_of, spec.axes):
            return f"{guard.expr} at {frame.filename}:{frame.lineno}"
    return ""


def _symbolic(
    fakes: FakeTensorMode, spec: ModelSpec, axes: tuple[str, ...], place: int, axis_of: dict[sympy.Basic, str]
) -> torch.Tensor:
    """Return the input at a place as a fake tensor with symbols for the named axes. Add them to `axis_of`."""
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    declared = spec.inputs[place]
    # Sizes of 0 and 1 get no symbol, so the default is not used.
    sizes = {n: min(a.default + a.multiple_of, a.maximum) for n, a in spec.axes.items() if n in axes}
    tensor = to_tensors(spec, spec.random(0, sizes))[place]
    kinds = [DimDynamic.DYNAMIC if size in axes else DimDynamic.STATIC for size in declared.shape]
    fake = fakes.from_tensor(
        tensor,
        symbolic_context=StatelessSymbolicContext(dynamic_sizes=kinds),
        source=ConstantSource(declared.name),
    )
    for name, size in zip(declared.shape, fake.shape, strict=True):
        # A torch.SymInt, although its type says int.
        symbol = getattr(size, "node", None)
        if name in axes and symbol is not None:
            axis_of[symbol.expr] = str(name)
    return fake


def _turns(condition: sympy.Basic, axis_of: Mapping[sympy.Basic, str], axes: Mapping[str, Axis]) -> bool:
    """Return whether a condition is false at some declared sizes."""
    import sympy

    axis_names = sorted({axis_of[s] for s in condition.free_symbols if s in axis_of})
    numbers = {int(n) for n in condition.atoms(sympy.Integer)}
    for sizes in itertools.product(*(_sizes_to_try(axes[name], numbers) for name in axis_names)):
        at = dict(zip(axis_names, sizes, strict=True))
        holds = condition.xreplace({s: sympy.Integer(at[axis_of[s]]) for s in condition.free_symbols if s in axis_of})
        if holds == sympy.false:
            return True
    return False


def _sizes_to_try(axis: Axis, numbers: set[int]) -> list[int]:
    """Return all declared sizes if they are few, else some of them and those that the condition names."""
    fitting = axis.sizes
    if len(fitting) <= MOST_SIZES:
        return [*fitting]
    step = len(fitting) // MOST_SIZES + 1
    return sorted({*fitting[::step], fitting[-1], axis.default} | (numbers & set(fitting)))


def one_sided_branches(spec: ModelSpec) -> tuple[str, ...]:
    """Return a sentence for each branch on a value of which these inputs took only one side.

    The module runs eagerly on real and random inputs. Python's trace function records which line follows which, and a
    dispatch mode records the lines where the module reads a value. Only a branch whose own condition reads one is
    watched. A branch on a variable that was read before, a conditional expression, and existing TorchScript are not.
    """
    import torch

    read: set[Line] = set()
    follows: dict[Line, set[int]] = {}
    count = 0

    def note(_: object, frames: Sequence[traceback.FrameSummary]) -> None:
        if (place := innermost(frames)) is not None:
            read.add((place.filename, place.lineno or 0))

    before = sys.gettrace()
    sys.settrace(_tracer(follows))
    try:
        with torch.no_grad(), watch_values(note, of_weights=True):
            for inputs in _inputs(spec):
                spec.module(*to_tensors(spec, inputs))
                count += 1
                if count == FIRST and not read:
                    return ()
    # The exporter's own checks report inputs that a module cannot answer.
    except Exception:
        return ()
    finally:
        sys.settrace(before)
    return tuple(
        f"the branch at {Path(file).name}:{line} took only one side for the {count} inputs that were tried. "
        "The other side is not proved"
        for file, line in sorted(_untaken_branches(read, follows))
    )


def _inputs(spec: ModelSpec) -> Iterator[dict[str, Array]]:
    for seed in range(FIRST):
        yield spec.random(seed)
    evaluation = evaluation_of(spec)
    if evaluation is not None:
        runs = len(evaluation.names)
        for row in range(min(ROWS, runs)):
            yield {name: runs_of(array, [row], runs) for name, array in evaluation.inputs.items()}
    for seed in range(FIRST, SEEDS):
        yield spec.random(seed)
    for sizes in grid(spec.axes):
        yield spec.random(0, dict(sizes))


def _untaken_branches(read: set[Line], follows: dict[Line, set[int]]) -> Iterator[Line]:
    """Yield branches whose condition reads a value, and that were always or never entered."""
    for file in sorted({file for file, _ in read}):
        try:
            tree = ast.parse(Path(file).read_text())
        except (OSError, SyntaxError, ValueError):
            # Typed into a notebook: there is no file to read.
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.If | ast.While):
                continue
            condition = range(node.test.lineno, (node.test.end_lineno or node.test.lineno) + 1)
            if not any((file, line) in read for line in condition):
                continue
            if node.body[0].lineno in condition:
                # On one line: its side leaves no separate line.
                continue
            body = range(node.body[0].lineno, (node.body[-1].end_lineno or node.body[-1].lineno) + 1)
            next_lines = set().union(*(follows.get((file, line), set()) for line in condition)) - {*condition}
            if next_lines and len({line in body for line in next_lines}) == 1:
                yield file, node.lineno


def _tracer(follows: dict[Line, set[int]]) -> Any:
    """Return a trace function that records which line of a user's file follows which. 0 follows the last of a call."""
    import torch

    library = str(Path(torch.__file__).parent)
    latest: dict[FrameType, int] = {}

    def local(frame: FrameType, event: str, argument: object) -> Any:
        line = 0 if event == "return" else frame.f_lineno
        if event in ("line", "return"):
            if frame in latest:
                follows.setdefault((frame.f_code.co_filename, latest[frame]), set()).add(line)
            latest[frame] = line
        if event == "return":
            latest.pop(frame, None)
        return local

    def call_result(frame: FrameType, event: str, argument: object) -> Any:
        return None if frame.f_code.co_filename.startswith((library, "<")) else local

    return call_result


def check_deterministic(spec: ModelSpec) -> None:
    """Refuse a module whose answer depends on more than its inputs and weights.

    Raises:
        CaptureError: If it does. The message names a submodule in training mode, or the output that varies.
    """
    training = next((name for name, part in spec.module.named_modules() if getattr(part, "training", False)), None)
    if training is not None:
        kind = type(spec.module.get_submodule(training)).__name__
        raise CaptureError(f"'{training or spec.name}' ({kind}) is in training mode. Call .eval() before exporting")
    module = copy_module(spec.module)
    first, _, again = (answer(spec, module, seed) for seed in (0, 1, 0))
    for output in spec.outputs:
        if differs(first[output.name], again[output.name]):
            raise CaptureError(
                f"'{spec.name}' answers the same input differently in output '{output.name}'. "
                "It draws random numbers or keeps state between runs"
            )


def answer(
    spec: ModelSpec, call: Callable[..., object], seed: int, sizes: Mapping[str, int] | None = None
) -> dict[str, Array]:
    """Return a module's answer to random inputs, by output name."""
    import torch

    with torch.no_grad():
        try:
            return named_outputs(spec, call(*to_tensors(spec, spec.random(seed, sizes))))
        except ModelError:
            raise
        except Exception as error:
            raise CaptureError(f"'{spec.name}' cannot be run: {error_text(error)}") from error


def differs(array: Array, got: Array, allowed: float = SAME) -> bool:
    """Return whether two answers differ by more than a share of the peak."""
    import numpy as np

    if array.shape != got.shape or array.dtype != got.dtype:
        return True
    if array.dtype.kind != "f":
        return bool(np.mean(array != got) > SAME_COUNTS) if array.size else False
    peak = max(float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array))), 1e-30)
    return not np.allclose(array / peak, got / peak, rtol=0, atol=allowed, equal_nan=True)


def error_text(error: Exception) -> str:
    """Return an exception as its type, the first line of its message and the user's own line that raised it."""
    text = str(error).strip()
    first = f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
    return f"{first}{at(traceback.extract_tb(error.__traceback__))}"


def at(frames: Sequence[traceback.FrameSummary]) -> str:
    """Return ` at file:line (source)` of the innermost frame that is neither PyTorch's nor edgekit's, or nothing."""
    frame = innermost(frames)
    return f" at {frame.filename}:{frame.lineno} ({frame.line})" if frame is not None else ""


def innermost(frames: Sequence[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """Return the innermost frame that is neither PyTorch's nor edgekit's, or None."""
    import torch

    own_folders = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
    return next((f for f in reversed(frames) if not f.filename.startswith(own_folders) and f.line), None)


def watch_values(
    note: Callable[[object, Sequence[traceback.FrameSummary]], None], of_weights: bool = False
) -> TorchDispatchMode:
    """Return a mode in which `note` receives each operator that reads a tensor's value, even if the module swallows it.

    Without `of_weights` only values of fake tensors count, since weights have real values.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._mode_utils import no_dispatch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base is untyped
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # torch's
            if torch.Tag.data_dependent_output in func.tags:
                if not of_weights and not any(isinstance(a, FakeTensor) for a in args):
                    with no_dispatch():
                        return func(*args, **(kwargs or {}))
                note(func.overloadpacket, traceback.extract_stack()[:-1])
            return func(*args, **(kwargs or {}))

    return Watch()  # type: ignore[no-untyped-call]  # as above
