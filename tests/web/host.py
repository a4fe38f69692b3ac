"""A static host that knows nothing of bundles: it sends the files of a folder, and can hold an answer back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Self
from urllib.parse import urlsplit

from edgekit_targets.web.server import OTHER, TYPES


class Host:
    """Serves folders until it is closed.

    Args:
        folders: Folder by the path that it is served under: "/" or "/name/".
        cache_control: Sent with every file.
        hold: Called with the request's path before it is answered; it may block.
        headers: Sent with every file, too.
    """

    def __init__(
        self,
        folders: Mapping[str, Path],
        cache_control: str = "no-cache",
        hold: Callable[[str], None] = lambda path: None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.folders = dict(folders)
        host = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                hold(path)
                file = host.find(path)
                data = file.read_bytes() if file else b"not here"
                self.send_response(200 if file else 404)
                self.send_header("Content-Type", TYPES.get(file.suffix, OTHER) if file else "text/plain")
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Cache-Control", cache_control)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # a page that was closed

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"

    def find(self, path: str) -> Path | None:
        """The file of a request path, or None."""
        under = max((u for u in self.folders if path.startswith(u)), key=len, default=None)
        if under is None:
            return None
        file = self.folders[under] / (path.removeprefix(under) or "index.html")
        return file if file.is_file() else None

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
