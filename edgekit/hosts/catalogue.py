"""Places by name: `PLACE`, `RUNTIME@HOST`, `HOST`, or `DEVICES:SERIAL`.

A place is a target's own (`cpu`, `wasm-fp32`, `interpreter` ...) or a runtime (`edgekit.doors.PlaceRuntime`), which
opens the artifacts of any target with its format. A host is this one, `ssh:USER@HOST`, `ssh:USER@HOST:PYTHON`, or
`python:COMMAND`, where the command starts Python, for example for an emulated processor.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgekit import doors, registry
from edgekit.artifact.manifest import Manifest
from edgekit.doors import PlaceRuntime
from edgekit.errors import UsageError, suggestion
from edgekit.target import FP16, Target, Tolerance

DEFAULT_RUNTIME = "ort"
SSH, PYTHON = "ssh:", "python:"
SLOW_IMAGES = 8
"""Evaluation inputs for places that take seconds per answer, unless the user gives a number."""
_SERIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:%\[\]\-]*")
_SSH = re.compile(r"ssh:(?P<host>[A-Za-z0-9_.][A-Za-z0-9_.@\-\[\]]*)(?::(?P<python>[^:\s]+))?")


@dataclass(frozen=True)
class FurtherPlace:
    """A place that a user named: a target's own place without a `runtime`, or a runtime on a host.

    Attributes:
        name: Its name in reports.
        runtime: Name of the runtime.
        host: In ssh's form, or a device's serial number; empty for this host or the only device.
        python: The command that starts Python there; empty for this process's own Python.
    """

    name: str
    runtime: str = ""
    host: str = ""
    python: tuple[str, ...] = ()

    @property
    def apart(self) -> bool:
        """True if a pack answers for it: on another host, in another Python on this one, or on a phone."""
        return bool(self.host or self.python) or self.is_device

    @property
    def is_device(self) -> bool:
        """True for a phone or the like, which gets one pack per artifact: an artifact may kill its app."""
        return self.record is not None and bool(self.record.answer_pack)

    @property
    def record(self) -> PlaceRuntime | None:
        """The runtime's record; None for a target's own place."""
        return doors.places.find(self.runtime) if self.runtime else None

    @property
    def beside(self) -> bool:
        """True for another Python on this host, for example an emulated processor's."""
        return bool(self.python) and not self.host

    @property
    def has_timings(self) -> bool:
        """True if its times are meaningful; an emulator's are not."""
        return not self.beside and not self._is_emulator

    @property
    def images(self) -> int | None:
        """Default number of evaluation inputs; None for all."""
        return None if self.has_timings else SLOW_IMAGES

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of the runtime."""
        own = self.record.settings if self.record is not None else {}
        # An emulator runs one thread: threads that wait for each other take all of its time.
        return {**own, "threads": "1"} if self.beside else own

    def tolerance(self, manifest: Manifest, target: Target) -> Tolerance:
        """Return the tolerance of an artifact there: as in its target's first place, or as fp16."""
        half = self.record is not None and self.record.computes_half and manifest.precision == "fp32"
        return FP16 if half else target.places[0].tolerance_of(manifest)

    def manifest_at(self, manifest: Manifest) -> Manifest:
        """Return an artifact's manifest for this place, with fixed axes on an emulator."""
        # An emulator compiles for the default sizes, or for the sizes of the artifact's files.
        if not self._is_emulator or manifest.sizes:
            return manifest
        fixed = {name: axis.model_copy(update={"dynamic": False}) for name, axis in manifest.axes.items()}
        return manifest.model_copy(update={"axes": fixed})

    def opens(self, manifest: Manifest, target: Target, packed: bool = False) -> bool:
        """Return whether an artifact can run there: it is its target's own place, or the runtime opens its format.

        Args:
            manifest: The artifact's manifest.
            target: The artifact's target.
            packed: True if it is sent in a pack, whose engine selects no file of a folder.
        """
        if self.record is None:
            return any(place.name == self.name for place in target.places_of(manifest))
        if is_indexed(manifest, self.record):
            return not packed and not self.apart
        return manifest.entry.endswith(self.record.opens) and not manifest.bundle.variants

    @property
    def _is_emulator(self) -> bool:
        return self.record is not None and self.record.is_emulated


def is_indexed(manifest: Manifest, runtime: PlaceRuntime) -> bool:
    """Return whether an artifact is a folder with a file for each size, opened by the runtime one at a time."""
    index = f"{manifest.entry}/{runtime.folder_index}"
    return bool(runtime.folder_index) and any(file.path == index for file in manifest.files)


def further_place(name: str) -> FurtherPlace:
    """Return the place of this name.

    Raises:
        UsageError: If the place, runtime or host does not exist.
    """
    device, colon, serial = name.partition(":")
    if colon and device in doors.places.entries() and doors.places.find(device).answer_pack:
        if not _SERIAL.fullmatch(serial):
            raise UsageError(f"no device '{serial}'. Use its serial number, for example {device}:emulator-5554")
        return FurtherPlace(name, device, serial)
    hosted = name.startswith((SSH, PYTHON))
    runtime, at, host = (DEFAULT_RUNTIME, "@", name) if hosted else name.partition("@")
    if runtime not in doors.places.entries():
        names = place_names()
        if runtime in names and not at:
            return FurtherPlace(runtime)
        raise UsageError(
            f"no place '{name}'. {suggestion(runtime, names)}Possible: {', '.join(names)}, and "
            f"{DEFAULT_RUNTIME} and similar followed by '@{SSH}USER@HOST' or '@{PYTHON}COMMAND'"
        )
    if not at:
        return FurtherPlace(runtime, runtime)
    if doors.places.find(runtime).answer_pack:
        raise UsageError(f"no place '{name}': devices connect to this host. Name it as {runtime}:SERIAL")
    if host.startswith(PYTHON):
        return _by_command(runtime, host)
    parts = _SSH.fullmatch(host)
    if parts is None:
        raise UsageError(f"no host '{host}'. Use {SSH}USER@HOST, {SSH}USER@HOST:/path/of/python, or {PYTHON}COMMAND")
    return FurtherPlace(f"{runtime}@{SSH}{parts['host']}", runtime, parts["host"], (parts["python"] or "python3",))


def _by_command(runtime: str, host: str) -> FurtherPlace:
    try:
        words = tuple(shlex.split(host.removeprefix(PYTHON)))
    except ValueError as error:
        raise UsageError(f"no host '{host}': {str(error).lower()}") from error
    if not words:
        raise UsageError(f"no host '{host}'. Add the command that starts Python there")
    program = next((word for word in words if word != "env" and "=" not in word), words[0])
    return FurtherPlace(f"{runtime}@{PYTHON}{Path(program).name}", runtime, python=words)


def place_names() -> tuple[str, ...]:
    """Return every place on this host: the runtimes, then the targets' own."""
    runtimes = doors.places.entries()
    return (*runtimes, *(name for name in own_places() if name not in runtimes))


def own_places() -> dict[str, tuple[str, ...]]:
    """Return the targets' own places, with the targets of each."""
    targets, _ = registry.loadable()
    owners: dict[str, tuple[str, ...]] = {}
    for name, target in targets.items():
        for place in target.places:
            owners[place.name] = (*owners.get(place.name, ()), name)
    return owners
