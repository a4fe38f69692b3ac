"""Requests that are joined: each gets its own rows, and none spoils another's."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Future
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.errors import UsageError
from edgekit.model.spec import Array
from edgekit.pipeline.loaded import LoadedArtifact
from edgekit_serve.models import Batcher, Batching, Timed

Arrays = Mapping[str, Array]


class Asked:
    """An artifact whose first run is held, so that what comes meanwhile waits together."""

    def __init__(self, artifact: LoadedArtifact) -> None:
        self.artifact, self.rows, self.held = artifact, list[int](), threading.Event()
        self.running = threading.Event()

    def run(self, inputs: Arrays) -> dict[str, Array]:
        self.rows.append(len(inputs["queries"]))
        self.running.set()
        assert self.held.wait(30)
        return self.artifact.run(inputs)


@pytest.fixture
def asked(exported: Path) -> Iterator[Asked]:
    with edgekit.load(exported / "onnx") as artifact:
        yield Asked(artifact)


def inputs(seed: int, batch: int = 1) -> dict[str, Array]:
    draw = np.random.default_rng(seed)
    return {"images": draw.random((batch, 3, 16, 16), np.float32), "queries": draw.random((batch, 24), np.float32)}


def held_batch(asked: Asked, requests: list[dict[str, Array]], batching: Batching) -> list[Future[Timed]]:
    """Futures of requests that came while another ran."""
    batcher = Batcher(asked.artifact.manifest, asked.run, batching)
    first = batcher.submit(inputs(0))
    assert asked.running.wait(30)
    futures = [batcher.submit(one) for one in requests]
    futures[-1].cancel()
    asked.held.set()
    batcher.close()
    first.result()
    with pytest.raises(CancelledError):
        futures[-1].result()
    return futures[:-1]


def test_what_waits_is_joined_and_each_gets_its_own_rows(asked: Asked) -> None:
    requests = [inputs(seed, batch) for seed, batch in ((1, 1), (2, 1), (3, 2), (4, 1), (5, 1))]
    answers = held_batch(asked, requests, Batching(8))
    assert asked.rows == [1, 2, 2, 1]  # at most the 2 that the axis takes; the last one was cancelled
    for request, answer in zip(requests, answers, strict=False):
        for name, right in asked.artifact.run(request).items():
            assert answer.result()[0][name].shape == right.shape
            np.testing.assert_allclose(answer.result()[0][name], right, atol=1e-5)


def test_a_wrong_request_spoils_no_other(asked: Asked) -> None:
    wrong = inputs(2) | {"images": np.zeros((1, 3, 16, 20), np.float32)}
    missing = {"images": inputs(3)["images"]}
    flat = inputs(4) | {"queries": np.zeros(24, np.float32)}
    right = held_batch(asked, [inputs(1), wrong, missing, flat, inputs(5), wrong, inputs(6)], Batching(8))
    for future in (right[1], right[5]):
        with pytest.raises(UsageError, match=r"takes|of the size|axis|dimension"):
            future.result()
    for future in right[2:4]:
        with pytest.raises((UsageError, KeyError)):
            future.result()
    for future, seed in ((right[0], 1), (right[4], 5)):
        np.testing.assert_allclose(
            future.result()[0]["relevance"], asked.artifact.run(inputs(seed))["relevance"], atol=1e-5
        )


def test_alone_unless_it_is_asked_for(asked: Asked) -> None:
    held_batch(asked, [inputs(seed) for seed in range(4)], Batching())
    assert asked.rows == [1] * 4


def test_a_run_that_fails_fails_those_that_it_joins(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(inputs: Arrays) -> dict[str, Array]:
        assert asked.held.wait(30)
        raise RuntimeError("no memory left on the device")

    batcher = Batcher(asked.artifact.manifest, crash, Batching(8, 0.2))
    futures = [batcher.submit(inputs(seed)) for seed in range(3)]
    asked.held.set()
    for future in futures:
        with pytest.raises(RuntimeError, match="no memory left"):
            future.result()
    batcher.close()
