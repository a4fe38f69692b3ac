"""Queues, and runs that do not end: in this process, where a run can be held."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from edgekit.model.spec import Array
from edgekit_serve.models import ServedModel, ServeOptions, open_served
from edgekit_serve.protocol import BusyError, TooSlowError


def finish(work: Coroutine[None, None, None]) -> None:
    """Run it in a thread: Playwright leaves an event loop running in the main one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()


@pytest.fixture
def served(exported: Path) -> Iterator[ServedModel]:
    opened = open_served(exported, "onnx", ServeOptions(trust_build=True))
    yield opened
    finish(opened.close())


def inputs() -> dict[str, Array]:
    return {"images": np.full((1, 3, 16, 16), 0.5, np.float32), "queries": np.zeros((1, 24), np.float32)}


def test_a_full_queue_refuses_and_a_late_answer_is_not_waited_for(
    served: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, held = threading.Event(), threading.Event()
    right = served.artifact.run(inputs())

    def run(arrays: dict[str, Array]) -> dict[str, Array]:
        begun.set()
        held.wait(30)
        return right

    monkeypatch.setattr(served.batcher, "run", run)

    async def ask() -> None:
        async def one() -> dict[str, Array]:
            with served.place(1):
                return (await served.run(inputs(), seconds=20))[0]

        first, second = asyncio.create_task(one()), asyncio.create_task(one())
        assert await asyncio.to_thread(begun.wait, 30)
        with pytest.raises(BusyError, match="1 requests already wait for 'toy'"), served.place(1):
            pass
        with pytest.raises(TooSlowError, match=r"did not answer within 0\.1 s"):
            await served.run(inputs(), seconds=0.1)
        assert served.batcher.started is not None
        held.set()
        for answers in (await first, await second):
            assert np.array_equal(answers["relevance"], right["relevance"])
        assert served.waiting == 0
        assert served.batcher.started is None

    finish(ask())
