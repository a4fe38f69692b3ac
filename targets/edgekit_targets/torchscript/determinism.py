"""Answers of a module and of a program made from it, and whether they are the same but for rounding."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import CaptureError, ModelError
from edgekit.model.adapter import named_outputs, to_tensors
from edgekit.model.spec import Array, ModelSpec

if TYPE_CHECKING:
    from torch.utils._python_dispatch import TorchDispatchMode

SAME = 1e-5  # of the peak: the most that two runs of the same operators may differ by their order of summation
ROUNDED = 1e-4
"""Of the peak: by more a program is another one than the module. It is the judge's limit on fp32 of any scale, who asks
the artifact afterwards and knows the module's own rounding."""
SAME_COUNTS = 0.02  # share of integers that may flip where a score sits on a boundary


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
            raise CaptureError(f"'{spec.name}' cannot be run: {said(error)}") from error


def differs(wanted: Array, got: Array, allowed: float = SAME) -> bool:
    """Whether two answers differ by more than a share of the peak."""
    import numpy as np

    if wanted.shape != got.shape or wanted.dtype != got.dtype:
        return True
    if wanted.dtype.kind != "f":
        return bool(np.mean(wanted != got) > SAME_COUNTS) if wanted.size else False
    peak = max(float(np.max(np.abs(wanted), initial=0.0, where=np.isfinite(wanted))), 1e-30)
    return not np.allclose(wanted / peak, got / peak, rtol=0, atol=allowed, equal_nan=True)


def said(error: Exception) -> str:
    """An exception as its type, the first line of its message and the user's own line that raised it."""
    text = str(error).strip()
    first = f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
    return f"{first}{at(traceback.extract_tb(error.__traceback__))}"


def at(frames: Sequence[traceback.FrameSummary]) -> str:
    """The words ` at file:line (source)` of the innermost frame that is neither PyTorch's nor ours, or nothing."""
    frame = innermost(frames)
    return f" at {frame.filename}:{frame.lineno} ({frame.line})" if frame is not None else ""


def innermost(frames: Sequence[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """The innermost frame that is neither PyTorch's nor ours; None if there is none."""
    import torch

    ours = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
    return next((f for f in reversed(frames) if not f.filename.startswith(ours) and f.line), None)


def watched(
    note: Callable[[object, Sequence[traceback.FrameSummary]], None], of_weights: bool = False
) -> TorchDispatchMode:
    """A mode in which `note` hears of each operator that reads a value of a tensor, also where the module swallows it.

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
