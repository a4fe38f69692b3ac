"""Places by name: `PLACE`, `RUNTIME@HOST`, `HOST`, or `adb:SERIAL`.

A place is a target's own (`cpu`, `wasm-fp32`, `interpreter` ...) or one of the runtimes here, which open the artifacts
of any target that has their format. A host is this one, `ssh:USER@HOST`, `ssh:USER@HOST:PYTHON`, or `python:COMMAND`,
where the command starts Python, for example of an emulated processor. `adb` is the phone on the cable.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgekit import registry
from edgekit.artifact.manifest import Manifest
from edgekit.errors import UsageError, suggestion
from edgekit.target import FP16, Target, Tolerance
from edgekit_targets.onnx import qnn
from edgekit_targets.onnx.bucket_runtime import is_index

CUDA = "CUDAExecutionProvider"
ONNX = ".onnx"
DEFAULT_RUNTIME = "ort"
SSH, PYTHON = "ssh:", "python:"
ADB = "adb"
SLOW_IMAGES = 8
"""Evaluation inputs that are asked where an answer takes seconds, unless the user says how many."""


@dataclass(frozen=True)
class RuntimeSettings:
    """A runtime that opens artifacts of several targets, with its settings.

    `kind` is what opens an artifact: "onnxruntime", "openvino", "iree", "torch", "android" or "onnxruntime_qnn". Names
    of settings with a prefix go to the provider as they are. `opens` are the ends of files' names, of which `.onnx`
    stands for a folder of them too (`edgekit_targets.onnx.bucket_runtime`); `install` is the command that installs it.
    `emulated`: the processor is not the host's; it is asked at the default sizes, or those of a folder's files, for
    each of which it compiles, and is not timed. `half`: it computes fp32 in fp16.
    """

    summary: str
    kind: str = "onnxruntime"
    settings: Mapping[str, str] = field(default_factory=dict)
    install: str = "pip install 'edgekit[cpu]'"
    opens: tuple[str, ...] = (ONNX,)
    emulated: bool = False
    half: bool = False


def _ort(summary: str, **settings: str) -> RuntimeSettings:
    return RuntimeSettings(summary, settings=settings)


def _cuda(summary: str, tf32: str) -> RuntimeSettings:
    settings = {"provider": CUDA, "provider.use_tf32": tf32}
    return RuntimeSettings(summary, settings=settings, install="pip install 'edgekit[gpu]'")


RUNTIMES: Mapping[str, RuntimeSettings] = {
    "ort": _ort("ONNX Runtime on the CPU, as it is by default"),
    "ort-extended": _ort("the same, without layout changes", optimization="enable_extended"),
    "ort-basic": _ort("the same, with basic graph optimisations only", optimization="enable_basic"),
    "ort-off": _ort("the same, without graph optimisations", optimization="disable_all"),
    "ort-cuda": _cuda("ONNX Runtime on an NVIDIA GPU, fp32 without TF32", tf32="0"),
    "ort-cuda-tf32": _cuda("the same as it is by default, with TF32", tf32="1"),
    "ort-tensorrt": RuntimeSettings(
        "ONNX Runtime on an NVIDIA GPU, in engines that TensorRT builds there, which no GPU has run yet",
        settings={"provider": "TensorrtExecutionProvider"},
        install="pip install 'edgekit[gpu]', and TensorRT's libraries",
    ),
    "openvino": RuntimeSettings(
        "OpenVINO on the CPU, in fp32",
        kind="openvino",
        settings={"INFERENCE_PRECISION_HINT": "f32"},
        install="pip install 'edgekit[openvino]'",
        opens=(ONNX, ".xml"),
    ),
    "iree": RuntimeSettings(
        "IREE on the CPU, for the processor that the code is for",
        kind="iree",
        install="pip install 'edgekit[iree]'",
        opens=(".vmfb",),
    ),
    "torch-cuda": RuntimeSettings(
        "PyTorch on an NVIDIA GPU, compiled, one CUDA graph a shape",
        kind="torch",
        settings={"device": "cuda"},
        install="pip install torch",
        opens=("program.pt2",),
    ),
    "qnn": RuntimeSettings(
        "the emulator of Qualcomm's NPU, in fp16, at the default sizes; it is no phone",
        kind=qnn.PACKAGE,
        install=qnn.INSTALL,
        emulated=True,
        half=True,
    ),
    ADB: RuntimeSettings(
        "an Android phone that adb reaches, in edgekit's bench app, which no phone has run yet",
        kind="android",
        install="./gradlew :bench:installDebug in mobile/android",
        opens=(ONNX, ".pte", ".tflite", ".mnn"),
    ),
}
_SERIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:%\[\]\-]*")
_SSH = re.compile(r"ssh:(?P<host>[A-Za-z0-9_.][A-Za-z0-9_.@\-\[\]]*)(?::(?P<python>[^:\s]+))?")


@dataclass(frozen=True)
class FurtherPlace:
    """A place that a user named: a target's own, which has no `runtime`, or a runtime on a host.

    `name` is as reports print it; `host` as ssh takes it, or a phone's serial number, empty for this one or the only
    phone; `python` the words that start Python there, empty for this process's own.
    """

    name: str
    runtime: str = ""
    host: str = ""
    python: tuple[str, ...] = ()

    @property
    def apart(self) -> bool:
        """Whether it is answered by a pack: on another host, by another Python on this one, or on a phone."""
        return bool(self.host or self.python) or self.phone

    @property
    def phone(self) -> bool:
        """Whether it is a phone on the cable, which answers a pack an artifact: its app may be killed by one."""
        return self.runtime == ADB

    @property
    def beside(self) -> bool:
        """Whether it is another Python on this host, which may be an emulated processor's."""
        return bool(self.python) and not self.host

    @property
    def timed(self) -> bool:
        """Whether its times mean something: an emulator's do not."""
        return not self.beside and not self._emulated

    @property
    def images(self) -> int | None:
        """How many evaluation inputs are asked unless the user says so; None for all."""
        return None if self.timed else SLOW_IMAGES

    @property
    def settings(self) -> Mapping[str, str]:
        """Of the runtime. An emulator runs one thread: threads that wait for each other take all of its time."""
        own = RUNTIMES[self.runtime].settings if self.runtime else {}
        return {**own, "threads": "1"} if self.beside else own

    def tolerance(self, manifest: Manifest, target: Target) -> Tolerance:
        """What an artifact may differ from the reference by: as in its target's first place, or as fp16 may."""
        half = bool(self.runtime) and RUNTIMES[self.runtime].half and manifest.precision == "fp32"
        return FP16 if half else target.places[0].tolerance_of(manifest)

    def taken(self, manifest: Manifest) -> Manifest:
        """An artifact as it is asked there: an emulator compiles for its default sizes, or for those of its files."""
        if not self._emulated or manifest.sizes:
            return manifest
        fixed = {name: axis.model_copy(update={"dynamic": False}) for name, axis in manifest.axes.items()}
        return manifest.model_copy(update={"axes": fixed})

    def opens(self, manifest: Manifest, target: Target, packed: bool = False) -> bool:
        """Whether an artifact can be asked there: the place is its target's own, or the runtime opens its format.

        Args:
            manifest: Of the artifact.
            target: Its own.
            packed: Whether it goes there in a pack, whose engine picks no file of a folder.
        """
        if not self.runtime:
            return any(place.name == self.name for place in target.places_of(manifest))
        files = RUNTIMES[self.runtime].opens
        if is_index(manifest):
            return ONNX in files and not packed and not self.apart
        return manifest.entry.endswith(files) and not manifest.bundle.variants

    @property
    def _emulated(self) -> bool:
        return bool(self.runtime) and RUNTIMES[self.runtime].emulated


def further_place(name: str) -> FurtherPlace:
    """A place by its name.

    Raises:
        UsageError: If there is no such place, runtime or host.
    """
    if name.startswith(f"{ADB}:"):
        return _by_serial(name)
    hosted = name.startswith((SSH, PYTHON))
    runtime, at, host = (DEFAULT_RUNTIME, "@", name) if hosted else name.partition("@")
    if runtime not in RUNTIMES:
        known = place_names()
        if runtime in known and not at:
            return FurtherPlace(runtime)
        raise UsageError(
            f"no place '{name}': {suggestion(runtime, known)}possible are {', '.join(known)}, "
            f"{ADB}:SERIAL, and {DEFAULT_RUNTIME} and the like with '@{SSH}USER@HOST' or '@{PYTHON}COMMAND' behind it"
        )
    if not at:
        return FurtherPlace(runtime, runtime)
    if runtime == ADB:
        raise UsageError(f"no place '{name}': a phone is on this host's cable; name it as {ADB}:SERIAL")
    if host.startswith(PYTHON):
        return _by_command(runtime, host)
    parts = _SSH.fullmatch(host)
    if parts is None:
        raise UsageError(
            f"no host '{host}': a host is {SSH}USER@HOST, {SSH}USER@HOST:/path/of/python, or {PYTHON}COMMAND"
        )
    return FurtherPlace(f"{runtime}@{SSH}{parts['host']}", runtime, parts["host"], (parts["python"] or "python3",))


def _by_serial(name: str) -> FurtherPlace:
    serial = name.removeprefix(f"{ADB}:")
    if not _SERIAL.fullmatch(serial):
        raise UsageError(f"no phone '{serial}': name it as `adb devices` does, for example {ADB}:emulator-5554")
    return FurtherPlace(name, ADB, serial)


def _by_command(runtime: str, host: str) -> FurtherPlace:
    try:
        words = tuple(shlex.split(host.removeprefix(PYTHON)))
    except ValueError as error:
        raise UsageError(f"no host '{host}': {str(error).lower()}") from error
    if not words:
        raise UsageError(f"no host '{host}': name the command that starts Python there")
    named = next((word for word in words if word != "env" and "=" not in word), words[0])
    return FurtherPlace(f"{runtime}@{PYTHON}{Path(named).name}", runtime, python=words)


def place_names() -> tuple[str, ...]:
    """Every place on this host: the runtimes here, then the targets' own."""
    return (*RUNTIMES, *(name for name in own_places() if name not in RUNTIMES))


def own_places() -> dict[str, tuple[str, ...]]:
    """The targets' own places, and the targets of each."""
    targets, _ = registry.loadable()
    owners: dict[str, tuple[str, ...]] = {}
    for name, target in targets.items():
        for place in target.places:
            owners[place.name] = (*owners.get(place.name, ()), name)
    return owners
