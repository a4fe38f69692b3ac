"""Environments: separate interpreters for libraries that conflict with edgekit's, made by `edgekit env add`.

Each is one folder in the user's cache with the packages of its lock file (next to this module), by version and hash.
No lock contains PyTorch: its version is the one that edgekit requires, in the build that pip finds here. The record is
written last, and the folder gets its name when it is complete: an interrupted setup leaves no environment.
"""

from __future__ import annotations

import functools
import platform
import re
import subprocess
import sys
import venv
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import metadata, util
from pathlib import Path
from typing import Any

from edgekit.errors import DependencyError, UsageError
from edgekit.storage.files import digest_file, digest_text, dump_json, every_path, load_json, staging, user_folder

LITERT = "litert"
LOCKED = {LITERT: ("linux", "x86_64")}
"""Environments with a lock file, each with the system and the processor of its hashes."""
RECORD = "environment.json"
PYTHON = Path("bin") / "python"


def folder(name: str) -> Path:
    """Return the folder of an environment: $EDGEKIT_<NAME>, or `edgekit/<name>` in the user's cache."""
    return user_folder(name, f"EDGEKIT_{name.upper()}")


def command(name: str) -> str:
    """Return the command that makes an environment."""
    return f"edgekit env add {name}"


def ready(name: str) -> bool:
    """Return whether an environment exists and matches this edgekit's lock."""
    return bool(_record(name)) and (folder(name) / PYTHON).exists()


def python(name: str) -> Path:
    """Return the interpreter of an environment.

    Raises:
        DependencyError: If it does not exist, or another edgekit made it; the message has the command to make it.
    """
    if not ready(name):
        raise DependencyError(f"no environment '{name}' in '{folder(name)}'. Run: {command(name)}")
    return folder(name) / PYTHON


def versions(name: str) -> Mapping[str, str]:
    """Return the version of each package of an environment, by its normalised name; empty without an environment."""
    packages: Mapping[str, str] = _record(name).get("packages", {})
    return packages


def lock(name: str) -> Path:
    """Return an environment's lock file."""
    return Path(__file__).with_name(f"{name}.txt")


def install(name: str, progress: Callable[[str], None]) -> Path:
    """Make an environment and return its folder; an existing one is replaced when the new one is complete.

    Raises:
        UsageError: If its packages do not exist for this host, or one does not match its hash.
    """
    here = (sys.platform, platform.machine())
    if here != LOCKED[name]:
        raise UsageError(
            f"the environment '{name}' is for {' on '.join(LOCKED[name])}, and this is {' on '.join(here)}. Its "
            "packages exist for no other platform"
        )
    with staging(folder(name), functools.partial(_own, name)) as home:
        venv.create(home, symlinks=True)
        progress(f"fetching the packages of '{name}', with fixed hashes")
        _pip(home, name, "--no-deps", "--require-hashes", "--only-binary=:all:", "-r", str(lock(name)))
        version = metadata.version("torch").partition("+")[0]
        progress(f"fetching PyTorch {version}: about 200 MB if pip finds its CPU build, several GB otherwise")
        _pip(home, name, f"torch=={version}")
        packages = {
            _normal(d.name): d.version
            for d in metadata.distributions(path=[str(next(home.glob("lib/python*/site-packages")))])
        }
        record = {"name": name, "lock": digest_file(lock(name)), "packages": packages}
        (home / RECORD).write_text(dump_json(record))
    return folder(name)


def _record(name: str) -> dict[str, Any]:
    try:
        record = load_json((folder(name) / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    whole = isinstance(record, dict) and record.get("name") == name and record.get("lock") == digest_file(lock(name))
    return record if whole else {}


def _own(name: str, path: Path) -> Collection[str]:
    """Return all files of an environment made by edgekit, whatever its lock; none of any other folder."""
    try:
        own = load_json((path / RECORD).read_text())["name"] == name
    except (OSError, ValueError, KeyError, TypeError):
        own = False
    return every_path(path) if own else ()


def _pip(home: Path, name: str, *arguments: str) -> None:
    """Install into an environment with edgekit's own pip."""
    pip = [sys.executable, "-m", "pip", "--python", str(home / PYTHON), "install", "--quiet", "--no-input"]
    ended = subprocess.run([*pip, *arguments], capture_output=True, text=True, check=False)
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.strip()] or [f"code {ended.returncode}"]
        first = next((line for line in lines if line.startswith("ERROR")), lines[-1]).strip()
        raise UsageError(f"cannot make the environment '{name}': {first[:300]}")


def _normal(name: str) -> str:
    """Return a distribution's or a module's name in pip's normalised form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def version_of(name: str, module: str) -> Mapping[str, str]:
    """Return the distribution of an environment with a module's name, and its version."""
    package = _normal(module)
    return {package: versions(name)[package]} if package in versions(name) else {}


SUFFIXES = {".js", ".py", ".so", ".pyd"}


@functools.cache
def package_digest(*modules: str) -> str:
    """Return the sha256 over the code of the modules' top-level packages: every file, imported or not.

    Nothing is imported. A package without files (built in, not installed) counts by its name.
    """
    names = sorted({module.partition(".")[0] for module in modules})
    return digest_text("\n".join(line for name in names for line in (name, *_files(name))))


def _files(package: str) -> Iterator[str]:
    """Yield the relative path and the sha256 of each code file, sorted."""
    try:
        spec = util.find_spec(package)
    # ValueError: a module without a spec, such as __main__.
    except (ImportError, ValueError):
        return
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    if not folders and spec and spec.has_location and spec.origin:
        yield digest_file(Path(spec.origin))
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.suffix in SUFFIXES and p.is_file()):
            yield f"{path.relative_to(folder).as_posix()} {digest_file(path)}"
