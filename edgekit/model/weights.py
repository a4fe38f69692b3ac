"""A model's weights: put in from a file, and told apart from the weights that it shipped with."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.model import checkpoint
from edgekit.model.spec import ModelSpec

if TYPE_CHECKING:
    import torch


def weights_digest(spec: ModelSpec) -> str:
    """sha256 of a module's weights, whatever file they came from: what a recorded reference belongs to."""
    hashed = hashlib.sha256()
    for name, tensor in sorted(spec.module.state_dict().items()):
        array = tensor.detach().cpu().contiguous().numpy()
        hashed.update(f"{name} {array.dtype} {array.shape}\n".encode())
        hashed.update(array.tobytes())
    return hashed.hexdigest()


def with_weights(spec: ModelSpec, path: Path, ema: bool = False) -> ModelSpec:
    """A model with the weights of a file, under a name of its own and nobody's licence.

    A prefix that all names of the file share and the model's lack, or the other way, is no difference. With `ema` they
    are the averaged ones of the file.

    Raises:
        CheckpointError: If the file cannot be used, or is of another model.
    """
    own = getattr(spec.module, "edgekit_buffers", ())  # mean and deviation of pictures: of the model, not of the file
    wanted = {name: tensor for name, tensor in spec.module.state_dict().items() if name not in own}
    found = _renamed(checkpoint.read_checkpoint(path, ema), list(wanted))
    shapes = {name: tuple(tensor.shape) for name, tensor in wanted.items()}
    fitting = checkpoint.fit_checkpoint(found, shapes, origin=f"the checkpoint '{path}', read as '{spec.name}',")
    filled = {name: tensor.to(wanted[name].dtype) for name, tensor in fitting.items()}
    spec.module.load_state_dict({**spec.module.state_dict(), **filled})
    return _named_after(spec, path)


def _renamed(found: Mapping[str, torch.Tensor], wanted: Sequence[str]) -> dict[str, torch.Tensor]:
    """Tensors by the names that are wanted, where these differ by the prefix of all alone."""
    if set(found) == set(wanted):
        return dict(found)
    parts = wanted[0].split(".") if wanted else []
    for start in range(len(parts)):
        rest, ours = ".".join(parts[start:]), "".join(f"{part}." for part in parts[:start])
        for theirs in (name.removesuffix(rest) for name in found if name.endswith(rest)):
            renamed = {f"{ours}{name.removeprefix(theirs)}": tensor for name, tensor in found.items()}
            if set(renamed) == set(wanted):
                return renamed
    return dict(found)


def as_their_own(spec: ModelSpec, path: Path, own: ModelSpec) -> ModelSpec:
    """A checkpoint's model under its file's name and nobody's licence, unless its weights are the preset's own."""
    return spec if weights_digest(spec) == weights_digest(own) else _named_after(spec, path)


def _named_after(spec: ModelSpec, path: Path) -> ModelSpec:
    file = slug(path.stem)
    name = file if file.startswith(spec.name) else f"{spec.name}-{file or 'weights'}"
    return replace(spec, name=name, author="", licence="", reference=None)


def slug(text: str) -> str:
    """A text as a model's name: lower case, with dashes for what is no letter, digit or dot."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
