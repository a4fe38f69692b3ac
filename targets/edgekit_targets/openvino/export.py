"""OpenVINO's intermediate representation (IR): `model.xml` and `model.bin`, for Intel's processors, GPUs and NPUs.

It is made from the ONNX artifact and keeps its dynamic axes. Weights are stored in fp32 or fp16. The plugin on a user's
machine chooses the arithmetic (bf16 where the processor has it). The artifact is judged in fp32.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.errors import ExportError
from edgekit.model.folder import load_model
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
from edgekit_targets.openvino import runtime

WEIGHTS = Option(name="weights", default="fp32", choices=("fp32", "fp16"), help="precision in which weights are stored")
ENTRY = "model.xml"
UNKNOWN = re.compile(r"No conversion rule found for operations: (.+)")
INTEGER = ("QLinear", "QGemm", "QAttention")
"""How the names of ONNX Runtime's own INT8 operators begin."""
FAILED = re.compile(r"^-- (\w+)-\d+ with a message:\n(.*?)\n\n", re.MULTILINE | re.DOTALL)


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Convert the ONNX artifact to `model.xml` and `model.bin`.

    Raises:
        ExportError: If OpenVINO cannot read the graph.
    """
    spec = load_model(job.model)
    job.progress(0.2, "converting to OpenVINO IR")
    model = read_model(job.entry, spec.name)
    half = job.get(WEIGHTS) == "fp16"
    job.progress(0.8, "writing the files")
    save_model(model, out / ENTRY, spec.facts, half)
    return ExportResult(precision="fp16" if half else "fp32", entry=ENTRY, dynamic=job.dynamic)


def read_model(path: Path, name: str) -> Any:
    """Return an ONNX file as OpenVINO's model.

    Raises:
        ExportError: If OpenVINO cannot read the graph. The message names the user's model.
    """
    import openvino

    try:
        # `convert_model` would start processes that report its use.
        return openvino.Core().read_model(path)
    except Exception as error:
        raise ExportError(f"OpenVINO cannot convert '{name}': {_why(path, error)}") from error


def _why(path: Path, error: Exception) -> str:
    """Return the first operator of the graph that OpenVINO refused, and its reason. Later ones fail as a result."""
    import onnx

    text = str(error)
    unknown, failed = UNKNOWN.findall(text), dict(FAILED.findall(text))
    # "Einsum-12", or "com.microsoft.QGemm".
    missing = {name.strip().partition("-")[0].rpartition(".")[2] for names in unknown for name in names.split(",")}
    refused = missing | set(failed)
    nodes = onnx.load(path, load_external_data=False).graph.node if refused else ()
    first = next((node.op_type for node in nodes if node.op_type in refused), "")
    if not first:
        return runtime.reason(error)
    reason = failed.get(first, "").strip().rpartition("\n")[2].rstrip(".")
    why = (
        f"does not take the ONNX operator '{first}' in this form ({reason})"
        if reason
        else f"has no rule for the ONNX operator '{first}'"
    )
    if first.startswith(INTEGER):
        return f"it {why}. Quantize the model in QDQ form (quant_format=QuantFormat.QDQ), which OpenVINO takes"
    return f"it {why}. Replace '{first}' with other operators"


def save_model(model: Any, path: Path, facts: Mapping[str, str], half: bool = False) -> None:
    """Write model.xml and model.bin with facts of the model, its weights in fp16 if `half`."""
    import openvino

    for key, value in facts.items():
        model.set_rt_info(value, ["edgekit", key])
    openvino.save_model(model, path, compress_to_fp16=half)


def load(artifact: Path, place: Place) -> Runtime:
    """Load the artifact in OpenVINO's CPU plugin."""
    return runtime.OpenvinoRuntime(artifact / ENTRY)


TARGET = Target(
    summary="OpenVINO IR, fp32 or fp16 weights, dynamic batch and size",
    about=TargetDescription(
        use_case="Intel's processors, GPUs and NPUs",
        proved_by="OpenVINO's CPU plugin with fp32 arithmetic",
        not_covered="the arithmetic that a plugin chooses by itself (bf16, fp16), GPUs and NPUs",
    ),
    reads=SourceRequirements(fixed=True),
    source="onnx",
    export=export,
    load=load,
    places=(Place(name=runtime.CPU, tolerance=FP32_DELEGATED, limits={"fp16": FP16}),),
    needs=(Need("openvino", "openvino"),),
    groups=("intel",),
    options=(WEIGHTS,),
)
