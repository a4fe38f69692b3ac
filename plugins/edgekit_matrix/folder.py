"""A cell's folder: what it takes over from another cell of its model, and its way back from another machine."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Collection, Sequence
from pathlib import Path

from edgekit.storage.files import staging


def begin(folder: Path, name: str, earlier: Path | None, parts: Sequence[str]) -> None:
    """Make a cell's folder. A build that is not there yet begins with parts of another one of its model.

    `edgekit export` checks all of them and makes again what does not fit, so that what an artifact holds does not
    depend on them.

    Args:
        folder: The cell's folder.
        name: Of the model and its build.
        earlier: The other build; None for none.
        parts: Its folders that are taken over, as far as they are there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if earlier is None or (folder / name).exists():
        return
    with staging(folder / name) as build:
        for part in parts:
            if (earlier / part).is_dir():
                shutil.copytree(earlier / part, build / part)


def packed(folder: Path, parts: Sequence[str]) -> bytes:
    """Some parts of a folder, as far as they are there, as a tar file."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for part in parts:
            if (folder / part).exists():
                archive.add(folder / part, part)
    return written.getvalue()


def unpack(archive: bytes, folder: Path, parts: Collection[str] | None = None) -> None:
    """Put a tar file's content into a folder; with `parts` only that of these folders."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        members = [m for m in files if parts is None or m.name.partition("/")[0] in parts]
        files.extractall(folder, members, filter="data")


def take(archive: bytes, folder: Path) -> None:
    """Put what came back from another machine into a cell's place, in one step."""
    shutil.rmtree(folder, ignore_errors=True)
    with staging(folder) as fresh:
        unpack(archive, fresh)
