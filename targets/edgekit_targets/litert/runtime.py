"""LiteRT in its environment `litert`: a `.tflite` file runs there with XNNPACK, and scripts there write it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import closing
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, ExportError
from edgekit.model.spec import Array, ModelSpec
from edgekit.runtime.input_shapes import arguments, require_names
from edgekit.runtime.processor import threads
from edgekit.runtime.protocol import FileTensor, Timings
from edgekit.storage import environment, limits
from edgekit.storage.environment import LITERT, lock, python
from edgekit.storage.files import digest_file, digest_text, dump_json
from edgekit.target import Need, Place, Runtime
from edgekit_targets.litert import answering

CPU, JS = "litert-cpu", "litert-js"
"""The names of the places: the host's CPU, and LiteRT.js in a browser."""
WARM_UPS, RUNS = 10, 100
IDENTIFIER = b"TFL3"
"""Identifier of a flatbuffer, after its first four bytes
(https://github.com/google-ai-edge/LiteRT/blob/main/tflite/converter/schema/schema.fbs)."""
ANSWERING = Path(answering.__file__)
ENTRY = "model.tflite"
FACTS = "edgekit.json"
# The first date of a ZIP archive, in place of a real one.
FIRST_DAY = (1980, 1, 1, 0, 0, 0)
SCRIPT, CONVERT, QUANTIZE = (Path(__file__).with_name(f"{name}.py") for name in ("script", "convert", "quantize"))
NEEDS = tuple(Need(name, environment=LITERT) for name in ("litert_torch", "ai_edge_litert", "ai_edge_quantizer"))
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}


class LitertFile:
    """A `.tflite` file of any origin, with or without signatures.

    Raises:
        DependencyError: If the environment is missing.
        ArtifactError: If LiteRT refuses the file.
    """

    def __init__(self, path: Path) -> None:
        self._process = Process(path)

    @property
    def device(self) -> str:
        """Library, version, delegate and threads."""
        facts = self._process.facts
        return f"LiteRT {facts['version']}, {'' if facts['parts'] else 'without '}XNNPACK, {threads()} threads"

    def inputs(self) -> tuple[FileTensor, ...]:
        """Return the file's inputs."""
        return self._tensors("inputs")

    def outputs(self) -> tuple[FileTensor, ...]:
        """Return the file's outputs."""
        return self._tensors("outputs")

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the answers to one batch."""
        return answering.unpack(self._process.ask(answering.RUN, inputs))

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _tensors(self, kind: str) -> tuple[FileTensor, ...]:
        return tuple(
            FileTensor(name, dtype, tuple(None if size < 0 else size for size in shape), scale, zero_point)
            for name, (dtype, shape, scale, zero_point) in self._process.facts[kind].items()
        )


class LitertRuntime(LitertFile):
    """A `.tflite` file with one signature: the entry of an artifact.

    Raises:
        DependencyError: If the environment is missing.
        ArtifactError: If LiteRT refuses the file.
    """

    def __init__(self, folder: Path, entry: str) -> None:
        self._manifest = read_artifact(folder)
        super().__init__(folder / entry)
        try:
            require_names(self._manifest, entry, self._process.facts["inputs"], self._process.facts["outputs"])
        except BaseException:
            self.close()
            raise

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the answers to one batch."""
        answers = super().run(arguments(self._manifest, inputs, answering.NARROW))
        return {output.name: answers[output.name].astype(output.dtype, copy=False) for output in self._manifest.outputs}

    def benchmark(self, inputs: Mapping[str, Array], seconds: float) -> Timings:
        """Time one batch in the answering process."""
        settings = {" seconds": seconds, " warm_ups": WARM_UPS, " least": RUNS}
        arrays = arguments(self._manifest, inputs, answering.NARROW) | {
            name: np.asarray(value) for name, value in settings.items()
        }
        return Timings(tuple(json.loads(self._process.ask(answering.CLOCK, arrays))["milliseconds"]))


def parts(path: Path) -> int:
    """Return the count of parts in which XNNPACK runs the graph of a `.tflite` file, 0 if it runs none."""
    with closing(Process(path)) as process:
        count: int = process.facts["parts"]
    return count


class Process:
    """One open file.

    A damaged file can end the answering process. Then this process reports it in a sentence.

    Raises:
        DependencyError: If the environment is missing.
        ArtifactError: If LiteRT refuses the file.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as stream:
            if stream.read(8)[4:] != IDENTIFIER:
                raise ArtifactError(f"'{path}' is not a LiteRT model. Export it again")
        command = [str(environment.python(environment.LITERT)), "-I", str(ANSWERING), str(path), str(threads())]
        self._said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - `close` closes it
        self._connection, child_connection = Pipe()
        with child_connection:
            self._process = subprocess.Popen(
                [*command, str(child_connection.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                pass_fds=[child_connection.fileno()],
            )
        try:
            self.facts: dict[str, Any] = json.loads(self._answer(f"LiteRT refuses '{path.name}'"))
        except BaseException:
            self.close()
            raise

    def ask(self, kind: bytes, arrays: Mapping[str, Array]) -> bytes:
        """Send one message and return the reply.

        Raises:
            ArtifactError: If LiteRT fails.
        """
        # If the process died, the answer says so.
        with contextlib.suppress(OSError):
            self._connection.send_bytes(kind + answering.pack(arrays))
        return self._answer("LiteRT failed")

    def close(self) -> None:
        """End the process."""
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
        if kind == answering.REFUSED:
            raise ArtifactError(f"{what}: {content.decode(errors='replace')}")
        if not kind:
            code = self._process.wait()
            self._said.seek(0)
            lines = [line.strip() for line in self._said.read().splitlines() if line.strip()]
            last = f"; its last output was: {lines[-1]}" if lines else ""
            raise ArtifactError(f"{what}: its process died ({limits.ending(code)}){last}")
        return content


def call_script(file: Path, settings: Mapping[str, object], name: str) -> dict[str, Any]:
    """Return the result of a file's `answer` in the environment.

    Args:
        file: CONVERT or QUANTIZE.
        settings: What its `answer` gets.
        name: The user's model.

    Raises:
        DependencyError: If the environment is missing.
        ExportError: If the file's library failed or its process died. The message names the user's model.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-") as scratch:
        result = Path(scratch) / "result.json"
        process = subprocess.run(
            [str(python(LITERT)), "-I", str(SCRIPT), str(file), json.dumps(dict(settings)), str(result)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=os.environ | QUIET,
        )
        answer: dict[str, Any] = json.loads(result.read_text()) if result.is_file() else {}
    if not answer:
        lines = [line.strip() for line in process.stderr.splitlines() if line.strip()] or ["nothing"]
        raise ExportError(f"LiteRT cannot {file.stem} '{name}': its process died ({process.returncode}), {lines[-1]}")
    if "error" in answer:
        raise ExportError(f"LiteRT cannot {file.stem} '{name}': {answer['error']}")
    returned: dict[str, Any] = answer["answer"]
    return returned


def fixed_sizes_note(spec: ModelSpec) -> tuple[str, ...]:
    """Return the note of a manifest about fixed axes."""
    sizes = ", ".join(f"{name} {axis.default}" for name, axis in spec.axes.items())
    return (f"all axes are fixed: {sizes}",) if sizes else ()


def describe(path: Path, spec: ModelSpec) -> None:
    """Append the facts of the model to the file, as a ZIP archive, which is LiteRT's way.

    https://ai.google.dev/edge/litert/models/metadata
    """
    facts = {**spec.facts, "preprocessing": "; ".join(i.preprocessing for i in spec.inputs)}
    with zipfile.ZipFile(path, "a", zipfile.ZIP_STORED) as behind:
        behind.writestr(zipfile.ZipInfo(FACTS, FIRST_DAY), dump_json(facts))


def load(artifact: Path, place: Place) -> Runtime:
    """Load the artifact in LiteRT, in a process of its environment, or in LiteRT.js."""
    if place.name != JS:
        return LitertRuntime(artifact, ENTRY)
    from edgekit_targets.litert.browser import LitertJsRuntime

    return LitertJsRuntime(artifact, ENTRY)


def content() -> str:
    """sha256 of what makes the artifacts elsewhere: the environment's lock, and the scripts."""
    return digest_text("\n".join(digest_file(path) for path in (lock(LITERT), SCRIPT, CONVERT, QUANTIZE)))
