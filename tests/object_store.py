"""An S3 server on this host (moto's), whose answers a test can spoil: 503, half a body, none in time, or a kill."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from multiprocessing.process import BaseProcess
from typing import Any

from werkzeug.serving import BaseWSGIServer, make_server

BUSY, HALF, LATE = "503", "half a body", "late"
TIMEOUT = 0.5  # seconds, after which these clients give up on an answer
Fault = Callable[[str, str, int], str]
"""What becomes of a request: its method, its path, and its number; empty for nothing."""


@dataclass
class S3:
    """The server.

    Attributes:
        app: Moto's.
        fault: Spoils answers.
        before: Called with the number of each request before it is carried out.
        after: Likewise, after it was carried out and before it is answered.
        requests: What was asked so far: methods and paths.
        queries: What stood behind these paths.
    """

    app: Callable[..., Iterable[bytes]]
    server: BaseWSGIServer | None = None
    fault: Fault = lambda method, path, number: ""
    before: Callable[[int], object] = lambda number: None
    after: Callable[[int], object] = lambda number: None
    requests: list[tuple[str, str]] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    @property
    def environment(self) -> dict[str, str]:
        """What clients must have in their environment."""
        assert self.server is not None
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server.server_port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with self.lock:
            number = len(self.requests)
            self.queries.append(environ["QUERY_STRING"])
            self.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        self.before(number)
        fault = self.fault(environ["REQUEST_METHOD"], environ["PATH_INFO"], number)
        if fault == BUSY:
            chunked = environ.get("wsgi.input_terminated", False)
            environ["wsgi.input"].read(*([] if chunked else [int(environ.get("CONTENT_LENGTH") or 0)]))
            start("503 Slow Down", [("Content-Type", "application/xml")])
            return [b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"]
        if fault == LATE:
            time.sleep(TIMEOUT * 1.5)
        answer = self.app(environ, start)
        self.after(number)
        return _half(answer) if fault == HALF else answer

    def quiet(self) -> None:
        """Forget what was asked, and spoil nothing more."""
        self.requests.clear()
        self.queries.clear()
        self.fault, self.before, self.after = (lambda *_: ""), (lambda _: None), (lambda _: None)


def killing(process: BaseProcess, at: int) -> Callable[[int], None]:
    """Kills a process, which is about to be started, at one of its requests."""

    def kill(number: int) -> None:
        if number != at:
            return
        while process.pid is None:  # its first request may come before its start has returned
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGKILL)

    return kill


def _half(answer: Iterable[bytes]) -> Iterator[bytes]:
    body = b"".join(answer)
    yield body[: len(body) // 2]
    raise ConnectionError("the rest never comes")


@contextmanager
def started(app: Callable[..., Iterable[bytes]] | None = None) -> Iterator[S3]:
    """The server, or one with the same faults around another application."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app

    class Handler(MotoRequestHandler):  # type: ignore[misc,unused-ignore]
        def log(self, kind: str, message: str, *rest: object) -> None:
            """Say nothing."""

        def connection_dropped(self, error: BaseException, environ: dict[str, Any] | None = None) -> None:
            self.close_connection = True

    s3 = S3(app or DomainDispatcherApplication(create_backend_app))
    s3.server = make_server("127.0.0.1", 0, s3, threaded=True, request_handler=Handler)
    thread = threading.Thread(target=s3.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield s3
    finally:
        s3.server.shutdown()
        s3.server.server_close()
        thread.join()


def empty_bucket(s3: S3, name: str) -> None:
    """Make a bucket anew."""
    port = s3.server.server_port if s3.server else 0
    for path in ("/moto-api/reset", f"/{name}"):
        connection = HTTPConnection("127.0.0.1", port)
        connection.request("POST" if "moto" in path else "PUT", path)
        assert connection.getresponse().status == 200
        connection.close()
    s3.quiet()


def objects(s3: S3, method: str = "PUT", kind: str = "blobs") -> list[str]:
    """The objects of a kind that were sent, or read."""
    return [path for verb, path in s3.requests if verb == method and f"/{kind}/" in path]
