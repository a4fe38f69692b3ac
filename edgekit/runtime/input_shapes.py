"""Checks of an artifact's fixed sizes: a runtime that accepts other sizes may return wrong outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from edgekit.artifact.manifest import Manifest
from edgekit.errors import ArtifactError, UsageError
from edgekit.model.shapes import size_text
from edgekit.model.spec import Array
from edgekit.runtime.protocol import OrderedRuntime, Runtime


def arguments(
    manifest: Manifest, inputs: Mapping[str, Array], narrow: Mapping[str, str] | None = None
) -> dict[str, Array]:
    """Return an artifact's inputs in their order and in C's memory layout.

    Args:
        manifest: The artifact's manifest.
        inputs: Arrays by name.
        narrow: Replacements of dtypes that the runtime does not support.

    Raises:
        UsageError: If an input is missing, or a fixed size differs.
    """
    for declared in manifest.inputs:
        if declared.name not in inputs:
            raise UsageError(f"the artifact '{manifest.name}' ({manifest.target}) needs the input '{declared.name}'")
        shape = inputs[declared.name].shape
        sizes = [_fixed_size(manifest, size) for size in declared.shape]
        if not _fits(sizes, shape):
            possible = ", ".join("any" if size is None else str(size) for size in sizes)
            raise UsageError(
                f"the artifact '{manifest.name}' ({manifest.target}) takes '{declared.name}' as [{possible}], "
                f"not {list(shape)}"
            )
    arrays = {tensor.name: inputs[tensor.name] for tensor in manifest.inputs}
    return {n: np.asarray(a, dtype=(narrow or {}).get(a.dtype.name, a.dtype), order="C") for n, a in arrays.items()}


def require_names(
    manifest: Manifest, entry: str, inputs: Collection[str], outputs: Collection[str], unread: bool = False
) -> None:
    """Check that a file has the inputs and outputs of its manifest.

    Args:
        manifest: The artifact's manifest.
        entry: The file.
        inputs: Its input names.
        outputs: Its output names.
        unread: True if the file leaves out unused inputs.

    Raises:
        ArtifactError: If it has others.
    """
    for kind, has, declared in (("inputs", inputs, manifest.inputs), ("outputs", outputs, manifest.outputs)):
        names = sorted(tensor.name for tensor in declared)
        if sorted(has) != names and not (unread and kind == "inputs" and set(has) <= set(names)):
            raise ArtifactError(f"'{entry}' has the {kind} {sorted(has)}, not {names}. Export again")


def require_order(manifest: Manifest, runtime: Runtime) -> None:
    """Check that a file has its inputs and outputs in its manifest's order, in which callers by position pass them.

    Raises:
        ArtifactError: If it has another order; an unused input may be left out.
    """
    if not isinstance(runtime, OrderedRuntime):
        return
    sides = zip(("inputs", "outputs"), runtime.names(), (manifest.inputs, manifest.outputs), strict=True)
    for kind, has, declared in sides:
        names = [tensor.name for tensor in declared if tensor.name in has]
        if names != [name for name in has if name in names]:
            raise ArtifactError(f"'{manifest.entry}' has the {kind} in the order {has}, not {names}. Export again")


def enumerated_size(manifest: Manifest, inputs: Mapping[str, Array]) -> Mapping[str, int]:
    """Return the enumerated size of an artifact that all inputs have.

    Raises:
        UsageError: If they have none of its sizes.
    """
    for sizes in manifest.sizes:
        fixed = {i.name: [sizes.get(n) if isinstance(n, str) else None for n in i.shape] for i in manifest.inputs}
        if all(_fits(of, inputs[name].shape) for name, of in fixed.items()):
            return sizes
    shapes = ", ".join(f"'{i.name}' {list(inputs[i.name].shape)}" for i in manifest.inputs)
    possible = ", ".join(map(size_text, manifest.sizes))
    raise UsageError(f"the artifact '{manifest.name}' ({manifest.target}) takes the sizes {possible}, not {shapes}")


def _fixed_size(manifest: Manifest, size: int | str) -> int | None:
    if isinstance(size, int):
        return size
    axis = manifest.axes.get(size)
    return None if axis is None or axis.dynamic else axis.default


def _fits(sizes: Sequence[int | None], shape: Sequence[int]) -> bool:
    return len(sizes) == len(shape) and all(fixed in (None, size) for fixed, size in zip(sizes, shape, strict=True))
