"""A toy model's build with a verified ONNX artifact, and servers of it, in this process or in their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from queue import Queue
from threading import Thread
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from starlette.testclient import TestClient

import edgekit
from edgekit_serve.application import Limits, application
from edgekit_serve.models import Models, ServeOptions
from tests.plugins.apps import toy

ROOT = Path(__file__).parents[3]
SECONDS = 60  # until a server on a busy host says where it is, answers, and ends


class Reply(NamedTuple):
    """The head of an answer."""

    status: int
    headers: Mapping[str, str]


class Serving:
    """A server that runs, and what it has logged."""

    log: list[dict[str, Any]]

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[Reply, bytes]:
        raise NotImplementedError

    def form(self, path: str = "/predict", **fields: bytes) -> tuple[int, dict[str, Any], Reply]:
        """Send fields as a browser or curl does; those of bytes that are no text as files."""
        parts = []
        for name, data in fields.items():
            named = f'form-data; name="{name}"' + ('; filename="a"' if name == "image" else "")
            parts += [b"--edge\r\nContent-Disposition: " + named.encode() + b"\r\n\r\n" + data + b"\r\n"]
        body = b"".join(parts) + b"--edge--\r\n"
        reply, data = self.ask("POST", path, body, Content_Type="multipart/form-data; boundary=edge")
        return reply.status, json.loads(data), reply

    def events(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.log if line.get("event") == event]

    def refused(self, reason: str) -> float:
        """How many requests were refused for a reason so far."""
        text = self.ask("GET", "/metrics")[1].decode()
        count = re.search(rf'edgekit_refused_total{{reason="{reason}"}} (\S+)', text)
        return float(count[1]) if count else 0.0


@dataclass
class LocalServing(Serving):
    """A server in this process, without sockets."""

    client: TestClient
    models: Models
    log: list[dict[str, Any]]

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[Reply, bytes]:
        encoded = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
        response = self.client.request(method, path, content=body, headers=encoded)
        return Reply(response.status_code, response.headers), response.content

    def renew(self) -> None:
        """Look for newer artifacts now."""
        assert self.client.portal is not None
        self.client.portal.call(self.models.renew)


@dataclass
class ProcessServing(Serving):
    """A server in processes of its own."""

    process: subprocess.Popen[str]
    port: int = 0
    log: list[dict[str, Any]] = field(default_factory=list)
    readers: tuple[Thread, ...] = ()

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[Reply, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return Reply(response.status, response.headers), data  # type: ignore[arg-type]  # a message is a mapping

    def children(self) -> list[int]:
        tasks = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in tasks.read_text().split()]


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy's build: a picture and words in, 16 scores out."""
    folder = tmp_path_factory.mktemp("served")
    edgekit.export(toy.spec, targets=["onnx"], output=folder, progress="none").raise_for_verdict()
    return folder / "toy"


@pytest.fixture
def build(exported: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(exported, tmp_path / "toy"))


@pytest.fixture
def serve() -> Iterator[Callable[..., ProcessServing]]:
    """Start servers in processes of their own, and end them after the test."""
    yield from _servers()


@pytest.fixture(scope="module")
def process(exported: Path) -> Iterator[ProcessServing]:
    """A server in a process of its own, for tests that ask and change nothing: bodies of 1 MiB, 5 s for each."""
    for start in _servers():
        yield start(exported, "--max-body", "1", "--timeout", "5")


@pytest.fixture
def serve_here() -> Iterator[Callable[..., LocalServing]]:
    """Start servers in this process, and end them after the test."""
    with ExitStack() as stack:
        yield partial(_serve_here, stack)


@pytest.fixture(scope="module")
def shared(exported: Path) -> Iterator[LocalServing]:
    """A server in this process for tests that ask and change nothing."""
    with ExitStack() as stack:
        yield _serve_here(stack, exported)


def _serve_here(
    stack: ExitStack,
    build: Path,
    targets: tuple[str, ...] = (),
    limits: Limits = Limits(),
    reload: float = 0.0,
    unverified: bool = False,
) -> LocalServing:
    lines: list[dict[str, Any]] = []
    patch = stack.enter_context(pytest.MonkeyPatch.context())
    error_output = SimpleNamespace(write=lambda line: lines.append(json.loads(line)), flush=lambda: None)
    patch.setattr("edgekit_serve.process.sys", SimpleNamespace(stderr=error_output))
    models = Models((build,), targets, ServeOptions(unverified=unverified, trust_build=True))
    models.open()
    client = TestClient(application(models, limits, reload), raise_server_exceptions=False)
    return LocalServing(stack.enter_context(client), models, lines)


def _servers() -> Iterator[Callable[..., ProcessServing]]:
    started: list[ProcessServing] = []

    def start(*arguments: object) -> ProcessServing:
        command = [sys.executable, "-m", "edgekit", "serve", *map(str, arguments), "--port", "0", "--trust-build"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "plugins", ROOT / "targets")))}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        )
        server = ProcessServing(process)
        started.append(server)
        lines: Queue[str] = Queue()
        server.readers = Thread(target=_read_log, args=(server,)), Thread(target=_read_output, args=(process, lines))
        for reader in server.readers:
            reader.start()
        while not server.port:
            if found := re.search(r":(\d+)  ", lines.get(timeout=SECONDS)):
                server.port = int(found[1])
        while server.ask("GET", "/health/ready")[0].status != 200:
            pass
        return server

    yield start
    for server in started:
        server.process.send_signal(signal.SIGTERM)
    for server in started:
        try:
            server.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            server.process.kill()
            raise
        for reader in server.readers:
            reader.join()
        for pipe in (server.process.stdout, server.process.stderr):
            if pipe is not None:
                pipe.close()


def _read_log(server: ProcessServing) -> None:
    assert server.process.stderr is not None
    for line in server.process.stderr:
        server.log.append(json.loads(line) if line.startswith("{") else {"event": "text", "text": line})


def _read_output(process: subprocess.Popen[str], lines: Queue[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
