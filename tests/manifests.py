"""Manifests of artifacts that a test changed by hand: read unchecked, and signed again so that numbers must tell."""

from pathlib import Path
from typing import Any

from edgekit.artifact.manifest import ExportInfo, Manifest, Source
from edgekit.artifact.result import RESULT, Result, result_text
from edgekit.artifact.store import MANIFEST, describe_file, write_manifest

EXPORT = ExportInfo(key="", source=Source(name="onnx", sha256="0" * 64), model_sha256="0" * 64)


def unchecked(folder: Path) -> Manifest:
    """What a manifest says, whatever lies beside it."""
    return Manifest.model_validate_json((folder / MANIFEST).read_bytes())


def resealed(folder: Path, **changes: Any) -> Manifest:
    """Make a manifest name its files and results as they are, with other changes."""
    made = unchecked(folder)
    named = {
        group: tuple(describe_file(folder, folder / file.path) for file in getattr(made, group))
        for group in ("files", "results")
    }
    changed = made.model_copy(update={**named, **changes})
    write_manifest(folder, changed)
    return changed


def write_result(folder: Path, result: Result) -> None:
    """Put another result into an artifact."""
    (folder / RESULT).write_text(result_text(result))
    resealed(folder)
