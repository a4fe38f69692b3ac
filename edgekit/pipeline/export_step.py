"""Export of one artifact: only if an input changed, in a worker, committed atomically."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgekit import registry
from edgekit.artifact.manifest import AxisInfo, BundleInfo, ExportInfo, Manifest, Source, TensorInfo, Variant
from edgekit.artifact.option import OptionValue, as_text
from edgekit.artifact.run_record import CACHE, MODEL, REFERENCE
from edgekit.artifact.store import MANIFEST, commit, own_files, read_artifact
from edgekit.errors import ArtifactError, EdgekitError, ExportError, UsageError
from edgekit.hosts import process
from edgekit.judge.limits import INT8
from edgekit.judge.rows import BATCH, shape_of
from edgekit.model.adapter import rounds
from edgekit.model.records import model_digest
from edgekit.model.shapes import size_text
from edgekit.pipeline import worker
from edgekit.pipeline.context import RunContext
from edgekit.storage.files import digest_file, digest_text, require_own, staging
from edgekit.target import ExportResult, Target

# Characters of a value in an error.
LONGEST_VALUE = 200


def make(
    context: RunContext,
    name: str,
    options: Mapping[str, OptionValue],
    without: Collection[str] = (),
    notes: Sequence[str] = (),
) -> Manifest:
    """Return the stored artifact if nothing that it depends on changed, else export a new one.

    Args:
        context: The run.
        name: Name of the target.
        options: Its options.
        without: Targets whose artifacts are left out because they were rejected in this one; it is exported again.
        notes: Notes for users besides those of the target.
    """
    target, folder = context.targets[name], context.folder(name)
    _refuse_sizes(context, name, target)
    # An INT8 target would quantize a model that already quantizes itself.
    if rounds(context.spec.module) and _quantizes(target):
        raise UsageError(
            f"'{context.spec.name}' is already quantized to INT8, and '{name}' would quantize it again. Leave '{name}' "
            "out, and export to fp32 targets, which keep the model's INT8"
        )
    inputs = _inputs(context, name, options)
    if not context.fresh and not without and (kept := _stored(context, name, inputs)) is not None:
        return kept
    hashes = dict(inputs.parts)
    left_out = {n: hashes.pop(n) for n in without}
    # Checked before the export, which takes minutes.
    require_own(folder, own_files)
    with staging(folder, own_files) as staged:
        request = worker.ExportJob(
            target=name,
            source=context.root / target.source,
            out=staged,
            model=context.root / MODEL,
            reference=context.root / REFERENCE if target.reads.reference else Path(),
            artifacts={n: context.folder(n) for n in hashes},
            options={option: as_text(value) for option, value in options.items()},
            **_open_source(context, target.source),
            cache=context.root / CACHE / name,
            selected=name in context.selected,
        )

        def progress(share: float, text: str) -> None:
            context.listener.progress(name, 0.6 * share, text)

        progress(0.05, "reading the file" if "file" in options else "exporting")
        arguments = {"request": request.model_dump(mode="json")}
        try:
            answer = process.call(worker.export_target, arguments, progress, context.limits, worker.EXPORT_MODULES)
        except EdgekitError as error:
            # The folder is gone when a user reads this.
            error.args = tuple(str(text).replace(f"{staged}{os.sep}", "") for text in error.args)
            raise
        # A worker returns plain data: a record cannot cross the process.
        exported = _export(answer)
        if not (staged / exported.entry).exists():
            raise ExportError(f"target '{name}' did not write its entry file '{exported.entry}'")
        exported = replace(exported, notes=(*exported.notes, *notes))
        return commit(staged, _manifest(context, name, exported, inputs, left_out))


def stored(context: RunContext, name: str, options: Mapping[str, OptionValue]) -> Manifest | None:
    """Return the stored artifact if it was made with these options and nothing that it depends on changed."""
    return _stored(context, name, _inputs(context, name, options))


def _stored(context: RunContext, name: str, inputs: _Inputs) -> Manifest | None:
    try:
        artifact = read_artifact(context.folder(name))
        require_declared(context, artifact)
    except ArtifactError:
        # Missing, damaged or changed: it is exported again.
        return None
    # A target that was left out stays out as long as its artifact is the same.
    left_out = [n for n, then in artifact.bundle.left_out.items() if inputs.parts.get(n) == then]
    return artifact if artifact.export.key == inputs.key(left_out) else None


@dataclass(frozen=True)
class _Inputs:
    """What an artifact depends on.

    Attributes:
        name: Its target.
        source: Its source.
        code: Digest of the target's code.
        options: Its options as the manifest records them.
        tools: Versions of its libraries.
        parts: Digests of a bundle's artifacts by target.
        read: Digests of what else the export reads.
    """

    name: str
    source: Source
    code: str
    options: Mapping[str, str]
    tools: Mapping[str, str]
    parts: Mapping[str, str]
    read: tuple[str, ...]

    def key(self, left_out: Collection[str] = ()) -> str:
        """Return the digest of all, without some parts."""
        parts = {n: h for n, h in self.parts.items() if n not in left_out}
        record = (self.code, self.options, self.tools, parts, *self.read)
        return digest_text(json.dumps((self.name, self.source.name, self.source.sha256, *record), sort_keys=True))


def _inputs(context: RunContext, name: str, options: Mapping[str, OptionValue]) -> _Inputs:
    target = context.targets[name]
    return _Inputs(
        name=name,
        source=_source(context, target.source),
        code=registry.code_digest(target),
        # A path is recorded as the digest of its files, since the path differs by host.
        options={n: _path_digest(n, v) if isinstance(v, Path) else as_text(v) for n, v in options.items()},
        tools=registry.versions(target),
        parts={n: read_artifact(context.folder(n)).sha256 for n in target.bundle.sources if _good(context, n)},
        read=(
            # Only a target that reads the reference depends on it.
            context.recorded.sha256 if target.reads.reference else "",
            # The source's file is the same with another calibration set, which lies in the model's folder.
            model_digest(context.root / MODEL) if _quantizes(target) else "",
            target.reads.content(),
        ),
    )


def _quantizes(target: Target) -> bool:
    return all(place.tolerance is INT8 for place in target.places)


def _open_source(context: RunContext, source: str) -> dict[str, Any]:
    """Return the source's entry file and the axes that it kept dynamic."""
    folder = context.root / source
    if source not in context.targets:
        return {"entry": folder, "dynamic": tuple(context.spec.axes)}
    artifact = read_artifact(folder)
    return {"entry": folder / artifact.entry, "dynamic": tuple(n for n, axis in artifact.axes.items() if axis.dynamic)}


def _sizes(context: RunContext, source: str) -> tuple[Mapping[str, int], ...]:
    """Return the only sizes that the source takes; empty if it takes all."""
    return read_artifact(context.root / source).sizes if source in context.targets else ()


def _refuse_sizes(context: RunContext, name: str, target: Target) -> None:
    """Raise if the source is fixed at sizes that the target cannot take over."""
    if target.reads.fixed or not (sizes := _sizes(context, target.source)):
        return
    raise UsageError(
        f"'{name}' cannot be made from '{target.source}', which is fixed at {size_text(sizes[0])}. Export it in a "
        f"build where '{target.source}' keeps its sizes dynamic, or leave it out"
    )


def _path_digest(name: str, path: Path) -> str:
    if path.is_file():
        return digest_file(path)
    if not path.is_dir():
        raise UsageError(f"{name} folder '{path}' does not exist")
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return digest_text("\n".join(f"{file.relative_to(path).as_posix()} {digest_file(file)}" for file in files))


def _export(answer: Mapping[str, Any]) -> ExportResult:
    """Return the result of `worker.export_target` as a record."""
    return ExportResult(
        precision=answer["precision"],
        entry=answer["entry"],
        dynamic=tuple(answer["dynamic"]),
        sizes=tuple(dict(sizes) for sizes in answer["sizes"]),
        notes=tuple(answer["notes"]),
        failures=tuple(answer["failures"]),
        variants=tuple(Variant(**variant) for variant in answer["variants"]),
        golden=answer["golden"],
    )


def _manifest(
    context: RunContext,
    name: str,
    exported: ExportResult,
    inputs: _Inputs,
    left_out: Mapping[str, str],
) -> Manifest:
    sizes = tuple(dict(size) for size in exported.sizes or _sizes(context, inputs.source.name))
    self_quantized = rounds(context.spec.module)
    return Manifest(
        **_model_fields(context, exported.dynamic, sizes),
        target=name,
        precision="int8" if self_quantized else exported.precision,
        entry=exported.entry,
        export=ExportInfo(
            key=inputs.key(left_out),
            source=inputs.source,
            model_sha256=model_digest(context.root / MODEL),
            options=dict(inputs.options),
            failures=exported.failures,
            tools=dict(inputs.tools),
            self_quantized=self_quantized,
        ),
        sizes=sizes,
        notes=(*exported.notes, *context.spec.notes),
        files=(),
        bundle=BundleInfo(variants=exported.variants, golden=exported.golden, left_out=dict(left_out)),
    )


def _model_fields(context: RunContext, dynamic: Collection[str], sizes: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    """Return the fields of a manifest that follow from the model and its reference."""
    spec, fixed = context.spec, sizes[0] if len(sizes) == 1 else {}
    rows = context.recorded.info.row_axes
    defaults = {n: fixed.get(n, axis.default) for n, axis in spec.axes.items()}
    # Shapes of its own open axes only: a fixed one has one size.
    shapes = []
    for batch, outputs in context.recorded.outputs:
        at = {**defaults, **batch.sizes}
        if all(name in dynamic or size == defaults[name] for name, size in at.items()):
            shapes.append(({name: size for name, size in at.items() if name != BATCH}, outputs))
    return {
        "name": spec.name,
        "inputs": tuple(TensorInfo.of_input(i) for i in spec.inputs),
        "outputs": tuple(
            TensorInfo.of_output(
                o,
                shape_of(
                    o.name,
                    [(at, answers[o.name].shape) for at, answers in shapes if o.name in answers],
                    rows.get(o.name, 0),
                ),
            )
            for o in spec.outputs
        ),
        "axes": {
            n: AxisInfo.of_axis(replace(a, default=fixed.get(n, a.default)), n in dynamic) for n, a in spec.axes.items()
        },
    }


def require_declared(context: RunContext, manifest: Manifest) -> None:
    """Raise if a manifest says something else of the model than the model itself, or holds another copy of its files.

    Runtimes act on these facts (ranges, classes, thresholds, sizes, words), but no output shows them.

    Raises:
        ArtifactError: With the first fact or file that differs.
    """
    dynamic = [name for name, axis in manifest.axes.items() if axis.dynamic]
    declared = manifest.model_copy(update=_model_fields(context, dynamic, manifest.sizes))
    right = {**dict(_facts(declared)), "self_quantized": rounds(context.spec.module)}
    for fact, value in _facts(manifest):
        if value != right[fact]:
            raise ArtifactError(
                f"the manifest of '{manifest.target}' says {fact} = {textwrap.shorten(str(value), LONGEST_VALUE)}, but "
                f"the model says {textwrap.shorten(str(right[fact]), LONGEST_VALUE)}: it was changed after the export. "
                "Export it again"
            )
    for place in context.targets[manifest.target].places_of(manifest) if not manifest.bundle.variants else ():
        if place.tolerance_of(manifest).name == INT8.name and manifest.precision not in ("int8", "int4", "mixed"):
            raise ArtifactError(
                f"the manifest of '{manifest.target}' says precision = {manifest.precision}, but '{place.name}' judges "
                "it by the limits of int8: it was changed after the export. Export it again"
            )
    for file in manifest.files:
        if file.path in context.spec.files and file.sha256 != digest_file(context.root / MODEL / file.path):
            raise ArtifactError(
                f"'{file.path}' of '{manifest.target}' is not the model's: it was changed after the export. Export it "
                "again"
            )


def _facts(manifest: Manifest) -> Iterator[tuple[str, object]]:
    """Yield what a manifest says of its model; output shapes are left out, since they were only observed."""
    yield "name", manifest.name
    yield "self_quantized", manifest.export.self_quantized
    for kind, tensors in (("input", manifest.inputs), ("output", manifest.outputs)):
        yield f"{kind}s", [tensor.name for tensor in tensors]
        for tensor in tensors:
            yield from (
                (f"{key} of {kind} '{tensor.name}'", value)
                for key, value in tensor
                if key != "shape" or kind == "input"
            )
    yield "axes", sorted(manifest.axes)
    for name, axis in manifest.axes.items():
        yield from ((f"{key} of axis '{name}'", value) for key, value in axis)


def _source(context: RunContext, name: str) -> Source:
    if name in context.targets:
        return Source(name=name, sha256=read_artifact(context.folder(name)).sha256)
    return Source(name=name, sha256=model_digest(context.root / MODEL))


def _good(context: RunContext, name: str) -> bool:
    """Return whether an artifact can be part of another one: of this model, judged and not rejected.

    Raises:
        ArtifactError: If it is damaged.
    """
    folder = context.folder(name)
    if not (folder / MANIFEST).exists():
        return False
    artifact = read_artifact(folder)
    source = artifact.export.source.name
    if source in context.targets and not (context.folder(source) / MANIFEST).exists():
        return False
    # An earlier run may have left an artifact of another model.
    current = artifact.export.source == _source(context, source)
    return current and bool(artifact.verdicts) and not artifact.rejected
