"""Recording a reference: run the model on a device, measure its own noise and its latency, write it down."""

from __future__ import annotations

import contextlib
import copy
import os
import platform
import statistics
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgekit.errors import EdgekitError, RecordError, out_of_memory
from edgekit.evaluate import timing
from edgekit.evaluate.rows import Axes
from edgekit.model.adapter import to_tensors
from edgekit.model.capture_errors import line_of, sentence
from edgekit.model.evaluation_set import evaluation_of, metric_values
from edgekit.model.sources.checkpoint import weights_digest
from edgekit.model.sources.onnx import refuse_random
from edgekit.model.spec import Array, Evaluation, ModelSpec
from edgekit.reference.answers import aligned, answerable, answered, kept
from edgekit.reference.batches import EVALUATION, Batch, batches_for
from edgekit.reference.store import declaration, write_reference
from edgekit.runtime.cuda_graph import captured
from edgekit.runtime.eager import EagerRuntime
from edgekit.runtime.processor import threads
from edgekit.runtime.protocol import Runtime
from edgekit.target import silent

SCHEMA_VERSION = 2
NOISE_ROWS = 16
"""Of the first batch, on which the noise of outputs is measured that a shipped reference did not measure."""
CPU_RUNS = {1: 5, 32: 1}
"""By batch size: a CPU reference's speed judges nothing, and a user waits; artifacts are timed by the full protocol."""


def record_reference(
    spec: ModelSpec,
    folder: Path,
    device: str = "cpu",
    with_inputs: bool = True,
    progress: Callable[[float, str], None] = silent,
) -> None:
    """Record a model's reference on a device.

    Args:
        spec: The model; a copy of its module is moved to the device.
        folder: Where to write.
        device: "cpu" or "cuda".
        with_inputs: Whether to write the inputs too; a reference that ships with its model leaves them out.
        progress: Told what is going on.

    Raises:
        RecordError: If the device is not there, or the model's answer is not finite.
    """
    record(subject_of(spec), folder, device, with_inputs, progress)


def record(
    subject: Subject, folder: Path, device: str, with_inputs: bool, progress: Callable[[float, str], None]
) -> None:
    """As `record_reference`, of a model whose needs are known."""
    _settle(device)
    runtime = subject.opened(device)
    progress(0.1, f"recording on {runtime.device}")
    refuse_random(subject.spec)
    batches, axes = _asked(subject, runtime)
    every = tuple(replace(batch, answered_by=_describe(device)) for batch in batches)
    batches, unanswered = answerable(every)
    _refuse_not_finite(subject, batches or every)
    progress(0.5, "measuring the noise floor")
    real = next((b for b in batches if b.name == EVALUATION), batches[0])
    noise, double = measured_noise(subject, real, device, axes)
    progress(0.7, "measuring the model's own latency, which the report shows")
    import torch

    info: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "name": subject.spec.name,
        "device": _describe(device),
        "device_kind": device,
        "driver": _driver(device),
        "versions": {"torch": torch.__version__, "python": platform.python_version(), "numpy": np.__version__},
        "flags": {"tf32": False, "deterministic": True, "dtype": "float32", "double": double},
        "weights_sha256": subject.weights_sha256,
        "row_axes": dict(axes),
        "unanswered": unanswered,
        "noise": noise,
        "metric": _task(subject.evaluation, real),
        "captions": list(subject.evaluation.captions) if subject.evaluation is not None else [],
        "latency": _latency(subject, device),
        **({"declared": declaration(subject.spec)} if with_inputs else {}),
    }
    sketched = () if with_inputs else subject.features
    batches = tuple(replace(batch, outputs=kept(subject.spec.outputs, batch.outputs, sketched)) for batch in batches)
    write_reference(folder, batches, info, with_inputs)


def measured_noise(
    subject: Subject, batch: Batch, device: str, axes: Axes, outputs: Collection[str] | None = None
) -> tuple[dict[str, dict[str, float]], bool]:
    """Largest absolute difference of each floating output between device fp32, CPU fp32 and CPU fp64.

    Args:
        subject: The model.
        batch: What was asked, with the device's answers.
        device: Of these answers.
        axes: The batch axis of each output.
        outputs: Those that are measured; None for all.

    Returns:
        By output and pair; and whether the module runs in double precision: what does not is compared without it.
    """
    answers: dict[str, Mapping[str, Array]] = {device: batch.outputs} if device != "cpu" else {}
    answers["cpu32"] = _answers(subject.opened(), subject, batch, axes) if device != "cpu" else batch.outputs
    floats = [n for n, a in answers["cpu32"].items() if a.dtype.kind == "f" and (outputs is None or n in outputs)]
    try:
        double = _answers(subject.opened(double=True), subject, batch, axes)
    except Exception:  # whatever a module raises that was written for one precision
        double = {}
    if double and all(double[name].dtype == np.float64 for name in floats):
        answers["cpu64"] = double
    kinds = list(answers)
    pairs = [(a, b) for i, a in enumerate(kinds) for b in kinds[i + 1 :]]
    others = {b: aligned(subject.spec.outputs, answers[kinds[0]], answers[b]) for b in kinds}
    found = {o: {f"{a} {b}": _furthest(others[a][o], others[b][o]) for a, b in pairs} for o in floats}
    return found, "cpu64" in answers


def host() -> dict[str, str]:
    """Facts of this host that results depend on: processor, instruction sets, threads, operating system."""
    flags = {flag for line in _cpuinfo() if line.startswith("flags") for flag in line.split(":")[1].split()}
    telling = sorted(flags & {"avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8"})
    return {
        "processor": _processor(),
        "instruction sets": ", ".join(telling) or "not told",
        "threads": str(threads()),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _settle(device: str) -> None:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with a fixed workspace
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise RecordError("no CUDA device is visible to PyTorch on this host: use --device cpu")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.use_deterministic_algorithms(True)


def _asked(subject: Subject, runtime: Runtime) -> tuple[tuple[Batch, ...], Axes]:
    try:
        return answered(runtime, subject.spec.outputs, subject.asked)
    except (EdgekitError, MemoryError):
        raise
    except Exception as error:
        if out_of_memory(str(error)):
            raise
        raise RecordError(
            f"'{subject.spec.name}' itself fails on what it is asked{line_of(error)}: {sentence(error)}; let it take "
            "all inputs from their low to their high (a mask of all true too), or declare a narrower range"
        ) from error


def _answers(runtime: Runtime, subject: Subject, batch: Batch, axes: Axes) -> Mapping[str, Array]:
    return answered(runtime, subject.spec.outputs, (batch,), axes)[0][0].outputs


def _refuse_not_finite(subject: Subject, batches: tuple[Batch, ...]) -> None:
    for batch in batches:
        for name, array in batch.outputs.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise RecordError(
                    f"'{subject.spec.name}' itself answers NaN or Inf in '{name}' on the {batch.name} inputs"
                )


def _furthest(one: Array, other: Array) -> float:
    off = np.abs(one.astype(np.float64) - other.astype(np.float64))
    return float(np.max(off[~np.isnan(off)], initial=0.0))  # NaN: rows of patches that only one side chose


def _latency(subject: Subject, device: str) -> dict[str, dict[str, dict[str, object]]]:
    found: dict[str, dict[str, dict[str, object]]] = {}
    for size in LATENCY_BATCHES if "batch" in subject.spec.axes else LATENCY_BATCHES[:1]:
        inputs = subject.spec.random(7, {"batch": size})
        if device == "cuda":
            found[f"batch {size}"] = timings(subject.copied(), inputs)
        else:
            timed = timing.measure({"eager": subject.opened()}, inputs, warm_up=1, runs=CPU_RUNS[size], seconds=0)
            found[f"batch {size}"] = {name: one.as_record() for name, one in timed.items()}
    return found


def _task(evaluation: Evaluation | None, batch: Batch) -> dict[str, object]:
    values = metric_values(evaluation, batch.outputs) if evaluation is not None else None
    if evaluation is None or values is None:
        return {}
    return {"name": evaluation.metric_name, "mean": float(np.mean(values)), "images": [float(v) for v in values]}


def _describe(device: str) -> str:
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else f"CPU ({_processor()})"


def _processor() -> str:
    named = (line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name"))
    return next(named, platform.machine())


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.is_file() else []


def _driver(device: str) -> str:
    if device != "cuda":
        return ""
    import torch

    version = Path("/proc/driver/nvidia/version")
    text = version.read_text().splitlines()[0].split() if version.is_file() else []
    number = next((word for word in text if word[:1].isdigit() and "." in word), "unknown")
    return f"NVIDIA {number}, CUDA {torch.version.cuda}"


WARM_UPS = 10
RUNS = 200


def timings(spec: ModelSpec, inputs: Mapping[str, Array]) -> dict[str, dict[str, object]]:
    """Percentiles in milliseconds of one batch, by way of running: eager, compiled, cuda graph."""
    import torch

    module = spec.module.to("cuda")
    arguments = tuple(t.to("cuda") for t in to_tensors(spec, inputs))
    found: dict[str, dict[str, object]] = {}
    with torch.inference_mode(), _any_algorithm():
        found["eager"] = _timed(lambda: module(*arguments))
        compiled = torch.compile(module)
        found["compiled"] = _timed(lambda: compiled(*arguments))
        found["cuda graph"] = _timed(captured(compiled, arguments)[0])
    return found


def _timed(once: Callable[[], object]) -> dict[str, object]:
    import torch

    for _ in range(WARM_UPS):
        once()
    torch.cuda.synchronize()
    times = []
    for _ in range(RUNS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch ships it untyped
        start.record()
        once()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {
        "device": f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}",
        "runs": RUNS,
        "p50": cuts[49],
        "p90": cuts[89],
        "p95": cuts[94],
        "p99": cuts[98],
        "mean": statistics.fmean(times),
        "std": statistics.pstdev(times),
    }


@contextlib.contextmanager
def _any_algorithm() -> Iterator[None]:
    """Latency is timed as a user would run it; only the recorded answers ask for deterministic algorithms."""
    import torch

    torch.use_deterministic_algorithms(False)
    try:
        with warnings.catch_warnings(action="ignore"):  # the compiler recommends TF32, which the reference leaves off
            yield
    finally:
        torch.use_deterministic_algorithms(True)


LATENCY_BATCHES = (1, 32)


@dataclass(frozen=True)
class Subject:
    """What recording and checking a reference needs of a model.

    Attributes:
        spec: The model.
        weights_sha256: What a recorded reference belongs to.
        evaluation: Its evaluation set, or None.
        asked: The batches of inputs, without outputs.
    """

    spec: ModelSpec
    weights_sha256: str
    evaluation: Evaluation | None
    asked: tuple[Batch, ...]

    @property
    def features(self) -> frozenset[str]:
        """Outputs of which a reference that ships keeps sketches."""
        return frozenset(o.name for o in self.spec.outputs if o.role == "features")

    def copied(self) -> ModelSpec:
        """The model with a module of its own."""
        import torch

        with torch.no_grad():  # the copy of a TorchScript weight is computed from it otherwise
            return replace(self.spec, module=copy.deepcopy(self.spec.module))

    def opened(self, device: str = "cpu", double: bool = False) -> Runtime:
        """A copy of the model on "cpu" or "cuda", in fp32 or in fp64."""
        return EagerRuntime(self.copied(), device, double)


def subject_of(spec: ModelSpec) -> Subject:
    """Take from a model what its reference needs."""
    evaluation = _dense(evaluation_of(spec))
    return Subject(spec, weights_digest(spec), evaluation, batches_for(spec, evaluation))


def _dense(evaluation: Evaluation | None) -> Evaluation | None:
    """The set with arrays without gaps in memory, their axes in the same order: a reader of a build has the same."""
    if evaluation is None:
        return None
    return replace(evaluation, inputs={name: np.copy(array, order="K") for name, array in evaluation.inputs.items()})
