"""Names for generated code."""

from __future__ import annotations

from edgekit.artifact.manifest import Manifest, TensorInfo


def identifier(name: str) -> str:
    """`arr-coc-0.1` -> `ArrCoc0_1`: a type's name in Kotlin and Swift."""
    parts = name.replace(".", "_").replace("-", " ").split()
    made = "".join(part[:1].upper() + part[1:] for part in parts)
    return made if made[:1].isalpha() else f"Model{made}"


def sizes(manifest: Manifest, tensor: TensorInfo) -> dict[str, int]:
    """Default sizes of a tensor by name: an axis has its own, a fixed size is SIZE_1 and so on; no batch."""
    made: dict[str, int] = {}
    for place, size in enumerate(tensor.shape):
        if isinstance(size, int):
            made[f"SIZE_{place}"] = size
        elif size != "batch" and size in manifest.axes:
            made[size.upper()] = manifest.axes[size].default
    return made
