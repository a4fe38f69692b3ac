"""The models that a server answers with, by name and target, and newer ones in their place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.artifact.store import read_artifact
from edgekit.errors import EdgekitError, UsageError
from edgekit_serve import measurements
from edgekit_serve.errors import UnknownError
from edgekit_serve.log import log
from edgekit_serve.served import Opening, Seen, Served, open_served, seen_of, servable


@dataclass
class _Origin:
    """Where an artifact comes from: its folder, and what it must be.

    `seen` is what was refused or is the same, which is not opened again; `refused` why.
    """

    folder: Path
    name: str
    target: str
    seen: Seen = ("", 0, 0)
    refused: str = ""


@dataclass
class Models:
    """What is served.

    Attributes:
        builds: Their folders.
        targets: Which artifacts of each; empty for those that are verified and run in this process.
        opening: What must hold of each.
    """

    builds: tuple[Path, ...]
    targets: tuple[str, ...] = ()
    opening: Opening = field(default_factory=Opening)
    _served: dict[str, dict[str, Served]] = field(default_factory=dict)
    _origins: list[_Origin] = field(default_factory=list)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    def open(self) -> None:
        """Open every artifact.

        Raises:
            UsageError: If there is nothing to serve, or a name is there twice.
            EdgekitError: What is wrong with an artifact.
        """
        for build in self.builds:
            targets = self.targets or servable(build, self.opening.device)
            if not targets:
                raise UsageError(
                    f"'{build}' has nothing that is verified and runs in this process on {self.opening.device}: "
                    f"export it first, for example `edgekit export -t onnx`"
                )
            for target in targets:
                self._add(open_served(build, target, self.opening))

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
        for origin in self._origins:
            try:
                await self._renew(origin)
            except Exception as error:  # one that is broken must not keep the others from being renewed
                sentence = str(error) if isinstance(error, EdgekitError) else repr(error)
                if origin.refused != sentence:  # said once
                    origin.refused = sentence
                    measurements.RELOADS.labels(origin.name, origin.target, "refused").inc()
                    log("reload", model=origin.name, target=origin.target, outcome="refused", error=sentence)

    async def _renew(self, origin: _Origin) -> None:
        folder = origin.folder
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
        closing = asyncio.create_task(old.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Answer what waits, and free everything."""
        await asyncio.gather(*self._closing, *(served.close() for served in self))

    def _add(self, served: Served) -> None:
        targets = self._served.setdefault(served.name, {})
        if served.target in targets:
            raise UsageError(f"two builds hold a '{served.target}' of '{served.name}': serve one of them")
        targets[served.target] = served
        self._origins.append(_Origin(served.folder, served.name, served.target))
