"""Sizes that an artifact has fixed are refused here: a runtime that takes other ones may answer, and wrongly."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.artifact.manifest import Manifest
from edgekit.errors import UsageError
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


def _fixed(manifest: Manifest, size: int | str) -> int | None:
    if isinstance(size, int):
        return size
    axis = manifest.axes.get(size)
    return None if axis is None or axis.dynamic else axis.default
