"""Which artifacts of a build go into an app, and the files of their bundle: `bundle.json` names and hashes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from edgekit import doors
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.run_record import MODEL, REFERENCE, refuse_parts
from edgekit.artifact.signed import Signed
from edgekit.artifact.store import MANIFEST, manifest_text, read_artifact, require_build
from edgekit.errors import ArtifactError, UsageError, suggestion
from edgekit.model.folder import load_builds_model
from edgekit.model.records import read_config, recorded_weights
from edgekit.model.shapes import size_text
from edgekit.pipeline.loaded import picture_size
from edgekit.reference import golden
from edgekit.reference.store import reference_of
from edgekit.storage.files import digest_text, dump_json, scratch
from edgekit_apps.records import Bundle, Content, Model, Platform, content_digest, content_size

INDEX = "bundle.json"
WORDS = ("vocabulary.json", "embeddings.bin", "presence.json")


def plan(
    build: Path, platform: Platform, targets: tuple[str, ...], trust_build: bool = False, key: Path | None = None
) -> Bundle:
    """Choose and describe what goes into an app; nothing is written.

    Raises:
        ArtifactError: An artifact that was asked for is missing, damaged, rejected or never judged, or none is left.
    """
    signed = None if key is None else doors.hook("require_signature")(build, key)
    chosen, notes = _chosen(build, platform, targets, signed)
    recorded = reference_of(build / REFERENCE, recorded_weights(build / MODEL))
    files: dict[str, Content] = {}
    models = []
    for manifest, folder in chosen:
        files |= _entry_files(manifest, folder)
        # Without the results, which stay here: they are others after each run, and an app would seem stale.
        published = manifest.model_copy(update={"results": ()})
        files[f"{manifest.target}/manifest.json"] = manifest_text(published).encode()
        models.append(_model(manifest, folder))
    named = read_config(build / MODEL)["files"]
    files |= {name: build / MODEL / name for name in WORDS if name in named}
    vectors, note = _golden(build, trust_build, models)
    files |= vectors
    name = models[0].manifest.name
    index = {
        "schema_version": 2,
        "name": name,
        "model_sha256": models[0].manifest.export.model_sha256,
        "reference": {"sha256": recorded.sha256, "device": recorded.device},
        "models": [
            {
                "manifest": f"{m.manifest.target}/manifest.json",
                "file": m.path,
                "artifact_sha256": m.manifest.sha256,
            }
            for m in models
        ],
        "files": [{"path": p, "size": content_size(c), "sha256": content_digest(c)} for p, c in sorted(files.items())],
    }
    files[INDEX] = dump_json(index).encode()
    return Bundle(name, tuple(models), files, (*notes, *note), recorded.device)


def _chosen(
    build: Path, platform: Platform, targets: tuple[str, ...], signed: Signed | None
) -> tuple[list[tuple[Manifest, Path]], tuple[str, ...]]:
    unknown = [t for t in targets if t not in platform.targets]
    if unknown:
        meant = suggestion(unknown[0], platform.targets)
        raise ArtifactError(f"no app here runs '{unknown[0]}': {meant}possible are {', '.join(platform.targets)}")
    refuse_parts(build)
    require_build(build)
    found: list[tuple[Manifest, Path]] = []
    notes: list[str] = []
    if platform.required and targets and not set(targets) & set(platform.required):
        older = " or ".join(platform.required)
        raise UsageError(
            f"'{targets[0]}' alone does not run on the oldest system of such an app: add {older}, "
            "or name a higher --deployment-target"
        )
    for target in (t for t in platform.targets if t in (targets or platform.chosen)):
        folder = build / target
        if not targets and not (folder / MANIFEST).is_file():
            continue
        manifest = read_artifact(folder)
        if signed is not None:
            signed.require_artifact(folder, manifest)
            signed.require_results(folder, manifest)  # the limit that a device holds its answers to is made of them
        if reason := _refusal(manifest):
            if targets:
                raise ArtifactError(f"'{folder}' {reason}, so it goes into no app")
            notes.append(f"'{target}' {reason} and was left out")
        else:
            found.append((manifest, folder))
    if not found:
        why = "; ".join(notes) or f"it has none of {', '.join(platform.chosen)}"
        raise ArtifactError(
            f"'{build}' has no verified artifact for such an app ({why}): run `edgekit export -t {platform.chosen[0]}`"
        )
    return found, tuple(notes)


def _refusal(manifest: Manifest) -> str:
    """Why an artifact may not enter an app; empty where it may: no place rejected it, and one at least verified it."""
    if manifest.sizes and not (
        len(manifest.sizes) > 1 and manifest.takes({name: axis.default for name, axis in manifest.axes.items()})
    ):
        return f"takes {size_text(manifest.sizes[0])}, and a device checks itself with pictures of the default size"
    for verdict in manifest.verdicts:
        if verdict.status == "rejected":
            return f"was rejected in '{verdict.place}'" + (f" ({verdict.reason})" if verdict.reason else "")
    if not any(verdict.status == "verified" for verdict in manifest.verdicts):
        return "was not verified" if manifest.verdicts else "was never judged"
    return ""


def _entry_files(manifest: Manifest, folder: Path) -> dict[str, Content]:
    """The entry, a package's files, or a model and the data that lie beside it under its name."""
    entry = manifest.entry
    paths = [f.path for f in manifest.files if f.path.startswith((f"{entry}/", f"{entry}.")) or f.path == entry]
    return {f"{manifest.target}/{path}": folder / path for path in paths}


def _model(manifest: Manifest, folder: Path) -> Model:
    own = manifest.entry_files
    whole = own[0].sha256 if len(own) == 1 else digest_text("\n".join(f"{f.path} {f.sha256}" for f in own))
    return Model(
        manifest=manifest,
        folder=folder,
        path=str(PurePosixPath(manifest.target) / manifest.entry),
        size=sum(f.size for f in own),
        sha256=whole,
    )


def _golden(build: Path, trust_build: bool, models: Sequence[Model]) -> tuple[dict[str, Content], tuple[str, ...]]:
    """Golden vectors, with a picture that a library has to resize; where there are none, a note says why."""
    from edgekit.runtime.eager import EagerRuntime

    spec = load_builds_model(build / MODEL, trust_build)
    answer = EagerRuntime(spec).run
    chosen = golden.choose_golden(spec, build / REFERENCE, answer)
    if not chosen.cases:
        return {}, ("there are no golden vectors: an input has a dtype that they do not hold",)
    chosen = chosen.with_another_size(answer, {m.manifest.target: partial(_size, m.manifest) for m in models})
    limits = {m.manifest.target: golden.device_limits(chosen, m.folder, m.manifest) for m in models}
    with scratch() as folder:
        golden.write_golden(folder, chosen, limits)
        return {name: (folder / name).read_bytes() for name in (golden.JSON, golden.BINARY)}, ()


def _size(manifest: Manifest, picture: tuple[int, int]) -> tuple[int, int]:
    """Height and width that the libraries give a picture for a model."""
    declared = next(tensor for tensor in manifest.inputs if tensor.kind == "image")
    return picture_size(manifest, declared.shape[2:], picture)
