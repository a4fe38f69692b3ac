"""Recording a reference: run the model on a device, measure its own noise and its latency, write it down."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.errors import RecordError
from edgekit.judge import latency
from edgekit.model.spec import Array, Evaluation, ModelSpec
from edgekit.reference.batches import (
    EVALUATION,
    FEATURE_ROWS,
    Batch,
    arrays_of,
    inputs_digest,
    same_inputs,
)
from edgekit.reference.info import OUTPUTS, read_info
from edgekit.reference.store import Reference, read_reference, write_reference
from edgekit.reference.subject import Subject, subject_of
from edgekit.runtime.protocol import Runtime
from edgekit.runtime.threads import threads
from edgekit.target import silent

CPU_RUNS = 20  # a CPU reference is a stand-in, made while a user waits; artifacts are timed by the full protocol


def obtain(spec: ModelSpec, folder: Path, progress: Callable[[float, str], None] = silent) -> Reference:
    """The reference of a build: its own if it belongs to these weights, else the one that ships, else a new CPU one.

    Args:
        spec: The model.
        folder: The build's reference folder.
        progress: Told what is going on.

    Raises:
        RecordError: If the model's own answer is not finite.
    """
    subject = subject_of(spec)
    if (found := _kept(subject, folder)) is not None:
        return found
    progress(0.1, "preparing the reference")
    if not _adopted(subject, folder):
        _record(subject, folder, "cpu", True, progress)
    return read_reference(folder)


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
    _record(subject_of(spec), folder, device, with_inputs, progress)


def _record(
    subject: Subject, folder: Path, device: str, with_inputs: bool, progress: Callable[[float, str], None]
) -> None:
    _settle(device)
    runtime = subject.opened(device)
    progress(0.1, f"recording on {runtime.device}")
    answered = tuple(replace(batch, outputs=_answers(runtime, subject, batch)) for batch in subject.asked)
    _refuse_not_finite(subject, answered)
    progress(0.5, "measuring the noise floor")
    real = next((b for b in answered if b.name == EVALUATION), answered[0])
    noise = _noise(subject, real, device)
    progress(0.7, "measuring latency")
    info: dict[str, object] = {
        "schema_version": 1,
        "name": subject.name,
        "device": _describe(device),
        "device_kind": device,
        "driver": _driver(device),
        "versions": {"torch": _torch_version(), "python": platform.python_version(), "numpy": np.__version__},
        "flags": {"tf32": False, "deterministic": True, "dtype": "float32"},
        "weights_sha256": subject.weights_sha256,
        "noise": noise,
        "metric": _task(subject.evaluation, real),
        "captions": list(subject.evaluation.captions) if subject.evaluation is not None else [],
        "latency": _latency(subject, device),
    }
    write_reference(folder, answered, info, with_inputs)


def _adopted(subject: Subject, folder: Path) -> bool:
    """Copy the reference that ships with a model into a build, with inputs; False where it is of another model."""
    from safetensors.numpy import load_file

    if subject.shipped is None:
        return False
    info, asked = read_info(subject.shipped), subject.asked
    same = info.weights_sha256 == subject.weights_sha256 and info.inputs_sha256 == inputs_digest(asked)
    if info.missing or not same:
        return False
    outputs = load_file(subject.shipped / OUTPUTS)
    whole = tuple(replace(b, outputs=arrays_of(b.name, outputs)) for b in asked)
    write_reference(folder, whole, info.raw, with_inputs=True)
    return True


def _kept(subject: Subject, folder: Path) -> Reference | None:
    """A build's reference, if it is whole and belongs to these weights and to the inputs that would be asked now."""
    try:
        found = read_reference(folder)
    except RecordError:
        return None
    same = found.info.weights_sha256 == subject.weights_sha256
    return found if same and same_inputs(found.batches, subject.asked) else None


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


def _answers(runtime: Runtime, subject: Subject, batch: Batch) -> dict[str, Array]:
    answer = batch.joined([runtime.run(row) for row in batch.rows()])
    return {name: array[:FEATURE_ROWS] if name in subject.features else array for name, array in answer.items()}


def _refuse_not_finite(subject: Subject, batches: tuple[Batch, ...]) -> None:
    for batch in batches:
        for name, array in batch.outputs.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise RecordError(f"'{subject.name}' itself answers NaN or Inf in '{name}' on the {batch.name} inputs")


def _noise(subject: Subject, batch: Batch, device: str) -> dict[str, dict[str, float]]:
    """Largest absolute difference of each score or tensor output between device fp32, CPU fp32 and CPU fp64."""
    answers: dict[str, Mapping[str, Array]] = {device: batch.outputs} if device != "cpu" else {}
    answers["cpu32"] = _answers(subject.opened(), subject, batch)
    with contextlib.suppress(RuntimeError, TypeError):  # a float32 tensor made inside: "noise" has no cpu64 then
        answers["cpu64"] = _answers(subject.opened(double=True), subject, batch)
    kinds = list(answers)
    pairs = [(a, b) for i, a in enumerate(kinds) for b in kinds[i + 1 :]]
    return {o: {f"{a} {b}": _furthest(answers[a][o], answers[b][o]) for a, b in pairs} for o in subject.floats}


def _furthest(one: Array, other: Array) -> float:
    return float(np.max(np.abs(one.astype(np.float64) - other.astype(np.float64)), initial=0.0))


def _latency(subject: Subject, device: str) -> dict[str, dict[str, dict[str, object]]]:
    found: dict[str, dict[str, dict[str, object]]] = {}
    for batch, inputs in subject.timed.items():
        if device == "cuda":
            found[batch] = subject.timed_on_cuda(inputs)
        else:
            timed = latency.measure({"eager": subject.opened()}, inputs, warm_up=2, runs=CPU_RUNS, seconds=0)
            found[batch] = {name: one.as_record() for name, one in timed.items()}
    return found


def _task(evaluation: Evaluation | None, batch: Batch) -> dict[str, object]:
    if evaluation is None or evaluation.metric is None or evaluation.truth is None:
        return {}
    values = evaluation.metric(batch.outputs, evaluation.truth)
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


def _torch_version() -> str:
    import torch

    return torch.__version__
