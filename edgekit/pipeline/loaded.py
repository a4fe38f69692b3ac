"""Artifact opened in this process."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from edgekit import registry
from edgekit.artifact.manifest import COLOURS, AxisInfo, Manifest, TensorInfo
from edgekit.artifact.store import read_artifact
from edgekit.errors import UsageError
from edgekit.model.shapes import size_text
from edgekit.model.spec import SUM, Array, size_of
from edgekit.reference.pictures import in_size
from edgekit.runtime.protocol import Runtime
from edgekit.storage.host_errors import as_sentences


@as_sentences()
def load(artifact: str | Path, *, place: str = "", trust_build: bool = False) -> LoadedArtifact:
    """Open an artifact in this process, after a check of its files.

    Args:
        artifact: The artifact's folder, for example `build/arr-coc-tiny/onnx`.
        place: One of its target's places; the first by default.
        trust_build: True if code in the artifact may run (`aoti`, `iree`, `torch-cuda`).

    Raises:
        ArtifactError: If it is missing or damaged.
        UsageError: If it holds code and `trust_build` is not set.
        NotVerifiedHere: If this host cannot run it.
    """
    folder = Path(artifact)
    if folder.is_file():
        raise UsageError(f"'{folder}' is a file. Pass the artifact's folder, '{folder.parent}'")
    manifest = read_artifact(folder)
    target = registry.find(manifest.target)
    registry.require(manifest.target, target)
    registry.require_trust(manifest.target, target, trust_build)
    places = {place.name: place for place in target.places}
    if place and place not in places:
        raise UsageError(f"'{manifest.target}' does not have a place '{place}'. Places: {', '.join(places)}")
    return LoadedArtifact(manifest, target.load(folder, places.get(place, target.places[0])))


def check_inputs(manifest: Manifest, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return one batch of inputs as the artifact takes them.

    Raises:
        UsageError: With the input, its value and the possible values.
    """
    if not isinstance(inputs, Mapping):
        raise UsageError(f"inputs are a {type(inputs).__name__}. Pass arrays by name")
    declared = [tensor.name for tensor in manifest.inputs]
    if wrong := sorted({*declared} ^ {*inputs}):
        word = "lacks the" if wrong[0] in declared else "does not have the"
        raise UsageError(f"'{manifest.name}' {word} input '{wrong[0]}'. Its inputs: {', '.join(declared)}")
    arrays = {tensor.name: prepare_input(manifest, tensor, inputs[tensor.name]) for tensor in manifest.inputs}
    sizes = check_arrays(manifest.name, manifest.inputs, manifest.axes, arrays)
    if not manifest.takes(sizes):
        size_names = ", ".join(size_text(each) for each in manifest.sizes)
        size_name = size_text({n: size for n, size in sizes.items() if n in manifest.sizes[0]})
        raise UsageError(f"the inputs have the size {size_name}. '{manifest.name}' takes {size_names} here")
    for tensor in manifest.inputs:
        if tensor.kind == "image":
            _check_pixels(manifest.name, tensor, arrays[tensor.name])
    return arrays


def _check_pixels(model: str, tensor: TensorInfo, pixels: Array) -> None:
    """Refuse pixels of another range, such as 0 to 255 for 0 to 1: the answer would be a confident wrong one."""
    span = tensor.high - tensor.low
    low, high = float(pixels.min(initial=tensor.high)), float(pixels.max(initial=tensor.low))
    # Noise and rounding go beyond a range by a little; another scale goes beyond it by more than its length.
    if low < tensor.low - span or high > tensor.high + span:
        raise UsageError(
            f"input '{tensor.name}' has pixels from {low:g} to {high:g}, and '{model}' takes {tensor.low:g} to "
            f"{tensor.high:g}. Scale them, or give the picture as bytes [H, W, 3]"
        )


def prepare_input(manifest: Manifest, tensor: TensorInfo, array: Array) -> Array:
    """Return a picture in bytes [H, W, 3] as one row of its input; return a tensor unchanged."""
    bytes_of_picture = isinstance(array, np.ndarray) and array.dtype == np.uint8 and array.shape[2:] == (COLOURS,)
    if tensor.kind != "image" or not bytes_of_picture or array.ndim != 3 or not array.size:
        return array
    height, width = picture_size(manifest, tensor.picture_size, array.shape[:2])
    pixels = in_size(array, height, width, tensor.fit)[None]
    pixels = pixels if tensor.channels_last else pixels.transpose(0, 3, 1, 2)
    # A table of the 256 byte values is faster than arithmetic on each pixel.
    values = tensor.low + (tensor.high - tensor.low) * np.arange(256, dtype=np.float64) / 255
    return values.astype(tensor.dtype).take(np.ascontiguousarray(pixels))


def picture_size(manifest: Manifest, declared: Sequence[int | str], picture: Sequence[int]) -> tuple[int, int]:
    """Return the height and width for a picture: of the possible sizes, the ones that keep its shape best.

    TypeScript, Kotlin and Swift do the same; tests/golden/fitting.json holds the cases that all must pass.

    Args:
        manifest: The artifact's.
        declared: Height and width of the input, as in the manifest.
        picture: Height and width in pixels.
    """
    height, width = (manifest.axes[d].default if isinstance(d, str) else d for d in declared)
    rows, columns = declared
    if isinstance(rows, int) or isinstance(columns, int) or rows == columns:
        return height, width
    down, across = manifest.axes[rows], manifest.axes[columns]
    possible: Iterable[tuple[int, int]] = ()
    if manifest.sizes:
        possible = [(size.get(rows, height), size.get(columns, width)) for size in manifest.sizes]
    elif down.dynamic and across.dynamic:
        possible = _sizes_near(down, across, picture)
    return min(possible, key=lambda size: _misfit(size, (height, width), picture), default=(height, width))


def _misfit(size: tuple[int, int], usual: tuple[int, int], picture: Sequence[int]) -> float:
    """Return how badly a size suits a picture, from 1: (shape quotient)^4 times the pixel quotient, each at least 1.

    A picture squeezed by 5 % is as bad as 22 % more or fewer pixels than the default.
    """
    shape = _quotient(size[0] * picture[1], size[1] * picture[0])
    # Only products and quotients, so that every language finds the same size.
    square = shape * shape
    return square * square * _quotient(math.prod(size), math.prod(usual))


def _quotient(dividend: int, other: int) -> float:
    return max(dividend, other) / min(dividend, other)


def _sizes_near(rows: AxisInfo, columns: AxisInfo, picture: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield for each height the two widths around the one that keeps a picture's shape; no other suits it better."""
    least, most = -(-columns.minimum // columns.multiple_of), columns.maximum // columns.multiple_of
    for height in rows.sizes:
        below = height * picture[1] // (picture[0] * columns.multiple_of)
        for count in (below, below + 1):
            yield height, min(max(count, least), most) * columns.multiple_of


def check_arrays(
    model: str,
    tensors: Iterable[TensorInfo],
    axes: Mapping[str, AxisInfo],
    inputs: Mapping[str, object],
    qualifier: str = "which was proved",
) -> dict[str, int]:
    """Return the size of each axis in a model's inputs; `qualifier` says how the axes' ranges are known.

    Raises:
        UsageError: With the input, its value and the possible values.
    """
    sizes: dict[str, int] = {}
    for tensor in tensors:
        _check_array(model, tensor, axes, inputs[tensor.name], sizes, qualifier)
    for dimension, size in sizes.items():
        if SUM in dimension and size != size_of(dimension, sizes):
            raise UsageError(
                f"'{model}' takes {dimension}, which is {size_of(dimension, sizes)}, but the input has the size {size}"
            )
    return sizes


def _check_array(
    model: str, tensor: TensorInfo, axes: Mapping[str, AxisInfo], value: object, sizes: dict[str, int], qualifier: str
) -> None:
    """Check one input of a model; `sizes` collects the size of each axis."""
    if not isinstance(value, np.ndarray) or value.dtype != tensor.dtype or value.ndim != len(tensor.shape):
        description = f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        raise UsageError(
            f"input '{tensor.name}' is {description}. '{model}' takes a NumPy array of {tensor.dtype} "
            f"[{', '.join(map(str, tensor.shape))}]"
        )
    for size, dimension in zip(value.shape, tensor.shape, strict=True):
        axis = axes.get(dimension) if isinstance(dimension, str) else None
        possible = _possible(axis, qualifier) if axis is not None else str(dimension)
        fixed = isinstance(dimension, int) and size != dimension
        unequal = isinstance(dimension, str) and sizes.setdefault(dimension, size) != size
        if fixed or unequal or (axis is not None and size not in axis.sizes):
            other = f"{sizes[str(dimension)]}, as in another input" if unequal else possible
            name = f"Axis '{dimension}'" if isinstance(dimension, str) else "One dimension"
            raise UsageError(f"input '{tensor.name}' is {list(value.shape)}. {name} of '{model}' must be {other}")


def _possible(axis: AxisInfo, qualifier: str) -> str:
    if not axis.dynamic:
        return str(axis.default)
    steps = f" in steps of {axis.multiple_of}" if axis.multiple_of > 1 else ""
    return f"{axis.minimum} to {axis.maximum}{steps}, {qualifier}"


class LoadedArtifact:
    """An open artifact; a context manager that frees it on exit."""

    def __init__(self, manifest: Manifest, runtime: Runtime) -> None:
        self.manifest = manifest
        self.device = runtime.device
        """Description of the device that runs it."""
        self._runtime: Runtime | None = runtime

    def __repr__(self) -> str:
        return f"<{self.manifest.name} {self.manifest.target} in {self.device}>"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one batch: arrays by input name in, arrays by output name out.

        A picture may also be RGB bytes [H, W, 3] of any size. It is resized to the possible size that keeps its shape
        best, as its input's `fit` says.

        Raises:
            UsageError: If an input is missing, unknown or not an array of the declared type, shape and sizes, or the
                artifact was closed.
        """
        if self._runtime is None:
            raise UsageError(f"{self!r} was closed. Load it again")
        return self._runtime.run(check_inputs(self.manifest, inputs))

    def close(self) -> None:
        """Free all resources; a second call does nothing."""
        if self._runtime is not None:
            self._runtime.close()
            self._runtime = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
