"""Coverage-guided fuzzing of what edgekit reads: `python -m tests.core.hostile.fuzz KIND SEEDS -max_total_time=60`.

Whatever the bytes, a reader returns or raises an EdgekitError. Needs atheris (`pip install atheris`, on Linux);
`test_fuzz.py` runs each kind with EDGEKIT_SLOW=1. A finding is printed with its input, and becomes a test.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(
    include=["edgekit.artifact", "edgekit.report", "edgekit.model", "edgekit.reference", "edgekit.runtime"]
):
    from edgekit.artifact.result import RESULT, parse_result
    from edgekit.artifact.store import MANIFEST, read_artifact
    from edgekit.errors import EdgekitError
    from edgekit.model.onnx_check import check_onnx
    from edgekit.model.sources.checkpoint import read_checkpoint
    from edgekit.reference.info import INFO, read_info
    from edgekit.reference.store import read_reference
    from edgekit.report.imports import read_imported
    from mil_interpreter import read_package


def _reference(path: Path) -> None:
    read_info(path.parent)
    read_reference(path.parent)


WHOLE = "EDGEKIT_FUZZ_FOLDER"
"""Variable with a folder whose files lie beside the one that is fuzzed."""
DATA = "Data/com.apple.CoreML"


def _package(inside: str) -> tuple[str, Callable[[Path], object]]:
    """One file of a Core ML package, whose other files are whole."""
    up = inside.count("/")
    return inside, lambda path: read_package(path.parents[up])


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "manifest": (MANIFEST, lambda path: read_artifact(path.parent)),
    "result": (RESULT, lambda path: parse_result(path.read_bytes(), path)),
    "imported": (RESULT, lambda path: read_imported(path.parent)),
    "reference": (INFO, _reference),
    "checkpoint": ("theirs.pt", read_checkpoint),
    "onnx": ("theirs.onnx", check_onnx),
    "coreml-manifest": _package("Manifest.json"),
    "coreml-model": _package(f"{DATA}/model.mlmodel"),
    "coreml-weights": _package(f"{DATA}/weights/weight.bin"),
}


def main() -> None:
    """Fuzz one kind with libFuzzer's options."""
    kind = sys.argv.pop(1)
    name, read = READERS[kind]
    with tempfile.TemporaryDirectory(prefix="edgekit-fuzz-") as folder:
        if whole := os.environ.get(WHOLE):
            shutil.copytree(whole, folder, dirs_exist_ok=True)
        path = Path(folder) / name

        def once(data: bytes) -> None:
            path.write_bytes(data)
            with contextlib.suppress(EdgekitError):
                read(path)

        atheris.Setup(sys.argv, once)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
