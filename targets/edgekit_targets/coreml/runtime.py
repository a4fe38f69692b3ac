"""Runtimes of a `.mlpackage`: the interpreter anywhere, Core ML itself on macOS. Both return the declared outputs.

The metadata of a package name the model's inputs and outputs: `edgekit.inputs` and `edgekit.outputs` are JSON lists.
Core ML has no int64 and no booleans, so a package returns int32 for these dtypes of the model. Where top-K was cut
off, `edgekit.derived` lists the counts and rankings that follow from the scores. An app computes them as
`Contract.complete` does. An image input takes 8-bit pixels, as a pixel buffer does, so values between two of them are
rounded.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

import mil_interpreter
from edgekit.errors import ArtifactError, DependencyError, NotVerifiedHere, UsageError, install_command
from edgekit.model.spec import Array, Input, Output
from edgekit.runtime.protocol import FileTensor, Runtime
from mil_interpreter.records import WORKING_DTYPES, Feature, Package

INTERPRETER = "interpreter"
CORE_ML = "coreml"
INPUTS_KEY = "edgekit.inputs"
OUTPUTS_KEY = "edgekit.outputs"
DERIVED_KEY = "edgekit.derived"
# Of a pixel.
LARGEST_BYTE = 255.0


def open_package(artifact: Path, place: str) -> Runtime:
    """Open the one `.mlpackage` of an artifact in the place "interpreter" (anywhere) or "coreml" (only macOS).

    Raises:
        ArtifactError: If the package is missing or damaged.
        NotVerifiedHere: If this host, or the interpreter, cannot run it.
    """
    path = find_package(artifact)
    if place == INTERPRETER:
        return InterpreterRuntime(path)
    if place == CORE_ML:
        if not _on_macos():
            raise NotVerifiedHere("Core ML itself runs only on macOS. Verify this artifact on a Mac or in the iOS app")
        return CoreMLRuntime(path)
    raise UsageError(f"a Core ML package has no place '{place}'. Choose one of {INTERPRETER}, {CORE_ML}")


class CoreMLFile:
    """A `.mlpackage` of any origin: in Core ML itself on macOS, elsewhere in the interpreter.

    Images are pixels, as a pixel buffer has them: [1, channels, height, width], from 0 to 255.

    Raises:
        ArtifactError: If the package is damaged.
        NotVerifiedHere: If the interpreter cannot run it.
    """

    def __init__(self, path: Path) -> None:
        self._runtime = CoreMLRuntime(path) if _on_macos() else InterpreterRuntime(path)
        self._package = self._runtime.package

    @property
    def device(self) -> str:
        """Description of the place where the package runs."""
        return self._runtime.device

    def inputs(self) -> tuple[FileTensor, ...]:
        """Return the package's inputs; a dimension with several sizes is open."""
        return tuple(map(_file_tensor, self._package.inputs))

    def outputs(self) -> tuple[FileTensor, ...]:
        """Return the package's outputs; they may declare no shape."""
        return tuple(replace(_file_tensor(feature), shape=None) for feature in self._package.outputs)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the answers to one batch."""
        return {name: np.asarray(array) for name, array in self._runtime.compute(inputs).items()}

    def close(self) -> None:
        """Free the package."""
        self._runtime.close()


def _file_tensor(feature: Feature) -> FileTensor:
    if feature.kind == "image":
        channels = 1 if feature.colours == "GRAYSCALE" else 3
        return FileTensor(feature.name, "uint8", (1, channels, *feature.shape))
    sizes = feature.shapes or (feature.shape,)
    shape: list[int | None] = [size if len({one[i] for one in sizes}) == 1 else None for i, size in enumerate(sizes[0])]
    for i, (low, high) in enumerate(feature.bounds):
        shape[i] = low if low == high else None
    return FileTensor(feature.name, WORKING_DTYPES[feature.dtype].name, tuple(shape))


def find_package(artifact: Path) -> Path:
    """Return the one `.mlpackage` in an artifact's folder.

    Raises:
        ArtifactError: If the folder holds no package, or more than one.
    """
    packages = sorted(artifact.glob("*.mlpackage"))
    if len(packages) != 1:
        raise ArtifactError(f"'{artifact}' must hold one .mlpackage but holds {len(packages)}. Export it again")
    return packages[0]


class _PackageRuntime:
    """A package, read from disk. A subclass computes its answers."""

    def __init__(self, path: Path) -> None:
        with _errors():
            self.package = mil_interpreter.read_package(path)
        self._contract = read_contract(self.package)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the answers to one batch, in the model's dtypes."""
        answers = self.compute(self._contract.with_pixels(self.package, inputs))
        return self._contract.complete({f.name: np.asarray(answers[f.name]) for f in self.package.outputs})

    def compute(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the package's own outputs for its own inputs, images as pixels."""
        raise NotImplementedError


class InterpreterRuntime(_PackageRuntime):
    """A package run by the interpreter."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with _errors():
            self._interpreter: mil_interpreter.Interpreter | None = mil_interpreter.Interpreter(self.package)

    @property
    def device(self) -> str:
        """Description of the place where the package runs."""
        return f"Core ML interpreter ({'macOS), not Core ML itself' if _on_macos() else 'Linux), not Apple hardware'}"

    def close(self) -> None:
        """Free the constants."""
        self._interpreter = None

    def compute(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the package's own outputs for its own inputs, images as pixels."""
        if self._interpreter is None:
            raise UsageError("this runtime was closed. Load the artifact again")
        with _errors(), _one_blas_thread():
            return self._interpreter.run(inputs)


class CoreMLRuntime(_PackageRuntime):
    """A package run by Core ML itself, through coremltools. It needs macOS."""

    def __init__(self, path: Path) -> None:
        import coremltools

        super().__init__(path)
        self._model: Any = coremltools.models.MLModel(str(path))
        self.device = f"Core ML (coremltools {coremltools.__version__}, macOS, compute units all)"

    def close(self) -> None:
        """Free the compiled model."""
        self._model = None

    def compute(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the package's own outputs for its own inputs, images as pixels."""
        from PIL import Image

        values: dict[str, object] = {}
        for feature in self.package.inputs:
            with _errors():
                array = feature.array(inputs)
            values[feature.name] = array
            if feature.kind == "image":
                layout = array[0, 0] if array.shape[1] == 1 else array[0].transpose(1, 2, 0)
                values[feature.name] = Image.fromarray(np.ascontiguousarray(layout).astype(np.uint8))
        answers: Mapping[str, Array] = self._model.predict(values)
        return answers


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Turn the interpreter's errors into edgekit's."""
    try:
        yield
    except mil_interpreter.PackageError as error:
        raise ArtifactError(f"{error}. Export the package again") from error
    except mil_interpreter.UnsupportedError as error:
        raise NotVerifiedHere(str(error)) from error
    except mil_interpreter.InputError as error:
        raise UsageError(str(error)) from error
    except ModuleNotFoundError as error:
        raise DependencyError(f"reading Core ML needs coremltools. Install it: {install_command('coreml')}") from error


def _on_macos() -> bool:
    return sys.platform == "darwin"


def _one_blas_thread() -> contextlib.AbstractContextManager[object]:
    """Return a context in which BLAS uses one thread, where threadpoolctl is installed.

    OpenBLAS's threads spin while they wait. On two shared cores an image took 0.8 s with two threads, and 0.1 s with
    one. The matrices of such models are small enough for one thread.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return contextlib.nullcontext()
    limits: contextlib.AbstractContextManager[object] = threadpool_limits(1, "blas")
    return limits


@dataclass(frozen=True)
class Derived:
    """An output that an app computes from scores, and the length of a ranking (0 for counts)."""

    output: Output
    count: int = 0


@dataclass(frozen=True)
class Contract:
    """The metadata that a package declares. Empty for packages that edgekit did not make.

    Attributes:
        spans: Smallest and largest value of each image.
        outputs: Outputs of the package.
        derived: Outputs that an app computes from them.
    """

    spans: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    outputs: tuple[Output, ...] = ()
    derived: tuple[Derived, ...] = ()

    def with_pixels(self, package: Package, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the inputs, with images as the bytes of a pixel buffer: float32 in [0, 255], rounded."""
        images = {feature.name for feature in package.inputs if feature.kind == "image"}
        pixels = dict(inputs)
        for name in images & pixels.keys():
            low, high = self.spans.get(name, (0.0, 1.0))
            scaled = (inputs[name] - np.float32(low)) * np.float32(LARGEST_BYTE / (high - low))
            pixels[name] = np.asarray(np.clip(np.round(scaled), 0, LARGEST_BYTE), dtype=np.float32)
        return pixels

    def complete(self, answers: Mapping[str, Array]) -> dict[str, Array]:
        """Return the package's answers in the model's dtypes, with the derived outputs.

        Counts are `floor(low + (high - low) * score + 0.5)` in fp64. Rankings give ties to the lower index.
        """
        dtypes = {o.name: o.dtype for o in self.outputs}
        result = {name: array.astype(dtypes.get(name, array.dtype)) for name, array in answers.items()}
        for derived in self.derived:
            output, scores = derived.output, result[derived.output.of]
            if output.role == "counts":
                values = np.floor(output.low + (output.high - output.low) * scores.astype(np.float64) + 0.5)
            else:
                values = np.argsort(-scores, axis=-1, kind="stable")[..., : derived.count]
            result[output.name] = values.astype(output.dtype)
        return result


def entries(inputs: Iterable[Input], outputs: Iterable[Output], derived: Iterable[Derived]) -> dict[str, str]:
    """Return the metadata of a package, by key."""
    takes = [{name: getattr(i, name) for name in ("name", "dtype", "kind", "low", "high")} for i in inputs]
    gives = [_entry(o) for o in outputs]
    follows = [_entry(d.output) | {"count": d.count} for d in derived]
    rows = {INPUTS_KEY: takes, OUTPUTS_KEY: gives} | ({DERIVED_KEY: follows} if follows else {})
    return {key: json.dumps(value, sort_keys=True) for key, value in rows.items()}


def _entry(output: Output) -> dict[str, object]:
    return {name: getattr(output, name) for name in ("name", "dtype", "role", "of", "low", "high")}


def read_contract(package: Package) -> Contract:
    """Return the contract in a package's metadata.

    Raises:
        ArtifactError: If the metadata are damaged.
    """
    outputs = TypeAdapter(list[Output])
    try:
        keys = (INPUTS_KEY, OUTPUTS_KEY, DERIVED_KEY)
        takes, gives, follows = (json.loads(package.metadata.get(key, "[]")) for key in keys)
        spans = {str(e["name"]): (float(e["low"]), float(e["high"])) for e in takes if e["kind"] == "image"}
        derived = zip(outputs.validate_python(follows), follows, strict=True)
        contract = Contract(
            spans,
            tuple(outputs.validate_python(gives)),
            tuple(Derived(output, int(e["count"])) for output, e in derived),
        )
        for output in (*contract.outputs, *(item.output for item in contract.derived)):
            np.dtype(output.dtype)
        if not all(low < high for low, high in spans.values()):
            raise ValueError(f"an image in {spans} has a lowest value that is not below its highest")
    except (ValueError, TypeError, KeyError) as error:
        why = "; ".join(str(error).splitlines())
        raise ArtifactError(f"the metadata in '{package.path}' are damaged ({why}). Export it again") from error
    return contract
