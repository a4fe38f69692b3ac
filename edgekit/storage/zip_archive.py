"""TorchScript archives without what says where and when they were made.

A TorchScript file is an uncompressed zip whose records start at multiples of 64 bytes, so that a phone can map the
weights (https://github.com/pytorch/pytorch/blob/main/caffe2/serialize/inline_container.h). PyTorch puts the absolute
paths of the model's sources into it (`*.debug_pkl`), and the order of class constants in `code/` varies from process to
process. Neither is needed to run, and what remains is the same bytes each time.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

from edgekit.errors import ArtifactError

ALIGNMENT = 64  # bytes, as PyTorch's own writer aligns
DEBUG = ".debug_pkl"
IDENTITY = ".data/serialization_id"
CODE = "code/"
_LOCAL_HEADER = 30  # bytes of a zip entry before its name


def rewrite(archive: bytes, code: bool) -> bytes:
    """Write a TorchScript archive again without debug records.

    Args:
        archive: The file as PyTorch saved it.
        code: Whether to keep the source form of the program; the lite interpreter reads bytecode only.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            record, data = name.partition("/")[2], old.read(name)
            if record.endswith(DEBUG) or record == IDENTITY or (record.startswith(CODE) and not code):
                continue
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            start = out.tell() + _LOCAL_HEADER + len(name.encode())
            length = -(start + 4) % ALIGNMENT
            entry.extra = b"FB" + length.to_bytes(2, "little") + b"Z" * length
            new.writestr(entry, data)
    return out.getvalue()


def without(archive: bytes, endings: tuple[str, ...]) -> bytes:
    """Write a package of PyTorch's again: its records in the order of their names, without those that end so.

    Args:
        archive: A `.pt2` file as PyTorch saved it.
        endings: Of the names of records that say where or when it was made, or that nothing needs.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w") as new:
        for name in sorted(old.namelist()):
            if not name.endswith(endings):
                new.writestr(zipfile.ZipInfo(name), old.read(name))  # of 1980
    return out.getvalue()


def require_whole(path: Path, kind: str = "a TorchScript archive") -> None:
    """See that every record of a zip that PyTorch wrote has its checksum; PyTorch's own reader does not look.

    Raises:
        ArtifactError: If the file is no archive or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError) as error:
        raise ArtifactError(f"'{path}' is not {kind} or damaged ({error}): export again") from error
    if bad is not None:
        raise ArtifactError(f"'{path}' is damaged in its record '{bad}': export again")
