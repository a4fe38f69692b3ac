"""The models that a server answers with, by name and target, and newer ones in their place."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.artifact.store import read_artifact
from edgekit.errors import EdgekitError, UsageError
from edgekit.model.spec import Array
from edgekit_serve import measurements
from edgekit_serve.errors import UnknownError
from edgekit_serve.log import log
from edgekit_serve.served import Opening, Seen, Served, open_served, seen_of, servable

Source = Callable[[], Path]
"""Where a build lies now: always in one folder, or, from a channel of a store, in another one after each promotion."""


@dataclass(frozen=True)
class Shadow:
    """A second artifact that is asked a share of the requests, to see whether answers drift.

    Attributes:
        target: Its own.
        share: Of requests, 0 to 1.
    """

    target: str
    share: float = 0.1


@dataclass
class _Origin:
    """Where an artifact comes from: its build, its folder there, and what it must be.

    `seen` is what was refused or is the same, which is not opened again; `refused` why.
    """

    source: Source
    folder: str
    name: str
    target: str
    seen: Seen = ("", 0, 0)
    refused: str = ""


@dataclass
class Models:
    """What is served.

    Attributes:
        sources: Of each build.
        targets: Which artifacts of each; empty for those that are verified and run in this process.
        opening: What must hold of each.
        shadow: Asked beside; None for nothing.
    """

    sources: tuple[Source, ...]
    targets: tuple[str, ...] = ()
    opening: Opening = field(default_factory=Opening)
    shadow: Shadow | None = None
    _served: dict[str, dict[str, Served]] = field(default_factory=dict)
    _origins: list[_Origin] = field(default_factory=list)
    _shadows: dict[str, Served] = field(default_factory=dict)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    def open(self) -> None:
        """Open every artifact.

        Raises:
            UsageError: If there is nothing to serve, or a name is there twice.
            EdgekitError: What is wrong with an artifact.
        """
        for source in self.sources:
            build = source()
            targets = self.targets or servable(build, self.opening.device)
            if not targets:
                raise UsageError(
                    f"'{build}' has nothing that is verified and runs in this process on {self.opening.device}: "
                    f"export it first, for example `edgekit export -t onnx`"
                )
            for target in targets:
                self._add(source, open_served(build, target, self.opening))
            if self.shadow is not None:
                shadow = open_served(build, self.shadow.target, self.opening)
                self._shadows[shadow.name] = shadow

    def names(self) -> list[str]:
        """Of all models."""
        return list(self._served)

    def versions(self, name: str) -> list[str]:
        """The targets of a model, the default one first."""
        return list(self._served.get(name, {}))

    def find(self, name: str = "", target: str = "") -> Served:
        """An artifact by its model's name and its target; the first where they are not named.

        Raises:
            UnknownError: If there is none of that name.
        """
        targets = self._served.get(name or next(iter(self._served)))
        if targets is None:
            raise UnknownError(f"no model '{name[:80]}': there is {', '.join(self._served)}")
        served = targets.get(target or next(iter(targets)))
        if served is None:
            raise UnknownError(f"'{name}' has no target '{target[:80]}': there is {', '.join(targets)}")
        return served

    def __iter__(self) -> Iterator[Served]:
        """Every artifact."""
        return (served for targets in self._served.values() for served in targets.values())

    async def renew(self) -> None:
        """Open what has changed and put it in the place of the older one, which answers what waits for it and goes.

        One that is not verified, damaged or answers differently is refused; the older one goes on.
        """
        builds: dict[Source, Path] = {}
        for origin in self._origins:
            try:
                if origin.source not in builds:
                    builds[origin.source] = await asyncio.to_thread(origin.source)
                await self._renew(origin, builds[origin.source] / origin.folder)
            except Exception as error:  # one that is broken must not keep the others from being renewed
                sentence = str(error) if isinstance(error, EdgekitError) else repr(error)
                if origin.refused != sentence:  # said once
                    origin.refused = sentence
                    measurements.RELOADS.labels(origin.name, origin.target, "refused").inc()
                    log("reload", model=origin.name, target=origin.target, outcome="refused", error=sentence)

    async def _renew(self, origin: _Origin, folder: Path) -> None:
        old, seen = self._served[origin.name][origin.target], seen_of(folder)
        if seen in (old.seen, origin.seen):
            return
        manifest = await asyncio.to_thread(read_artifact, folder)
        if not manifest.verdicts and not self.opening.unverified:
            return  # an export is under way, which judges it next
        origin.seen = seen
        if (manifest.name, manifest.target) != (origin.name, origin.target):
            raise UsageError(f"'{folder}' is a '{manifest.target}' of '{manifest.name}' now")
        if manifest.content_sha256 == old.version:
            return
        new = await asyncio.to_thread(open_served, folder.parent, folder.name, self.opening)
        self._served[origin.name][origin.target] = new
        origin.refused = ""
        measurements.RELOADS.labels(origin.name, origin.target, "done").inc()
        log("reload", model=origin.name, target=origin.target, outcome="done", version=new.version)
        self._close_later(old)
        if (shadow := self._shadows.get(origin.name)) is not None:
            self._shadows[origin.name] = await asyncio.to_thread(
                open_served, folder.parent, shadow.folder.name, self.opening
            )
            self._close_later(shadow)

    def _close_later(self, old: Served) -> None:
        closing = asyncio.create_task(old.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def compare(self, served: Served, inputs: Mapping[str, Array], answers: Mapping[str, Array]) -> None:
        """Ask the shadow the same, for a share of the requests, and count and log where it differs."""
        shadow = self._shadows.get(served.name)
        # A sample of requests is no secret.
        if shadow is None or self.shadow is None or random.random() >= self.shadow.share:  # noqa: S311
            return
        try:
            drift = await shadow.compared(inputs, answers, served.limits)
        except EdgekitError as error:
            drift = str(error)
        outcome = "skipped" if drift is None else "differs" if drift else "agrees"
        measurements.SHADOW.labels(served.name, served.target, outcome).inc()
        if drift:
            log("drift", model=served.name, target=served.target, shadow=shadow.target, difference=drift)

    async def close(self) -> None:
        """Answer what waits, and free everything."""
        everything = [*self, *self._shadows.values()]
        await asyncio.gather(*self._closing, *(served.close() for served in everything))

    def _add(self, source: Source, served: Served) -> None:
        targets = self._served.setdefault(served.name, {})
        if served.target in targets:
            raise UsageError(f"two builds hold a '{served.target}' of '{served.name}': serve one of them")
        targets[served.target] = served
        self._origins.append(_Origin(source, served.folder.name, served.name, served.target))
