"""A `.tflite` file in LiteRT with XNNPACK, in a process of the environment `litert`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np

from edgekit.artifact.manifest import Manifest
from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError
from edgekit.model.spec import Array
from edgekit.runtime.input_shapes import require_shapes
from edgekit.runtime.litert import frames
from edgekit.runtime.litert.process import Process
from edgekit.runtime.processor import threads
from edgekit.runtime.protocol import Timings

CPU, JS = "litert-cpu", "litert-js"
"""The names of the places: this one, and LiteRT.js in a browser."""
WARM_UPS, RUNS = 10, 100


class LitertRuntime:
    """A `.tflite` file with one signature.

    Args:
        folder: The artifact; its manifest names inputs, outputs and fixed sizes.
        entry: The file in it.

    Raises:
        DependencyError: If the environment is not there.
        ArtifactError: If LiteRT refuses the file.
    """

    def __init__(self, folder: Path, entry: str) -> None:
        self._manifest = read_artifact(folder)
        self._process = Process(folder / entry)
        try:
            self._require_names(entry)
        except BaseException:
            self.close()
            raise

    @property
    def device(self) -> str:
        """Library, version, delegate and threads, in words."""
        facts = self._process.facts
        return f"LiteRT {facts['version']}, {'' if facts['parts'] else 'without '}XNNPACK, {threads()} threads"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch: arrays by input name in, arrays by output name out.

        Raises:
            UsageError: If a size that the artifact has fixed differs.
            ArtifactError: If LiteRT fails.
        """
        found = frames.unpacked(self._process.ask(frames.RUN, narrowed(self._manifest, inputs)))
        return {one.name: found[one.name].astype(one.dtype, copy=False) for one in self._manifest.outputs}

    def clock(self, inputs: Mapping[str, Array], seconds: float) -> Timings:
        """Time one batch in the process that answers."""
        asked = {" seconds": seconds, " warm_ups": WARM_UPS, " least": RUNS}
        arrays = narrowed(self._manifest, inputs) | {name: np.asarray(value) for name, value in asked.items()}
        return Timings(tuple(json.loads(self._process.ask(frames.CLOCK, arrays))["milliseconds"]))

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _require_names(self, entry: str) -> None:
        """See that the file's signature is that of the manifest."""
        for kind, declared in (("inputs", self._manifest.inputs), ("outputs", self._manifest.outputs)):
            names = sorted(one.name for one in declared)
            if (found := self._process.facts[kind]) != names:
                raise ArtifactError(f"'{entry}' has the {kind} {found}, not {names}: export again")


def narrowed(manifest: Manifest, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs in the numbers that a `.tflite` file has.

    Raises:
        UsageError: If a size that the artifact has fixed differs.
    """
    require_shapes(manifest, inputs)
    given = {one.name: inputs[one.name] for one in manifest.inputs}
    return {n: np.asarray(a, dtype=frames.NARROW.get(a.dtype.name, a.dtype), order="C") for n, a in given.items()}


def parts(path: Path) -> int:
    """In how many parts XNNPACK runs the graph of a `.tflite` file; 0 where it takes nothing of it.

    Raises:
        DependencyError: If the environment is not there.
        ArtifactError: If LiteRT refuses the file.
    """
    with closing(Process(path)) as process:
        found: int = process.facts["parts"]
    return found
