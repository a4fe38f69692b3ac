"""Whether a module's Python looks at values: what tracing would bake in without a word.

A module is run once on fake tensors, which have shapes and no values (torch._subclasses.fake_tensor). Whatever asks for
a value raises there: `if x.sum() > 0`, `.item()`, `.tolist()`, `.numpy()`, `torch.equal` ... Weights keep their values:
they are constants of an artifact. PyTorch's own TracerWarning misses `torch.equal`, `torch.allclose` and indexing a
list with a tensor.

Run once more with symbols for sizes, the module leaves a guard for each decision on a size, and each guard is evaluated
at the sizes that the axes declare: `if x.shape[0] == 5` is found although no test would try 5.
"""

from __future__ import annotations

import copy
import itertools
import traceback
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.model.adapter import to_tensors
from edgekit.model.spec import Axis, ModelSpec
from edgekit_targets.torchscript import determinism

if TYPE_CHECKING:
    import sympy  # type: ignore[import-untyped]  # ships no types
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

MOST_SIZES = 64  # sizes of one axis at which a condition is evaluated one by one
DESCRIPTIONS = ("_subclasses/", "_prims", "_refs/", "_decomp/", "_meta_registrations.py", "_library/", "fx/")


def values_read(spec: ModelSpec) -> str:
    """Where the module's Python reads values of tensors, as "what at file:line (source)"; empty if nowhere."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    module = copy.deepcopy(spec.module)
    environment = ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=True)
    fakes = FakeTensorMode(allow_non_fake_inputs=True, shape_env=environment)
    arguments = [fakes.from_tensor(t, static_shapes=True) for t in to_tensors(spec, spec.random(0))]
    found: list[str] = []

    def note(operator: object, frames: Sequence[traceback.FrameSummary]) -> None:
        found.append(f"{operator}{determinism.at(frames)}")

    try:
        with warnings.catch_warnings(action="ignore"), fakes, determinism.watched(note):
            module(*arguments)
    except Exception as error:
        found.append(f"{determinism.said(error)}")
    return found[0] if found else ""


def sizes_decided(spec: ModelSpec, axes: tuple[str, ...]) -> str:
    """A decision of the module's Python on the size of one of the axes that some declared size would turn over.

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
        with warnings.catch_warnings(action="ignore"), fakes, determinism.watched(lambda *_: None):
            module(*arguments)
    except Exception as error:
        return f"{determinism.said(error)}"
    for guard in environment.guards:
        frame: object = guard.sloc.framework_loc
        if not isinstance(frame, traceback.FrameSummary) or _internal(frame):
            continue
        if _turns(guard.expr, axis_of, spec.axes):
            return f"{guard.expr} at {frame.filename}:{frame.lineno}"
    return ""


def _symbolic(
    fakes: FakeTensorMode, spec: ModelSpec, axes: tuple[str, ...], place: int, axis_of: dict[sympy.Basic, str]
) -> torch.Tensor:
    """The input at a place as a fake tensor with symbols for the named axes; enters the symbols in `axis_of`."""
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
    """Whether a condition is false at some declared sizes."""
    import sympy

    named = sorted({axis_of[s] for s in condition.free_symbols if s in axis_of})
    numbers = {int(n) for n in condition.atoms(sympy.Integer)}
    for sizes in itertools.product(*(_tried(axes[name], numbers) for name in named)):
        at = dict(zip(named, sizes, strict=True))
        holds = condition.xreplace({s: sympy.Integer(at[axis_of[s]]) for s in condition.free_symbols if s in axis_of})
        if holds == sympy.false:
            return True
    return False


def _tried(axis: Axis, numbers: set[int]) -> list[int]:
    """All declared sizes where they are few, else some of them with those that the condition names."""
    fitting = axis.sizes
    if len(fitting) <= MOST_SIZES:
        return [*fitting]
    step = len(fitting) // MOST_SIZES + 1
    return sorted({*fitting[::step], fitting[-1], axis.default} | (numbers & set(fitting)))


def _internal(frame: traceback.FrameSummary) -> bool:
    """Whether a guard comes from how operators are described to fake tensors, which no trace holds."""
    _, torch, inner = frame.filename.replace("\\", "/").rpartition("/torch/")
    return bool(torch) and inner.startswith(DESCRIPTIONS)
