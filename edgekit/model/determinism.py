"""Whether a module's answer depends on its inputs and weights alone; else on what: its input, a state, or chance."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import CaptureError
from edgekit.model.spec import Array

if TYPE_CHECKING:
    import torch

Ask = Callable[[Sequence["torch.Tensor"]], Mapping[str, Array]]
"""Runs the module on inputs and returns its outputs by name."""


def refuse_changes(name: str, module: torch.nn.Module, inputs: Mapping[str, torch.Tensor], ask: Ask) -> None:
    """Run a module three times on the same inputs; the last time with other random numbers.

    Args:
        name: Of the model.
        module: In eval mode.
        inputs: By name, in order.
        ask: Runs it.

    Raises:
        CaptureError: Naming the input that it changes, the state that it keeps, or the output that varies.
    """
    held = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    given = {key: tensor.clone() for key, tensor in inputs.items()}
    with _seeded(0):
        first = ask(list(given.values()))
    for key, tensor in given.items():
        if not _equal(tensor, inputs[key]):
            raise CaptureError(
                f"'{name}' changes its input '{key}' in place, which no artifact does: copy it first "
                f"({key} = {key}.clone()), or write y = f(x) where forward has f_(x)"
            )
    for key, tensor in module.state_dict().items():
        if not _equal(tensor, held[key]):
            raise CaptureError(
                f"'{name}' changes its own '{key}' while it answers: a state must be an input and an output of forward"
            )
    with _seeded(0):
        same = ask(list(inputs.values()))
    with _seeded(1):
        other = ask(list(inputs.values()))
    for key in first:
        if not np.array_equal(first[key], same[key], equal_nan=True):
            raise CaptureError(
                f"'{name}' answers differently each time in output '{key}': it remembers what it saw, in an attribute "
                "that is neither parameter nor buffer; a state must be an input and an output of forward"
            )
        if not np.array_equal(same[key], other[key], equal_nan=True):
            raise CaptureError(
                f"'{name}' answers differently each time in output '{key}': it draws random numbers; make noise an "
                "input of forward, or leave it out in eval mode"
            )


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    import torch

    return torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The generators of PyTorch, NumPy and Python start at a seed, and go on afterwards where they were."""
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
