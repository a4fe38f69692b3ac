"""What goes into an app, as records: the models of a bundle, its files, and the kind of app that takes them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from edgekit.artifact.manifest import Manifest, TensorInfo
from edgekit.storage.files import digest_file

Content = bytes | Path
"""What a file shall hold: bytes, or the same as another file."""


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
    """Bytes of a content."""
    return content.stat().st_size if isinstance(content, Path) else len(content)


CONSTANTS = ("NAME", "DTYPE", "KIND", "ROLE", "LOW", "HIGH")
"""What generated code says of each tensor beside its sizes."""


def identifier(name: str) -> str:
    """`arr-coc-0.1` -> `ArrCoc0_1`: a type's name in Kotlin and Swift."""
    parts = name.replace(".", "_").replace("-", " ").split()
    made = "".join(part[:1].upper() + part[1:] for part in parts)
    return made if made[:1].isalpha() else f"Model{made}"


def identifiers(tensors: Iterable[TensorInfo], taken: Iterable[str]) -> dict[str, str]:
    """A type's name for each tensor by its name, none twice and none that is taken."""
    used = set(taken)
    names: dict[str, str] = {}
    for tensor in tensors:
        word = identifier(tensor.name)
        while word in used:
            word += "_"
        used.add(word)
        names[tensor.name] = word
    return names


def quoted(text: str) -> str:
    """A string literal of Kotlin and Swift, which write control characters differently: these become `?`."""
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", "?", text)
    return json.dumps(plain, ensure_ascii=False)


def constants(manifest: Manifest, tensor: TensorInfo) -> dict[str, str | int | float]:
    """What generated code says of a tensor, by name."""
    said: dict[str, str | int | float] = {"NAME": tensor.name, "DTYPE": tensor.dtype, **sizes(manifest, tensor)}
    said |= {"KIND": tensor.kind} if tensor.kind != "tensor" else {}
    said |= {"ROLE": tensor.role} if tensor.role != "tensor" else {}
    if tensor.kind == "image" or tensor.role == "counts":
        said |= {"LOW": tensor.low, "HIGH": tensor.high}
    return said


def sizes(manifest: Manifest, tensor: TensorInfo) -> dict[str, int]:
    """Default sizes of a tensor by name: an axis has its own, a fixed size is SIZE_1 and so on; no batch."""
    made: dict[str, int] = {}
    for place, size in enumerate(tensor.shape):
        if isinstance(size, int):
            made[f"SIZE_{place}"] = size
        elif size != "batch" and size in manifest.axes:
            word = re.sub(r"\W", "_", size).upper()
            made[f"{word}_SIZE" if word in CONSTANTS else word] = manifest.axes[size].default
    return made
