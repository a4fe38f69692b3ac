"""Core AI, Apple's successor of Core ML: the runtime for Linux in its wheel, and the system's own on macOS.

A saved `.aimodel` is lowered when it is opened. Core AI has no 64-bit integers, so it gets inputs in 32 bits, and
returns answers in the dtypes that the manifest declares. An asset has one function, or one for each size that the
manifest enumerates.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, NotVerifiedHere, reason
from edgekit.model.spec import Array
from edgekit.runtime.input_shapes import arguments, enumerated_size

LINUX = "coreai-linux"
DEVICE = "coreai"
NARROW = {"int64": "int32"}
FUNCTION = "main"
"""The function of an asset. Those of enumerated sizes are `main_s224x224` and so on (`size_key`)."""
SLOW = "edgekit.fp16_products"
"""The entry of an asset's metadata with its multiplications in fp16 matrix products, in millions per example."""
MOST_PRODUCTS = 2.0
"""Most millions of them that run on Linux.

There an fp16 product of 5.3 million takes about 0.5 s, and one in fp32 0.8 ms (coreai-core 1.0.0b3). A verdict needs
hundreds of runs.
"""


class CoreaiRuntime:
    """An `.aimodel` in this process: the entry of an artifact, in the place `coreai-linux` or `coreai`.

    A damaged file can end the process, so the pipeline checks hashes first and runs this in a worker.

    Raises:
        NotVerifiedHere: If this host cannot run the asset in that place.
        ArtifactError: If Core AI refuses the asset, or the asset lacks the function of a size.
    """

    def __init__(self, folder: Path, entry: str, place: str) -> None:
        _require_host(place)
        self._manifest = read_artifact(folder)
        self._loop = asyncio.new_event_loop()
        # A separate thread, since the caller's may already run a loop, as in a notebook.
        self._thread = ThreadPoolExecutor(1)
        self._opened = AsyncExitStack()
        self.device = f"Core AI {version('coreai-core')}, {'Linux, CPU' if place == LINUX else 'macOS'}"
        self._functions: dict[str, Any] = {}
        self._model = self._await(self._open(folder / entry, place))

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the answers to one batch, with the function for its size."""
        from coreai.runtime import NDArray

        feed = {name: NDArray(array) for name, array in arguments(self._manifest, inputs, NARROW).items()}
        function = self._function(inputs)
        try:
            answers = self._await(function(feed))
        except Exception as error:
            raise ArtifactError(f"Core AI failed: {reason(error)}") from error
        return {o.name: np.array(answers[o.name].numpy(), dtype=o.dtype) for o in self._manifest.outputs}

    def close(self) -> None:
        """Free the model and the lowered files."""
        self._functions.clear()
        self._model = None
        self._await(self._opened.aclose())
        self._loop.close()
        self._thread.shutdown()

    def _await(self, work: Awaitable[Any]) -> Any:
        async def whole() -> Any:
            return await work

        return self._thread.submit(self._loop.run_until_complete, whole()).result()

    def _function(self, inputs: Mapping[str, Array]) -> Any:
        """Return the function for the inputs' size, and load it on its first use."""
        declared = [i.shape for i in self._manifest.inputs]
        several = self._manifest.sizes
        name = function_of(declared, enumerated_size(self._manifest, inputs)) if several else FUNCTION
        if name not in self._functions:
            try:
                self._functions[name] = self._model.load_function(name)
            except Exception as error:
                raise ArtifactError(f"Core AI refuses the function '{name}': {reason(error)}") from error
        return self._functions[name]

    async def _open(self, path: Path, place: str) -> Any:
        from coreai.authoring.asset import AIModelAsset

        try:
            asset = AIModelAsset.load(path)
            products = float(dict(asset.metadata.creator_defined_metadata).get(SLOW, 0.0))
        except Exception as error:
            raise ArtifactError(f"Core AI refuses '{path.name}': {reason(error)}") from error
        if place == LINUX and products > MOST_PRODUCTS:
            raise NotVerifiedHere(
                f"Core AI's runtime for Linux needs minutes for fp16 matrix products of {products:.0f} million "
                "multiplications. Verify this artifact on a Mac, or export with -O coreai.precision=fp32"
            )
        try:
            model = await self._opened.enter_async_context(asset.executable())
            available = set(model.function_names)
        except Exception as error:
            raise ArtifactError(f"Core AI refuses '{path.name}': {reason(error)}") from error
        declared = [i.shape for i in self._manifest.inputs]
        functions = [function_of(declared, size) for size in self._manifest.sizes] or [FUNCTION]
        if lost := [name for name in functions if name not in available]:
            raise ArtifactError(f"'{path.name}' lacks the function '{lost[0]}'. Export it again")
        return model


def function_of(shapes: Iterable[Sequence[int | str]], sizes: Mapping[str, int]) -> str:
    """Return the name of the function for one of several sizes."""
    return f"{FUNCTION}_{size_key(shapes, sizes)}"


def size_key(shapes: Iterable[Sequence[int | str]], sizes: Mapping[str, int]) -> str:
    """Return the sizes in the order of the axes in the inputs' shapes: height 320 and width 256 are "s320x256"."""
    order = dict.fromkeys(size for shape in shapes for size in shape if size in sizes)
    return f"s{'x'.join(str(sizes[str(axis)]) for axis in order)}"


def _require_host(place: str) -> None:
    if place == LINUX and sys.platform != "linux":
        raise NotVerifiedHere("Core AI's runtime for Linux runs only on Linux. On a Mac use the place 'coreai'")
    if place != DEVICE:
        return
    from coreai import runtime

    if sys.platform != "darwin" or not runtime._use_os_coreai:
        raise NotVerifiedHere("Core AI itself runs on macOS 27 and later. Verify this artifact on a Mac or in the app")
