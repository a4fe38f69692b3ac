"""Hugging Face's Hub on this host, as far as its client asks it to list, download and commit: one model repository."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.object_store import started

REPOSITORY = "someone/models"
_API = re.compile(rf"/api/models/{REPOSITORY}(?:/(?P<what>[a-z-]+)/[^/]+(?:/(?P<path>.*))?)?")
_FILE = re.compile(rf"/{REPOSITORY}/resolve/[^/]+/(?P<path>.+)")


@dataclass
class Hub:
    """A WSGI application.

    Attributes:
        files: What the last commit holds, by path.
        commits: What was committed so far: the paths of each.
        token: The one that may write; empty if anybody may.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    commits: list[list[str]] = field(default_factory=list)
    token: str = ""

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        whole = environ.get("wsgi.input_terminated", False)  # of a body in chunks
        body = environ["wsgi.input"].read(*([] if whole else [int(environ.get("CONTENT_LENGTH") or 0)]))
        path = environ["PATH_INFO"]
        if path == "/api/validate-yaml":
            return _json({"errors": [], "warnings": []}, start)
        is_write = path == "/api/repos/create" or any(f"/{what}/" in path for what in ("preupload", "commit"))
        if is_write and self.token and environ.get("HTTP_AUTHORIZATION") != f"Bearer {self.token}":
            return _refuse("401 Unauthorized", "Invalid user token.", start)
        if path == "/api/repos/create":
            return _json({"url": f"http://{environ['HTTP_HOST']}/{REPOSITORY}"}, start)
        if match := _FILE.fullmatch(path):
            return self._file(match["path"], environ, start)
        match = _API.fullmatch(path)
        if match is None:
            return _missing("RepoNotFound", start)
        what = match["what"]
        if what in (None, "revision"):
            return _json({"id": REPOSITORY, "sha": "0" * 40, "siblings": [], "private": False, "tags": []}, start)
        if what == "preupload":
            asked = json.loads(body)["files"]
            return _json({"files": [{**f, "uploadMode": "regular", "shouldIgnore": False} for f in asked]}, start)
        if what == "commit":
            return self._commit(body, environ["HTTP_HOST"], start)
        if what == "paths-info":
            wanted = json.loads(body)["paths"]
            return _json([one for path in wanted for one in self._told(path)], start)
        return self._tree(match["path"] or "", "recursive=true" in environ["QUERY_STRING"].lower(), start)

    def _commit(self, body: bytes, host: str, start: Callable[..., Any]) -> Iterable[bytes]:
        lines = [json.loads(line) for line in body.splitlines()]
        adds = {one["value"]["path"]: one["value"]["content"] for one in lines if one["key"] == "file"}
        self.files = self.files | {path: base64.b64decode(content) for path, content in adds.items()}
        self.commits.append(list(adds))
        return _json({"commitUrl": f"http://{host}/{REPOSITORY}/commit/{'1' * 40}", "commitOid": "1" * 40}, start)

    def _tree(self, folder: str, recursive: bool, start: Callable[..., Any]) -> Iterable[bytes]:
        inside = f"{folder}/" if folder else ""
        below = [path[len(inside) :] for path in self.files if path.startswith(inside)]
        names = {
            "/".join(path.split("/")[:n]) for path in below for n in range(1, path.count("/") + 2 if recursive else 2)
        }
        if not names and folder:
            return _missing("EntryNotFound", start)
        return _json([one for name in sorted(names) for one in self._told(inside + name)], start)

    def _told(self, path: str) -> list[dict[str, Any]]:
        if path in self.files:
            data = self.files[path]
            return [{"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}]  # noqa: S324
        inside = any(name.startswith(f"{path}/") for name in self.files)
        return [{"type": "directory", "path": path, "size": 0, "oid": "0" * 40}] * inside

    def _file(self, path: str, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        data = self.files.get(path)
        if data is None:
            return _missing("EntryNotFound", start)
        headers = [("ETag", f'"{hashlib.sha256(data).hexdigest()}"'), ("X-Repo-Commit", "0" * 40)]
        status = "200 OK"
        if part := re.fullmatch(r"bytes=(\d+)-(\d*)", environ.get("HTTP_RANGE", "")):
            first, last = int(part[1]), min(int(part[2] or len(data)), len(data) - 1)
            headers.append(("Content-Range", f"bytes {first}-{last}/{len(data)}"))
            data, status = data[first : last + 1], "206 Partial Content"
        start(status, [*headers, ("Content-Length", str(len(data)))])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else data]


@contextmanager
def serve_hub(cache: Path) -> Iterator[Hub]:
    """Serve a hub on this host, the only one that huggingface_hub of this process and of its children sees."""
    application = Hub()
    with started(application) as server, pytest.MonkeyPatch.context() as patched:
        assert server.server is not None
        endpoint = f"http://127.0.0.1:{server.server.server_port}"
        for name, value in (
            ("ENDPOINT", endpoint),
            ("HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}"),
            ("HF_HUB_CACHE", str(cache)),
            ("HF_TOKEN_PATH", str(cache / "token")),
        ):
            patched.setattr(f"huggingface_hub.constants.{name}", value)
        for name, value in {"HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}.items():
            patched.setenv(name, value)
        patched.delenv("HF_TOKEN", raising=False)
        yield application


def _json(record: object, start: Callable[..., Any]) -> Iterable[bytes]:
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(record).encode()]


def _missing(code: str, start: Callable[..., Any]) -> Iterable[bytes]:
    return _refuse("404 Not Found", code, start)


def _refuse(status: str, code: str, start: Callable[..., Any]) -> Iterable[bytes]:
    start(status, [("X-Error-Code", code), ("Content-Type", "application/json")])
    return [json.dumps({"error": code}).encode()]
