"""Recurrent layers (LSTM, GRU and RNN) as one operator each, whatever the number of time steps.

When `torch.export` propagates shapes through `aten.lstm` and its relatives, it unrolls them, which fixes the length.
During a capture, the operators of this module stand in their place: they have the same arguments, and a rule for shapes
that does not unroll. Captured programs hold PyTorch's own operators again, so that any reader of the file can run them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
LIBRARY = "edgekit"
_TAIL = (
    "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"
)


@functools.cache
def operators() -> dict[str, tuple[Any, Any]]:
    """Return for each kind PyTorch's operator, and the one that stands in its place during a capture."""
    import torch

    pairs = {}
    for kind in KINDS:
        original = getattr(torch.ops.aten, kind).input
        states = 2 if kind == "lstm" else 1
        schema = f"(Tensor x, {'Tensor[]' if states == 2 else 'Tensor'} hx, {_TAIL})"
        torch.library.define(f"{LIBRARY}::{kind}", f"{schema} -> ({', '.join(['Tensor'] * (states + 1))})")
        torch.library.impl(f"{LIBRARY}::{kind}", "CompositeExplicitAutograd", original)
        torch.library.register_fake(f"{LIBRARY}::{kind}", _shapes)
        pairs[kind] = original, getattr(getattr(torch.ops, LIBRARY), kind).default
    return pairs


def _shapes(
    x: torch.Tensor,
    hx: torch.Tensor | Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, ...]:
    """Return empty outputs: the sequence, and the last state or states."""
    import torch

    states = [hx] if isinstance(hx, torch.Tensor) else hx
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    return (x.new_empty((*x.shape[:-1], width)), *map(torch.empty_like, states))


@contextlib.contextmanager
def open_lengths() -> Iterator[None]:
    """Capture recurrent layers as operators; sequences that are packed by their lengths stay as they are."""
    from torch.overrides import TorchFunctionMode

    by_name = {kind: own for kind, (_, own) in operators().items()}

    class Whole(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(func, "__name__", "")
            # Arguments are (input, states, weights, ...), or (input, batch sizes, states, weights, ...) if packed.
            states, weights = (args[1], args[2]) if name in by_name and len(args) > 2 else (None, None)
            is_list = [isinstance(each, (list, tuple)) for each in (states, weights)]
            is_whole = is_list == [name == "lstm", True]
            return (by_name[name] if is_whole else func)(*args, **(kwargs or {}))

    with Whole():
        yield


def with_pytorch_operators(exported: torch.export.ExportedProgram) -> None:
    """Put PyTorch's operators in the place of this module's."""
    _exchange(exported, {own: original for original, own in operators().values()})


def with_own_operators(exported: torch.export.ExportedProgram) -> None:
    """Put this module's operators in the place of PyTorch's, before a tool traces the program again."""
    _exchange(exported, dict(operators().values()))


def _exchange(exported: torch.export.ExportedProgram, table: dict[Any, Any]) -> None:
    for node in exported.graph.nodes:
        node.target = table.get(node.target, node.target)
    exported.graph_module.recompile()
