"""Who may ask the server: no page of another site, and with a token only those who have it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from edgekit.errors import UsageError
from edgekit_serve.access import LOOPBACK, Access, guarded
from edgekit_serve.application import Limits, application
from edgekit_serve.command import _secret
from edgekit_serve.models import Models, ServeOptions

PREDICT, INFER = "/predict", "/v2/models/x/infer"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (PREDICT, {"host": "127.0.0.1:8000"}, 0),
        (PREDICT, {"host": "localhost:8000", "origin": "http://localhost:8000"}, 0),
        (PREDICT, {"host": "[::1]:8000"}, 0),
        (PREDICT, {"host": "evil.example:8000"}, 421),  # a name that points here now
        (PREDICT, {}, 421),
        (PREDICT, {"host": "["}, 421),
        (PREDICT, {"host": "localhost]"}, 421),
        (PREDICT, {"host": "127.0.0.1:8000", "origin": "http://["}, 403),
        (PREDICT, {"host": "127.0.0.1:8000", "origin": "https://evil.example"}, 403),
        (PREDICT, {"host": "127.0.0.1:8000", "origin": "null"}, 403),
        (PREDICT, {"host": "127.0.0.1:8000", "origin": "http://127.0.0.1:9000"}, 403),
        (INFER, {"host": "127.0.0.1", "content-type": "text/plain"}, 415),
        (INFER, {"host": "127.0.0.1", "content-type": "multipart/form-data; boundary=a"}, 415),
        (INFER, {"host": "127.0.0.1", "content-type": "application/json"}, 0),
        (INFER, {"host": "127.0.0.1", "content-type": "application/octet-stream"}, 0),
        (INFER, {"host": "127.0.0.1"}, 0),
    ],
)
def test_a_page_of_another_site_is_refused(path: str, headers: dict[str, str], status: int) -> None:
    found, sentence = Access(LOOPBACK).refusal(path, headers)
    assert (found, bool(sentence)) == (status, bool(status))


@pytest.fixture
def client() -> TestClient:
    models = Models((), (), ServeOptions())
    return TestClient(guarded(application(models, Limits(), 0), Access((), "secret")))


def test_with_a_token_only_health_is_open(client: TestClient) -> None:
    with client:
        assert client.get("/health/live").status_code == 200
        assert client.get("/v2/health/live").status_code == 200
        for path in ("/metrics", "/v2", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers={"Authorization": "Bearer secret"}).status_code == 200
        for wrong in ("Bearer other", "Bearer ", "secret", "Basic secret"):
            refused = client.get("/v2", headers={"Authorization": wrong})
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert "token" in refused.json()["error"]


def test_the_page_of_routes_loads_nothing_from_elsewhere(client: TestClient) -> None:
    with client:
        page = client.get("/docs", headers={"Authorization": "Bearer secret"}).text
        assert "/v2/models/{name}/infer" in page
        assert re.findall(r"https?://|src=", page) == []
        index = client.post("/v2/repository/index", headers={"Authorization": "Bearer secret"})
        assert index.json() == []


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff\xfe", "ü".encode(), b"a\nb"])
def test_a_file_without_a_token_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(UsageError, match="token"):
        _secret(file)
    with pytest.raises(UsageError, match="cannot read the token"):
        _secret(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    for endless in (Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(UsageError, match=f"cannot read the token in '{endless}'"):
            _secret(endless)
    file.write_bytes(b"s3cret\n")
    assert _secret(file) == "s3cret"
