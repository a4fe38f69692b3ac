"""`--push-to hf:ORG/NAME` on a hub of this host: what is uploaded, and what ends in a sentence with the build kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import exit_code
from tests.hub import REPOSITORY, Hub, serve_hub

pytest.importorskip("huggingface_hub", reason="no huggingface_hub: pip install huggingface_hub")

TOKEN = "hf_test"  # noqa: S105 - of the hub on this host
MODEL = "edgekit.testing:small_model"
TARGETS = ("-t", "onnx", "-t", "onnx-fp16")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serve_hub(tmp_path / "cache") as application:
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        application.token = TOKEN
        yield application


def push(build: Path, name: str = f"hf:{REPOSITORY}", *more: object) -> int:
    """Export the small model, which is in the build folder already, and push it."""
    return exit_code("export", MODEL, *TARGETS, "-o", build.parent, "--push-to", name, *more)


def contents(build: Path) -> dict[str, bytes]:
    """The files of the artifacts."""
    return {str(path): path.read_bytes() for t in TARGETS[1::2] for path in (build / t).rglob("*") if path.is_file()}


def test_verified_artifacts_and_the_report_are_one_commit(
    hub: Hub, build: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert push(build) == 0
    assert REPOSITORY in capfd.readouterr().out.splitlines()[-1]
    [paths] = hub.commits
    artifacts = {p.relative_to(build).as_posix() for t in TARGETS[1::2] for p in (build / t).rglob("*") if p.is_file()}
    assert set(paths) == artifacts | {f"report.{end}" for end in ("csv", "html", "json", "md")}
    assert hub.files["onnx/manifest.json"] == (build / "onnx" / "manifest.json").read_bytes()
    assert push(build, f"hf:{REPOSITORY}", "--json") == 0
    assert json.loads(capfd.readouterr().out)["path"] == str(build)


def test_a_run_over_budget_uploads_nothing(hub: Hub, build: Path) -> None:
    assert push(build, f"hf:{REPOSITORY}", "--budget", "size=1kB") == 3
    assert hub.commits == []


@pytest.mark.parametrize(
    ("name", "token", "words"),
    [
        ("hf:none", TOKEN, "'hf:none'"),
        ("hf:a/b/c", TOKEN, "'hf:a/b/c'"),
        ("s3://bucket/name", TOKEN, "'s3://bucket/name'. Write hf:ORG/NAME"),
        (f"hf:{REPOSITORY}", "", "hf auth login"),
        (f"hf:{REPOSITORY}", "hf_other", "HTTP 401"),
    ],
)
def test_what_the_hub_does_not_take_is_one_sentence_and_the_build_is_kept(
    name: str,
    token: str,
    words: str,
    hub: Hub,
    build: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    before = contents(build)
    assert push(build, name) == 2
    error = capfd.readouterr().err
    assert words in error.splitlines()[-1]
    assert "Traceback" not in error
    assert contents(build) == before
    assert hub.commits == []


def test_an_unreachable_hub_is_one_sentence_and_the_build_is_kept(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with serve_hub(tmp_path / "cache"):
        # Nothing listens on port 9 of this host.
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        before = contents(build)
        assert push(build) == 2
    error = capfd.readouterr().err
    assert str(build) in error.splitlines()[-1]
    assert "Traceback" not in error
    assert contents(build) == before
