"""Serving a bundle on this machine: a fixed table of the manifest's hashed files, and nothing else.

A request's path is looked up, never joined to a folder, so that there is nothing to traverse. Precompressed siblings
are chosen by Accept-Encoding; every answer carries the headers that threads need (COOP and COEP).
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import ipaddress
import os
import socket
import stat
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Self
from urllib.parse import unquote_to_bytes

from edgekit.artifact.store import MANIFEST, read_artifact
from edgekit.errors import ArtifactError, UsageError
from edgekit.storage.files import digest_bytes

LOCAL = "127.0.0.1"
EVERY = frozenset({"0.0.0.0", "::"})  # noqa: S104 - recognised, not chosen
IDLE = 30.0  # seconds a connection may say nothing
MOST = 64  # connections at once; a browser opens six to one host
PATIENCE = 1.0  # seconds without a request or a part of an answer, after which a connection makes room for another one
CHUNK = 1 << 18
ENCODINGS = {"br": ".br", "gzip": ".gz"}  # best first
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".webp": "image/webp",
    ".md": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    "": "text/plain; charset=utf-8",
}
OTHER = "application/octet-stream"
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; media-src 'self' blob:; style-src 'self'; manifest-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)
"""The content security policy of web/index.html, which a host must send too: workers obey their own answer's only."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""What goes out with every file: the policy, and what threads need (COOP and COEP)."""


@dataclass(frozen=True)
class ServedFile:
    """One file as it goes out, and its compressed siblings by encoding; `packed`: with gzip, if it has no sibling."""

    file: _File
    encoded: Mapping[str, _File]
    packed: bytes = b""


@dataclass
class _File:
    """A file of the bundle as it was when its hash was checked: what the system then said of it (`_marks`)."""

    path: Path
    sha256: str
    marks: tuple[int, ...]

    @classmethod
    def of(cls, folder: Path, name: str, sha256: str) -> Self:
        return cls(folder / name, sha256, _marks((folder / name).lstat()))

    def open(self) -> BinaryIO:
        """Open it, not through a link; where it was written since, its content is compared first.

        Raises:
            OSError: If it is no plain file any more, or holds something else.
        """
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        stream = os.fdopen(os.open(self.path, flags), "rb")
        status = os.fstat(stream.fileno())
        try:
            if not stat.S_ISREG(status.st_mode):
                raise OSError("it is no file")
            if (marks := _marks(status)) != self.marks:
                if hashlib.file_digest(stream, "sha256").hexdigest() != self.sha256:
                    raise OSError("its content is another one")
                self.marks = marks
                stream.seek(0)
        except OSError:
            stream.close()
            raise
        return stream


def _marks(status: os.stat_result) -> tuple[int, ...]:
    """What changes with a file's content or place."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class Server:
    """Serves one bundle, an artifact folder of the target `web`, within a `with` block; port 0 takes a free one.

    It holds a socket within the block alone.

    Raises:
        ArtifactError: If it is no artifact, or a file differs from its manifest.
    """

    def __init__(self, folder: Path, host: str = LOCAL, port: int = 0) -> None:
        table = tabulate(folder.resolve())

        class Handler(_Handler):
            files = table
            names = frozenset({LOCAL, "localhost", "[::1]", host})

        self._address, self._handler = (host, port), Handler

    @property
    def url(self) -> str:
        """Where the page is."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/"

    def wait(self) -> None:
        """Wait until interrupted."""
        self._thread.join()

    def __enter__(self) -> Self:
        """Serve in a thread.

        Raises:
            UsageError: If the address cannot be listened on.
        """
        try:
            self._server = _Threads(self._address, self._handler)
        except OSError as error:
            host, port = self._address
            raise UsageError(
                f"cannot listen on '{host}:{port}' ({error.strerror}): choose another port with --port"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def tabulate(folder: Path) -> dict[str, ServedFile]:
    """Request path -> file, for what the manifest names and for the manifest."""
    began = time.time_ns()
    hashes = {file.path: file.sha256 for file in read_artifact(folder).files}
    if "index.html" not in hashes:
        raise ArtifactError(f"'{folder}' is not a web bundle: make one with `edgekit export -t web`")
    files = {path: _File.of(folder, path, sha256) for path, sha256 in hashes.items()}
    for file in files.values():
        if max(file.marks[2:]) >= began:  # written while it was hashed, or after
            file.marks = ()
    table = {}
    for path, file in files.items():
        encoded = {e: files[path + suffix] for e, suffix in ENCODINGS.items() if path + suffix in files}
        table[f"/{path}"] = ServedFile(file, encoded)
    data = (folder / MANIFEST).read_bytes()  # no sibling of it can be in the list of files that it is
    own = _File.of(folder, MANIFEST, digest_bytes(data))
    table[f"/{MANIFEST}"] = ServedFile(own, {}, gzip.compress(data, mtime=0))
    table["/"] = table["/index.html"]
    return table


class _Threads(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._moved: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; where there are many, hang up on the one that has done nothing for longest."""
        now = time.monotonic()
        with self._lock:
            slowest = min(self._moved, key=lambda each: self._moved[each], default=None)
            room = len(self._moved) < MOST
            if not room and slowest is not None and now - self._moved[slowest] > PATIENCE:
                del self._moved[slowest]
                with contextlib.suppress(OSError):
                    slowest.shutdown(socket.SHUT_RDWR)  # its thread ends
                room = True
            if room:
                self._moved[request] = now
        if room:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def note_activity(self, request: socket.socket) -> None:
        """Take note that a connection has sent a request, or has taken a part of an answer."""
        with self._lock:
            if request in self._moved:
                self._moved[request] = time.monotonic()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One connection, until it is closed."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._moved.pop(request, None)

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that closes a tab breaks its connections: nothing to say."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "edgekit"
    sys_version = ""
    timeout = IDLE
    files: Mapping[str, ServedFile] = {}
    names: frozenset[str] = frozenset()

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, body: bool) -> None:
        self._note()
        if not self._meant(self.headers.get("Host", "").rpartition(":")[0]):  # a page elsewhere that has its name here
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "this server has another name: open its own address", body)
            return
        name = unquote_to_bytes(self.path.partition("?")[0]).decode("utf-8", "replace")
        served = self.files.get(name)
        if served is None:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such file in this bundle", body)
            return
        accepted = {
            part.partition(";")[0].strip()
            for part in self.headers.get("Accept-Encoding", "").split(",")
            if part.replace(" ", "").partition(";q=")[2] not in ("0", "0.0")
        }
        encodings = {*served.encoded, *(("gzip",) if served.packed else ())}
        encoding = next((e for e in ENCODINGS if e in accepted and e in encodings), "")
        tag = f'"{served.file.sha256[:20]}{"-" + encoding if encoding else ""}"'
        if self.headers.get("If-None-Match") == tag:
            self._start(HTTPStatus.NOT_MODIFIED, name, tag, encoding, 0)
            return
        try:
            file: BinaryIO = served.encoded.get(encoding, served.file).open()
        except OSError:
            self._refuse(
                HTTPStatus.CONFLICT, "the file changed since the bundle was opened: start the demo again", body
            )
            return
        packed = served.packed if encoding else b""
        with file, io.BytesIO(packed) as short:
            self._start(HTTPStatus.OK, name, tag, encoding, len(packed) or os.fstat(file.fileno()).st_size)
            while body and (chunk := (short if packed else file).read(CHUNK)):
                self.wfile.write(chunk)
                self._note()

    def _note(self) -> None:
        if isinstance(self.server, _Threads):
            self.server.note_activity(self.connection)

    def _meant(self, host: str) -> bool:
        """Whether a request names this server: where it listens on every address, any address, but no other name."""
        if host in self.names:
            return True
        if not self.names & EVERY:
            return False
        with contextlib.suppress(ValueError):
            return bool(ipaddress.ip_address(host.strip("[]")))
        return False

    def _start(self, status: HTTPStatus, name: str, tag: str, encoding: str, size: int) -> None:
        file = "index.html" if name == "/" else name.removeprefix("/")
        # The build's names hold a hash, and the library asks for the runtime with its version.
        hashed = file.startswith("assets/") or (file.startswith("ort/") and "?" in self.path)
        headers = {
            "Cache-Control": "public, max-age=31536000, immutable" if hashed else "no-cache",
            "ETag": tag,
            "Vary": "Accept-Encoding",
        }
        headers |= {"Content-Encoding": encoding} if encoding else {}
        headers |= {"Content-Length": str(size)} if status is HTTPStatus.OK else {}
        self._head(status, TYPES.get(PurePosixPath(file).suffix, OTHER), headers)

    def _refuse(self, status: HTTPStatus, sentence: str, body: bool) -> None:
        data = f"{sentence}\n".encode()
        self._head(status, TYPES[""], {"Content-Length": str(len(data))})
        if body:
            self.wfile.write(data)

    def _head(self, status: HTTPStatus, kind: str, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for header, value in {**HEADERS, "Content-Type": kind, **headers}.items():
            self.send_header(header, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Requests are not news."""
