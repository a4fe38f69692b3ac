"""Serving of a bundle on this machine: a fixed table of the manifest's hashed files, and nothing else.

A request's path is looked up and never joined to a folder, so no path can leave the bundle. Precompressed siblings
are chosen by Accept-Encoding. Every answer has the headers that threads need (COOP and COEP).
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
# Seconds for which a connection may send nothing.
IDLE = 30.0
# Connections at once. A browser opens six to one host.
MOST = 64
# Seconds without a request or a part of an answer, after which a connection may be closed for another one.
PATIENCE = 1.0
CHUNK = 1 << 18
# Best first.
ENCODINGS = {"br": ".br", "gzip": ".gz"}
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
"""The content security policy of web/index.html. A host must send it too: workers obey only that of their answer."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""Headers of every file: the policy, and those that threads need (COOP and COEP)."""


@dataclass(frozen=True)
class ServedFile:
    """One file as it is sent, and its compressed siblings by encoding. `packed` is its gzip form without a sibling."""

    file: _File
    encoded: Mapping[str, _File]
    packed: bytes = b""


@dataclass
class _File:
    """A file of the bundle at the check of its hash, with the system's facts about it then (`_marks`)."""

    path: Path
    sha256: str
    marks: tuple[int, ...]

    @classmethod
    def of(cls, folder: Path, name: str, sha256: str) -> Self:
        return cls(folder / name, sha256, _marks((folder / name).lstat()))

    def open(self) -> BinaryIO:
        """Open the file, but not through a link. If it was written since, its content is compared first.

        Raises:
            OSError: If it is no longer a plain file, or has other content.
        """
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        stream = os.fdopen(os.open(self.path, flags), "rb")
        status = os.fstat(stream.fileno())
        try:
            if not stat.S_ISREG(status.st_mode):
                raise OSError("it is not a plain file")
            if (marks := _marks(status)) != self.marks:
                if hashlib.file_digest(stream, "sha256").hexdigest() != self.sha256:
                    raise OSError("its content changed")
                self.marks = marks
                stream.seek(0)
        except OSError:
            stream.close()
            raise
        return stream


def _marks(status: os.stat_result) -> tuple[int, ...]:
    """Return facts that change with a file's content or place."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class Server:
    """Server of one bundle, an artifact folder of the target `web`, within a `with` block. Port 0 takes a free one.

    It holds a socket only within the block.

    Raises:
        ArtifactError: If the folder is not an artifact, or a file differs from its manifest.
    """

    def __init__(self, folder: Path, host: str = LOCAL, port: int = 0) -> None:
        table = tabulate(folder.resolve())

        class Handler(_Handler):
            files = table
            names = frozenset({LOCAL, "localhost", "[::1]", host})

        self._address, self._handler = (host, port), Handler

    @property
    def url(self) -> str:
        """Address of the page."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/"

    def wait(self) -> None:
        """Wait until interrupted."""
        self._thread.join()

    def __enter__(self) -> Self:
        """Serve in a thread.

        Raises:
            UsageError: If the server cannot listen on the address.
        """
        try:
            self._server = _Threads(self._address, self._handler)
        except OSError as error:
            host, port = self._address
            raise UsageError(
                f"cannot listen on '{host}:{port}' ({error.strerror}). Choose another port with --port"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def tabulate(folder: Path) -> dict[str, ServedFile]:
    """Return request path -> file, for the manifest and the files that it names."""
    began = time.time_ns()
    hashes = {file.path: file.sha256 for file in read_artifact(folder).files}
    if "index.html" not in hashes:
        raise ArtifactError(f"'{folder}' is not a web bundle. Make one with `edgekit export -t web`")
    files = {path: _File.of(folder, path, sha256) for path, sha256 in hashes.items()}
    for file in files.values():
        # Written while it was hashed, or after.
        if max(file.marks[2:]) >= began:
            file.marks = ()
    table = {}
    for path, file in files.items():
        encoded = {e: files[path + suffix] for e, suffix in ENCODINGS.items() if path + suffix in files}
        table[f"/{path}"] = ServedFile(file, encoded)
    # Its own list of files cannot hold a sibling of it.
    data = (folder / MANIFEST).read_bytes()
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
        """Answer in a thread. At the limit, close the connection that was idle for longest."""
        now = time.monotonic()
        with self._lock:
            slowest = min(self._moved, key=lambda each: self._moved[each], default=None)
            room = len(self._moved) < MOST
            if not room and slowest is not None and now - self._moved[slowest] > PATIENCE:
                del self._moved[slowest]
                with contextlib.suppress(OSError):
                    # Its thread ends.
                    slowest.shutdown(socket.SHUT_RDWR)
                room = True
            if room:
                self._moved[request] = now
        if room:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def note_activity(self, request: socket.socket) -> None:
        """Record that a connection sent a request, or took a part of an answer."""
        with self._lock:
            if request in self._moved:
                self._moved[request] = time.monotonic()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection, until it is closed."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._moved.pop(request, None)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors: a browser that closes a tab breaks its connections."""


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
        # A page elsewhere that has its name here.
        if not self._meant(self.headers.get("Host", "").rpartition(":")[0]):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "this server has another name. Open its own address", body)
            return
        name = unquote_to_bytes(self.path.partition("?")[0]).decode("utf-8", "replace")
        served = self.files.get(name)
        if served is None:
            self._refuse(HTTPStatus.NOT_FOUND, "this bundle has no such file", body)
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
                HTTPStatus.CONFLICT, "the file changed since the bundle was opened. Start the demo again", body
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
        """Return whether a request names this server: its own name, or any address if it listens on every address."""
        if host in self.names:
            return True
        if not self.names & EVERY:
            return False
        with contextlib.suppress(ValueError):
            return bool(ipaddress.ip_address(host.strip("[]")))
        return False

    def _start(self, status: HTTPStatus, name: str, tag: str, encoding: str, size: int) -> None:
        file = "index.html" if name == "/" else name.removeprefix("/")
        # The build's names hold a hash, and the library requests the runtime with its version.
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
        """Log nothing about requests."""
