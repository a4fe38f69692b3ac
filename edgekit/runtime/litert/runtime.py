"""A `.tflite` file in LiteRT with XNNPACK, in a process of the environment `litert`."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError
from edgekit.model.spec import Array
from edgekit.runtime.input_shapes import require_shapes
from edgekit.runtime.litert import answering, frames
from edgekit.runtime.protocol import Timings
from edgekit.runtime.threads import threads
from edgekit.storage import environment

CPU = "litert-cpu"
"""The name of this place."""
IDENTIFIER = b"TFL3"
"""Of a flatbuffer, after its first four bytes
(https://github.com/google-ai-edge/LiteRT/blob/main/tflite/converter/schema/schema.fbs)."""
SCRIPT = Path(answering.__file__)
WARM_UPS, RUNS = 10, 100


class LitertRuntime:
    """A `.tflite` file with one signature.

    A damaged file can end the process that answers; this one gets a sentence.

    Args:
        folder: The artifact; its manifest names inputs, outputs and fixed sizes.
        entry: The file in it.

    Raises:
        DependencyError: If the environment is not there.
        ArtifactError: If LiteRT refuses the file.
    """

    def __init__(self, folder: Path, entry: str) -> None:
        self._manifest = read_artifact(folder)
        path = folder / entry
        with path.open("rb") as stream:
            if stream.read(8)[4:] != IDENTIFIER:
                raise ArtifactError(f"'{path}' is not a LiteRT model: export again")
        self._said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - `close` closes it
        self._process = subprocess.Popen(
            [str(environment.python(environment.LITERT)), "-I", str(SCRIPT), str(path), str(threads())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )
        try:
            self._facts: dict[str, Any] = json.loads(self._answer(f"LiteRT refuses '{entry}'"))
            self._require_names(entry)
        except BaseException:
            self.close()
            raise

    @property
    def device(self) -> str:
        """Library, version, delegate and threads, in words."""
        delegate = "XNNPACK" if self._facts["subgraphs"] else "without XNNPACK"
        return f"LiteRT {self._facts['version']}, {delegate}, {threads()} threads"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch: arrays by input name in, arrays by output name out.

        Raises:
            UsageError: If a size that the artifact has fixed differs.
            ArtifactError: If LiteRT fails.
        """
        self._ask(frames.RUN, self._narrow(inputs))
        found = frames.unpacked(self._answer("LiteRT failed"))
        return {one.name: found[one.name].astype(one.dtype, copy=False) for one in self._manifest.outputs}

    def clock(self, inputs: Mapping[str, Array], seconds: float) -> Timings:
        """Time one batch in the process that answers."""
        asked = {" seconds": seconds, " warm_ups": WARM_UPS, " least": RUNS}
        self._ask(frames.CLOCK, self._narrow(inputs) | {name: np.asarray(value) for name, value in asked.items()})
        return Timings(tuple(json.loads(self._answer("LiteRT failed"))["milliseconds"]))

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._process.kill()
        self._process.wait()
        self._said.close()

    def _narrow(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        require_shapes(self._manifest, inputs)
        given = {one.name: inputs[one.name] for one in self._manifest.inputs}
        return {n: np.ascontiguousarray(a, dtype=frames.NARROW.get(a.dtype.name, a.dtype)) for n, a in given.items()}

    def _require_names(self, entry: str) -> None:
        """See that the file's signature is that of the manifest."""
        for kind, declared in (("inputs", self._manifest.inputs), ("outputs", self._manifest.outputs)):
            names = sorted(one.name for one in declared)
            if self._facts[kind] != names:
                raise ArtifactError(f"'{entry}' has the {kind} {self._facts[kind]}, not {names}: export again")

    def _ask(self, kind: bytes, arrays: Mapping[str, Array]) -> None:
        with contextlib.suppress(BrokenPipeError):  # it died: the answer says so
            frames.send(self._process.stdin, kind, frames.packed(arrays))  # type: ignore[arg-type]  # it has a pipe

    def _answer(self, what: str) -> bytes:
        kind, content = frames.receive(self._process.stdout)  # type: ignore[arg-type]  # it has a pipe
        if kind == frames.REFUSED:
            raise ArtifactError(f"{what}: {content.decode(errors='replace')}")
        if not kind:
            code = self._process.wait()
            cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            self._said.seek(0)
            lines = [line.strip() for line in self._said.read().splitlines() if line.strip()]
            last = f"; it said last: {lines[-1]}" if lines else ""
            raise ArtifactError(f"{what}: its process died ({cause}){last}")
        return content
