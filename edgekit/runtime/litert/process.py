"""The process of the environment `litert` that answers for one `.tflite` file."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.errors import ArtifactError
from edgekit.model.spec import Array
from edgekit.runtime.litert import answering, frames
from edgekit.runtime.processor import threads
from edgekit.storage import environment

IDENTIFIER = b"TFL3"
"""Of a flatbuffer, after its first four bytes
(https://github.com/google-ai-edge/LiteRT/blob/main/tflite/converter/schema/schema.fbs)."""
SCRIPT = Path(answering.__file__)


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
        self._said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - `close` closes it
        self._process = subprocess.Popen(
            [str(environment.python(environment.LITERT)), "-I", str(SCRIPT), str(path), str(threads())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )
        try:
            self.facts: dict[str, Any] = json.loads(self._answer(f"LiteRT refuses '{path.name}'"))
        except BaseException:
            self.close()
            raise

    def ask(self, kind: bytes, arrays: Mapping[str, Array]) -> bytes:
        """Send one frame; returns what comes back.

        Raises:
            ArtifactError: If LiteRT fails.
        """
        with contextlib.suppress(BrokenPipeError):  # it died: the answer says so
            frames.send(self._process.stdin, kind, frames.packed(arrays))  # type: ignore[arg-type]  # it has a pipe
        return self._answer("LiteRT failed")

    def close(self) -> None:
        """End it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._process.kill()
        self._process.wait()
        self._said.close()

    def _answer(self, what: str) -> bytes:
        kind, content = frames.receive(self._process.stdout)  # type: ignore[arg-type]  # it has a pipe
        if kind == frames.REFUSED:
            raise ArtifactError(f"{what}: {content.decode(errors='replace')}")
        if not kind:
            code = self._process.wait()
            cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            self._said.seek(0)
            lines = [line.strip() for line in self._said.read().splitlines() if line.strip()]
            last = f"; its last output was: {lines[-1]}" if lines else ""
            raise ArtifactError(f"{what}: its process died ({cause}){last}")
        return content
