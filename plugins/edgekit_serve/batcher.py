"""Requests that wait for the same artifact, answered in one run of several rows: gains on a GPU, loses on most CPUs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from threading import Condition

import numpy as np

from edgekit.artifact.manifest import Manifest, TensorInfo
from edgekit.errors import EdgekitError
from edgekit.model.spec import Array

BATCH = "batch"
Arrays = Mapping[str, Array]
Timed = tuple[dict[str, Array], float]
"""Answers, and the seconds of the run that gave them."""


@dataclass(frozen=True)
class Batching:
    """How requests are joined.

    Attributes:
        rows: At most so many in one run; 1 runs each request alone.
        wait: Seconds that the first request of a run waits for others.
    """

    rows: int = 1
    wait: float = 0.0


@dataclass(eq=False)
class _Request:
    """Inputs, which can be joined with those of the same form; None is a request that runs alone."""

    inputs: Arrays
    form: object
    rows: int
    came: float = field(default_factory=time.monotonic)
    future: Future[Timed] = field(default_factory=Future)


@dataclass
class Batcher:
    """One thread that runs an artifact: requests in their order, those of the same sizes joined.

    Attributes:
        manifest: The artifact's.
        run: What answers one batch.
        batching: How requests are joined; an artifact that takes one size of batch runs each alone.
        started: When the run that is under way began; None between runs.
    """

    manifest: Manifest
    run: Callable[[Arrays], dict[str, Array]]
    batching: Batching = field(default_factory=Batching)
    started: float | None = None
    _waiting: deque[_Request] = field(default_factory=deque)
    _changed: Condition = field(default_factory=Condition)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "run"))

    def submit(self, inputs: Arrays) -> Future[Timed]:
        """Answer a request after those that wait already; until its run begins it can be cancelled."""
        request = _Request(inputs, *self._form(inputs))
        with self._changed:
            self._waiting.append(request)
            self._changed.notify()
        self._thread.submit(self._next)
        return request.future

    def close(self) -> None:
        """Answer what waits, and end the thread."""
        self._thread.shutdown()

    @cached_property
    def most(self) -> int:
        """Rows of one run: as many as are wanted and the artifact was judged on; 1 where it takes one size only."""
        axis = self.manifest.axes.get(BATCH)
        tensors = (*self.manifest.inputs, *self.manifest.outputs)
        open_batch = axis is not None and axis.dynamic and not self.manifest.sizes
        if axis is None or not open_batch or any(tensor.shape.count(BATCH) != 1 for tensor in tensors):
            return 1
        return min(self.batching.rows, axis.maximum)

    def _form(self, inputs: Arrays) -> tuple[object, int]:
        """What is equal for requests that can be joined, and the rows; a wrong request runs alone, and is refused."""
        if self.most == 1:
            return None, 1
        tensors = {tensor.name: tensor for tensor in self.manifest.inputs}
        if {*tensors} != {*inputs} or any(inputs[n].ndim != len(t.shape) for n, t in tensors.items()):
            return None, 1
        shapes = {name: [*inputs[name].shape] for name in tensors}
        rows = {shapes[name].pop(_at(tensor)) for name, tensor in tensors.items()}
        form = [(name, inputs[name].dtype.str, shapes[name]) for name in tensors]
        return (form, rows.pop()) if len(rows) == 1 else (None, 1)

    def _next(self) -> None:
        """Answer the request that waits longest, with what can be joined; nothing where an earlier run took it."""
        with self._changed:
            if not self._waiting:
                return
            first = self._waiting[0]
            if first.form is not None:
                left = first.came + self.batching.wait - time.monotonic()
                self._changed.wait_for(lambda: self._rows(first) >= self.most, max(left, 0.0))
            batch = self._taken()
        batch = [one for one in batch if one.future.set_running_or_notify_cancel()]
        if len(batch) > 1:
            self._answer_joined(batch)
        elif batch:
            self._answer(batch[0])

    def _rows(self, first: _Request) -> int:
        return sum(one.rows for one in self._waiting if one.form == first.form)

    def _taken(self) -> list[_Request]:
        """The first request, and those behind it that fit into its run, out of the queue."""
        first = self._waiting.popleft()
        taken, rows = [first], first.rows
        for one in [*self._waiting] if first.form is not None else ():
            if one.form == first.form and rows + one.rows <= self.most:
                self._waiting.remove(one)
                taken.append(one)
                rows += one.rows
        return taken

    def _answer(self, request: _Request) -> None:
        try:
            request.future.set_result(self._timed(request.inputs))
        except BaseException as error:
            request.future.set_exception(error)

    def _answer_joined(self, batch: list[_Request]) -> None:
        """One run for all; where it is refused each is asked alone, so that one request does not spoil the others."""
        places = {tensor.name: _at(tensor) for tensor in (*self.manifest.inputs, *self.manifest.outputs)}
        inputs = {n: np.concatenate([one.inputs[n] for one in batch], places[n]) for n in batch[0].inputs}
        try:
            answers, seconds = self._timed(inputs)
        except EdgekitError:
            for one in batch:
                self._answer(one)
            return
        except BaseException as error:
            for one in batch:
                one.future.set_exception(error)
            return
        ends = np.cumsum([one.rows for one in batch])[:-1]
        parts = {name: np.split(array, ends, places[name]) for name, array in answers.items()}
        for i, one in enumerate(batch):
            one.future.set_result(({name: part[i] for name, part in parts.items()}, seconds))

    def _timed(self, inputs: Arrays) -> Timed:
        self.started = start = time.monotonic()
        try:
            return self.run(inputs), time.monotonic() - start
        finally:
            self.started = None


def _at(tensor: TensorInfo) -> int:
    return tensor.shape.index(BATCH)
