"""A module as TorchScript that is right for every input, or none.

Scripting compiles the module's source, branches and loops included. What cannot be scripted is traced, and a trace
holds one path and often one size; so it is handed out only where the module's Python reads no values (`values_read`),
and an axis stays dynamic only where the program answered like the module on the whole grid of shapes and, for a trace,
no decision of the module hangs on its size (`sizes_decided`). Branches that hang on values, and of which only one side
was taken, are reported (`one_sided`): nothing proves the other.
"""

from __future__ import annotations

import ast
import contextlib
import copy
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
from edgekit.model.adapter import named_outputs, to_tensors
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
"""Libraries whose operators PyTorch's own runtimes hold."""
Finish = Callable[["torch.jit.ScriptModule"], "torch.jit.ScriptModule"]
MOST_SIZES = 64  # sizes of one axis at which a condition is evaluated one by one
DESCRIPTIONS = ("_subclasses/", "_prims", "_refs/", "_decomp/", "_meta_registrations.py", "_library/", "fx/")
ROWS, SEEDS = 64, 32
"""Evaluation inputs and random inputs at the default sizes, beside one input at each point of the shape grid."""
FIRST = 4
"""Random inputs after which a module that read no value is taken for one that reads none."""
Line = tuple[str, int]
SAME = 1e-5  # of the peak: the most that two runs of the same operators may differ by their order of summation
ROUNDED = 1e-4
"""Of the peak: by more a program is another one than the module. It is the judge's limit on fp32 of any scale, who asks
the artifact afterwards and knows the module's own rounding."""
SAME_COUNTS = 0.02  # share of integers that may flip where a score sits on a boundary


class Proof:
    """What the module itself answers on the grid of shapes, asked once, and programs held against it."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._wanted: dict[tuple[int, ...], Mapping[str, Array]] = {}
        # Two equal scores may be ranked either way by another kernel; the judge knows of ties, this check does not.
        self._following = {o.name for o in spec.outputs if o.role in ("ranking", "features")}

    def check(self, call: Callable[..., object], axes: tuple[str, ...]) -> None:
        """See that a program answers like the module wherever the named axes may go.

        Raises:
            CaptureError: Naming the sizes and the output.
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
        proof: To hold the saved files against the same answers.
    """

    module: torch.jit.ScriptModule
    dynamic: tuple[str, ...]
    notes: tuple[str, ...]
    proof: Proof


def compile_module(spec: ModelSpec, finish: Finish) -> CompiledScript:
    """Script or trace a module, finish it by a target's passes, and prove the outcome against the module.

    Raises:
        ExportError: If only the module's captured program is here, which TorchScript cannot take, or it uses an
            operator of its own.
        CaptureError: If the module draws random numbers or is in training mode, or can be neither scripted nor traced
            without baking a decision in.
    """
    import torch

    if not spec.factory and isinstance(spec.module, torch.fx.GraphModule):  # the captured program, without its code
        raise ExportError(
            f"TorchScript compiles the module itself, and '{spec.name}' was given in memory and is here as its "
            "captured program: put it into a file, with a function that returns its ModelSpec, and export "
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
            f"cannot be scripted ({why}): use torch.where, or write forward in TorchScript's subset of Python"
        )
    return _trace(spec, finish, proof, why)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """TorchScript is deprecated as a whole, which the docs of the targets say; each call need not."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*(torch\.jit|Lite Interpreter)")
        yield


def _script(spec: ModelSpec, finish: Finish, proof: Proof) -> tuple[CompiledScript | None, str]:
    import torch

    if spec.decompositions:
        return None, "operators of its own are replaced while it is traced"
    try:
        with quiet():
            module = finish(torch.jit.script(copy.deepcopy(spec.module)))
            axes, notes = _proven_axes(spec, proof, tuple(spec.axes), lambda _: module)
    except Exception as error:  # the compiler raises errors of a dozen kinds, all of them about the user's source
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
    head = f"traced, since it cannot be scripted ({why}); no value decides in Python, and every size was proved"
    return CompiledScript(script_modules[axes], axes, (head, *fixed, *notes), proof)


def _refuse_own_operators(spec: ModelSpec, module: torch.jit.ScriptModule) -> None:
    import torch

    operator_names = torch.jit.export_opnames(module)  # type: ignore[no-untyped-call]  # untyped
    if own := sorted(name for name in operator_names if name.partition("::")[0] not in OPERATORS):
        rounds = own[0].startswith(causes.ROUNDS)
        way_out = causes.ROUNDED if rounds else "name what stands for it in `ModelSpec.decompositions`"
        raise ExportError(
            f"'{spec.name}' uses the operator '{own[0]}', which TorchScript's runtimes do not have: {way_out}"
        )


def _undecided_axes(spec: ModelSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the axes on whose sizes no decision of the module hangs, and a note on the others."""
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
    """Return all axes, then the batch alone, then none."""
    return list(dict.fromkeys([axes, tuple(a for a in axes if a == "batch"), ()]))


def _fixed_note(spec: ModelSpec, axes: tuple[str, ...], reason: str) -> str:
    names = ", ".join(f"{name} at {axis.default}" for name, axis in spec.axes.items() if name not in axes)
    return f"fixed: {names} ({reason})"


def _trace_once(spec: ModelSpec, axes: tuple[str, ...]) -> torch.jit.ScriptModule:
    import torch

    # A size of 1 broadcasts, which would hide a baked batch: dynamic axes are traced at another size than the default.
    sizes = {name: min(axis.default + axis.multiple_of, axis.maximum) for name, axis in spec.axes.items()}
    arguments = to_tensors(spec, spec.random(0, {name: sizes[name] for name in axes}))
    # TracerWarning: `values_read` and the guards see more than it does
    with quiet(), warnings.catch_warnings(action="ignore"), torch.no_grad(), use_decompositions(spec):
        traced: torch.jit.ScriptModule = torch.jit.trace(  # type: ignore[no-untyped-call]  # untyped
            copy.deepcopy(spec.module), arguments, check_trace=False, strict=False
        )
        return traced


def values_read(spec: ModelSpec) -> str:
    """Where the module's Python reads values of tensors, as "what at file:line (source)"; empty if nowhere.

    A module is run once on fake tensors, which have shapes and no values (torch._subclasses.fake_tensor). Whatever asks
    for a value raises there: `if x.sum() > 0`, `.item()`, `.tolist()`, `.numpy()`, `torch.equal` ... Weights keep their
    values: they are constants of an artifact. PyTorch's own TracerWarning misses `torch.equal`, `torch.allclose` and
    indexing a list with a tensor.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    module = copy.deepcopy(spec.module)
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
    """Return a decision of the module's Python on the size of one of the axes that some declared size would turn over.

    Run with symbols for sizes, the module leaves a guard for each decision on a size, and each guard is evaluated at
    the sizes that the axes declare: `if x.shape[0] == 5` is found although no test would try 5.

    Returns:
        "condition at file:line", or why sizes cannot be followed; empty if there is no such decision.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    module = copy.deepcopy(spec.module)
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
        # No trace holds the guards that come from how operators are described to fake tensors.
        _, torch_folder, inner = frame.filename.replace("\\", "/").rpartition("/torch/")
        if torch_folder and inner.startswith(DESCRIPTIONS):
            continue
        if _turns(guard.expr, axis_of, spec.axes):
            return f"{guard.expr} at {frame.filename}:{frame.lineno}"
    return ""


def _symbolic(
    fakes: FakeTensorMode, spec: ModelSpec, axes: tuple[str, ...], place: int, axis_of: dict[sympy.Basic, str]
) -> torch.Tensor:
    """Return the input at a place as a fake tensor with symbols for the named axes; enters the symbols in `axis_of`."""
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    declared = spec.inputs[place]
    # Sizes of 0 and 1 get no symbol, hence not the default.
    sizes = {n: min(a.default + a.multiple_of, a.maximum) for n, a in spec.axes.items() if n in axes}
    tensor = to_tensors(spec, spec.random(0, sizes))[place]
    kinds = [DimDynamic.DYNAMIC if size in axes else DimDynamic.STATIC for size in declared.shape]
    fake = fakes.from_tensor(
        tensor,
        symbolic_context=StatelessSymbolicContext(dynamic_sizes=kinds),
        source=ConstantSource(declared.name),
    )
    for name, size in zip(declared.shape, fake.shape, strict=True):
        symbol = getattr(size, "node", None)  # a torch.SymInt, although its type says int
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
    """Return all declared sizes where they are few, else some of them with those that the condition names."""
    fitting = axis.sizes
    if len(fitting) <= MOST_SIZES:
        return [*fitting]
    step = len(fitting) // MOST_SIZES + 1
    return sorted({*fitting[::step], fitting[-1], axis.default} | (numbers & set(fitting)))


def one_sided_branches(spec: ModelSpec) -> tuple[str, ...]:
    """Return a sentence for each branch on a value of which these inputs took one side only.

    The module runs eagerly on real and random inputs. Python's trace function tells which line follows which, and a
    dispatch mode at which lines the module reads a value. Only a branch whose own condition reads one is watched: not
    one on a variable that was read before, nor a conditional expression, nor what is TorchScript already.
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
    except Exception:  # the exporter's own checks say what a module cannot answer
        return ()
    finally:
        sys.settrace(before)
    return tuple(
        f"the branch at {Path(file).name}:{line} took one side only for the {count} inputs that were tried: nothing is "
        "proved of the other"
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
    """Branches whose condition reads a value, and that were always or never entered."""
    for file in sorted({file for file, _ in read}):
        try:
            tree = ast.parse(Path(file).read_text())
        except (OSError, SyntaxError, ValueError):
            continue  # typed into a notebook: there is no file to read
        for node in ast.walk(tree):
            if not isinstance(node, ast.If | ast.While):
                continue
            condition = range(node.test.lineno, (node.test.end_lineno or node.test.lineno) + 1)
            if not any((file, line) in read for line in condition):
                continue
            if node.body[0].lineno in condition:
                continue  # on one line: its side leaves no line of its own
            body = range(node.body[0].lineno, (node.body[-1].end_lineno or node.body[-1].lineno) + 1)
            next_lines = set().union(*(follows.get((file, line), set()) for line in condition)) - {*condition}
            if next_lines and len({line in body for line in next_lines}) == 1:
                yield file, node.lineno


def _tracer(follows: dict[Line, set[int]]) -> Any:
    """A trace function that notes which line of a user's file follows which; 0 follows the last one of a call."""
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
        CaptureError: Naming a submodule in training mode, or the output that varies.
    """
    training = next((name for name, part in spec.module.named_modules() if getattr(part, "training", False)), None)
    if training is not None:
        kind = type(spec.module.get_submodule(training)).__name__
        raise CaptureError(f"'{training or spec.name}' ({kind}) is in training mode: call .eval() before exporting")
    module = copy.deepcopy(spec.module)
    first, _, again = (answer(spec, module, seed) for seed in (0, 1, 0))
    for output in spec.outputs:
        if differs(first[output.name], again[output.name]):
            raise CaptureError(
                f"'{spec.name}' answers the same input differently in output '{output.name}': "
                "it draws random numbers or remembers what it saw"
            )


def answer(
    spec: ModelSpec, call: Callable[..., object], seed: int, sizes: Mapping[str, int] | None = None
) -> dict[str, Array]:
    """What a module answers to random inputs, by output name."""
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
    """The words ` at file:line (source)` of the innermost frame that is neither PyTorch's nor ours, or nothing."""
    frame = innermost(frames)
    return f" at {frame.filename}:{frame.lineno} ({frame.line})" if frame is not None else ""


def innermost(frames: Sequence[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """Return the innermost frame that is neither PyTorch's nor ours; None if there is none."""
    import torch

    own_folders = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
    return next((f for f in reversed(frames) if not f.filename.startswith(own_folders) and f.line), None)


def watch_values(
    note: Callable[[object, Sequence[traceback.FrameSummary]], None], of_weights: bool = False
) -> TorchDispatchMode:
    """Return a mode in which `note` receives each operator that reads a tensor's value, even if the module swallows it.

    Without `of_weights` only values of fake tensors count, beside which weights answer for themselves.
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
