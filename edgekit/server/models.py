"""The models that a server answers with, by name and target, and newer ones in their place."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.artifact.store import MANIFEST, read_artifact
from edgekit.errors import EdgekitError, UsageError
from edgekit.model.spec import Array
from edgekit.server import measurements
from edgekit.server.errors import UnknownError
from edgekit.server.log import log
from edgekit.server.served import Opening, Served, open_served, servable

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
    _origins: list[tuple[Source, str, str]] = field(default_factory=list)
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
        for source, name, target in self._origins:
            old = self._served[name][target]
            try:
                folder = await asyncio.to_thread(source) / target
                if _seen(folder) != old.seen:
                    await self._renew(old, folder)
            except EdgekitError as error:
                if old.refused != str(error):  # said once
                    old.refused = str(error)
                    measurements.RELOADS.labels(name, target, "refused").inc()
                    log("reload", model=name, target=target, outcome="refused", error=str(error))

    async def _renew(self, old: Served, folder: Path) -> None:
        seen = _seen(folder)
        manifest = await asyncio.to_thread(read_artifact, folder)
        if not manifest.verdicts and not self.opening.unverified:
            return  # an export is under way, which judges it next
        if manifest.content_sha256 == old.version:
            old.seen = seen
            return
        new = await asyncio.to_thread(open_served, folder.parent, old.target, self.opening)
        new.seen = seen
        self._served[old.name][old.target] = new
        measurements.RELOADS.labels(old.name, old.target, "done").inc()
        log("reload", model=old.name, target=old.target, outcome="done", version=new.version)
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
            drift = await asyncio.to_thread(shadow.differs, inputs, answers, served.limits)
        except EdgekitError as error:
            drift = str(error)
        measurements.SHADOW.labels(served.name, served.target, "differs" if drift else "agrees").inc()
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
        served.seen = _seen(served.folder)
        self._origins.append((source, served.name, served.target))


def _seen(folder: Path) -> tuple[str, int, int]:
    """What shows at a glance whether an artifact is another one: its folder, and its manifest's file and time."""
    try:
        state = (folder / MANIFEST).stat()
    except OSError:  # it is being replaced: the next look finds it
        return str(folder), 0, 0
    return str(folder), state.st_ino, state.st_mtime_ns
