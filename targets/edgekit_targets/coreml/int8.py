"""Core ML with INT8 weights: the `coreml` package with its large weights quantized, one scale per channel.

Weights are stored in 8 bits (linear, symmetric), and Core ML decompresses them. The arithmetic does not change. So the
package is about half as large as the fp16 one, and equally fast.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from edgekit.artifact.store import read_artifact
from edgekit.errors import ExportError, reason
from edgekit.runtime.logs import quiet
from edgekit.target import INT8, ExportResult, Job, Need, Place, Target, TargetDescription
from edgekit_targets.coreml.export import load
from edgekit_targets.coreml.runtime import CORE_ML, INTERPRETER, find_package
from mil_interpreter import write_package

# In elements. Smaller weights save nothing, and coremltools advises against quantizing them.
SMALLEST = 2048


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Quantize the weights of a `coreml` artifact to INT8."""
    artifact = read_artifact(source)
    package = find_package(source)
    job.progress(0.2, "quantizing the weights")
    with tempfile.TemporaryDirectory(prefix="edgekit-") as scratch:
        # coremltools writes next to its source, so it gets a copy.
        copied = Path(scratch) / package.name
        shutil.copytree(package, copied)
        quantized = _quantize(copied)
        description = quantized.get_spec()
        blob = Path(quantized.weights_dir) / "weight.bin"
        job.progress(0.9, "writing the package")
        write_package(description, blob, out / package.name)
    return ExportResult(
        precision="int8",
        entry=package.name,
        dynamic=tuple(name for name, axis in artifact.axes.items() if axis.dynamic),
        notes=(
            *artifact.notes,
            "the weights are INT8, with one scale per channel. The arithmetic is that of the `coreml` package",
        ),
    )


def _quantize(path: Path) -> Any:
    with quiet():
        import coremltools
        from coremltools.optimize import coreml as optimize

        each = optimize.OpLinearQuantizerConfig(mode="linear_symmetric", dtype="int8", weight_threshold=SMALLEST)
        model = coremltools.models.MLModel(str(path), skip_model_load=True)
        try:
            return optimize.linear_quantize_weights(model, optimize.OptimizationConfig(global_config=each))
        # coremltools raises whatever its passes met.
        except Exception as error:
            raise ExportError(f"coremltools cannot quantize '{path.name}': {reason(error)}") from error


TARGET = Target(
    summary="Core ML ML Program with INT8 weights",
    about=TargetDescription(
        use_case="the same as `coreml`, half the size",
        proved_by="edgekit's interpreter of the package; Core ML itself on a Mac",
        not_covered="Apple's hardware, where no Mac runs it",
        audience="ios",
    ),
    source="coreml",
    export=export,
    load=load,
    needs=(Need("coremltools", "coreml"),),
    groups=("mobile", "apple"),
    places=tuple(Place(name=name, tolerance=INT8, timed=False) for name in (INTERPRETER, CORE_ML)),
)
