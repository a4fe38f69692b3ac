import contextlib
import gzip
import os
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from edgekit.artifact.manifest import BundleInfo, Manifest
from edgekit.artifact.store import commit
from edgekit.errors import ArtifactError, UsageError
from edgekit_targets.web import server as static
from edgekit_targets.web.server import HEADERS, Server
from tests.manifests import EXPORT, unchecked

HIDDEN = "no page of yours"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "web"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html>")
    (folder / "assets" / "page-1a.js").write_text("1;" * 400)
    (folder / "assets" / "page-1a.js.br").write_bytes(b"brotli bytes")
    (folder / "assets" / "page-1a.js.gz").write_bytes(b"gzip bytes")
    (folder / "run.wasm").write_bytes(b"\0asm")
    manifest = Manifest(name="small", target="web", precision="mixed", entry="index.html", export=EXPORT, files=())
    commit(folder, manifest)
    (tmp_path / "secret.txt").write_text(HIDDEN)
    (folder / "unlisted.txt").write_text(HIDDEN)
    return folder


@pytest.fixture
def server(bundle: Path) -> Iterator[Server]:
    with Server(bundle) as served:
        yield served


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    address = urlsplit(server.url)
    connection = HTTPConnection(str(address.hostname), address.port, timeout=10)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def test_serves_the_page_with_what_threads_need(server: Server) -> None:
    response, body = ask(server, "/")
    assert (response.status, body) == (200, b"<!doctype html>")
    assert {name: response.getheader(name) for name in HEADERS} == HEADERS
    assert response.getheader("Content-Type") == "text/html; charset=utf-8"
    assert response.getheader("Cache-Control") == "no-cache"


def test_serves_the_manifest_and_the_right_types(server: Server) -> None:
    plain, data = ask(server, "/manifest.json")
    assert plain.getheader("Content-Type") == "application/json"
    packed, smaller = ask(server, "/manifest.json", Accept_Encoding="br, gzip")
    assert (packed.getheader("Content-Encoding"), packed.getheader("Vary")) == ("gzip", "Accept-Encoding")
    assert int(packed.getheader("Content-Length") or 0) == len(smaller)
    assert gzip.decompress(smaller) == data
    assert plain.getheader("ETag") != packed.getheader("ETag")
    assert ask(server, "/run.wasm")[0].getheader("Content-Type") == "application/wasm"
    script, _ = ask(server, "/assets/page-1a.js?v=1")
    assert script.getheader("Content-Type") == "text/javascript; charset=utf-8"
    assert "immutable" in str(script.getheader("Cache-Control"))


@pytest.mark.parametrize(
    ("accepted", "encoding", "body"),
    [
        ("gzip, deflate, br, zstd", "br", b"brotli bytes"),
        ("gzip", "gzip", b"gzip bytes"),
        ("br;q=0, gzip;q=0.5", "gzip", b"gzip bytes"),
        ("identity", None, b"1;" * 400),
    ],
)
def test_chooses_the_precompressed_sibling(server: Server, accepted: str, encoding: str | None, body: bytes) -> None:
    response, got = ask(server, "/assets/page-1a.js", Accept_Encoding=accepted)
    assert (response.getheader("Content-Encoding"), got) == (encoding, body)
    assert response.getheader("Vary") == "Accept-Encoding"


def test_an_unchanged_file_is_not_sent_again(server: Server) -> None:
    tag = str(ask(server, "/run.wasm")[0].getheader("ETag"))
    response, body = ask(server, "/run.wasm", If_None_Match=tag)
    assert (response.status, body) == (304, b"")


def test_head_sends_no_body(server: Server) -> None:
    response, body = ask(server, "/run.wasm", "HEAD")
    assert (response.status, response.getheader("Content-Length"), body) == (200, "4", b"")


NOT_SERVED = (
    "/../secret.txt", "/%2e%2e/secret.txt", "/%2e%2e%2fsecret.txt", "/..%5csecret.txt", "/..\\secret.txt",
    "/assets/../../secret.txt", "/assets/../run.wasm", "/./run.wasm", "/run.wasm%00.txt", "/run.wasm/", "/assets/",
    "/%252e%252e/secret.txt", "/assets", "/unlisted.txt", "/result.json", "/C:/secret.txt", "/file:///etc/passwd",
    "/etc/passwd", "/%ff%fe", "/" + "a" * 5000,
)  # fmt: skip


def test_nothing_outside_the_list_is_served(server: Server) -> None:
    for path in NOT_SERVED:
        response, body = ask(server, path)
        assert (response.status, body) == (404, b"this bundle has no such file\n"), path


@pytest.mark.parametrize(
    "line", [b"GET {secret} HTTP/1.1", b"GET \0 HTTP/1.1", b"BREW / HTTP/1.1", b"GET /", b"\xff\xff\xff"]
)
def test_crude_requests_get_an_error_and_the_server_lives(server: Server, bundle: Path, line: bytes) -> None:
    address = urlsplit(server.url)
    secret = str(bundle.parent / "secret.txt").encode()
    with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=10) as connection:
        connection.sendall(line.replace(b"{secret}", secret) + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert HIDDEN.encode() not in answer
    assert b" 200 " not in answer
    assert ask(server, "/")[0].status == 200


def test_only_reading_is_possible(server: Server) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(server, "/", method)[0].status == 501


def test_a_file_that_became_a_link_is_refused(server: Server, bundle: Path) -> None:
    (bundle / "run.wasm").unlink()
    (bundle / "run.wasm").symlink_to(bundle.parent / "secret.txt")
    response, body = ask(server, "/run.wasm")
    assert response.status == 409
    assert body.startswith(b"the file changed")


@pytest.mark.parametrize("change", ["content", "pipe"])
def test_a_file_that_became_another_one_is_refused_at_once(server: Server, bundle: Path, change: str) -> None:
    file = bundle / "run.wasm"
    size = file.stat().st_size
    file.unlink()
    if change == "pipe":
        os.mkfifo(file)
    else:
        file.write_bytes(b"x" * size)
    response, body = ask(server, "/run.wasm")
    assert (response.status, body[:16]) == (409, b"the file changed")


def test_the_same_file_written_again_is_served(server: Server, bundle: Path) -> None:
    file = bundle / "run.wasm"
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data)
    for _ in range(2):
        assert ask(server, "/run.wasm")[1] == data


def test_a_link_in_the_bundle_is_refused_at_the_start(bundle: Path) -> None:
    data = (bundle / "run.wasm").read_bytes()
    (bundle.parent / "other.wasm").write_bytes(data)
    (bundle / "run.wasm").unlink()
    (bundle / "run.wasm").symlink_to(bundle.parent / "other.wasm")
    with pytest.raises(ArtifactError, match="not a regular file"):
        Server(bundle)


def test_a_damaged_bundle_is_refused_at_the_start(bundle: Path) -> None:
    (bundle / "index.html").write_text("<!doctype HTML>")
    with pytest.raises(ArtifactError, match="is damaged"):
        Server(bundle)


def test_another_artifact_is_no_bundle(bundle: Path) -> None:
    (bundle / "index.html").unlink()
    commit(bundle, unchecked(bundle).model_copy(update={"entry": "run.wasm", "bundle": BundleInfo()}))
    with pytest.raises(ArtifactError, match=r"is not a web bundle\. Make one with `edgekit export -t web`"):
        Server(bundle)


def test_a_port_in_use_is_named(server: Server, bundle: Path) -> None:
    another = Server(bundle, port=urlsplit(server.url).port or 0)
    with pytest.raises(UsageError, match=r"cannot listen on '127\.0\.0\.1:\d+'"), another:
        pass


def test_a_server_holds_a_socket_while_it_serves_alone(bundle: Path) -> None:
    server = Server(bundle)
    with server:
        port = urlsplit(server.url).port or 0
        assert ask(server, "/")[0].status == 200
    with socket.socket() as client, pytest.raises(ConnectionRefusedError):
        client.connect(("127.0.0.1", port))


def test_a_name_that_is_not_its_own_is_refused(server: Server) -> None:
    """A page of another site may let its own name lead to this machine (DNS rebinding)."""
    port = urlsplit(server.url).port
    for host in ("evil.example", f"evil.example:{port}", f"localhost.evil.example:{port}", "", f":{port}", f"{port}"):
        response, body = ask(server, "/", Host=host)
        assert (response.status, response.getheader("Content-Type")) == (421, "text/plain; charset=utf-8"), host
        assert b"doctype" not in body
    for host in ("127.0.0.1", "localhost", "[::1]"):
        assert ask(server, "/", Host=f"{host}:{port}")[0].status == 200, host


@pytest.mark.parametrize("kind", ["silent", "dripping", "unread"])
def test_slow_clients_lock_nobody_out(bundle: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    assert static.MOST == 64
    monkeypatch.setattr(static, "PATIENCE", 0.2)
    (bundle / "run.wasm").write_bytes(bytes(32 << 20))  # more than the sockets hold
    commit(bundle, unchecked(bundle))
    with Server(bundle) as server, contextlib.ExitStack() as stack:
        address = urlsplit(server.url)
        slow = []
        for _ in range(static.MOST):
            one = stack.enter_context(socket.create_connection((str(address.hostname), address.port), timeout=10))
            if kind == "unread":
                one.sendall(f"GET /run.wasm HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
            slow.append(one)
            time.sleep(0.005)  # beyond the queue of connections a client would ask again after seconds
        for _ in range(5):
            time.sleep(0.1)
            for one in slow if kind == "dripping" else ():
                one.sendall(b"G")
        assert all(any(_answered(server) for _ in range(100)) for _ in range(3))


def test_few_connections_are_answered_at_once(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static, "MOST", 3)
    with Server(bundle) as server:
        address = urlsplit(server.url)
        waiting = [socket.create_connection((str(address.hostname), address.port), timeout=10) for _ in range(3)]
        with socket.create_connection((str(address.hostname), address.port), timeout=10) as late:
            assert late.recv(1) == b""
        for one in waiting:
            one.close()
        assert any(_answered(server) for _ in range(100))


def _answered(server: Server) -> bool:
    try:
        return ask(server, "/")[0].status == 200
    except OSError:
        time.sleep(0.05)
        return False
