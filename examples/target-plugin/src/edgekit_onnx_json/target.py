"""ONNX as JSON: the same graph in text that any language reads without Protocol Buffers, and that tools can search.

ONNX's own library writes and reads it (https://onnx.ai/onnx/api/serialization.html); ONNX Runtime runs what was read.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from edgekit.errors import ArtifactError
from edgekit.model.spec import Array
from edgekit.runtime.ort import OrtRuntime
from edgekit.target import FP32, ExportResult, Job, Need, Option, Place, Runtime, Target

ENTRY = "model.json"
INDENT = Option(name="indent", default=0, minimum=0, maximum=8, unit="spaces", help="0 writes one line")


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """ONNX artifact -> model.json."""
    import onnx
    from google.protobuf import json_format

    job.progress(0.2, "writing the graph as JSON")
    graph = json_format.MessageToDict(onnx.load(job.entry))
    text = json.dumps(graph, indent=job.get(INDENT) or None, sort_keys=True)
    (out / ENTRY).write_text(text, encoding="utf-8")
    return ExportResult(precision="fp32", entry=ENTRY, dynamic=job.dynamic)


class JsonRuntime:
    """A graph that was read from JSON, in ONNX Runtime."""

    def __init__(self, path: Path) -> None:
        import onnx

        try:
            graph = onnx.load(path, format="json")
        except Exception as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ArtifactError(f"'{path}' is no ONNX graph in JSON: {first}") from error
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "model.onnx"
            onnx.save(graph, copy)
            self._session = OrtRuntime(copy)

    @property
    def device(self) -> str:
        """What runs it, in words."""
        return f"{self._session.device}, read from JSON"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch: arrays by input name in, arrays by output name out."""
        return self._session.run(inputs)

    def close(self) -> None:
        """Free the session."""
        self._session.close()


def load(artifact: Path, place: Place) -> Runtime:
    """Read it, and open it on the CPU."""
    return JsonRuntime(artifact / ENTRY)


TARGET = Target(
    summary="ONNX as JSON, fp32 (an example of a target in a package of its own)",
    source="onnx",
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=FP32),),
    needs=(Need("onnxruntime", hint="pip install 'edgekit-onnx-json[cpu]'"),),
    groups=("text",),
    options=(INDENT,),
)
