"""OpenVINO's intermediate representation (IR): `model.xml` and `model.bin`, made from the ONNX artifact.

The artifact is judged in OpenVINO's CPU plugin with f32 arithmetic, so that the verdict does not depend on whether a
processor has bf16: the plugin chooses bf16 by itself where it can.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgekit.errors import ArtifactError, ExportError
from edgekit.model.spec import Array
from edgekit.runtime.threads import threads
from edgekit.target import FP32_DELEGATED, Exported, Job, Need, Option, Place, Runtime, Target

ENTRY = "model.xml"
WEIGHTS = Option(name="weights", default="fp32", choices=("fp32", "fp16"), help="precision in which weights are stored")


def export(source: Path, out: Path, job: Job) -> Exported:
    """ONNX artifact -> model.xml and model.bin.

    Raises:
        ExportError: If OpenVINO cannot convert the graph.
    """
    import openvino

    job.progress(0.2, "converting to OpenVINO IR")
    try:
        model = openvino.Core().read_model(job.entry)  # `convert_model` starts processes that report its use
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ExportError(f"OpenVINO cannot convert '{job.entry.name}': {first}") from error
    half = job.get(WEIGHTS) == "fp16"
    job.progress(0.8, "writing the files")
    openvino.save_model(model, out / ENTRY, compress_to_fp16=half)
    return Exported(precision="fp16" if half else "fp32", entry=ENTRY, dynamic=job.dynamic)


class OpenvinoRuntime:
    """A compiled model on the CPU."""

    def __init__(self, path: Path, precision: str) -> None:
        import openvino

        core = openvino.Core()
        try:
            settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads()}
            self._model = core.compile_model(path, "CPU", settings)
        except Exception as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ArtifactError(f"OpenVINO cannot open '{path}': {first}") from error
        self._version = openvino.__version__.partition("-")[0]
        self._precision = precision

    @property
    def device(self) -> str:
        """What runs it, in words."""
        return f"OpenVINO {self._version}, CPU, {self._precision}, {threads()} threads"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answer one batch: arrays by input name in, arrays by output name out."""
        answers = self._model(dict(inputs))
        return {output.get_any_name(): answers[output].copy() for output in self._model.outputs}

    def close(self) -> None:
        """Nothing to free before the object goes."""


def load(artifact: Path, place: Place) -> Runtime:
    """Open it on the CPU, with the place's arithmetic."""
    return OpenvinoRuntime(artifact / ENTRY, place.settings["precision"])


TARGET = Target(
    summary="OpenVINO IR, fp32 (an example of a target in a package of its own)",
    source="onnx",
    export=export,
    load=load,
    places=(Place(name="cpu", tolerance=FP32_DELEGATED, settings={"precision": "f32"}),),
    needs=(Need("openvino", hint="pip install 'edgekit-openvino-example[openvino]'"),),
    groups=("intel",),
    options=(WEIGHTS,),
)
