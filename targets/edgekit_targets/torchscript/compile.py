"""A module as TorchScript that is right for every input, or none.

Scripting compiles the module's source, branches and loops included. What cannot be scripted is traced, and a trace
holds one path and often one size; so it is handed out only where the module's Python reads no values
(`control_flow.py`), and an axis stays dynamic only where the program answered like the module on the whole grid of
shapes and, for a trace, no decision of the module hangs on its size.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgekit.errors import CaptureError, EdgekitError, ExportError
from edgekit.model import capture_errors as causes
from edgekit.model.adapter import to_tensors
from edgekit.model.own_operators import decomposed
from edgekit.model.shapes import grid
from edgekit.model.sources import onnx as onnx_file
from edgekit.model.spec import Array, ModelSpec
from edgekit_targets.torchscript import branches, control_flow, determinism

if TYPE_CHECKING:
    import torch

OPERATORS = {"aten", "prim", "prims", "prepacked", "quantized"}
"""Libraries whose operators PyTorch's own runtimes hold."""
Finish = Callable[["torch.jit.ScriptModule"], "torch.jit.ScriptModule"]


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
            got = determinism.answer(spec, call, seed=1, sizes=sizes)
            for name, array in self._answer(sizes).items():
                same_kind = array.shape == got[name].shape and array.dtype == got[name].dtype
                differs = determinism.differs(array, got[name], determinism.ROUNDED)
                if not same_kind or (name not in self._following and differs):
                    at = ", ".join(f"{axis} {size}" for axis, size in sizes.items()) or "the declared sizes"
                    raise CaptureError(f"the program answers differently from '{spec.name}' in '{name}' at {at}")

    def _answer(self, sizes: Mapping[str, int]) -> Mapping[str, Array]:
        key = tuple(sizes.get(name, axis.default) for name, axis in self._spec.axes.items())
        if key not in self._wanted:
            self._wanted[key] = determinism.answer(self._spec, self._spec.module, seed=1, sizes=sizes)
        return self._wanted[key]


@dataclass(frozen=True)
class Compiled:
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


def compiled(spec: ModelSpec, finish: Finish) -> Compiled:
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
    determinism.check_deterministic(spec)
    proof = Proof(spec)
    scripted, why = _scripted(spec, finish, proof)
    if scripted is not None:
        _refuse_own_operators(spec, scripted.module)
        return replace(scripted, notes=(*scripted.notes, *branches.one_sided(spec)))
    read = control_flow.values_read(spec)
    if read:
        raise CaptureError(
            f"'{spec.name}' decides in Python on values of tensors ({read}), which a trace would bake in, and it "
            f"cannot be scripted ({why}): use torch.where, or write forward in TorchScript's subset of Python"
        )
    return _traced(spec, finish, proof, why)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """TorchScript is deprecated as a whole, which the docs of the targets say; each call need not."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*(torch\.jit|Lite Interpreter)")
        yield


def _scripted(spec: ModelSpec, finish: Finish, proof: Proof) -> tuple[Compiled | None, str]:
    import torch

    if spec.decompositions:
        return None, "operators of its own are replaced while it is traced"
    try:
        with quiet():
            module = finish(torch.jit.script(copy.deepcopy(spec.module)))
            axes, notes = _proved(spec, proof, tuple(spec.axes), lambda _: module)
    except Exception as error:  # the compiler raises errors of a dozen kinds, all of them about the user's source
        return None, _reason(error)
    return Compiled(module, axes, ("scripted: branches and loops are kept", *notes), proof), ""


def _traced(spec: ModelSpec, finish: Finish, proof: Proof, why: str) -> Compiled:
    free, fixed = _undecided(spec)
    made: dict[tuple[str, ...], torch.jit.ScriptModule] = {}

    def trace(axes: tuple[str, ...]) -> torch.jit.ScriptModule:
        made[axes] = finish(_trace(spec, axes))
        return made[axes]

    axes, notes = _proved(spec, proof, free, trace)
    _refuse_own_operators(spec, made[axes])
    head = f"traced, since it cannot be scripted ({why}); no value decides in Python, and every size was proved"
    return Compiled(made[axes], axes, (head, *fixed, *notes), proof)


def _refuse_own_operators(spec: ModelSpec, module: torch.jit.ScriptModule) -> None:
    import torch

    named = torch.jit.export_opnames(module)  # type: ignore[no-untyped-call]  # untyped
    if own := sorted(name for name in named if name.partition("::")[0] not in OPERATORS):
        rounds = own[0].startswith(causes.ROUNDS)
        way_out = causes.ROUNDED if rounds else "name what stands for it in `ModelSpec.decompositions`"
        raise ExportError(
            f"'{spec.name}' uses the operator '{own[0]}', which TorchScript's runtimes do not have: {way_out}"
        )


def _undecided(spec: ModelSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The axes on whose sizes no decision of the module hangs, and a note on the others."""
    reason = ""
    for axes in _choices(tuple(spec.axes)):
        decided = control_flow.sizes_decided(spec, axes) if axes else ""
        if not decided:
            return axes, ((_fixed(spec, axes, reason),) if reason else ())
        reason = reason or f"a trace would bake in {decided}"
    return (), (_fixed(spec, (), reason),)


def _proved(
    spec: ModelSpec, proof: Proof, axes: tuple[str, ...], make: Callable[[tuple[str, ...]], torch.jit.ScriptModule]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The most axes for which the program holds, and a note where those are fewer."""
    reason: CaptureError | None = None
    for some in _choices(axes):
        try:
            with quiet():
                proof.check(make(some), some)
            return some, ((_fixed(spec, some, str(reason)),) if reason else ())
        except CaptureError as error:
            reason = error
    raise reason or CaptureError(f"'{spec.name}' has no shape at which it can be proved")


def _choices(axes: tuple[str, ...]) -> list[tuple[str, ...]]:
    """All axes, then the batch alone, then none."""
    return list(dict.fromkeys([axes, tuple(a for a in axes if a == "batch"), ()]))


def _fixed(spec: ModelSpec, axes: tuple[str, ...], reason: str) -> str:
    names = ", ".join(f"{name} at {axis.default}" for name, axis in spec.axes.items() if name not in axes)
    return f"fixed: {names} ({reason})"


def _trace(spec: ModelSpec, axes: tuple[str, ...]) -> torch.jit.ScriptModule:
    import torch

    # A size of 1 broadcasts, which would hide a baked batch: dynamic axes are traced at another size than the default.
    sizes = {name: min(axis.default + axis.multiple_of, axis.maximum) for name, axis in spec.axes.items()}
    arguments = to_tensors(spec, spec.random(0, {name: sizes[name] for name in axes}))
    # TracerWarning: `values_read` and the guards see more than it does
    with quiet(), warnings.catch_warnings(action="ignore"), torch.no_grad(), decomposed(spec):
        traced: torch.jit.ScriptModule = torch.jit.trace(  # type: ignore[no-untyped-call]  # untyped
            copy.deepcopy(spec.module), arguments, check_trace=False, strict=False
        )
        return traced


def _reason(error: Exception) -> str:
    if isinstance(error, EdgekitError):
        return str(error)
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].rstrip(':')}" if lines else type(error).__name__
