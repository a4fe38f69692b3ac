"""The files of Python packages as one hash: the part of an artifact's key that follows the code."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from importlib import util
from pathlib import Path

from edgekit.storage.files import digest_file, digest_text

SUFFIXES = {".js", ".py", ".so", ".pyd"}


@functools.cache
def package_digest(*modules: str) -> str:
    """sha256 over the code of the top-level packages that hold some modules: every file, imported or not.

    Nothing is imported. A package without files (built in, not installed) counts by its name.
    """
    names = sorted({module.partition(".")[0] for module in modules})
    return digest_text("\n".join(line for name in names for line in (name, *_files(name))))


def _files(package: str) -> Iterator[str]:
    """The relative path and the sha256 of each file of code, sorted."""
    try:
        spec = util.find_spec(package)
    except (ImportError, ValueError):  # ValueError: a module without a spec, such as __main__
        return
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    if not folders and spec and spec.has_location and spec.origin:
        yield digest_file(Path(spec.origin))
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.suffix in SUFFIXES and p.is_file()):
            yield f"{path.relative_to(folder).as_posix()} {digest_file(path)}"
