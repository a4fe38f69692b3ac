"""A repository of Hugging Face's Hub as a store: few commits, and nothing half done."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.errors import ArtifactError, HostError, UsageError
from edgekit_stores import remote
from edgekit_stores.index import index_of
from edgekit_stores.object_store import open_store
from tests.hub import REPOSITORY, Hub
from tests.object_store import S3, killing, started
from tests.plugins.stores.test_remote import KILLS, change, contents, pull, push

pytest.importorskip("huggingface_hub", reason="no huggingface_hub: pip install huggingface_hub")

URL = f"hf://{REPOSITORY}/small"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Hub, S3]]:
    application = Hub()
    with started(application) as server:
        assert server.server is not None
        endpoint = f"http://127.0.0.1:{server.server.server_port}"
        for name, value in (
            ("ENDPOINT", ""),
            ("HUGGINGFACE_CO_URL_TEMPLATE", "/{repo_id}/resolve/{revision}/{filename}"),
        ):
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", endpoint + value)
        variables = {"HF_ENDPOINT": endpoint, "HF_TOKEN": "hf_test", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        for name, value in (variables | {"EDGEKIT_BUILDS": str(tmp_path / "cache")}).items():
            monkeypatch.setenv(name, value)
        yield application, server


def test_a_push_is_three_commits_and_comes_back_as_it_was(hub: tuple[Hub, S3], build: Path, tmp_path: Path) -> None:
    whole, (repository, _) = contents(build), hub
    sent = push(build, URL)
    count = len({file.sha256 for file in index_of(build)[0].files})
    assert (sent.moved, [len(paths) for paths in repository.commits]) == (count, [count, 1, 1])
    assert all(path.startswith("small/blobs/") for path in repository.commits[0])
    assert pull(tmp_path / "into", URL).moved == count
    assert contents(tmp_path / "into" / "small") == whole
    assert push(build, URL).moved == 0
    assert len(repository.commits) == 4  # the index is written again
    change(build)
    assert push(build, URL).moved < 4
    shutil.rmtree(remote.cache())
    pull(tmp_path / "changed", URL)
    assert contents(tmp_path / "changed" / "small") == contents(build)


def test_a_flipped_bit_is_refused(hub: tuple[Hub, S3], build: Path, tmp_path: Path) -> None:
    push(build, URL)
    path, data = max(hub[0].files.items(), key=lambda item: len(item[1]))
    hub[0].files[path] = data[:-1] + bytes([data[-1] ^ 1])
    with pytest.raises(ArtifactError, match="is damaged: its content does not match its name"):
        pull(tmp_path / "into", URL)
    assert not (tmp_path / "into" / "small").exists()


def test_a_missing_repository_and_a_store_that_fails_are_a_sentence(hub: tuple[Hub, S3], build: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot use 'hf://no/body/small' .* Name an existing repository"):
        push(build, "hf://no/body/small")
    with pytest.raises(UsageError, match="no build in"):
        pull(build, URL)
    hub[1].fault = lambda method, path, number: "503" if "/commit/" in path else ""
    with pytest.raises(HostError, match="What was transferred is kept"):
        push(build, URL)
    assert open_store(URL).sizes("") == {}


def _push(build: str) -> None:
    push(Path(build), URL)


def _pull(into: str) -> None:
    pull(Path(into), URL)


@pytest.mark.nightly
@pytest.mark.parametrize("work", [_push, _pull], ids=["push", "pull"])
def test_a_kill_at_any_request_leaves_nothing_half_done(
    hub: tuple[Hub, S3], build: Path, tmp_path: Path, work: object
) -> None:
    (repository, server), dice, whole = hub, random.Random(7), contents(build)
    push(build, URL)
    requests = len(server.requests) if work is _push else len(index_of(build)[0].files)
    killed = 0
    for kill in range(KILLS):
        at, when, into = dice.randrange(requests), dice.choice(("before", "after")), tmp_path / f"into-{kill}"
        shutil.rmtree(remote.cache(), ignore_errors=True)
        if work is _push:
            repository.files.clear()
        call, folder = (_push, build) if work is _push else (_pull, into)
        process = multiprocessing.get_context("spawn").Process(target=call, args=(str(folder),))
        server.quiet()
        setattr(server, when, killing(process, at))
        process.start()
        process.join(120)
        server.quiet()
        assert process.exitcode in (0, -signal.SIGKILL)
        killed += process.exitcode != 0
        assert not (into / "small").exists() or contents(into / "small") == whole
        if "latest.json" in open_store(URL).sizes(""):
            pull(into, URL)
            assert contents(into / "small") == whole
        push(build, URL)
        pull(into, URL)
        assert contents(into / "small") == whole
    assert killed > KILLS * 0.6
