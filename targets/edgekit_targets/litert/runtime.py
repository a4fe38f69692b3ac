"""A `.tflite` file in LiteRT with XNNPACK, in a process of the environment `litert`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import closing
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError
from edgekit.model.spec import Array
from edgekit.runtime.input_shapes import arguments, require_names
from edgekit.runtime.processor import threads
from edgekit.runtime.protocol import Timings
from edgekit.storage import environment, limits
from edgekit_targets.litert import answering, frames

CPU, JS = "litert-cpu", "litert-js"
"""The names of the places: this one, and LiteRT.js in a browser."""
WARM_UPS, RUNS = 10, 100


IDENTIFIER = b"TFL3"
"""Of a flatbuffer, after its first four bytes
(https://github.com/google-ai-edge/LiteRT/blob/main/tflite/converter/schema/schema.fbs)."""
SCRIPT = Path(answering.__file__)


class LitertRuntime:
    """A `.tflite` file with one signature: the entry of an artifact.

    Raises:
        DependencyError: If the environment is not there.
        ArtifactError: If LiteRT refuses the file.
    """

    def __init__(self, folder: Path, entry: str) -> None:
        self._manifest = read_artifact(folder)
        self._process = Process(folder / entry)
        try:
            require_names(self._manifest, entry, self._process.facts["inputs"], self._process.facts["outputs"])
        except BaseException:
            self.close()
            raise

    @property
    def device(self) -> str:
        """Library, version, delegate and threads, in words."""
        facts = self._process.facts
        return f"LiteRT {facts['version']}, {'' if facts['parts'] else 'without '}XNNPACK, {threads()} threads"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch."""
        answers = frames.unpacked(self._process.ask(frames.RUN, arguments(self._manifest, inputs, frames.NARROW)))
        return {one.name: answers[one.name].astype(one.dtype, copy=False) for one in self._manifest.outputs}

    def clock(self, inputs: Mapping[str, Array], seconds: float) -> Timings:
        """Time one batch in the process that answers."""
        asked = {" seconds": seconds, " warm_ups": WARM_UPS, " least": RUNS}
        arrays = arguments(self._manifest, inputs, frames.NARROW) | {
            name: np.asarray(value) for name, value in asked.items()
        }
        return Timings(tuple(json.loads(self._process.ask(frames.CLOCK, arrays))["milliseconds"]))

    def close(self) -> None:
        """End the process."""
        self._process.close()


def parts(path: Path) -> int:
    """In how many parts XNNPACK runs the graph of a `.tflite` file; 0 where it takes nothing of it."""
    with closing(Process(path)) as process:
        count: int = process.facts["parts"]
    return count


class Process:
    """One file, opened.

    A damaged file can end the process; this one gets a sentence.

    Attributes:
        facts: LiteRT's version, the names of inputs and outputs, and in how many parts XNNPACK runs the graph.

    Raises:
        DependencyError: If the environment is not there.
        ArtifactError: If LiteRT refuses the file.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as stream:
            if stream.read(8)[4:] != IDENTIFIER:
                raise ArtifactError(f"'{path}' is not a LiteRT model: export again")
        command = [str(environment.python(environment.LITERT)), "-I", str(SCRIPT), str(path), str(threads())]
        self._said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - `close` closes it
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                pass_fds=[theirs.fileno()],
            )
        try:
            self.facts: dict[str, Any] = json.loads(self._answer(f"LiteRT refuses '{path.name}'"))
        except BaseException:
            self.close()
            raise

    def ask(self, kind: bytes, arrays: Mapping[str, Array]) -> bytes:
        """Send one message; returns what comes back.

        Raises:
            ArtifactError: If LiteRT fails.
        """
        with contextlib.suppress(OSError):  # it died: the answer says so
            self._connection.send_bytes(kind + frames.packed(arrays))
        return self._answer("LiteRT failed")

    def close(self) -> None:
        """End it."""
        self._connection.close()
        self._process.kill()
        self._process.wait()
        self._said.close()

    def _answer(self, what: str) -> bytes:
        try:
            message = self._connection.recv_bytes()
        except (EOFError, OSError):
            message = b""
        kind, content = message[:1], message[1:]
        if kind == frames.REFUSED:
            raise ArtifactError(f"{what}: {content.decode(errors='replace')}")
        if not kind:
            code = self._process.wait()
            self._said.seek(0)
            lines = [line.strip() for line in self._said.read().splitlines() if line.strip()]
            last = f"; its last output was: {lines[-1]}" if lines else ""
            raise ArtifactError(f"{what}: its process died ({limits.ending(code)}){last}")
        return content
