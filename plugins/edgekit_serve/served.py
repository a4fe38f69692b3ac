"""One artifact that the server answers with: checked on this host when it is opened, it runs one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

from edgekit import doors, registry
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.run_record import MODEL, REFERENCE, rejected_whole
from edgekit.artifact.store import MANIFEST, read_artifact
from edgekit.errors import ArtifactError, EdgekitError, UsageError
from edgekit.model.folder import load_builds_model
from edgekit.model.spec import Array
from edgekit.pipeline.loaded import LoadedArtifact, load
from edgekit.reference.golden import Golden, Limits, choose_golden, device_limits
from edgekit.reference.vocabulary import Vocabulary, read_vocabulary
from edgekit.report.recommendation import SERVER, recommend
from edgekit.report.rows import read_study
from edgekit_serve.batcher import Batcher, Batching
from edgekit_serve.errors import BusyError, TooSlowError

VERIFIED = "verified"
Seen = tuple[str, int, int]


@dataclass(frozen=True)
class Opening:
    """What must hold of an artifact before it is served.

    Attributes:
        device: "cpu" or "cuda": which of its target's places runs it.
        unverified: Whether one is served that is not verified.
        trust_build: Whether code that the build chooses may run.
        key: Public key (PEM) of whoever must have signed the build; None asks for no signature.
        batching: How requests are joined.
    """

    device: str = "cpu"
    unverified: bool = False
    trust_build: bool = False
    key: Path | None = None
    batching: Batching = field(default_factory=Batching)


@dataclass
class Served:
    """An opened artifact and its queue.

    Attributes:
        folder: Its own.
        artifact: What answers.
        status: Its verdict in the place that runs it.
        vocabulary: What turns words into a query; None where the model has none.
        seen: What its manifest's file was before it was opened, by which a newer one is looked for.
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
        """Of the model."""
        return self.artifact.manifest.name

    @property
    def version(self) -> str:
        """The seal of its manifest, by which a newer one is known."""
        return self.manifest.content_sha256

    @property
    def target(self) -> str:
        """Of the artifact; the protocol's version."""
        return self.artifact.manifest.target

    @property
    def manifest(self) -> Manifest:
        """The artifact's."""
        return self.artifact.manifest

    @contextmanager
    def place(self, queue: int) -> Iterator[None]:
        """A place in the queue, from before a request's body is read until it is answered.

        Raises:
            BusyError: If `queue` requests wait already.
        """
        if self.waiting > queue:
            raise BusyError(f"{queue} requests wait for '{self.name}' already: ask again later")
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    async def run(self, inputs: Mapping[str, Array], seconds: float) -> tuple[dict[str, Array], float]:
        """Answer a request after those that wait already; with the seconds of the run that did.

        Raises:
            TooSlowError: If there is no answer after `seconds`.
            EdgekitError: What the artifact says of the inputs.
        """
        future = self.batcher.submit(inputs)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            raise TooSlowError(f"'{self.name}' gave no answer within {seconds:g} s") from error

    async def close(self) -> None:
        """Let what waits be answered, then free the artifact."""
        await asyncio.to_thread(self.batcher.close)
        self.artifact.close()


def open_served(build: Path, target: str, opening: Opening) -> Served:
    """Open an artifact of a build, after its verdict, files, signature and golden vectors were checked.

    Raises:
        UsageError: If it is not verified, or cannot run on the device.
        ArtifactError: If it is missing, damaged, not signed, or answers differently on this host.
    """
    folder = build / target
    seen = seen_of(folder)
    manifest = read_artifact(folder)
    if opening.key is not None:
        doors.hook("require_signature")(build, opening.key).require_artifact(folder, manifest)
    place = _place(manifest, opening.device)
    statuses = {verdict.place: verdict.status for verdict in manifest.verdicts}
    status = statuses.get(place, "not judged")
    if rejected_whole(build, target) and not opening.unverified:
        raise UsageError(
            f"the whole that '{folder}' is a part of is rejected: only verified artifacts are served "
            "(--allow-unverified serves it)"
        )
    if status != VERIFIED and not opening.unverified:
        raise UsageError(
            f"'{folder}' is {status} in '{place}': only verified artifacts are served (--allow-unverified serves it)"
        )
    artifact = load(folder, place=place, trust_build=opening.trust_build)
    try:
        if artifact.manifest.content_sha256 != manifest.content_sha256:
            raise ArtifactError(f"'{folder}' was replaced while it was opened: start again")
        golden, limits = _golden(build, folder, manifest, opening.trust_build)
        failures = golden.failures(artifact.run, limits)
        if failures and not opening.unverified:
            raise ArtifactError(f"'{folder}' answers differently on this host: {failures[0]}")
        words = read_vocabulary(build / MODEL)
        batcher = Batcher(manifest, artifact.run, opening.batching)
        return Served(folder, artifact, status, words, seen, batcher)
    except BaseException:
        artifact.close()
        raise


def seen_of(folder: Path) -> Seen:
    """What shows at a glance whether an artifact is another one: its folder, and its manifest's file and time."""
    try:
        state = (folder / MANIFEST).stat()
    except OSError:  # it is being replaced: the next look finds it
        return str(folder), 0, 0
    return str(folder), state.st_ino, state.st_mtime_ns


def servable(build: Path, device: str) -> list[str]:
    """The targets of a build whose artifact is verified and runs in this process on a device, the best first."""
    names = []
    for folder in sorted(path.parent for path in build.glob(f"*/{MANIFEST}")):
        manifest = read_artifact(folder)
        if rejected_whole(build, folder.name):
            continue
        with suppress(EdgekitError):  # not installed here, a bundle, or for another device
            place = _place(manifest, device)
            if any(verdict.place == place and verdict.status == VERIFIED for verdict in manifest.verdicts):
                registry.require(manifest.target, registry.find(manifest.target))
                names.append(folder.name)
    best = [one.best.row.target for one in recommend(read_study(build)) if one.audience == SERVER and one.best]
    return sorted(names, key=lambda name: name not in best)


def _place(manifest: Manifest, device: str) -> str:
    """The place of an artifact's target that runs it on a device.

    Raises:
        UsageError: If it is a bundle, or no place of its target is on that device.
    """
    target = registry.find(manifest.target)
    if manifest.bundle.variants:
        raise UsageError(f"'{manifest.target}' is a bundle for browsers: `edgekit demo` serves it")
    place = target.place_on(device)
    if place is None:
        raise UsageError(f"'{manifest.target}' has no place on {device}")
    return place.name


def _golden(build: Path, folder: Path, manifest: Manifest, trust_build: bool) -> tuple[Golden, Limits]:
    """Cases and limits, made in a process that ends: the model itself and PyTorch take more memory than the server."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        try:
            golden = process.submit(_cases, build, trust_build).result()
        except BrokenProcessPool as error:
            raise ArtifactError(
                f"the model of '{build}' ended the process that asked it: is there memory left?"
            ) from error
    return golden, device_limits(golden, folder, manifest)


def _cases(build: Path, trust_build: bool) -> Golden:
    from edgekit.runtime.eager import EagerRuntime

    spec = load_builds_model(build / MODEL, trust_build)
    golden = choose_golden(spec, build / REFERENCE, EagerRuntime(spec).run)
    declared = replace(spec, module=None, evaluation=None, calibration=None)  # type: ignore[arg-type]  # not asked again
    return replace(golden, spec=declared)
