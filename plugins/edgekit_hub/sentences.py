"""A folder of sentence-transformers: a text model whose graph ends with the pooling and the normalization.

modules.json lists the modules. Supported are Transformer, Pooling (mean, cls or max) and Normalize, in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import ModelError

if TYPE_CHECKING:
    import torch

MODULES = "modules.json"
LIBRARY = "sentence_transformers."
ORDERS = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
KEPT_MODULES, KEPT_POOLING = "sentence-modules.json", "sentence-pooling.json"
"""Names of modules.json and of the pooling's config.json in a model folder."""
MODES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}
"""Supported poolings, by the field that selects them."""
EMBEDDING, STATES = "sentence_embedding", "last_hidden_state"
FARAWAY = -1e9
"""Value of a padded token for a pooling by the maximum."""
Read = Callable[[Path], Any]


@dataclass(frozen=True)
class Pooling:
    """Pooling of the tokens, "mean", "cls" or "max", and whether the embedding is normalized to length 1."""

    mode: str
    is_normalized: bool


def find_files(folder: Path, read: Read) -> dict[str, Path]:
    """Return the files of a folder that describe its pooling, by their names in a model folder; empty if none do.

    Raises:
        ModelError: If it has a module that edgekit does not export.
    """
    path = folder / MODULES
    if not path.is_file():
        return {}
    modules = read(path)
    rows = [row for row in modules if isinstance(row, Mapping)] if isinstance(modules, list) else []
    types = [str(row.get("type", "")) for row in rows]
    names = [name.rpartition(".")[2] if name.startswith(LIBRARY) else name for name in types]
    if names not in ORDERS or rows[0].get("path"):
        raise ModelError(
            f"'{path}' lists {', '.join(names) or 'no modules'}, but edgekit exports Transformer (of the folder "
            "itself), Pooling and Normalize in this order. Export the text model and its further modules from a "
            "function of your own: package.module:factory"
        )
    place = str(rows[1].get("path", ""))
    pooling = folder / place / "config.json"
    if not place or Path(place).name != place or not pooling.is_file():
        raise ModelError(f"'{path}' names '{place}' for the pooling, which has no config.json. Save the model again")
    return {KEPT_MODULES: path, KEPT_POOLING: pooling}


def read_pooling(files: Mapping[str, Path], read: Read) -> Pooling | None:
    """Return the pooling that a model's files describe; None without one.

    Raises:
        ModelError: If it is of another kind.
    """
    if KEPT_POOLING not in files:
        return None
    content = read(files[KEPT_POOLING])
    record = content if isinstance(content, Mapping) else {}
    # Version 6.2 of the library writes `pooling_mode`; earlier ones write a field for each mode.
    named = record.get("pooling_mode")
    fields = [name for name, value in record.items() if name.startswith("pooling_mode_") and value is True]
    modes = [str(named)] if named is not None else [MODES.get(name, name) for name in fields]
    if len(modes) != 1 or modes[0] not in MODES.values():
        raise ModelError(
            f"'{files[KEPT_POOLING]}' pools by {' and '.join(modes) or 'nothing'}, but edgekit exports one of "
            f"{', '.join(MODES.values())}. Export the model from a function of your own: package.module:factory"
        )
    return Pooling(modes[0], len(read(files[KEPT_MODULES])) == len(ORDERS[1]))


def with_pooling(inner: torch.nn.Module, pooling: Pooling, has_states: bool) -> torch.nn.Module:
    """Return a text model whose output is the embedding [batch, width] of each text.

    Args:
        inner: Takes ids and mask, [batch, tokens] each, and returns `last_hidden_state`.
        pooling: The pooling.
        has_states: True to also return `last_hidden_state` [batch, tokens, width].
    """
    import torch

    class Sentences(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = inner

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
            states: torch.Tensor = self.model(input_ids, attention_mask).last_hidden_state
            mask = attention_mask.unsqueeze(-1)
            if pooling.mode == "cls":
                embedding = states[:, 0]
            elif pooling.mode == "max":
                embedding = states.masked_fill(mask == 0, FARAWAY).amax(1)
            else:
                embedding = (states * mask.to(states.dtype)).sum(1) / mask.sum(1).clamp(min=1).to(states.dtype)
            if pooling.is_normalized:
                embedding = torch.nn.functional.normalize(embedding, dim=1)
            return {**({STATES: states} if has_states else {}), EMBEDDING: embedding}

    return Sentences()
