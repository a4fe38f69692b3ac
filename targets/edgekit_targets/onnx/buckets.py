"""ONNX in buckets: one file per size, all with the same weights, for runtimes that need fixed sizes; and their runtime.

An NPU, a delegate or a compiler often takes only fixed shapes, and a fixed graph has no shape computations. Each
file is the ONNX artifact with its sizes fixed and folded; the weights are stored once in a separate file.
`buckets.json` names the files and says how outputs are cut if inputs are padded. A picker of a few lines, the same in
Python, TypeScript and Kotlin (`tests/golden/README.md`), selects the smallest bucket that holds the picture.

The rule says what happens to a picture between two sizes. "resize": it is resized to the bucket's size beforehand, as
pictures always are; the artifact takes only the sizes of its buckets, and only these are proved. "pad": the picker
repeats its last row and column, and cuts the outputs; then the artifact takes every size, and sizes between its buckets
are compared with the model's outputs without padding. A model that looks further than a pixel is rejected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from edgekit.errors import ArtifactError, ExportError, UsageError, reason
from edgekit.model.folder import load_model
from edgekit.model.shapes import named_sizes, size_text
from edgekit.model.spec import Array, Axis, ModelSpec
from edgekit.runtime.ort import OrtRuntime, check_file, require_onnxruntime
from edgekit.runtime.ort_session import OrtSession
from edgekit.runtime.protocol import DescribedRuntime
from edgekit.storage.files import dump_json
from edgekit.storage.verified_io import require_plain
from edgekit.target import FP32, ExportResult, Job, Need, Option, Place, Runtime, Target, TargetDescription
from edgekit_targets.onnx.passes.graph import SharedWeights, fix_shapes, save_graph

ENTRY, BATCH = "model", "batch"
SIZES = Option(
    name="sizes",
    default=(),
    help="the buckets, such as 224x224,512x512: sizes of the shape grid; default: all of them",
)
RULE = Option(
    name="rule",
    default="resize",
    choices=("resize", "pad"),
    help="what to do with a size between: resize the picture beforehand, or pad it and cut its outputs",
)
POSITIONS = ("ranking", "features")
"""Roles whose values name or represent places of the padded input: they cannot be cut."""
INDEX, WEIGHTS = "buckets.json", "weights.bin"
Sizes = TypeVar("Sizes", bound=Mapping[str, int])
Rule = Literal["resize", "pad"]


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Export the ONNX artifact to model/buckets.json, an ONNX file for each size, and model/weights.bin.

    Raises:
        UsageError: If the sizes are not those of the shape grid, or outputs cannot be cut.
    """
    import onnx

    spec = load_model(job.model)
    sizes, rule = _bucket_sizes(spec, job.get(SIZES)), job.get(RULE)
    if not job.dynamic:
        raise UsageError("onnx-buckets is made of 'onnx' with open sizes. Leave out -O onnx.shapes")
    axes = {name: axis for name, axis in spec.axes.items() if name != BATCH}
    outputs = _parts(spec, job.entry, axes) if rule == "pad" else {}
    if rule == "pad" and (largest := {name: axis.sizes[-1] for name, axis in axes.items()}) not in sizes:
        raise UsageError(f"with onnx-buckets.rule=pad the largest size must be a bucket. Add {size_text(largest)}")
    folder, graph, weights = out / ENTRY, onnx.load(job.entry), SharedWeights(WEIGHTS)
    folder.mkdir()
    buckets = []
    for number, size in enumerate(sizes):
        job.progress(0.1 + 0.8 * number / len(sizes), f"fixing the graph at {size_text(size)}")
        buckets.append(Bucket(file=f"{size_text(size)}.onnx", sizes=dict(size)))
        try:
            # The batch is at its default.
            at_size = fix_shapes(graph, {i.name: spec.shape(i.name, size) for i in spec.inputs})
        except Exception as error:
            raise ExportError(f"cannot fix '{spec.name}' at {size_text(size)}: {reason(error)}") from error
        path = folder / buckets[-1].file
        # Checked as a whole before its weights are moved.
        save_graph(at_size, path)
        weights.move(at_size)
        path.write_bytes(at_size.SerializeToString(deterministic=True))
    (folder / WEIGHTS).write_bytes(weights.data)
    inputs = {i.name: tuple(d if isinstance(d, str) and d in axes else None for d in i.shape) for i in spec.inputs}
    whole = {"rule": rule, "weights": WEIGHTS, "inputs": inputs, "outputs": outputs, "buckets": buckets}
    index = Buckets.model_validate(whole)
    (folder / INDEX).write_text(dump_json(index.model_dump(mode="json")), encoding="utf-8")
    sizes_text = ", ".join(map(size_text, sizes))
    rule_text = (
        "others are padded, and their outputs cut" if rule == "pad" else "others are resized to one of these beforehand"
    )
    return ExportResult(
        precision="fp32",
        entry=ENTRY,
        dynamic=tuple(axes),
        sizes=() if rule == "pad" else sizes,
        notes=(f"{len(sizes)} files with the same weights, of the sizes {sizes_text}: {rule_text}",),
    )


def load(artifact: Path, place: Place) -> Runtime:
    """Open them in ONNX Runtime; each input runs in the file that the picker selects."""
    require_onnxruntime()
    return BucketRuntime(artifact / ENTRY, OrtSession)


def _bucket_sizes(spec: ModelSpec, names: tuple[str, ...]) -> tuple[Mapping[str, int], ...]:
    by_name = named_sizes(spec.axes)
    if len(by_name) < 2:
        raise UsageError(f"'{spec.name}' takes one size. Use onnx with -O onnx.shapes=static")
    if wrong := [name for name in names if name not in by_name]:
        raise UsageError(
            f"option 'onnx-buckets.sizes' cannot hold '{wrong[0]}'. Possible: {', '.join(by_name)}, since "
            f"'{spec.name}' is tested there"
        )
    return tuple(by_name[name] for name in dict.fromkeys(names or by_name))


def _parts(spec: ModelSpec, entry: Path, axes: Mapping[str, Axis]) -> dict[str, tuple[Part | None, ...]]:
    """Return the dimensions of outputs that follow from axes, as observed at several sizes.

    Raises:
        UsageError: If an output cannot be cut.
    """
    if bad := next((o for o in spec.outputs if o.role in POSITIONS), None):
        raise UsageError(
            f"the outputs of '{spec.name}' cannot be cut after padding: '{bad.name}' ({bad.role}) names places in "
            "the padded picture. Use onnx-buckets.rule=resize"
        )
    # The defaults, and each axis alone at its largest and its smallest size.
    usual = {name: axis.default for name, axis in axes.items()}
    probes = [usual]
    for name, axis in axes.items():
        probes += [{**usual, name: axis.sizes[-1]}, {**usual, name: axis.sizes[0]}]
    runtime = OrtRuntime(entry)
    try:
        seen = [runtime.run(spec.random(number, sizes)) for number, sizes in enumerate(probes)]
    finally:
        runtime.close()
    parts: dict[str, tuple[Part | None, ...]] = {}
    for o in spec.outputs:
        shapes = [answer[o.name].shape for answer in seen]
        parts[o.name] = tuple(_part(spec, o.name, axes, probes, sizes) for sizes in zip(*shapes, strict=True))
    return parts


def _part(
    spec: ModelSpec, output: str, axes: Mapping[str, Axis], probes: Sequence[Mapping[str, int]], seen: Sequence[int]
) -> Part | None:
    if len(set(seen)) == 1:
        return None
    for names in chain.from_iterable(combinations(axes, count) for count in range(1, len(axes) + 1)):
        shares = {math.prod(sizes[n] for n in names) / size for sizes, size in zip(probes, seen, strict=True)}
        step = round(max(shares) ** (1 / len(names)))
        if shares == {step ** len(names)} and all(axes[name].multiple_of % step == 0 for name in names):
            return Part(axes=names, steps=(step,) * len(names))
    raise UsageError(
        f"the outputs of '{spec.name}' cannot be cut after padding: sizes of '{output}' are not a fixed share of the "
        "input's. Use onnx-buckets.rule=resize"
    )


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Bucket(_Record):
    """One size of each axis, and its ONNX file next to `buckets.json`."""

    file: str
    sizes: dict[str, int]


class Part(_Record):
    """A dimension of an output that is the product of axes, in order, each divided by a step."""

    axes: tuple[str, ...]
    steps: tuple[int, ...]

    def within(self, sizes: Mapping[str, int]) -> list[int]:
        """Return the size of each factor."""
        return [sizes[axis] // step for axis, step in zip(self.axes, self.steps, strict=True)]


class Buckets(_Record):
    """The contents of `buckets.json`.

    Attributes:
        rule: For an input of a size between: "resize" it beforehand, or "pad" it here.
        weights: The file with the weights of all files.
        inputs: The axis of each dimension of each input; None for a fixed one.
        outputs: Dimensions of outputs that follow from axes, for cutting padded outputs; empty without padding.
        buckets: The files.
    """

    schema_version: Literal[1] = 1
    rule: Rule
    weights: str
    inputs: dict[str, tuple[str | None, ...]]
    outputs: dict[str, tuple[Part | None, ...]]
    buckets: tuple[Bucket, ...] = Field(min_length=1)

    def sizes_of(self, inputs: Mapping[str, Array]) -> dict[str, int]:
        """Return the size of each axis in some inputs."""
        return {
            axis: size
            for name, array in inputs.items()
            for axis, size in zip(self.inputs.get(name, ()), array.shape, strict=False)
            if axis is not None
        }

    def pad_to(self, name: str, array: Array, bucket: Bucket) -> Array:
        """Return an input at a bucket's sizes, with its last row and column repeated."""
        declared = self.inputs.get(name, (None,) * array.ndim)
        axes = zip(declared, array.shape, strict=True)
        return clamp(array, [size if axis is None else bucket.sizes[axis] for axis, size in axes])

    def cut(self, name: str, array: Array, bucket: Bucket, sizes: Mapping[str, int]) -> Array:
        """Return a bucket's output, cut for an input of these sizes."""
        declared = self.outputs.get(name, (None,) * array.ndim)

        def factors(of: Mapping[str, int]) -> list[list[int]]:
            parts = zip(declared, array.shape, strict=True)
            return [[size] if part is None else part.within(of) for part, size in parts]

        own = factors(sizes)
        whole = clamp(array.reshape([*chain.from_iterable(factors(bucket.sizes))]), [*chain.from_iterable(own)])
        return whole.reshape([math.prod(some) for some in own])


def choose_bucket(possible: Sequence[Sizes], sizes: Mapping[str, int]) -> Sizes:
    """Return the sizes for an input: the smallest that hold it, otherwise those with the least downscaling.

    The first of equal ones. The smallest has the least product of all axes.
    """

    def scale(sizes_of_bucket: Sizes) -> float:
        return max(
            (size / sizes_of_bucket[axis] for axis, size in sizes.items() if axis in sizes_of_bucket), default=1.0
        )

    holding = [candidate for candidate in possible if scale(candidate) <= 1]
    if holding:
        return min(holding, key=lambda candidate: math.prod(candidate.values()))
    return min(possible, key=scale)


def clamp(array: Array, shape: Sequence[int]) -> Array:
    """Return an array of another size: cut at the end of each axis, or with its last values repeated."""
    for axis, (size, new) in enumerate(zip(array.shape, shape, strict=True)):
        if new != size:
            array = np.take(array, np.minimum(np.arange(new), size - 1), axis)
    return array


def read_index(folder: Path) -> Buckets:
    """Read `buckets.json`.

    Raises:
        ArtifactError: If it is not such a file, or names files elsewhere.
    """
    try:
        index = Buckets.model_validate_json((folder / INDEX).read_bytes())
        for name in (index.weights, *(bucket.file for bucket in index.buckets)):
            require_plain(name)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"'{folder / INDEX}' is not an index of buckets ({reason(error)}). Export again") from error
    return index


class BucketRuntime:
    """The buckets of a folder; each file is checked and opened on its first use.

    Args:
        folder: Folder with `buckets.json`.
        opener: Opens a checked file.

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
        """Run one batch; pad it and cut its outputs if it is smaller than the selected bucket."""
        sizes = self._index.sizes_of(inputs)
        bucket = self._bucket(sizes)
        runtime = self._open(bucket)
        if sizes == bucket.sizes:
            return runtime.run(inputs)
        answers = runtime.run({name: self._index.pad_to(name, array, bucket) for name, array in inputs.items()})
        return {name: self._index.cut(name, array, bucket, sizes) for name, array in answers.items()}

    def facts(self) -> dict[str, str]:
        """Return the facts of the files' runtimes, each once if it is the same in all."""
        by_fact: dict[str, dict[str, list[str]]] = {}
        for bucket in self._index.buckets:
            runtime = self._opened.get(bucket.file)
            facts: dict[str, str] = runtime.facts() if isinstance(runtime, DescribedRuntime) else {}
            for name, text in facts.items():
                by_fact.setdefault(name, {}).setdefault(text, []).append(size_text(bucket.sizes))
        each = {
            name: [f"{text} at {', '.join(sizes)}" for text, sizes in sizes_by_text.items()]
            for name, sizes_by_text in by_fact.items()
        }
        return {
            name: next(iter(by_fact[name])) if len(sizes_by_text) == 1 else "; ".join(sizes_by_text)
            for name, sizes_by_text in each.items()
        }

    def close(self) -> None:
        """Free all sessions."""
        for runtime in self._opened.values():
            runtime.close()
        self._opened.clear()

    def _bucket(self, sizes: Mapping[str, int]) -> Bucket:
        best = choose_bucket([bucket.sizes for bucket in self._index.buckets], sizes)
        fits = sizes == best or (self._index.rule == "pad" and all(size <= best[n] for n, size in sizes.items()))
        if not fits:
            possible = ", ".join(size_text(bucket.sizes) for bucket in self._index.buckets)
            raise UsageError(f"no bucket takes inputs of the size {size_text(sizes)}. Possible: {possible}")
        return next(bucket for bucket in self._index.buckets if bucket.sizes == best)

    def _open(self, bucket: Bucket) -> Runtime:
        if bucket.file not in self._opened:
            file = self._folder / bucket.file
            check_file(file, self._index.weights)
            self._opened[bucket.file] = self._opener(file)
        return self._opened[bucket.file]


TARGET = Target(
    summary="ONNX at several fixed sizes with the same weights, fp32",
    about=TargetDescription(
        use_case="NPUs, delegates and compilers that take fixed sizes only",
        proved_by="ONNX Runtime on the CPU, each file at its own size; with rule=pad also at sizes between",
        not_covered="NPUs and delegates; pictures of other sizes, which an app resizes beforehand",
    ),
    source="onnx",
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=FP32),),
    needs=(Need("onnxscript", "cpu"), Need("onnxruntime", "cpu")),
    opt_in=True,
    options=(SIZES, RULE),
)
