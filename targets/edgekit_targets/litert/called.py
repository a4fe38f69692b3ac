"""What both targets of LiteRT do in this interpreter: call a script in the other one, and describe what it wrote."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.errors import ExportError
from edgekit.model.spec import ModelSpec
from edgekit.storage.environment import LITERT, lock, python
from edgekit.storage.files import digest_file, digest_text, dump_json
from edgekit.target import Need, Place, Runtime
from edgekit_targets.litert.runtime import JS, LitertRuntime

ENTRY = "model.tflite"
FACTS = "edgekit.json"
FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # of a ZIP archive: no date
SCRIPT, CONVERT, QUANTIZE = (Path(__file__).with_name(f"{name}.py") for name in ("script", "convert", "quantize"))
NEEDS = tuple(Need(name, environment=LITERT) for name in ("litert_torch", "ai_edge_litert", "ai_edge_quantizer"))
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}


def called(file: Path, asked: Mapping[str, object], name: str) -> dict[str, Any]:
    """What a file's `answer` returns in the environment.

    Raises:
        DependencyError: If the environment is not there.
        ExportError: If the file's library could not do it or its process died; the message names the user's model.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-") as scratch:
        told = Path(scratch) / "told.json"
        ended = subprocess.run(
            [str(python(LITERT)), "-I", str(SCRIPT), str(file), json.dumps(dict(asked)), str(told)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=os.environ | QUIET,
        )
        answer: dict[str, Any] = json.loads(told.read_text()) if told.is_file() else {}
    if not answer:
        lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()] or ["nothing"]
        raise ExportError(f"LiteRT cannot {file.stem} '{name}': its process died ({ended.returncode}), {lines[-1]}")
    if "error" in answer:
        raise ExportError(f"LiteRT cannot {file.stem} '{name}': {answer['error']}")
    found: dict[str, Any] = answer["answer"]
    return found


def fixed_at(spec: ModelSpec) -> tuple[str, ...]:
    """What a manifest says of the axes."""
    sizes = ", ".join(f"{name} {axis.default}" for name, axis in spec.axes.items())
    return (f"all axes are fixed: {sizes}",) if sizes else ()


def describe(path: Path, spec: ModelSpec) -> None:
    """Put what there is to know of the model behind the file, as a ZIP archive: LiteRT's way for what belongs to one.

    https://ai.google.dev/edge/litert/models/metadata
    """
    facts = {**spec.facts, "preprocessing": "; ".join(i.preprocessing for i in spec.inputs)}
    with zipfile.ZipFile(path, "a", zipfile.ZIP_STORED) as behind:
        behind.writestr(zipfile.ZipInfo(FACTS, FIRST_DAY), dump_json(facts))


def load(artifact: Path, place: Place) -> Runtime:
    """Run it in LiteRT, in a process of its environment, or in LiteRT.js."""
    if place.name != JS:
        return LitertRuntime(artifact, ENTRY)
    from edgekit_targets.litert.browser import LitertJsRuntime

    return LitertJsRuntime(artifact, ENTRY)


def content() -> str:
    """sha256 of what makes the artifacts elsewhere: the environment's lock, and the scripts."""
    return digest_text("\n".join(digest_file(path) for path in (lock(LITERT), SCRIPT, CONVERT, QUANTIZE)))
