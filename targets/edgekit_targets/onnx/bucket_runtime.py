"""Buckets: one ONNX file a size, all with the same weights, and the picker that chooses the file for an input.

`buckets.json` says which file has which sizes, and how outputs are cut back where inputs are padded. The picker is the
same in Python, TypeScript and Kotlin (`tests/golden/README.md`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from edgekit.artifact.manifest import Manifest
from edgekit.errors import ArtifactError, UsageError, reason
from edgekit.model.shapes import size_text
from edgekit.model.spec import Array
from edgekit.runtime.ort import checked
from edgekit.runtime.protocol import Runtime, WithFacts
from edgekit.storage.door import require_plain

INDEX, WEIGHTS = "buckets.json", "weights.bin"
Sizes = TypeVar("Sizes", bound=Mapping[str, int])
Rule = Literal["resize", "pad"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Bucket(_Record):
    """One size of each axis, and the ONNX file beside `buckets.json`."""

    file: str
    sizes: dict[str, int]


class Part(_Record):
    """A dimension of an output that is the product of axes, in order, each divided by a step."""

    axes: tuple[str, ...]
    steps: tuple[int, ...]

    def within(self, sizes: Mapping[str, int]) -> list[int]:
        """The size of each factor."""
        return [sizes[axis] // step for axis, step in zip(self.axes, self.steps, strict=True)]


class Buckets(_Record):
    """What `buckets.json` says.

    Attributes:
        rule: What is done with an input of a size between: "resize" it before it is given, or "pad" it here.
        weights: The file that holds what all files share.
        inputs: The axis of each dimension of each input; None where it is none of these.
        outputs: Likewise of what follows from axes, for cutting padded answers; empty where nothing is padded.
        buckets: The files.
    """

    schema_version: Literal[1] = 1
    rule: Rule
    weights: str
    inputs: dict[str, tuple[str | None, ...]]
    outputs: dict[str, tuple[Part | None, ...]]
    buckets: tuple[Bucket, ...] = Field(min_length=1)

    def sizes_of(self, inputs: Mapping[str, Array]) -> dict[str, int]:
        """The size of each axis in some inputs."""
        return {
            axis: size
            for name, array in inputs.items()
            for axis, size in zip(self.inputs.get(name, ()), array.shape, strict=False)
            if axis is not None
        }

    def padded(self, name: str, array: Array, bucket: Bucket) -> Array:
        """An input of a bucket's sizes: its last row and column repeated."""
        declared = self.inputs.get(name, (None,) * array.ndim)
        axes = zip(declared, array.shape, strict=True)
        return clamped(array, [size if axis is None else bucket.sizes[axis] for axis, size in axes])

    def cut(self, name: str, array: Array, bucket: Bucket, sizes: Mapping[str, int]) -> Array:
        """An output of a bucket as it belongs to an input of these sizes."""
        declared = self.outputs.get(name, (None,) * array.ndim)

        def factors(of: Mapping[str, int]) -> list[list[int]]:
            parts = zip(declared, array.shape, strict=True)
            return [[size] if part is None else part.within(of) for part, size in parts]

        own = factors(sizes)
        whole = clamped(array.reshape([*chain.from_iterable(factors(bucket.sizes))]), [*chain.from_iterable(own)])
        return whole.reshape([math.prod(some) for some in own])


def chosen(possible: Sequence[Sizes], sizes: Mapping[str, int]) -> Sizes:
    """The sizes for an input: the smallest that hold it; where none do, those that it is scaled down least for.

    Of equals the first. The smallest: the least product of all axes.
    """

    def scale(one: Sizes) -> float:
        return max((size / one[axis] for axis, size in sizes.items() if axis in one), default=1.0)

    holding = [one for one in possible if scale(one) <= 1]
    if holding:
        return min(holding, key=lambda one: math.prod(one.values()))
    return min(possible, key=scale)


def clamped(array: Array, wanted: Sequence[int]) -> Array:
    """An array of another size: cut at the end of each axis, or with its last values repeated."""
    for axis, (size, new) in enumerate(zip(array.shape, wanted, strict=True)):
        if new != size:
            array = np.take(array, np.minimum(np.arange(new), size - 1), axis)
    return array


def is_index(manifest: Manifest) -> bool:
    """Whether an artifact is a folder of buckets."""
    return any(file.path == f"{manifest.entry}/{INDEX}" for file in manifest.files)


def read_index(folder: Path) -> Buckets:
    """Read `buckets.json`.

    Raises:
        ArtifactError: If it is no such file, or names files that lie elsewhere.
    """
    try:
        index = Buckets.model_validate_json((folder / INDEX).read_bytes())
        for name in (index.weights, *(bucket.file for bucket in index.buckets)):
            require_plain(name)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"'{folder / INDEX}' is not an index of buckets ({reason(error)}); export again") from error
    return index


class BucketRuntime:
    """The buckets of a folder; each file is checked and opened when it is first asked.

    Args:
        folder: With `buckets.json`.
        opener: What opens a file that was checked.

    Raises:
        ArtifactError: If `buckets.json` is damaged, or the runtime refuses the first file.
    """

    def __init__(self, folder: Path, opener: Callable[[Path], Runtime]) -> None:
        self._folder, self._index, self._opener = folder, read_index(folder), opener
        self._opened: dict[str, Runtime] = {}
        self._device = self._open(self._index.buckets[0]).device

    @property
    def device(self) -> str:
        """Library, version, provider and threads, in words."""
        return self._device

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch; padded, and its answers cut, where it is smaller than the chosen bucket."""
        sizes = self._index.sizes_of(inputs)
        bucket = self._bucket(sizes)
        runtime = self._open(bucket)
        if sizes == bucket.sizes:
            return runtime.run(inputs)
        answers = runtime.run({name: self._index.padded(name, array, bucket) for name, array in inputs.items()})
        return {name: self._index.cut(name, array, bucket, sizes) for name, array in answers.items()}

    def facts(self) -> dict[str, str]:
        """What the runtimes of the files say of themselves, each fact once where it is the same in all."""
        told: dict[str, dict[str, list[str]]] = {}
        for bucket in self._index.buckets:
            runtime = self._opened.get(bucket.file)
            facts: dict[str, str] = runtime.facts() if isinstance(runtime, WithFacts) else {}
            for name, text in facts.items():
                told.setdefault(name, {}).setdefault(text, []).append(size_text(bucket.sizes))
        each = {name: [f"{text} at {', '.join(sizes)}" for text, sizes in said.items()] for name, said in told.items()}
        return {name: next(iter(told[name])) if len(said) == 1 else "; ".join(said) for name, said in each.items()}

    def close(self) -> None:
        """Free all sessions."""
        for runtime in self._opened.values():
            runtime.close()
        self._opened.clear()

    def _bucket(self, sizes: Mapping[str, int]) -> Bucket:
        best = chosen([bucket.sizes for bucket in self._index.buckets], sizes)
        fits = sizes == best or (self._index.rule == "pad" and all(size <= best[n] for n, size in sizes.items()))
        if not fits:
            known = ", ".join(size_text(bucket.sizes) for bucket in self._index.buckets)
            raise UsageError(f"no bucket takes inputs of the size {size_text(sizes)}: there are {known}")
        return next(bucket for bucket in self._index.buckets if bucket.sizes == best)

    def _open(self, bucket: Bucket) -> Runtime:
        if bucket.file not in self._opened:
            file = self._folder / bucket.file
            checked(file, self._index.weights)
            self._opened[bucket.file] = self._opener(file)
        return self._opened[bucket.file]
