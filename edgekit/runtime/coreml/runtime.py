"""Runs a `.mlpackage`: the interpreter anywhere, Core ML itself on macOS; both give what the model declares.

An image input takes 8-bit pixels, as a pixel buffer does: values between two of them are rounded.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import NotVerifiedHere, UsageError
from edgekit.model.spec import Array
from edgekit.runtime.coreml.contract import Contract, declared
from edgekit.runtime.coreml.interpreter import Interpreter
from edgekit.runtime.coreml.package import find_package, read_package
from edgekit.runtime.coreml.records import WORKING_DTYPES, Feature
from edgekit.runtime.protocol import Runtime

INTERPRETER = "interpreter"
CORE_ML = "coreml"
_CHANNELS = {"RGB": 3, "GRAYSCALE": 1}


def open_package(artifact: Path, place: str) -> Runtime:
    """Open the package in an artifact's folder.

    Args:
        artifact: A folder with one `.mlpackage`.
        place: "interpreter" (anywhere) or "coreml" (macOS only).

    Raises:
        ArtifactError: If the package is missing or damaged.
        NotVerifiedHere: If this host, or the interpreter, cannot run it.
    """
    path = find_package(artifact)
    if place == INTERPRETER:
        return InterpreterRuntime(path)
    if place == CORE_ML:
        if not _on_macos():
            raise NotVerifiedHere("Core ML itself runs on macOS only: verify this artifact on a Mac or in the iOS app")
        return CoreMLRuntime(path)
    raise UsageError(f"a Core ML package has no place '{place}': choose one of {INTERPRETER}, {CORE_ML}")


class InterpreterRuntime:
    """A package run by the interpreter, read from disk."""

    def __init__(self, path: Path) -> None:
        self._package = read_package(path)
        self._interpreter: Interpreter | None = Interpreter(self._package)
        self._contract = declared(self._package)

    @property
    def device(self) -> str:
        """What runs it, in words."""
        return f"Core ML interpreter ({'macOS), not Core ML itself' if _on_macos() else 'Linux), not Apple hardware'}"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch: arrays by input name in, arrays by output name out, in the model's dtypes.

        Raises:
            UsageError: If an input is missing or has a shape that the package does not take.
        """
        if self._interpreter is None:
            raise UsageError("this runtime was closed: load the artifact again")
        given = {f.name: _given(f, inputs, self._contract) for f in self._package.inputs}
        with _one_blas_thread():
            answers = self._interpreter.run(given)
        return self._contract.complete({f.name: answers[f.name] for f in self._package.outputs})

    def close(self) -> None:
        """Free the constants."""
        self._interpreter = None


class CoreMLRuntime:
    """A package run by Core ML itself, through coremltools; macOS only."""

    def __init__(self, path: Path) -> None:
        import coremltools

        self._package = read_package(path)
        self._contract = declared(self._package)
        self._model: Any = coremltools.models.MLModel(str(path))
        self.device = f"Core ML (coremltools {coremltools.__version__}, macOS, compute units all)"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch: arrays by input name in, arrays by output name out, in the model's dtypes.

        Raises:
            UsageError: If an input is missing or has a shape that the package does not take.
        """
        given: dict[str, object] = {}
        for feature in self._package.inputs:
            array = _given(feature, inputs, self._contract)
            given[feature.name] = _picture(array) if feature.kind == "image" else array
        answers = self._model.predict(given)
        return self._contract.complete({f.name: np.asarray(answers[f.name]) for f in self._package.outputs})

    def close(self) -> None:
        """Free the compiled model."""
        self._model = None


def _on_macos() -> bool:
    return sys.platform == "darwin"


def _one_blas_thread() -> contextlib.AbstractContextManager[object]:
    """OpenBLAS's threads spin while they wait: on two shared cores an image took 0.8 s with two, 0.1 s with one.

    The matrices of such models are small enough for one. Without threadpoolctl BLAS stays as it is.
    """
    if importlib.util.find_spec("threadpoolctl") is None:
        return contextlib.nullcontext()
    limits: contextlib.AbstractContextManager[object] = importlib.import_module("threadpoolctl").threadpool_limits(
        1, "blas"
    )
    return limits


def _given(feature: Feature, inputs: Mapping[str, Array], contract: Contract) -> Array:
    """One input as the package takes it: an image as 8-bit pixel values, a tensor in its dtype."""
    if feature.name not in inputs:
        raise UsageError(f"the input '{feature.name}' is missing: the package takes it")
    array = inputs[feature.name]
    if feature.kind == "image":
        if feature.colours not in _CHANNELS:
            raise NotVerifiedHere(
                f"the image '{feature.name}' is {feature.colours}: RGB and GRAYSCALE are supported here"
            )
        wanted: tuple[int, ...] = (1, _CHANNELS[feature.colours], *feature.shape)
        if array.shape != wanted:
            raise UsageError(f"the image '{feature.name}' has the shape {array.shape}, the package takes {wanted}")
        return contract.pixels(feature.name, array)
    if feature.kind != "tensor" or feature.dtype not in WORKING_DTYPES:
        raise NotVerifiedHere(f"the interpreter does not take inputs of the kind of '{feature.name}'")
    if not feature.accepts(array.shape):
        takes = feature.shapes or feature.bounds or feature.shape
        raise UsageError(f"the input '{feature.name}' has the shape {array.shape}, the package takes {takes}")
    return np.asarray(array, dtype=WORKING_DTYPES[feature.dtype])


def _picture(pixels: Array) -> object:
    from PIL import Image

    layout = pixels[0, 0] if pixels.shape[1] == 1 else pixels[0].transpose(1, 2, 0)
    return Image.fromarray(np.ascontiguousarray(layout).astype(np.uint8))
