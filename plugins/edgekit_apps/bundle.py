"""What goes into an app: artifacts of a build, and the files of their bundle, which `bundle.json` names and hashes."""

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
"""What a file shall hold: bytes, or the same as another file."""
CONSTANTS = ("NAME", "DTYPE", "KIND", "ROLE", "LOW", "HIGH")
"""What generated code says of each tensor beside its sizes."""


def plan(
    build: Path, platform: Platform, targets: tuple[str, ...], trust_build: bool = False, key: Path | None = None
) -> Bundle:
    """Choose and describe what goes into an app; nothing is written.

    Raises:
        ArtifactError: An artifact that was asked for is missing, damaged, rejected or never judged, or none is left.
    """
    signed = None if key is None else doors.hook("require_signature")(build, key)
    selection, notes = _select_artifacts(build, platform, targets, signed)
    reference = reference_of(build / REFERENCE, recorded_weights(build / MODEL))
    files: dict[str, Content] = {}
    models = []
    for manifest, folder in selection:
        # The entry, a package's files, or a model and the data that lie beside it under its name.
        entry = manifest.entry
        paths = [f.path for f in manifest.files if f.path.startswith((f"{entry}/", f"{entry}.")) or f.path == entry]
        files |= {f"{manifest.target}/{path}": folder / path for path in paths}
        # Without the results, which stay here: they are others after each run, and an app would seem stale.
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
        raise ArtifactError(f"no app here runs '{unknown[0]}': {meant}possible are {', '.join(platform.targets)}")
    refuse_parts(build)
    require_build(build)
    artifacts: list[tuple[Manifest, Path]] = []
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
            artifacts.append((manifest, folder))
    if not artifacts:
        why = "; ".join(notes) or f"it has none of {', '.join(platform.chosen)}"
        raise ArtifactError(
            f"'{build}' has no verified artifact for such an app ({why}): run `edgekit export -t {platform.chosen[0]}`"
        )
    return artifacts, tuple(notes)


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
    """Golden vectors, with a picture that a library has to resize; where there are none, a note says why."""
    from edgekit.runtime.eager import EagerRuntime

    spec = load_builds_model(build / MODEL, trust_build)
    answer = EagerRuntime(spec).run
    cases = golden.choose_golden(spec, build / REFERENCE, answer)
    if not cases.cases:
        return {}, ("there are no golden vectors: an input has a dtype that they do not hold",)
    cases = cases.with_another_size(answer, {m.manifest.target: partial(_size, m.manifest) for m in models})
    limits = {m.manifest.target: golden.device_limits(cases, m.folder, m.manifest) for m in models}
    with scratch() as folder:
        golden.write_golden(folder, cases, limits)
        return {name: (folder / name).read_bytes() for name in (golden.JSON, golden.BINARY)}, ()


def _size(manifest: Manifest, picture: tuple[int, int]) -> tuple[int, int]:
    """Height and width that the libraries give a picture for a model."""
    declared = next(tensor for tensor in manifest.inputs if tensor.kind == "image")
    return picture_size(manifest, declared.shape[2:], picture)


@dataclass(frozen=True)
class Model:
    """One artifact of a bundle.

    Attributes:
        manifest: The artifact's.
        folder: The artifact's.
        path: Of its entry in the bundle.
        size: Of the entry, in bytes.
        sha256: Of the entry; of a package, of its files' hashes in order.
    """

    manifest: Manifest
    folder: Path
    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Bundle:
    """Everything that goes into an app.

    Attributes:
        name: Of the model.
        models: The best choice first.
        files: Content by path in the bundle, bundle.json included.
        notes: What was left out and why.
        reference_device: What made the reference.
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
        targets: What its library runs, the best choice first.
        chosen: Those that it takes where none is asked for.
        required: Of these it needs one at least, since older systems run no other; empty where any will do.
        require_app: Raises UsageError where a folder is no such app.
        files: A bundle's files by path in the app.
    """

    targets: tuple[str, ...]
    chosen: tuple[str, ...]
    required: tuple[str, ...]
    require_app: Callable[[Path], None]
    files: Callable[[Bundle], dict[str, Content]]


def content_digest(content: Content) -> str:
    """sha256 of a content, in hex."""
    return digest_file(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()


def content_size(content: Content) -> int:
    """Return bytes of a content."""
    return content.stat().st_size if isinstance(content, Path) else len(content)


def identifier(name: str) -> str:
    """`arr-coc-0.1` -> `ArrCoc0_1`: a type's name in Kotlin and Swift."""
    parts = name.replace(".", "_").replace("-", " ").split()
    name_in_camel_case = "".join(part[:1].upper() + part[1:] for part in parts)
    return name_in_camel_case if name_in_camel_case[:1].isalpha() else f"Model{name_in_camel_case}"


def identifiers(tensors: Iterable[TensorInfo], reserved: Iterable[str]) -> dict[str, str]:
    """Return a type's name for each tensor by its name, none twice and none that is taken."""
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
    """Return a string literal of Kotlin and Swift, which write control characters differently: these become `?`."""
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", "?", text)
    return json.dumps(plain, ensure_ascii=False)


def constants(manifest: Manifest, tensor: TensorInfo) -> dict[str, str | int | float]:
    """What generated code says of a tensor, by name."""
    values: dict[str, str | int | float] = {"NAME": tensor.name, "DTYPE": tensor.dtype, **sizes(manifest, tensor)}
    values |= {"KIND": tensor.kind} if tensor.kind != "tensor" else {}
    values |= {"ROLE": tensor.role} if tensor.role != "tensor" else {}
    if tensor.kind == "image" or tensor.role == "counts":
        values |= {"LOW": tensor.low, "HIGH": tensor.high}
    return values


def sizes(manifest: Manifest, tensor: TensorInfo) -> dict[str, int]:
    """Default sizes of a tensor by name: an axis has its own, a fixed size is SIZE_1 and so on; no batch."""
    by_axis: dict[str, int] = {}
    for place, size in enumerate(tensor.shape):
        if isinstance(size, int):
            by_axis[f"SIZE_{place}"] = size
        elif size != "batch" and size in manifest.axes:
            word = re.sub(r"\W", "_", size).upper()
            by_axis[f"{word}_SIZE" if word in CONSTANTS else word] = manifest.axes[size].default
    return by_axis
