"""Manifests and results: made up, or of artifacts that a test changed by hand, read unchecked and signed again."""

from pathlib import Path
from typing import Any

from edgekit.artifact.manifest import ExportInfo, Manifest, Source
from edgekit.artifact.result import RESULT, EvaluationResult, Result, result_text
from edgekit.artifact.store import MANIFEST, describe_file, write_manifest

EXPORT = ExportInfo(key="", source=Source(name="onnx", sha256="0" * 64), model_sha256="0" * 64)


def manifest(**facts: Any) -> Manifest:
    """A made-up artifact's manifest."""
    known = {"name": "small", "target": "onnx", "precision": "fp32", "entry": "model.onnx", "files": ()}
    return Manifest.model_validate({**known, "export": EXPORT, **facts})


def result(*places: EvaluationResult, **facts: Any) -> Result:
    """A made-up artifact's result."""
    known = {"name": "small", "target": "onnx", "precision": "fp32", "size": 2_500_000}
    judged = {"artifact_sha256": "a", "reference_sha256": "r", "reference_device": "CPU"}
    return Result.model_validate({**known, **judged, "places": places, **facts})


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


def spoilt(folder: Path) -> None:
    """Double the largest weight of an ONNX artifact: its files are whole, and wrong."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(folder / "model.onnx")
    largest = max(graph.graph.initializer, key=lambda each: len(each.raw_data))
    largest.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(largest), largest.name))
    onnx.save(graph, folder / "model.onnx")
    resealed(folder)


def read_result(folder: Path) -> Result:
    """The result in a folder."""
    return Result.model_validate_json((folder / RESULT).read_bytes())


def write_result(folder: Path, result: Result) -> None:
    """Put another result into an artifact."""
    (folder / RESULT).write_text(result_text(result))
    resealed(folder)
