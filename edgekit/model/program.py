"""A captured program on disk: program.pt2, and program.json with its axes, its proof and the model it belongs to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from edgekit.errors import CaptureError
from edgekit.model.graph import Program, capture, quiet
from edgekit.model.onnx_file import FROM_HERE
from edgekit.model.spec import ModelSpec
from edgekit.storage import door
from edgekit.storage.door import sealed
from edgekit.storage.files import digest_file, staging, write_text

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

    with staging(folder, own_files) as staged:
        with quiet():
            torch.export.save(program.exported, staged / PROGRAM)
        info = {
            "dynamic": list(program.dynamic),
            "proof": [dict(sizes) for sizes in program.proof],
            "model_sha256": model_sha256,
            "torch": torch.__version__,
            "files": {PROGRAM: digest_file(staged / PROGRAM)},
        }
        write_text(staged / INFO, sealed(info))


def program_matches(folder: Path, model_sha256: str) -> bool:
    """Whether a folder holds the program of this model, captured by this torch, undamaged."""
    try:
        info = _read_info(folder)
    except CaptureError:
        return False
    here = version("torch").partition("+")[0]
    return bool(info["model_sha256"] == model_sha256 and info["torch"].partition("+")[0] == here)


def load_program(folder: Path) -> Program:
    """Read a program's folder, as the pipeline wrote it.

    Raises:
        CaptureError: If the model has no program, since it is an ONNX file, or the program is damaged.
    """
    import torch

    if not (folder / INFO).is_file():
        raise CaptureError(f"the model is an ONNX file, without PyTorch's code: possible are {FROM_HERE}")
    info = _read_info(folder)
    with quiet():
        exported = torch.export.load(folder / PROGRAM)
    return Program(exported, tuple(info["dynamic"]), tuple(info["proof"]))


def require_whole(folder: Path) -> None:
    """See that a program's folder is as it was written, where there is one: an ONNX file has none.

    Raises:
        CaptureError: If it was changed.
    """
    if folder.exists():
        _read_info(folder)


def own_files(folder: Path) -> Collection[str]:
    """Which files of a folder edgekit wrote, if a program lies there: also where it is damaged."""
    return door.named_files(folder, INFO, PROGRAM)


def _read_info(folder: Path) -> dict[str, Any]:
    """What program.json says, after it and the program were checked.

    Raises:
        CaptureError: If there is none, or it was changed.
    """
    try:
        info = door.read_record(folder, INFO)
        door.check_file(folder, PROGRAM, None, str(info["files"][PROGRAM]))
    except (door.RefusedError, KeyError, TypeError) as error:
        raise CaptureError(f"the captured program in '{folder}' {error}: run `edgekit export` again") from error
    return info
