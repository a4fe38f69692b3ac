"""Contents of an app: artifacts of a build, and the files of their bundle, named and hashed in `bundle.json`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from edgekit import doors
from edgekit.artifact.manifest import Manifest, TensorInfo
from edgekit.artifact.run_record import MODEL, REFERENCE, refuse_parts
from edgekit.artifact.signed import SignatureInfo
from edgekit.artifact.store import MANIFEST, manifest_text, read_artifact, require_build
from edgekit.errors import ArtifactError, UsageError, suggestion
from edgekit.model.folder import load_builds_model
from edgekit.model.records import read_config, recorded_weights
from edgekit.model.shapes import size_text
from edgekit.pipeline.loaded import picture_size
from edgekit.reference import golden
from edgekit.reference.store import reference_of
from edgekit.storage.files import digest_file, digest_text, dump_json, scratch

INDEX = "bundle.json"
WORDS = ("vocabulary.json", "embeddings.bin", "presence.json")
Content = bytes | Path
"""Content of a file: bytes, or another file with the same content."""
FORM = ("float32", False)
"""Dtype of the pictures that an app's library gives, and whether their channels are last."""
CONSTANTS = ("NAME", "DTYPE", "KIND", "ROLE", "LOW", "HIGH")
"""Constants of each tensor in generated code, in addition to its sizes."""


def plan(
    build: Path, platform: Platform, targets: tuple[str, ...], trust_build: bool = False, key: Path | None = None
) -> Bundle:
    """Choose and describe the contents of an app, without writing.

    Raises:
        ArtifactError: If a requested artifact is missing, damaged, rejected or never judged, or none is left.
    """
    signed = None if key is None else doors.hook("require_signature")(build, key)
    selection, notes = _select_artifacts(build, platform, targets, signed)
    reference = reference_of(build / REFERENCE, recorded_weights(build / MODEL))
    files: dict[str, Content] = {}
    models = []
    for manifest, folder in selection:
        # The entry, a package's files, or a model and its data files with the same name.
        entry = manifest.entry
        paths = [f.path for f in manifest.files if f.path.startswith((f"{entry}/", f"{entry}.")) or f.path == entry]
        files |= {f"{manifest.target}/{path}": folder / path for path in paths}
        # Without the results: they change with each run, and the app would seem stale.
        published = manifest.model_copy(update={"results": ()})
        files[f"{manifest.target}/manifest.json"] = manifest_text(published).encode()
        models.append(_model(manifest, folder))
    model_files = read_config(build / MODEL)["files"]
    files |= {name: build / MODEL / name for name in WORDS if name in model_files}
    vectors, note = _golden_files(build, trust_build, models)
    files |= vectors
    name = models[0].manifest.name
    index = {
        "schema_version": 2,
        "name": name,
        "model_sha256": models[0].manifest.export.model_sha256,
        "reference": {"sha256": reference.sha256, "device": reference.device},
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
    return Bundle(name, tuple(models), files, (*notes, *note), reference.device)


def _select_artifacts(
    build: Path, platform: Platform, targets: tuple[str, ...], signed: SignatureInfo | None
) -> tuple[list[tuple[Manifest, Path]], tuple[str, ...]]:
    unknown = [t for t in targets if t not in platform.targets]
    if unknown:
        meant = suggestion(unknown[0], platform.targets)
        raise ArtifactError(f"no app library runs '{unknown[0]}'. {meant}Possible: {', '.join(platform.targets)}")
    refuse_parts(build)
    require_build(build)
    artifacts: list[tuple[Manifest, Path]] = []
    notes: list[str] = []
    if platform.required and targets and not set(targets) & set(platform.required):
        older = " or ".join(platform.required)
        raise UsageError(
            f"'{targets[0]}' alone does not run on the oldest system of such an app. Add {older}, "
            "or name a higher --deployment-target"
        )
    for target in (t for t in platform.targets if t in (targets or platform.chosen)):
        folder = build / target
        if not targets and not (folder / MANIFEST).is_file():
            continue
        manifest = read_artifact(folder)
        if signed is not None:
            signed.require_artifact(folder, manifest)
            # The limits that a device checks its answers against are made of the results.
            signed.require_results(folder, manifest)
        if reason := _refusal(manifest):
            if targets:
                raise ArtifactError(f"'{folder}' {reason}, so no app may contain it")
            notes.append(f"'{target}' {reason} and was left out")
        else:
            artifacts.append((manifest, folder))
    if not artifacts:
        why = "; ".join(notes) or f"it has none of {', '.join(platform.chosen)}"
        raise ArtifactError(
            f"'{build}' has no verified artifact for such an app ({why}). Run `edgekit export -t {platform.chosen[0]}`"
        )
    return artifacts, tuple(notes)


def _refusal(manifest: Manifest) -> str:
    """Return why an artifact may not enter an app; empty if no place rejected it and at least one verified it."""
    if manifest.sizes and not (
        len(manifest.sizes) > 1 and manifest.takes({name: axis.default for name, axis in manifest.axes.items()})
    ):
        return f"takes {size_text(manifest.sizes[0])}, but a device checks itself with pictures of the default size"
    if odd := next((t for t in manifest.inputs if t.kind == "image" and (t.dtype, t.channels_last) != FORM), None):
        sizes = ", ".join(map(str, odd.shape))
        form = f"{odd.dtype} [{sizes}]"
        return f"takes '{odd.name}' as {form}, and an app's library gives float32 NCHW (export another build for apps)"
    for verdict in manifest.verdicts:
        if verdict.status == "rejected":
            return f"was rejected in '{verdict.place}'" + (f" ({verdict.reason})" if verdict.reason else "")
    if not any(verdict.status == "verified" for verdict in manifest.verdicts):
        return "was not verified" if manifest.verdicts else "was never judged"
    return ""


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


def _golden_files(
    build: Path, trust_build: bool, models: Sequence[Model]
) -> tuple[dict[str, Content], tuple[str, ...]]:
    """Return golden vectors, with a picture that a library has to resize; a note explains their absence."""
    from edgekit.runtime.eager import EagerRuntime

    spec = load_builds_model(build / MODEL, trust_build)
    answer = EagerRuntime(spec).run
    cases = golden.choose_golden(spec, build / REFERENCE, answer)
    if not cases.cases:
        return {}, ("no golden vectors: they do not support the dtype of an input",)
    cases = cases.with_another_size(answer, {m.manifest.target: partial(_size, m.manifest) for m in models})
    limits = {m.manifest.target: golden.device_limits(cases, m.folder, m.manifest) for m in models}
    with scratch() as folder:
        golden.write_golden(folder, cases, limits)
        return {name: (folder / name).read_bytes() for name in (golden.JSON, golden.BINARY)}, ()


def _size(manifest: Manifest, picture: tuple[int, int]) -> tuple[int, int]:
    """Return the height and width to which the libraries resize a picture for a model."""
    declared = next(tensor for tensor in manifest.inputs if tensor.kind == "image")
    return picture_size(manifest, declared.shape[2:], picture)


@dataclass(frozen=True)
class Model:
    """One artifact of a bundle.

    Attributes:
        manifest: The artifact's manifest.
        folder: The artifact's folder.
        path: Path of its entry in the bundle.
        size: Bytes of the entry.
        sha256: Hash of the entry; of a package, of its files' hashes in order.
    """

    manifest: Manifest
    folder: Path
    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Bundle:
    """The contents of an app.

    Attributes:
        name: Name of the model.
        models: The best choice first.
        files: Content by path in the bundle, including bundle.json.
        notes: What was left out and why.
        reference_device: The device of the reference.
    """

    name: str
    models: tuple[Model, ...]
    files: dict[str, Content]
    notes: tuple[str, ...]
    reference_device: str


@dataclass(frozen=True)
class Platform:
    """A kind of app.

    Attributes:
        targets: Targets that its library runs, the best choice first.
        chosen: Targets by default.
        required: It needs at least one of these, since older systems run no other; empty if any will do.
        require_app: Raises UsageError if a folder is not such an app.
        files: Returns a bundle's files by path in the app.
    """

    targets: tuple[str, ...]
    chosen: tuple[str, ...]
    required: tuple[str, ...]
    require_app: Callable[[Path], None]
    files: Callable[[Bundle], dict[str, Content]]


def content_digest(content: Content) -> str:
    """Return the sha256 of a content, in hex."""
    return digest_file(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()


def content_size(content: Content) -> int:
    """Return the size of a content in bytes."""
    return content.stat().st_size if isinstance(content, Path) else len(content)


def identifier(name: str) -> str:
    """Return a type's name in Kotlin and Swift: `arr-coc-0.1` -> `ArrCoc0_1`."""
    parts = name.replace(".", "_").replace("-", " ").split()
    name_in_camel_case = "".join(part[:1].upper() + part[1:] for part in parts)
    return name_in_camel_case if name_in_camel_case[:1].isalpha() else f"Model{name_in_camel_case}"


def identifiers(tensors: Iterable[TensorInfo], reserved: Iterable[str]) -> dict[str, str]:
    """Return a unique, unreserved type name for each tensor by its name."""
    used = set(reserved)
    names: dict[str, str] = {}
    for tensor in tensors:
        word = identifier(tensor.name)
        while word in used:
            word += "_"
        used.add(word)
        names[tensor.name] = word
    return names


def quote(text: str) -> str:
    """Return a string literal of Kotlin and Swift."""
    # The two languages write control characters differently, so these become `?`.
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", "?", text)
    return json.dumps(plain, ensure_ascii=False)


def constants(manifest: Manifest, tensor: TensorInfo) -> dict[str, str | int | float]:
    """Return a tensor's constants in generated code, by name."""
    values: dict[str, str | int | float] = {"NAME": tensor.name, "DTYPE": tensor.dtype, **sizes(manifest, tensor)}
    values |= {"KIND": tensor.kind} if tensor.kind != "tensor" else {}
    values |= {"ROLE": tensor.role} if tensor.role != "tensor" else {}
    if tensor.kind == "image" or tensor.role == "counts":
        values |= {"LOW": tensor.low, "HIGH": tensor.high}
    return values


def sizes(manifest: Manifest, tensor: TensorInfo) -> dict[str, int]:
    """Return default sizes of a tensor by name, without the batch: an axis's name, or SIZE_1 for a fixed size."""
    by_axis: dict[str, int] = {}
    for place, size in enumerate(tensor.shape):
        if isinstance(size, int):
            by_axis[f"SIZE_{place}"] = size
        elif size != "batch" and size in manifest.axes:
            word = re.sub(r"\W", "_", size).upper()
            by_axis[f"{word}_SIZE" if word in CONSTANTS else word] = manifest.axes[size].default
    return by_axis
