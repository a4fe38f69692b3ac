"""MNN: one `.mnn` file for Android, iOS and boards, with the axes that ONNX has open.

It is made of the ONNX artifact by MNN's converter, in a process of its own: the converter prints, and a graph that it
does not understand can end it. It is called by its C++ module: the Python command around that reports its use.

MNN 3.6 computes every ONNX Gelu by tanh, which cost arr-coc-tiny 0.0027 of its relevance; with MNN's exact one the
model took 1.6 times as long. So it is given sigmoids that are as exact (`edgekit.onnxgraph.gelu`). It has no IsNaN, and
its softmax of a row of -inf is zeros: the guards of masked attention are left out (`edgekit.onnxgraph.softmax_guard`).
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from edgekit.errors import ExportError
from edgekit.model.folder import load_model
from edgekit.onnxgraph import gelu, softmax_guard
from edgekit.onnxgraph.graph import save_graph
from edgekit.runtime import mnn as runtime
from edgekit.target import FP16, FP32_DELEGATED, About, Exported, Job, Need, Option, Place, Reads, Runtime, Target

ENTRY = "model.mnn"
PRECISION = Option(
    name="precision", default="fp32", choices=("fp32", "fp16"), help="precision in which weights are stored"
)
SCRIPT = """
import sys
import _tools
import MNN
_tools.mnnconvert(["MNNConvert", *sys.argv[1:]])
print(MNN.get_model_uuid(sys.argv[sys.argv.index("--MNNModel") + 1]))
"""
"""Converts; the last line that it prints is the identifier that the converter drew."""
LACKING = re.compile(r"These Op Not Support: (.*)")
IDENTIFIER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def export(source: Path, out: Path, job: Job) -> Exported:
    """ONNX artifact -> model.mnn.

    Raises:
        ExportError: If MNN cannot convert the graph; the message names its operators.
    """
    import onnx

    spec, half = load_model(job.model), job.get(PRECISION) == "fp16"
    job.progress(0.2, "converting to MNN")
    with tempfile.TemporaryDirectory(prefix="edgekit-") as scratch:
        graph = Path(scratch) / "model.onnx"
        save_graph(softmax_guard.dropped(gelu.by_sigmoid(onnx.load(job.entry))), graph)
        said = _convert(graph, out / ENTRY, half)
    if not (out / ENTRY).is_file():
        raise ExportError(f"MNN cannot convert '{spec.name}': {_reason(said)}")
    job.progress(0.9, "naming it by its content")
    _rename(out / ENTRY, said[-1])
    return Exported(precision="fp16" if half else "fp32", entry=ENTRY, dynamic=job.dynamic)


def load(artifact: Path, place: Place) -> Runtime:
    """Run it in MNN on the CPU."""
    return runtime.MnnRuntime(artifact, ENTRY)


def _convert(graph: Path, file: Path, half: bool) -> list[str]:
    """Run the converter; returns the lines that it printed. Where it fails there is no file."""
    command = ["-f", "ONNX", "--modelFile", str(graph), "--MNNModel", str(file), "--bizCode", "edgekit"]
    command += ["--useGeluApproximation", "0", *(["--fp16"] if half else [])]
    ended = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, *command],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return [line.strip() for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]


def _reason(said: list[str]) -> str:
    """Which operators it lacks, or the last that it said."""
    for line in said:
        if lacking := LACKING.search(line):
            names = sorted(set(re.findall(r"\w+::(\w+)", lacking[1])))
            return f"it has no operator {', '.join(names)}"
    return said[-1] if said else "its process died"


def _rename(file: Path, drawn: str) -> None:
    """Put an identifier that follows from the content in the place of the one that the converter drew by chance."""
    content = file.read_bytes()
    if not IDENTIFIER.fullmatch(drawn) or content.count(drawn.encode()) != 1:
        raise ExportError(f"MNN's converter drew the identifier '{drawn}', which '{file.name}' does not hold once")
    rest = content.replace(drawn.encode(), b"")
    own = uuid.uuid5(uuid.NAMESPACE_OID, hashlib.sha256(rest).hexdigest())
    file.write_bytes(content.replace(drawn.encode(), str(own).encode()))


TARGET = Target(
    summary="MNN, fp32 or fp16 weights, dynamic batch and size",
    about=About(
        choose_for="apps and boards that use MNN",
        proved_by="MNN on the CPU with fp32 arithmetic",
        not_proved="ARM kernels, GPUs, NPUs and fp16 arithmetic",
    ),  # of no phone's audience: `edgekit assets` puts no MNN into an app
    reads=Reads(fixed=True),
    source="onnx",
    export=export,
    load=load,
    places=(Place(name=runtime.CPU, tolerance=FP32_DELEGATED, limits={"fp16": FP16}),),
    needs=(Need("MNN", "mnn"),),
    options=(PRECISION,),
)
