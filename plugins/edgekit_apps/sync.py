"""Writing of planned files into an app, and removal of outdated ones from earlier runs.

`edgekit/<name>.assets.json` in the app lists the written files of one model, with their hashes; commit it
with the app. An existing file on no list belongs to somebody else: it is refused, not overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edgekit.errors import UsageError
from edgekit.storage import verified_io
from edgekit.storage.files import digest_file, dump_json, load_json, sweep, write_bytes, write_text
from edgekit_apps.bundle import Content, content_digest, content_size

HOME = "edgekit"
"""Folder in the app for all files but assets and code."""
LIST = ".assets.json"


@dataclass(frozen=True)
class Outcome:
    """The changes that a run made to an app.

    Attributes:
        written: Paths that are new or changed.
        removed: Paths written by an earlier run.
        kept: Unchanged paths.
        size: Bytes of all planned files.
        notes: What was left out and why.
    """

    written: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    size: int
    notes: tuple[str, ...]


def sync(app: Path, name: str, files: Mapping[str, Content], notes: tuple[str, ...] = ()) -> Outcome:
    """Write the files of one model's bundle.

    Raises:
        UsageError: If another file exists in a planned place, or the app cannot be written.
    """
    listed = _read(app, name)
    digests = {path: content_digest(content) for path, content in files.items()}
    own_paths = set(listed) | _others(app, name)
    for path in digests:
        _refuse_escape(app, path)
        here = app / path
        if here.exists() and path not in own_paths and not _same(here, digests[path]):
            raise UsageError(f"'{here}' exists and edgekit did not write it. Move or remove it")
    changed = tuple(path for path in digests if not _same(app / path, digests[path]))
    stale = tuple(path for path in listed if path not in digests and path not in _others(app, name))
    try:
        if changed or stale:
            # Until the end the list names the old and the new files: an interrupted run leaves no unknown file.
            _write_list(app, name, {**listed, **digests})
        for path in changed:
            _put(app / path, files[path], digests[path])
        removed = tuple(path for path in stale if _remove(app, path, listed[path]))
        if listed != digests or changed or stale:
            _write_list(app, name, digests)
    except OSError as error:
        raise UsageError(f"cannot write into '{app}' ({error.strerror}). Check its permissions") from error
    unlisted = tuple(
        f"'{path}' was changed by hand, so it was kept although no longer needed"
        for path in stale
        if path not in removed
    )
    unchanged = tuple(path for path in digests if path not in changed)
    return Outcome(changed, removed, unchanged, sum(content_size(c) for c in files.values()), (*notes, *unlisted))


def differences(app: Path, name: str, files: Mapping[str, Content]) -> tuple[str, ...]:
    """Return the changes that `sync` would make, one sentence per file."""
    listed = _read(app, name)
    sentences = []
    for path, content in files.items():
        here = app / path
        if not here.is_file():
            sentences.append(f"'{path}' is missing")
        elif not _same(here, content_digest(content)):
            sentences.append(f"'{path}' is stale")
    paths = set(files)
    sentences += [f"'{path}' is no longer needed" for path in listed if path not in paths and (app / path).is_file()]
    if not sentences and set(listed) != paths:
        sentences.append(f"'{list_path(name)}' does not match the files")
    return tuple(sentences)


def list_path(name: str) -> str:
    """Return the path in the app of the list of a model's files."""
    return f"{HOME}/{name}{LIST}"


def _read(app: Path, name: str) -> dict[str, str]:
    """Return the written paths of a model, with their hashes."""
    path = app / list_path(name)
    try:
        record = load_json(path.read_text(encoding="utf-8"))
        listed = {str(file): str(sha256) for file, sha256 in record["files"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"the list '{path}' is damaged ({type(error).__name__}). Restore it from version control"
        ) from error
    for file in listed:
        _refuse_escape(app, file)
    return listed


def _others(app: Path, name: str) -> set[str]:
    """Return the paths in the lists of other models in the same app."""
    names = [p.name.removesuffix(LIST) for p in (app / HOME).glob(f"*{LIST}")]
    return {path for other in names if other != name for path in _read(app, other)}


def _refuse_escape(app: Path, path: str) -> None:
    """Refuse a path of a list or plan that leaves the app, or goes through a link."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or str(pure) != path:
        raise UsageError(f"the list in '{app / HOME}' names '{path}', which is not a plain path. Restore the list")
    for parent in (app / path, *(app / path).parents):
        if parent == app:
            return
        if parent.is_symlink():
            raise UsageError(f"'{parent}' is a link. edgekit writes only into the app itself")


def _put(path: Path, content: Content, sha256: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)
    if isinstance(content, bytes):
        write_bytes(path, content)
        return
    try:
        write_bytes(path, verified_io.read_file(content.parent, content.name, content.stat().st_size, sha256))
    except verified_io.RefusedError as error:
        raise UsageError(f"'{content}' changed while it was copied ({error}). Run the same command again") from error


def _remove(app: Path, path: str, sha256: str) -> bool:
    """Remove an unchanged file, and the folders that this empties."""
    here = app / path
    if here.is_file() and not _same(here, sha256):
        return False
    here.unlink(missing_ok=True)
    for parent in here.parents:
        if parent == app or not parent.is_dir() or any(parent.iterdir()):
            break
        parent.rmdir()
    return True


def _same(path: Path, sha256: str) -> bool:
    return path.is_file() and digest_file(path) == sha256


def _write_list(app: Path, name: str, files: Mapping[str, str]) -> None:
    path = app / list_path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    notice = "Written by `edgekit assets`, which removes only what is named here. Commit it."
    write_text(path, dump_json({"about": notice, "schema_version": 1, "files": dict(files)}))
