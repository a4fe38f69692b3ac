"""Sizes that an artifact has fixed are refused here: a runtime that takes other ones may answer, and wrongly."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.artifact.manifest import Manifest
from edgekit.errors import UsageError
from edgekit.model.shapes import size_text
from edgekit.model.spec import Array


def require_shapes(manifest: Manifest, inputs: Mapping[str, Array]) -> None:
    """See that the inputs have the sizes that the artifact takes.

    Raises:
        UsageError: If an input is missing, or a fixed size differs.
    """
    for declared in manifest.inputs:
        if declared.name not in inputs:
            raise UsageError(f"the artifact '{manifest.name}' ({manifest.target}) needs the input '{declared.name}'")
        shape = inputs[declared.name].shape
        wanted = [_fixed(manifest, size) for size in declared.shape]
        fits = len(shape) == len(wanted) and all(w in (None, s) for w, s in zip(wanted, shape, strict=True))
        if not fits:
            known = ", ".join("any" if w is None else str(w) for w in wanted)
            raise UsageError(
                f"the artifact '{manifest.name}' ({manifest.target}) takes '{declared.name}' as [{known}], "
                f"not {list(shape)}"
            )


def enumerated_size(manifest: Manifest, inputs: Mapping[str, Array]) -> Mapping[str, int]:
    """Which of the sizes that an artifact enumerates all inputs have.

    Raises:
        UsageError: If they have none of them.
    """
    for sizes in manifest.sizes:
        wanted = {i.name: [sizes.get(n) if isinstance(n, str) else None for n in i.shape] for i in manifest.inputs}
        if all(w in (None, s) for name, of in wanted.items() for w, s in zip(of, inputs[name].shape, strict=True)):
            return sizes
    shapes = ", ".join(f"'{i.name}' {list(inputs[i.name].shape)}" for i in manifest.inputs)
    known = ", ".join(map(size_text, manifest.sizes))
    raise UsageError(f"the artifact '{manifest.name}' ({manifest.target}) takes the sizes {known}, not {shapes}")


def _fixed(manifest: Manifest, size: int | str) -> int | None:
    if isinstance(size, int):
        return size
    axis = manifest.axes.get(size)
    return None if axis is None or axis.dynamic else axis.default
