"""The models of a server: their artifacts, their queues, and their replacement by newer artifacts.

An artifact is checked on this host when it is opened. Waiting requests may be answered in one run of several
rows, which is faster on a GPU and slower on most CPUs.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Condition
from typing import TYPE_CHECKING, cast

import numpy as np
from prometheus_client import Counter, Gauge, Histogram

from edgekit import doors, registry
from edgekit.artifact.manifest import Manifest, TensorInfo
from edgekit.artifact.run_record import MODEL, REFERENCE, is_whole_rejected
from edgekit.artifact.signed import SignatureInfo
from edgekit.artifact.store import MANIFEST, read_artifact
from edgekit.errors import ArtifactError, EdgekitError, UsageError
from edgekit.model.records import declared_spec, read_config
from edgekit.model.spec import Array
from edgekit.pipeline.loaded import LoadedArtifact, load
from edgekit.reference.golden import SOURCES, Case, Golden, device_limits, spread_of
from edgekit.reference.store import read_reference
from edgekit.reference.vocabulary import Vocabulary, read_vocabulary
from edgekit.report.recommendation import SERVER, recommend
from edgekit.report.rows import read_study
from edgekit_serve.process import log
from edgekit_serve.protocol import BusyError, TooSlowError, UnknownError

if TYPE_CHECKING:
    import torch

VERIFIED = "verified"
Seen = tuple[str, int, int]
BATCH = "batch"
# Rows that an artifact answers before it is served. A reference holds the outputs of so many rows whole.
CASES = 4
Arrays = Mapping[str, Array]
Timed = tuple[dict[str, Array], float]
"""Answers, and the seconds of their run."""
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
REQUESTS = Counter("edgekit_requests", "Requests answered or refused.", ("model", "target", "code"))
STAGES = Histogram(
    "edgekit_stage_seconds",
    "Time of a request by stage: read (its body), queue (until its run), run, write; failed, all of it.",
    ("model", "target", "stage"),
    buckets=SECONDS,
)
ROWS = Histogram("edgekit_batch_rows", "Rows of a request.", ("model", "target"), buckets=(1, 2, 4, 8, 16, 32, 64))
QUEUE = Gauge("edgekit_queue", "Requests that wait or run.", ("model", "target"))
RUNS = Counter("edgekit_runs", "Runs of an artifact, each for one request or several.", ("model", "target"))
LAST = Gauge("edgekit_last_request_seconds", "Time of the last answer, in seconds since 1970.", ("model", "target"))
REFUSED = Counter("edgekit_refused", "Refused requests, by reason.", ("reason",))
RELOADS = Counter("edgekit_reloads", "Newer artifacts, done or refused.", ("model", "target", "outcome"))


@dataclass(frozen=True)
class Batching:
    """Rules for joining requests.

    Attributes:
        rows: Largest number of rows in one run; 1 runs each request alone.
        wait: Seconds that the first request of a run waits for others.
    """

    rows: int = 1
    wait: float = 0.0


@dataclass(eq=False)
class _Request:
    """Inputs, which can be joined with those of an equal form; None runs alone."""

    inputs: Arrays
    form: object
    rows: int
    came: float = field(default_factory=time.monotonic)
    future: Future[Timed] = field(default_factory=Future)


@dataclass
class Batcher:
    """One thread that runs an artifact: requests in their order, those of the same sizes joined.

    Attributes:
        manifest: The artifact's manifest.
        run: Runs one batch.
        batching: Rules for joining requests; an artifact with one size of batch runs each alone.
        started: Start of the current run; None between runs.
    """

    manifest: Manifest
    run: Callable[[Arrays], dict[str, Array]]
    batching: Batching = field(default_factory=Batching)
    started: float | None = None
    _waiting: deque[_Request] = field(default_factory=deque)
    _changed: Condition = field(default_factory=Condition)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "run"))

    def submit(self, inputs: Arrays) -> Future[Timed]:
        """Queue a request behind the waiting ones; it can be cancelled until its run begins."""
        request = _Request(inputs, *self._form(inputs))
        with self._changed:
            self._waiting.append(request)
            self._changed.notify()
        self._thread.submit(self._next)
        return request.future

    def close(self) -> None:
        """Answer the waiting requests, and end the thread."""
        self._thread.shutdown()

    @cached_property
    def most(self) -> int:
        """Rows of one run: as many as allowed and judged; 1 if the artifact takes one size only."""
        axis = self.manifest.axes.get(BATCH)
        tensors = (*self.manifest.inputs, *self.manifest.outputs)
        open_batch = axis is not None and axis.dynamic and not self.manifest.sizes
        if axis is None or not open_batch or any(tensor.shape.count(BATCH) != 1 for tensor in tensors):
            return 1
        return min(self.batching.rows, axis.maximum)

    def _form(self, inputs: Arrays) -> tuple[object, int]:
        """Return the form that joinable requests share, and the rows; a wrong request runs alone, and is refused."""
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
        """Answer the longest waiting request and those that join it; do nothing if an earlier run answered it."""
        with self._changed:
            if not self._waiting:
                return
            first = self._waiting[0]
            if first.form is not None:
                seconds_left = first.came + self.batching.wait - time.monotonic()
                self._changed.wait_for(
                    lambda: sum(r.rows for r in self._waiting if r.form == first.form) >= self.most,
                    max(seconds_left, 0.0),
                )
            batch = self._take_batch()
        batch = [request for request in batch if request.future.set_running_or_notify_cancel()]
        if len(batch) > 1:
            self._answer_joined(batch)
        elif batch:
            self._answer(batch[0])

    def _take_batch(self) -> list[_Request]:
        """Remove the first request from the queue, and those behind it that fit into its run."""
        first = self._waiting.popleft()
        batch, rows = [first], first.rows
        for request in [*self._waiting] if first.form is not None else ():
            if request.form == first.form and rows + request.rows <= self.most:
                self._waiting.remove(request)
                batch.append(request)
                rows += request.rows
        return batch

    def _answer(self, request: _Request) -> None:
        try:
            request.future.set_result(self._with_timeout(request.inputs))
        except BaseException as error:
            request.future.set_exception(error)

    def _answer_joined(self, batch: list[_Request]) -> None:
        """Run all requests at once; if that is refused, run each alone, so that one does not spoil the others."""
        places = {tensor.name: _at(tensor) for tensor in (*self.manifest.inputs, *self.manifest.outputs)}
        inputs = {n: np.concatenate([request.inputs[n] for request in batch], places[n]) for n in batch[0].inputs}
        try:
            answers, seconds = self._with_timeout(inputs)
        except EdgekitError:
            for request in batch:
                self._answer(request)
            return
        except BaseException as error:
            for request in batch:
                request.future.set_exception(error)
            return
        ends = np.cumsum([request.rows for request in batch])[:-1]
        parts = {name: np.split(array, ends, places[name]) for name, array in answers.items()}
        for i, request in enumerate(batch):
            request.future.set_result(({name: part[i] for name, part in parts.items()}, seconds))

    def _with_timeout(self, inputs: Arrays) -> Timed:
        self.started = start = time.monotonic()
        RUNS.labels(self.manifest.name, self.manifest.target).inc()
        try:
            return self.run(inputs), time.monotonic() - start
        finally:
            self.started = None


def _at(tensor: TensorInfo) -> int:
    return tensor.shape.index(BATCH)


@dataclass(frozen=True)
class ServeOptions:
    """Conditions for serving an artifact.

    Attributes:
        device: "cpu" or "cuda": selects the place of its target.
        unverified: True to serve an unverified artifact.
        trust_build: True to run code that the build chooses.
        key: Public key (PEM) of the build's required signer; None requires no signature.
        batching: Rules for joining requests.
    """

    device: str = "cpu"
    unverified: bool = False
    trust_build: bool = False
    key: Path | None = None
    batching: Batching = field(default_factory=Batching)


@dataclass
class ServedModel:
    """An opened artifact and its queue.

    Attributes:
        folder: The artifact's folder.
        artifact: The opened artifact.
        status: Its verdict in the place that runs it.
        vocabulary: Turns words into a query; None if the model has none.
        seen: State of its manifest's file before it was opened, to detect a newer one.
        batcher: The thread that runs it.
    """

    folder: Path
    artifact: LoadedArtifact
    status: str
    vocabulary: Vocabulary | None
    seen: Seen
    batcher: Batcher
    waiting: int = 0

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.artifact.manifest.name

    @property
    def version(self) -> str:
        """The seal of its manifest, which identifies a newer one."""
        return self.manifest.content_sha256

    @property
    def target(self) -> str:
        """Target of the artifact; the protocol's version."""
        return self.artifact.manifest.target

    @property
    def manifest(self) -> Manifest:
        """The artifact's manifest."""
        return self.artifact.manifest

    @contextmanager
    def place(self, queue: int) -> Iterator[None]:
        """Hold a place in the queue, from when a request's body is there until it is answered.

        Raises:
            BusyError: If `queue` requests already wait.
        """
        if self.waiting > queue:
            raise BusyError(f"{queue} requests already wait for '{self.name}'. Try again later")
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    async def run(self, inputs: Mapping[str, Array], seconds: float) -> tuple[dict[str, Array], float]:
        """Answer a request after the waiting ones; return the answers and the seconds of the run.

        Raises:
            TooSlowError: If there was no answer within `seconds`.
            EdgekitError: The artifact's error about the inputs.
        """
        future = self.batcher.submit(inputs)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            raise TooSlowError(f"'{self.name}' did not answer within {seconds:g} s") from error

    async def close(self) -> None:
        """Answer the waiting requests, then free the artifact."""
        await asyncio.to_thread(self.batcher.close)
        self.artifact.close()


def require_signature(build: Path, key: Path | None) -> SignatureInfo | None:
    """Check that a key signed every file of a build, before anything in it is opened; without a key, do nothing.

    Raises:
        ArtifactError: If it did not.
    """
    return None if key is None else cast(SignatureInfo, doors.hook("require_signature")(build, key))


def open_served(build: Path, target: str, opening: ServeOptions, signature: SignatureInfo | None = None) -> ServedModel:
    """Open an artifact of a build, after checking its verdict, files, signature and golden vectors.

    Args:
        build: The build folder.
        target: Its artifact.
        opening: Conditions for it.
        signature: Signature of the build (`require_signature`).

    Raises:
        UsageError: If it is not verified, or cannot run on the device.
        ArtifactError: If it is missing, damaged, not signed, or returns different outputs on this host.
    """
    folder = build / target
    seen = fingerprint(folder)
    manifest = read_artifact(folder)
    if signature is not None:
        signature.require_artifact(folder, manifest)
    place = _place(manifest, opening.device)
    statuses = {verdict.place: verdict.status for verdict in manifest.verdicts}
    status = statuses.get(place, "not judged")
    if is_whole_rejected(build, target) and not opening.unverified:
        raise UsageError(
            f"'{folder}' is a part of a rejected composite model. Only verified artifacts are served "
            "(to serve it anyway, add --allow-unverified)"
        )
    if status != VERIFIED and not opening.unverified:
        raise UsageError(
            f"'{folder}' is {status} in '{place}'. Only verified artifacts are served (or add --allow-unverified)"
        )
    artifact = load(folder, place=place, trust_build=opening.trust_build)
    try:
        if artifact.manifest.content_sha256 != manifest.content_sha256:
            raise ArtifactError(f"'{folder}' was replaced while it was opened. Start again")
        golden = _recorded_cases(build, artifact)
        failures = golden.failures(artifact.run, device_limits(golden, folder, manifest))
        if failures and not opening.unverified:
            raise ArtifactError(f"'{folder}' returns different outputs on this host: {failures[0]}")
        words = read_vocabulary(build / MODEL)
        batcher = Batcher(manifest, artifact.run, opening.batching)
        return ServedModel(folder, artifact, status, words, seen, batcher)
    except BaseException:
        artifact.close()
        raise


def fingerprint(folder: Path) -> Seen:
    """Return a quick identity of an artifact: its folder, and its manifest's file and time."""
    try:
        state = (folder / MANIFEST).stat()
    # It is being replaced: the next check finds it.
    except OSError:
        return str(folder), 0, 0
    return str(folder), state.st_ino, state.st_mtime_ns


def servable(build: Path, device: str) -> list[str]:
    """Return a build's targets with a verified artifact that runs in this process on a device, the best first."""
    names = []
    for folder in sorted(path.parent for path in build.glob(f"*/{MANIFEST}")):
        manifest = read_artifact(folder)
        if is_whole_rejected(build, folder.name):
            continue
        # Not installed here, a bundle, or for another device.
        with suppress(EdgekitError):
            place = _place(manifest, device)
            if any(verdict.place == place and verdict.status == VERIFIED for verdict in manifest.verdicts):
                registry.require(manifest.target, registry.find(manifest.target))
                names.append(folder.name)
    best = [
        recommendation.best.row.target
        for recommendation in recommend(read_study(build))
        if recommendation.audience == SERVER and recommendation.best
    ]
    return sorted(names, key=lambda name: name not in best)


def _place(manifest: Manifest, device: str) -> str:
    """Return the place of an artifact's target that runs it on a device.

    Raises:
        UsageError: If it is a bundle, or no place of its target is on that device.
    """
    target = registry.find(manifest.target)
    if manifest.bundle.variants:
        raise UsageError(f"'{manifest.target}' is a bundle for browsers. Serve it with `edgekit demo`")
    place = target.place_on(device)
    if place is None:
        raise UsageError(f"'{manifest.target}' has no place on {device}")
    return place.name


def _recorded_cases(build: Path, artifact: LoadedArtifact) -> Golden:
    """Return the first rows that the reference holds whole; they need neither the model's code nor PyTorch."""
    spec = declared_spec(read_config(build / MODEL), cast("torch.nn.Module", None))
    batches = {batch.name: batch for batch in read_reference(build / REFERENCE).batches}
    batch = next((batches[name] for name in SOURCES if name in batches), None)
    if batch is None:
        raise ArtifactError(f"the reference of '{build}' has no single inputs. Export it again")
    names = [output.name for output in spec.outputs if output.role != "features" and output.name in batch.outputs]
    cases = []
    for row, inputs in zip(range(CASES), batch.rows(), strict=False):
        answers, expected = artifact.run(inputs), {}
        for name in names:
            recorded = batch.outputs[name][row] if batch.single else batch.outputs[name]
            # The recorded row has no axis for a batch of one. Outputs of varying length are recorded otherwise.
            if recorded.size == answers[name].size:
                expected[name] = recorded.reshape(answers[name].shape)
        cases.append(Case(batch.names[row], None, inputs, expected))
    spread = {name: spread_of(batch.outputs[name]) for name in names if batch.outputs[name].dtype.kind == "f"}
    return Golden(tuple(cases), spec, spread)


@dataclass
class _Origin:
    """The origin of an artifact: its folder, and its expected name and target.

    `seen` was refused or is unchanged, and is not opened again; `refused` is the reason.
    """

    folder: Path
    name: str
    target: str
    seen: Seen = ("", 0, 0)
    refused: str = ""


@dataclass
class Models:
    """The served models.

    Attributes:
        builds: Their folders.
        targets: Artifacts of each; empty for the verified ones that run in this process.
        opening: Conditions for each.
    """

    builds: tuple[Path, ...]
    targets: tuple[str, ...] = ()
    opening: ServeOptions = field(default_factory=ServeOptions)
    _served: dict[str, dict[str, ServedModel]] = field(default_factory=dict)
    _origins: list[_Origin] = field(default_factory=list)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    def open(self) -> None:
        """Open every artifact.

        Raises:
            UsageError: If there is nothing to serve, or a name occurs twice.
            EdgekitError: An artifact's error.
        """
        for build in self.builds:
            signature = require_signature(build, self.opening.key)
            targets = self.targets or servable(build, self.opening.device)
            if not targets:
                raise UsageError(
                    f"'{build}' has no verified artifact that runs in this process on {self.opening.device}. "
                    f"Export one, for example `edgekit export -t onnx`"
                )
            for target in targets:
                served = open_served(build, target, self.opening, signature)
                versions = self._served.setdefault(served.name, {})
                if served.target in versions:
                    raise UsageError(f"two builds hold a '{served.target}' of '{served.name}'. Serve one of them")
                versions[served.target] = served
                self._origins.append(_Origin(served.folder, served.name, served.target))

    def names(self) -> list[str]:
        """Return the names of all models."""
        return list(self._served)

    def versions(self, name: str) -> list[str]:
        """Return the targets of a model, the default one first."""
        return list(self._served.get(name, {}))

    def find(self, name: str = "", target: str = "") -> ServedModel:
        """Return an artifact by its model's name and its target; the first one by default.

        Raises:
            UnknownError: If the name is unknown.
        """
        targets = self._served.get(name or next(iter(self._served)))
        if targets is None:
            raise UnknownError(f"no model '{name[:80]}'. Possible: {', '.join(self._served)}")
        served = targets.get(target or next(iter(targets)))
        if served is None:
            raise UnknownError(f"'{name}' has no target '{target[:80]}'. Possible: {', '.join(targets)}")
        return served

    def __iter__(self) -> Iterator[ServedModel]:
        """Yield every artifact."""
        return (served for targets in self._served.values() for served in targets.values())

    async def renew(self) -> None:
        """Replace changed artifacts by their newer versions; the older ones answer their waiting requests first.

        A newer artifact that is unverified, damaged or returns different outputs is refused, and the older one stays.
        """
        for origin in self._origins:
            try:
                await self._renew(origin)
            # A broken artifact must not prevent the renewal of the others.
            except Exception as error:
                sentence = str(error) if isinstance(error, EdgekitError) else repr(error)
                # Logged once.
                if origin.refused != sentence:
                    origin.refused = sentence
                    RELOADS.labels(origin.name, origin.target, "refused").inc()
                    log("reload", model=origin.name, target=origin.target, outcome="refused", error=sentence)

    async def _renew(self, origin: _Origin) -> None:
        folder = origin.folder
        old, seen = self._served[origin.name][origin.target], fingerprint(folder)
        if seen in (old.seen, origin.seen):
            return
        manifest = await asyncio.to_thread(read_artifact, folder)
        if not manifest.verdicts and not self.opening.unverified:
            # An export is running, which judges it next.
            return
        origin.seen = seen
        if (manifest.name, manifest.target) != (origin.name, origin.target):
            raise UsageError(f"'{folder}' is now a '{manifest.target}' of '{manifest.name}'")
        if manifest.content_sha256 == old.version:
            return
        signature = await asyncio.to_thread(require_signature, folder.parent, self.opening.key)
        new = await asyncio.to_thread(open_served, folder.parent, folder.name, self.opening, signature)
        self._served[origin.name][origin.target] = new
        origin.refused = ""
        RELOADS.labels(origin.name, origin.target, "done").inc()
        log("reload", model=origin.name, target=origin.target, outcome="done", version=new.version)
        closing = asyncio.create_task(old.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Answer the waiting requests, and free everything."""
        await asyncio.gather(*self._closing, *(served.close() for served in self))
