"""Inputs and answers in dictionaries, dataclasses and tuples: their tensors by name, and back.

    forward(batch: {"x": T, "sizes": (T, T)}, scale=2.0) -> Answer(logits=T, hidden=(T, T))
    flat:  forward(x, sizes_0, sizes_1) -> (logits, hidden_0, hidden_1), the scale fixed at 2.0

What PyTorch's pytree knows is taken apart by it (dictionaries, tuples, transformers' ModelOutput, and whatever a
library registers there); dataclasses and other mappings by their fields and keys.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Children = tuple[list[str], list[Any], Callable[[list[Any]], Any]]
"""Keys, what they hold, and what puts other things under the same keys."""


def leaves(value: Any, name: str = "", plain: str = "output") -> Iterator[tuple[str, Any]]:
    """What a structure holds by name: keys and fields joined by `_`, numbers for the places of a tuple.

    Args:
        value: A tensor, or a structure.
        name: Of the whole.
        plain: The first word where the whole has no name and its parts have numbers only.
    """
    children = _children(value)
    if children is None:
        yield name or plain, value
        return
    for key, child in zip(*children[:2], strict=True):
        first = name or (plain if key.isdigit() else "")
        yield from leaves(child, f"{first}_{key}" if first else key, plain)


def rebuilt(value: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """The structure with other tensors in place of its own, in the order of `leaves`."""
    import torch

    if isinstance(value, torch.Tensor):
        return next(tensors)
    children = _children(value)
    return value if children is None else children[2]([rebuilt(child, tensors) for child in children[1]])


def _children(value: Any) -> Children | None:
    """One level of a structure; None for a leaf."""
    from torch.utils import _pytree as pytree

    def inside(other: Any) -> bool:
        return other is not value

    pairs, layout = pytree.tree_flatten_with_path(value, is_leaf=inside)
    if not layout.is_leaf():
        return (
            [_key(path[0]) for path, _ in pairs],
            [child for _, child in pairs],
            lambda made: pytree.tree_unflatten(made, layout),
        )
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return (
            names,
            [getattr(value, n) for n in names],
            lambda made: _record(value, dict(zip(names, made, strict=True))),
        )
    if isinstance(value, Mapping):
        kind: Any = type(value)
        return [str(k) for k in value], list(value.values()), lambda made: kind(dict(zip(value, made, strict=True)))
    return None


def _key(entry: Any) -> str:
    return str(next(getattr(entry, name) for name in ("key", "idx", "name") if hasattr(entry, name)))


def _record(like: Any, fields: Mapping[str, Any]) -> Any:
    """A dataclass of the same kind, without its `__init__`, which may take other arguments."""
    made = object.__new__(type(like))
    for name, value in {**vars(like), **fields}.items():
        object.__setattr__(made, name, value)
    return made


def unique(names: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """Names that every target takes: letters, digits and underscores, each once, and none that is taken."""
    found: list[str] = []
    for name in names:
        word = re.sub(r"[^A-Za-z0-9_.]+", "_", name).strip("_.")
        word = word if word[:1].isalpha() else f"tensor_{word}"
        if word in taken:
            word = f"{word}_out"
        number = 2
        while word in found or word in taken:
            word, number = f"{word}_{number}", number + 1
        found.append(word)
    return found
