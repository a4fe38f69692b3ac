"""Making one artifact: only if anything that goes into it changed, in a worker, committed whole or not at all."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from edgekit import artifact, isolate, model, registry
from edgekit.build import CACHE, MODEL, REFERENCE, WORKER_TIMEOUT, Build
from edgekit.errors import ArtifactError, ExportError, UsageError
from edgekit.manifest import AxisInfo, Manifest, Source, TensorInfo, Variant
from edgekit.target import Exported, Target


def make(build: Build, name: str, options: Mapping[str, str], without: Collection[str] = ()) -> Manifest:
    """The artifact as it is, if nothing that goes into it changed; else a new one.

    Args:
        build: The run.
        name: Of the target.
        options: Its options.
        without: Targets whose artifacts do not go in: they were rejected in the artifact itself. It is made anew.
    """
    target, folder = build.targets[name], build.folder(name)
    also = {n: build.folder(n) for n in target.also if _good(build.folder(n))}
    source = _source(build, target.source)
    tools = _tools(target)
    hashes = {n: artifact.read(f, check=False).sha256 for n, f in also.items()}
    recorded = _recorded(target, options)

    def key(left_out: Collection[str]) -> str:
        return _key(name, source, recorded, tools, {n: h for n, h in hashes.items() if n not in left_out})

    if not build.fresh and not without:
        try:
            made = artifact.read(folder)
            if made.key == key([n for n, then in made.left_out.items() if hashes.get(n) == then]):
                return made
        except ArtifactError:
            pass  # none yet, or damaged: make it again
    left_out = {n: hashes.pop(n) for n in without}
    with artifact.staging(folder) as staged:
        arguments = {
            "target": name,
            "source": str(build.root / target.source),
            "out": str(staged),
            "model_folder": str(build.root / MODEL),
            "reference_folder": str(build.root / REFERENCE),
            "artifacts": {n: str(f) for n, f in also.items() if n in hashes},
            "options": dict(options),
            "cache": str(build.root / CACHE / name),
        }

        def progress(done: float, text: str) -> None:
            build.events.progress(name, 0.6 * done, text)

        progress(0.05, "exporting")
        answer = isolate.call("edgekit.work:export", arguments, progress, WORKER_TIMEOUT)
        exported = _exported(answer)
        if not (staged / exported.entry).exists():
            raise ExportError(f"target '{name}' did not write its entry '{exported.entry}'")
        return artifact.commit(staged, _manifest(build, name, exported, source, key(()), recorded, tools, left_out))


def _recorded(target: Target, options: Mapping[str, str]) -> dict[str, str]:
    """Options as the manifest holds them: of a folder the digest of what is in it, since its path may be anyone's.

    Raises:
        UsageError: If there is no such folder.
    """
    recorded = dict(options)
    for name in (option.name for option in target.options if option.folder and options[option.name]):
        folder = Path(options[name])
        if not folder.is_dir():
            raise UsageError(f"there is no {name} folder '{folder}'")
        paths = sorted(path for path in folder.iterdir() if path.is_file())
        recorded[name] = artifact.digest_text("\n".join(f"{p.name} {artifact.digest_file(p)}" for p in paths))
    return recorded


def _exported(answer: Mapping[str, Any]) -> Exported:
    """What `work.export` returned, as the record that it was made from."""
    return Exported(
        precision=answer["precision"],
        entry=answer["entry"],
        dynamic=tuple(answer["dynamic"]),
        notes=tuple(answer["notes"]),
        variants=tuple(Variant(**variant) for variant in answer["variants"]),
        golden=answer["golden"],
    )


def _manifest(
    build: Build,
    name: str,
    exported: Exported,
    source: Source,
    key: str,
    options: Mapping[str, str],
    tools: Mapping[str, str],
    left_out: Mapping[str, str],
) -> Manifest:
    spec = build.spec
    answers = build.recorded.batches[0].outputs
    return Manifest(
        name=spec.name,
        target=name,
        precision=exported.precision,
        entry=exported.entry,
        key=key,
        source=source,
        model_sha256=model.digest(build.root / MODEL),
        options=dict(options),
        inputs=tuple(
            TensorInfo(name=i.name, dtype=i.dtype, shape=i.shape, kind=i.kind, low=i.low, high=i.high)
            for i in spec.inputs
        ),
        outputs=tuple(
            TensorInfo(
                name=o.name,
                dtype=o.dtype,
                shape=("batch", *answers[o.name].shape[1:]),
                role=o.role,
                of=o.of,
                low=o.low,
                high=o.high,
            )
            for o in spec.outputs
        ),
        axes={
            axis: AxisInfo(
                default=a.default,
                minimum=a.minimum,
                maximum=a.maximum,
                multiple_of=a.multiple_of,
                dynamic=axis in exported.dynamic,
            )
            for axis, a in spec.axes.items()
        },
        notes=exported.notes,
        tools=dict(tools),
        files=(),
        variants=exported.variants,
        golden=exported.golden,
        left_out=dict(left_out),
    )


def _source(build: Build, name: str) -> Source:
    if name in build.targets:
        return Source(name=name, sha256=artifact.read(build.folder(name), check=False).sha256)
    return Source(name=name, sha256=model.digest(build.root / MODEL))


def _good(folder: Path) -> bool:
    try:
        return not artifact.read(folder, check=False).rejected
    except ArtifactError:
        return False


def _tools(target: Target) -> dict[str, str]:
    """Versions of what makes the artifact: edgekit, torch, and the libraries that the target needs."""
    distributions = _distributions()
    names = {"edgekit", "torch", *(d for need in target.needs for d in distributions.get(need.module, ()))}
    return {name: metadata.version(name).partition("+")[0] for name in sorted(names)}


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    """Import name -> distributions; reading it takes a third of a second."""
    return metadata.packages_distributions()


def _key(
    name: str, source: Source, options: Mapping[str, str], tools: Mapping[str, str], also: Mapping[str, str]
) -> str:
    parts = [name, source.name, source.sha256, registry.code_digest(name), dict(options), dict(tools), dict(also)]
    return artifact.digest_text(json.dumps(parts, sort_keys=True))
