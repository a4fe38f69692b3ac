"""A toy model's build with a verified ONNX artifact, and servers of it in processes of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest

import edgekit
from tests.plugins.apps import toy

ROOT = Path(__file__).parents[3]
SECONDS = 60  # until a server on a busy host says where it is, answers, and ends


@dataclass
class Serving:
    """A server that runs."""

    process: subprocess.Popen[str]
    port: int = 0
    log: list[dict[str, Any]] = field(default_factory=list)
    readers: tuple[Thread, ...] = ()

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[HTTPResponse, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response, data

    def form(self, path: str = "/predict", **fields: bytes) -> tuple[int, dict[str, Any], HTTPResponse]:
        """Send fields as a browser or curl does; those of bytes that are no text as files."""
        parts = []
        for name, data in fields.items():
            named = f'form-data; name="{name}"' + ('; filename="a"' if name == "image" else "")
            parts += [b"--edge\r\nContent-Disposition: " + named.encode() + b"\r\n\r\n" + data + b"\r\n"]
        body = b"".join(parts) + b"--edge--\r\n"
        response, data = self.ask("POST", path, body, Content_Type="multipart/form-data; boundary=edge")
        return response.status, json.loads(data), response

    def events(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.log if line.get("event") == event]

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
def serve() -> Iterator[Callable[..., Serving]]:
    """Starts servers, and ends them after the test."""
    yield from _servers()


@pytest.fixture(scope="module")
def shared(exported: Path) -> Iterator[Serving]:
    """A server for tests that ask and change nothing."""
    for start in _servers():
        yield start(exported)


def _servers() -> Iterator[Callable[..., Serving]]:
    started: list[Serving] = []

    def start(*arguments: object) -> Serving:
        command = [sys.executable, "-m", "edgekit", "serve", *map(str, arguments), "--port", "0", "--trust-build"]
        environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'targets'}"}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        )
        server = Serving(process)
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


def _read_log(server: Serving) -> None:
    assert server.process.stderr is not None
    for line in server.process.stderr:
        server.log.append(json.loads(line) if line.startswith("{") else {"event": "text", "text": line})


def _read_output(process: subprocess.Popen[str], lines: Queue[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
