"""ONNX in buckets: one file a size, all with the same weights, for runtimes that want fixed sizes.

An NPU, a delegate or a compiler often takes fixed shapes only, and a fixed graph computes nothing of shapes. Each
file is the ONNX artifact with its sizes fixed and folded; their weights lie once in a file beside them. `buckets.json`
names them, and a picker of a few lines, in Python, TypeScript and Kotlin, chooses one: the smallest that holds the
picture.

What happens to a picture between two sizes is the rule. "resize": it is brought to the bucket's size before it is
given, as pictures always are; the artifact takes the sizes of its buckets only, and that is what is proved. "pad": the
picker repeats its last row and column, and cuts the answers; then the artifact takes every size, and is held at sizes
between its buckets to what the model answers without padding. A model that looks further than a pixel is rejected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import ExportError, UsageError, reason
from edgekit.model.folder import load_model
from edgekit.model.shapes import named_sizes, size_text
from edgekit.model.spec import Axis, ModelSpec
from edgekit.runtime.ort import OrtRuntime, require_onnxruntime
from edgekit.runtime.ort_session import OrtSession
from edgekit.storage.files import dump_json
from edgekit.target import FP32, About, Exported, Job, Need, Option, Place, Runtime, Target
from edgekit_targets.onnx.bucket_runtime import INDEX, WEIGHTS, Bucket, BucketRuntime, Buckets, Part
from edgekit_targets.onnx.passes.graph import save_graph
from edgekit_targets.onnx.passes.optimizer import fixed
from edgekit_targets.onnx.passes.shared_weights import SharedWeights

if TYPE_CHECKING:
    import onnx

ENTRY, BATCH = "model", "batch"
SIZES = Option(
    name="sizes",
    default=(),
    help="the buckets, such as 224x224,512x512: sizes of the shape grid; all of them where none is named",
)
RULE = Option(
    name="rule",
    default="resize",
    choices=("resize", "pad"),
    help="what is done with a size between: the picture is resized before, or padded and its answers cut",
)
POSITIONS = ("ranking", "features")
"""Roles whose values name places, or stand for places, of the padded input: they cannot be cut."""


def export(source: Path, out: Path, job: Job) -> Exported:
    """ONNX artifact -> model/buckets.json, an ONNX file for each size, and model/weights.bin.

    Raises:
        UsageError: If the sizes are not those of the shape grid, or answers cannot be cut.
    """
    import onnx

    spec = load_model(job.model)
    sizes, rule = _wanted(spec, job.get(SIZES)), job.get(RULE)
    if not job.dynamic:
        raise UsageError("onnx-buckets is made of 'onnx' with open sizes: leave out -O onnx.shapes")
    axes = {name: axis for name, axis in spec.axes.items() if name != BATCH}
    outputs = _parts(spec, job.entry, axes) if rule == "pad" else {}
    if rule == "pad" and (largest := {name: axis.sizes[-1] for name, axis in axes.items()}) not in sizes:
        raise UsageError(f"with onnx-buckets.rule=pad the largest size must be a bucket: add {size_text(largest)}")
    folder, graph, weights = out / ENTRY, onnx.load(job.entry), SharedWeights(WEIGHTS)
    folder.mkdir()
    made = []
    for number, size in enumerate(sizes):
        job.progress(0.1 + 0.8 * number / len(sizes), f"fixing the graph at {size_text(size)}")
        made.append(Bucket(file=f"{size_text(size)}.onnx", sizes=dict(size)))
        _write(_fixed(graph, spec, size), weights, folder / made[-1].file)
    (folder / WEIGHTS).write_bytes(weights.data)
    whole = {"rule": rule, "weights": WEIGHTS, "inputs": _inputs(spec, axes), "outputs": outputs, "buckets": made}
    index = Buckets.model_validate(whole)
    (folder / INDEX).write_text(dump_json(index.model_dump(mode="json")), encoding="utf-8")
    named = ", ".join(map(size_text, sizes))
    told = "others are padded, and their answers cut" if rule == "pad" else "others are brought to one of these first"
    return Exported(
        precision="fp32",
        entry=ENTRY,
        dynamic=tuple(axes),
        sizes=() if rule == "pad" else sizes,
        notes=(f"{len(sizes)} files with the same weights, of the sizes {named}: {told}",),
    )


def load(artifact: Path, place: Place) -> Runtime:
    """Run them in ONNX Runtime, each input in the file that the picker chooses."""
    require_onnxruntime()
    return BucketRuntime(artifact / ENTRY, OrtSession)


def _wanted(spec: ModelSpec, named: tuple[str, ...]) -> tuple[Mapping[str, int], ...]:
    known = named_sizes(spec.axes)
    if len(known) < 2:
        raise UsageError(f"'{spec.name}' takes one size: use onnx with -O onnx.shapes=static")
    if wrong := [name for name in named if name not in known]:
        raise UsageError(
            f"option 'onnx-buckets.sizes' cannot hold '{wrong[0]}': possible are {', '.join(known)}, since "
            f"'{spec.name}' is asked there"
        )
    return tuple(known[name] for name in dict.fromkeys(named or known))


def _fixed(graph: onnx.ModelProto, spec: ModelSpec, sizes: Mapping[str, int]) -> onnx.ModelProto:
    """The graph at one size, the batch at its default."""
    try:
        return fixed(graph, {i.name: spec.shape(i.name, sizes) for i in spec.inputs})
    except Exception as error:
        raise ExportError(f"'{spec.name}' cannot be fixed at {size_text(sizes)}: {reason(error)}") from error


def _write(graph: onnx.ModelProto, weights: SharedWeights, path: Path) -> None:
    """One file, checked as a whole before its weights are taken out."""
    save_graph(graph, path)
    weights.move(graph)
    path.write_bytes(graph.SerializeToString(deterministic=True))


def _inputs(spec: ModelSpec, axes: Mapping[str, Axis]) -> dict[str, tuple[str | None, ...]]:
    return {
        i.name: tuple(size if isinstance(size, str) and size in axes else None for size in i.shape) for i in spec.inputs
    }


def _parts(spec: ModelSpec, entry: Path, axes: Mapping[str, Axis]) -> dict[str, tuple[Part | None, ...]]:
    """Which dimensions of outputs follow from which axes, as they are seen at several sizes.

    Raises:
        UsageError: If an output cannot be cut.
    """
    if bad := next((o for o in spec.outputs if o.role in POSITIONS), None):
        raise UsageError(
            f"the answers of '{spec.name}' cannot be cut after padding: '{bad.name}' ({bad.role}) speaks of places in "
            "the padded picture; use onnx-buckets.rule=resize"
        )
    asked = list(_probes(axes))
    runtime = OrtRuntime(entry)
    try:
        seen = [runtime.run(spec.random(number, sizes)) for number, sizes in enumerate(asked)]
    finally:
        runtime.close()
    found: dict[str, tuple[Part | None, ...]] = {}
    for o in spec.outputs:
        shapes = [answer[o.name].shape for answer in seen]
        found[o.name] = tuple(_part(spec, o.name, axes, asked, sizes) for sizes in zip(*shapes, strict=True))
    return found


def _probes(axes: Mapping[str, Axis]) -> Iterator[dict[str, int]]:
    """The defaults, and each axis alone at its largest and its smallest size."""
    usual = {name: axis.default for name, axis in axes.items()}
    yield usual
    for name, axis in axes.items():
        yield {**usual, name: axis.sizes[-1]}
        yield {**usual, name: axis.sizes[0]}


def _part(
    spec: ModelSpec, output: str, axes: Mapping[str, Axis], asked: Sequence[Mapping[str, int]], seen: Sequence[int]
) -> Part | None:
    if len(set(seen)) == 1:
        return None
    for names in chain.from_iterable(combinations(axes, count) for count in range(1, len(axes) + 1)):
        shares = {math.prod(sizes[n] for n in names) / size for sizes, size in zip(asked, seen, strict=True)}
        step = round(max(shares) ** (1 / len(names)))
        if shares == {step ** len(names)} and all(axes[name].multiple_of % step == 0 for name in names):
            return Part(axes=names, steps=(step,) * len(names))
    raise UsageError(
        f"the answers of '{spec.name}' cannot be cut after padding: sizes of '{output}' are no fixed share of the "
        "input's; use onnx-buckets.rule=resize"
    )


TARGET = Target(
    summary="ONNX at several fixed sizes with the same weights, fp32",
    about=About(
        choose_for="NPUs, delegates and compilers that take fixed sizes only",
        proved_by="ONNX Runtime on the CPU, each file at its own size; with rule=pad also at sizes between",
        not_proved="NPUs and delegates; pictures of other sizes, which an app resizes before",
    ),
    source="onnx",
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=FP32),),
    needs=(Need("onnxscript", "cpu"), Need("onnxruntime", "cpu")),
    by_name=True,
    options=(SIZES, RULE),
)
