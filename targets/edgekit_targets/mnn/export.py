"""MNN: one `.mnn` file for Android, iOS and boards, with the axes that ONNX has open.

MNN's converter makes it from the ONNX artifact. The converter runs in a separate process, since it prints, and a graph
that it does not understand can end it. edgekit calls its C++ module, since the Python command around that reports its
use.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from edgekit.errors import ExportError
from edgekit.model.folder import load_model
from edgekit.model.sources.onnx import QUANTIZING
from edgekit.target import (
    FP16,
    FP32_DELEGATED,
    ExportResult,
    Job,
    Need,
    Option,
    Place,
    Runtime,
    SourceRequirements,
    Target,
    TargetDescription,
)
from edgekit_targets.mnn.runtime import CPU, MnnRuntime
from edgekit_targets.onnx.passes import patterns
from edgekit_targets.onnx.passes.graph import save_graph

PRECISION = Option(
    name="precision", default="fp32", choices=("fp32", "fp16"), help="precision in which weights are stored"
)
ENTRY = "model.mnn"
SCRIPT = """
import sys
import _tools
import MNN
_tools.mnnconvert(["MNNConvert", *sys.argv[1:]])
print(MNN.get_model_uuid(sys.argv[sys.argv.index("--MNNModel") + 1]))
"""
"""Converts. The last line that it prints is the identifier that the converter drew."""
LACKING = re.compile(r"These Op Not Support: (.*)")
IDENTIFIER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
INSTEAD = "Use -t onnx: ONNX Runtime runs on phones and boards too"
MODULES_ALONE = ("GRU", "If", "LSTM", "Loop", "Scan")
"""Operators whose sizes MNN's sessions do not compute. Its modules run them, and its sessions give no answer."""


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Convert the ONNX artifact to `model.mnn`.

    Raises:
        ExportError: If MNN cannot convert the graph. The message names its operators.
    """
    half = job.get(PRECISION) == "fp16"
    notes = write(out, job, ["--fp16"] if half else [])
    return ExportResult(precision="fp16" if half else "fp32", entry=ENTRY, dynamic=job.dynamic, notes=notes)


def write(out: Path, job: Job, options: Sequence[str]) -> tuple[str, ...]:
    """Convert the ONNX artifact of a job to `model.mnn` and return notes for the user.

    Args:
        out: The artifact's folder.
        job: The job, whose entry is the ONNX file.
        options: Of MNN's converter.

    Raises:
        ExportError: If MNN cannot convert the graph. The message names its operators.
    """
    import onnx

    job.progress(0.2, "converting to MNN")
    source = onnx.load(job.entry)
    alone = sorted({node.op_type for node in source.graph.node} & set(MODULES_ALONE))
    with tempfile.TemporaryDirectory(prefix="edgekit-") as scratch:
        graph = Path(scratch) / "model.onnx"
        # MNN 3.6 computes every ONNX Gelu by tanh, which cost arr-coc-tiny 0.0027 of its relevance. With its exact one
        # the model took 1.6 times as long. So MNN gets sigmoids, which are as exact. It lacks IsNaN, and its
        # softmax of a row of -inf is zeros, so the guards of masked attention are left out. It converts an LSTM only
        # with all of its outputs.
        save_graph(patterns.add_lstm_states(patterns.drop_softmax_guards(patterns.gelu_by_sigmoid(source))), graph)
        lines = convert(graph, out / ENTRY, options)
    if not (out / ENTRY).is_file():
        quantized = any(node.op_type in QUANTIZING for node in source.graph.node)
        advice = "It takes no INT8 from ONNX: export the float model with -t mnn-int8" if quantized else INSTEAD
        raise ExportError(f"MNN cannot convert '{load_model(job.model).name}': {reason(lines)}. {advice}")
    job.progress(0.9, "naming it by its content")
    file = out / ENTRY
    chart = lines[-1]
    content = file.read_bytes()
    if not IDENTIFIER.fullmatch(chart) or content.count(chart.encode()) != 1:
        raise ExportError(f"MNN's converter drew the identifier '{chart}', which '{file.name}' does not hold once")
    rest = content.replace(chart.encode(), b"")
    own = uuid.uuid5(uuid.NAMESPACE_OID, hashlib.sha256(rest).hexdigest())
    file.write_bytes(content.replace(chart.encode(), str(own).encode()))
    if not alone:
        return ()
    return (f"it has {', '.join(alone)}. MNN's modules run it. Its sessions, as in its Java classes, do not",)


def load(artifact: Path, place: Place) -> Runtime:
    """Load the artifact in MNN on the CPU."""
    return MnnRuntime(artifact, ENTRY)


def convert(graph: Path, file: Path, options: Sequence[str] = ()) -> list[str]:
    """Run the converter and return the lines that it printed. A failure leaves no file.

    It runs in the graph's folder. It keeps a file in its working folder, and leaves it there when it crashes.
    """
    command = ["-f", "ONNX", "--modelFile", graph.name, "--MNNModel", str(file.resolve()), "--bizCode", "edgekit"]
    command += ["--useGeluApproximation", "0", *options]
    ended = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, *command],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        cwd=graph.parent,
    )
    lines = [line.strip() for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]
    return [*lines, "its converter crashed"] if ended.returncode < 0 else lines


def reason(lines: list[str]) -> str:
    """Return the operators that MNN lacks, or its last line."""
    for line in lines:
        if lacking := LACKING.search(line):
            names = sorted(set(re.findall(r"\w+::(\w+)", lacking[1])))
            return f"it lacks the operators {', '.join(names)}"
    return lines[-1] if lines else "its process died"


TARGET = Target(
    summary="MNN, fp32 or fp16 weights, dynamic batch and size",
    about=TargetDescription(
        use_case="apps and boards that use MNN",
        proved_by="MNN on the CPU with fp32 arithmetic",
        not_covered="ARM kernels, GPUs, NPUs and fp16 arithmetic",
        # It has no published Android library, and servers have quicker runtimes.
        audience="none",
    ),
    reads=SourceRequirements(fixed=True),
    source="onnx",
    export=export,
    load=load,
    places=(Place(name=CPU, tolerance=FP32_DELEGATED, limits={"fp16": FP16}),),
    needs=(Need("MNN", "mnn"),),
    options=(PRECISION,),
)
