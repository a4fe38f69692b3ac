"""A captured program on disk: program.pt2, and program.json with its axes, its proof and the model it belongs to."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from edgekit.errors import CaptureError
from edgekit.model.graph import Program, capture, quiet
from edgekit.model.onnx_file import FROM_HERE
from edgekit.model.spec import ModelSpec
from edgekit.storage.files import digest_file, dump_json, staging, write_text

PROGRAM = "program.pt2"
INFO = "program.json"


@dataclass
class Capture:
    """A module that is captured when its program is first needed, and once."""

    spec: ModelSpec
    _program: Program | None = field(default=None, repr=False)

    def program(self) -> Program:
        """The captured program.

        Raises:
            CaptureError: Naming the module's file and line where capture fails, or would fix a size or a branch.
        """
        if self._program is None:
            self._program = capture(self.spec)
        return self._program


def save_program(program: Program, folder: Path, model_sha256: str) -> None:
    """Write a program's folder: program.pt2, and program.json with its axes, proof and the model it belongs to."""
    import torch

    with staging(folder) as staged:
        with quiet():
            torch.export.save(program.exported, staged / PROGRAM)
        info = {
            "dynamic": list(program.dynamic),
            "proof": [dict(sizes) for sizes in program.proof],
            "model_sha256": model_sha256,
            "torch": torch.__version__,
            "sha256": digest_file(staged / PROGRAM),
        }
        write_text(staged / INFO, dump_json(info))


def program_matches(folder: Path, model_sha256: str) -> bool:
    """Whether a folder holds the program of this model, captured by this torch, undamaged."""
    try:
        info = json.loads((folder / INFO).read_text())
        same = (
            info["model_sha256"] == model_sha256
            and info["torch"].partition("+")[0] == version("torch").partition("+")[0]
        )
        return bool(same and digest_file(folder / PROGRAM) == info["sha256"])
    except (OSError, ValueError, KeyError):
        return False


def load_program(folder: Path) -> Program:
    """Read a program's folder, as the pipeline wrote it.

    Raises:
        CaptureError: If the model has no program, since it is an ONNX file.
    """
    import torch

    if not (folder / INFO).is_file():
        raise CaptureError(f"the model is an ONNX file, without PyTorch's code: possible are {FROM_HERE}")
    info = json.loads((folder / INFO).read_text())
    with quiet():
        exported = torch.export.load(folder / PROGRAM)
    return Program(exported, tuple(info["dynamic"]), tuple(info["proof"]))
