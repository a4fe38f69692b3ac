"""Making one artifact: only if anything that goes into it changed, in a worker, committed whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from edgekit.artifact.manifest import AxisInfo, Manifest, Source, TensorInfo, Variant
from edgekit.artifact.store import commit, read_artifact
from edgekit.errors import ArtifactError, ExportError, UsageError
from edgekit.model.graph import capture
from edgekit.model.source import model_digest
from edgekit.pipeline import process, worker
from edgekit.pipeline.context import CACHE, MODEL, PROGRAM, REFERENCE, WORKER_TIMEOUT, Build
from edgekit.storage.code import Code, code_of, distributions_of, joined
from edgekit.storage.files import digest_file, digest_text, staging
from edgekit.target import Exported, Target

REFERENCE_READER = "edgekit.reference.store"
"""Who reaches this module has the reference's answers in its artifact."""


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
    code = _code(target)
    tools = _tools(target, code)
    hashes = {n: read_artifact(f, check=False).sha256 for n, f in also.items()}
    recorded = _recorded(target, options)

    def key(left_out: Collection[str]) -> str:
        taken = {n: h for n, h in hashes.items() if n not in left_out}
        answers = build.recorded.sha256 if REFERENCE_READER in code.modules else ""
        parts = (name, source.name, source.sha256, code.digest, recorded, tools, taken, answers, target.content())
        return digest_text(json.dumps(parts, sort_keys=True))

    if not build.fresh and not without:
        try:
            made = read_artifact(folder)
            if made.key == key([n for n, then in made.left_out.items() if hashes.get(n) == then]):
                return made
        except ArtifactError:
            pass  # none yet, or damaged: make it again
    left_out = {n: hashes.pop(n) for n in without}
    with staging(folder) as staged:
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
        answer = process.call(worker.export, arguments, progress, WORKER_TIMEOUT)
        exported = _exported(answer)
        if not (staged / exported.entry).exists():
            raise ExportError(f"target '{name}' did not write its entry '{exported.entry}'")
        return commit(staged, _manifest(build, name, exported, source, key(()), recorded, tools, left_out))


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
        recorded[name] = digest_text("\n".join(f"{p.name} {digest_file(p)}" for p in paths))
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
        model_sha256=model_digest(build.root / MODEL),
        options=dict(options),
        inputs=tuple(TensorInfo.of_input(i) for i in spec.inputs),
        outputs=tuple(TensorInfo.of_output(o, ("batch", *answers[o.name].shape[1:])) for o in spec.outputs),
        axes={n: AxisInfo.of_axis(a, n in exported.dynamic) for n, a in spec.axes.items()},
        notes=exported.notes,
        tools=dict(tools),
        files=(),
        variants=exported.variants,
        golden=exported.golden,
        left_out=dict(left_out),
    )


def _source(build: Build, name: str) -> Source:
    if name in build.targets:
        return Source(name=name, sha256=read_artifact(build.folder(name), check=False).sha256)
    return Source(name=name, sha256=model_digest(build.root / MODEL))


def _good(folder: Path) -> bool:
    try:
        return not read_artifact(folder, check=False).rejected
    except ArtifactError:
        return False


def _code(target: Target) -> Code:
    """The modules and libraries that make a target's artifacts."""
    return joined((code_of(target.export), *([code_of(capture)] if target.source == PROGRAM else [])))


def _tools(target: Target, code: Code) -> dict[str, str]:
    """Versions of what makes the artifact: edgekit, torch, and the libraries that the export imports or needs."""
    needed = (name for need in target.needs for name in distributions_of(need.module))
    named = {name: metadata.version(name).partition("+")[0] for name in ("edgekit", "torch", *needed)}
    return dict(sorted((named | dict(code.libraries)).items()))
