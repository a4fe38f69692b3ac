"""Recording of a reference: run the model on a device, measure its noise and latency, and write the folder."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import statistics
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.doors import EDGEKIT
from edgekit.errors import EdgekitError, ModelError, RecordError, out_of_memory
from edgekit.evaluate import timing
from edgekit.evaluate.rows import Axes, Run, rows_of
from edgekit.judge.detections import pair_detections
from edgekit.judge.deviation import noise_by_channel
from edgekit.judge.metrics import AXES_OF_ROLES, match_indices, reorder_rows
from edgekit.judge.rows import PLACED, PLACES, PROJECTIONS, SUFFIX, row_axes, sample_places, sketch
from edgekit.model.adapter import copy_module, to_tensors
from edgekit.model.capture_errors import FIXED_LENGTH, line_of, sentence
from edgekit.model.constraints import constraint_hint
from edgekit.model.evaluation_set import evaluation_of, metric_values
from edgekit.model.sources.checkpoint import weights_digest
from edgekit.model.sources.onnx import refuse_closed_axes, refuse_random
from edgekit.model.spec import Array, EvaluationSet, ModelSpec, Output
from edgekit.reference.batches import (
    BETWEEN,
    CONDITIONED,
    EVALUATION,
    REAL,
    RESIZED,
    WORDS,
    Batch,
    batches_for,
    each_batch,
    inputs_digest,
)
from edgekit.reference.cover import rows_by_labels
from edgekit.reference.plausibility import find_doubt
from edgekit.reference.store import declaration, write_reference
from edgekit.reference.vocabulary import word_queries
from edgekit.runtime.cuda_graph import capture_graph
from edgekit.runtime.eager import EagerRuntime
from edgekit.runtime.processor import threads
from edgekit.runtime.protocol import Runtime
from edgekit.storage.environment import package_digest
from edgekit.storage.files import digest_bytes, digest_text
from edgekit.target import silent

if TYPE_CHECKING:
    import torch

SCHEMA_VERSION = 2
# Rows of the first batch for measuring noise that a shipped reference lacks.
NOISE_ROWS = 16
# Few, and of batch 1 alone: a CPU reference's speed does not affect verdicts, and a user waits.
CPU_RUNS = 5


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
        folder: The folder to write.
        device: "cpu" or "cuda".
        with_inputs: True to write the inputs too; a reference that ships with its model leaves them out.
        progress: Receives progress callbacks.

    Raises:
        RecordError: If the device is missing, or the model's output is not finite.
    """
    record(subject_of(spec), folder, device, with_inputs, progress)


def record(
    subject: RecordingSubject, folder: Path, device: str, with_inputs: bool, progress: Callable[[float, str], None]
) -> RecordingSubject:
    """Record a reference as `record_reference` does, for a prepared subject; return it with its first rows."""
    _settle(device)
    runtime = subject.open_runtime(device)
    progress(0.1, f"recording on {runtime.device}")
    refuse_random(subject.spec)
    subject, batches, axes = _run_subject(subject, runtime)
    _refuse_wrong_axes(subject, batches[0])
    every = tuple(replace(batch, answered_by=_describe(device)) for batch in batches)
    batches, unanswered = answerable(every)
    _refuse_not_finite(subject, batches if _suffice(batches, every) else every)
    progress(0.5, "measuring the noise floor")
    real = next((b for b in batches if b.name == EVALUATION), batches[0])
    noise, channel_noise, double = measured_noise(subject, real, device, axes)
    progress(0.7, "measuring the model's own latency for the report")
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
        "first": list(subject.first),
        "unanswered": unanswered,
        "noise": noise,
        "channel_noise": channel_noise,
        "metric": _task(subject.evaluation, real),
        "task_sha256": task_digest(subject.evaluation),
        "doubt": find_doubt(subject.spec, subject.evaluation, real.outputs) if real.name == EVALUATION else "",
        "captions": list(subject.evaluation.captions) if subject.evaluation is not None else [],
        "latency": _latency(subject, device),
        **({"declared": declaration(subject.spec)} if with_inputs else {}),
    }
    sketched = () if with_inputs else subject.features
    batches = tuple(replace(batch, outputs=retain(subject.spec.outputs, batch.outputs, sketched)) for batch in batches)
    write_reference(folder, batches, info, with_inputs)
    return subject


def measured_noise(
    subject: RecordingSubject, batch: Batch, device: str, axes: Axes, outputs: Collection[str] | None = None
) -> tuple[dict[str, dict[str, float]], dict[str, list[float | None]], bool]:
    """Largest absolute difference of each floating output between device fp32, CPU fp32 and CPU fp64.

    Args:
        subject: The model.
        batch: The batch with the device's outputs.
        device: Device of these outputs.
        axes: The batch axis of each output.
        outputs: Names of the outputs to measure; None for all.

    Returns:
        Noise by output and pair; noise by output and channel, over all pairs, of outputs whose channels are quantities,
        None if it is unknown; and whether the module runs in double precision. If not, that pair is left out.
    """
    answers: dict[str, Mapping[str, Array]] = {device: batch.outputs} if device != "cpu" else {}
    answers["cpu32"] = _answers(subject.open_runtime(), subject, batch, axes) if device != "cpu" else batch.outputs
    floats = [n for n, a in answers["cpu32"].items() if a.dtype.kind == "f" and (outputs is None or n in outputs)]
    try:
        double = _answers(subject.open_runtime(double=True), subject, batch, axes)
    except Exception:  # whatever a module raises that was written for one precision
        double = {}
    if double and all(double[name].dtype == np.float64 for name in floats):
        answers["cpu64"] = double
    kinds = list(answers)
    pairs = [(a, b) for i, a in enumerate(kinds) for b in kinds[i + 1 :]]
    others = {b: align_ranking(subject.spec.outputs, answers[kinds[0]], answers[b]) for b in kinds}
    noise = {o: {f"{a} {b}": _furthest(others[a][o], others[b][o]) for a, b in pairs} for o in floats}
    channel_noise = {}
    for output in (o for o in subject.spec.outputs if o.name in floats):
        runs = [(others[a][output.name], others[b][output.name]) for a, b in pairs]
        if (values := noise_by_channel(output, runs)) is not None:
            channel_noise[output.name] = [None if np.isnan(value) else float(value) for value in values]
    return noise, channel_noise, "cpu64" in answers


def host() -> dict[str, str]:
    """Return facts of this host that results depend on: processor, instruction sets, threads, operating system."""
    flags = {flag for line in _cpuinfo() if line.startswith("flags") for flag in line.split(":")[1].split()}
    telling = sorted(flags & {"avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8"})
    return {
        "processor": _processor(),
        "instruction sets": ", ".join(telling) or "not told",
        "threads": str(threads()),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _settle(device: str) -> None:
    # cuBLAS is deterministic only with a fixed workspace.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise RecordError("no CUDA device is visible to PyTorch on this host. Use --device cpu")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.use_deterministic_algorithms(True)


def _run_subject(subject: RecordingSubject, runtime: Runtime) -> tuple[RecordingSubject, tuple[Batch, ...], Axes]:
    """Run all batches; the answers to the evaluation set choose the rows from which changed inputs are made."""
    recorder, first = BatchRecorder(subject.spec.outputs), tuple[int, ...]()
    try:
        if subject.evaluation is not None:
            recorder.ask(runtime, real := next(each_batch(subject.spec, subject.evaluation)))
            answers = BatchRecorder(subject.spec.outputs, dict(recorder.runs)).of(real)
            first = rows_by_labels(subject.spec.outputs, answers, CONDITIONED)
        subject = replace(subject, first=first)
        return subject, *run_batches(runtime, subject.spec.outputs, subject.asked, recorder=recorder)
    except ModelError:
        refuse_closed_axes(subject.spec)
        raise
    except (EdgekitError, MemoryError):
        raise
    except Exception as error:
        if out_of_memory(str(error)):
            raise
        raise RecordError(
            f"'{subject.spec.name}' itself fails on inputs in its declared range{line_of(error)}: {sentence(error)}. "
            "Let it take all inputs from their low to their high (a mask of all true too), or declare a narrower range"
            f"{constraint_hint(subject.spec)}"
        ) from error


def _answers(runtime: Runtime, subject: RecordingSubject, batch: Batch, axes: Axes) -> Mapping[str, Array]:
    return run_batches(runtime, subject.spec.outputs, (batch,), axes)[0][0].outputs


def _suffice(batches: Sequence[Batch], every: Sequence[Batch]) -> bool:
    """Return whether the answered batches can stand for all: if there are real inputs, or few others are left out.

    Few are less than half of the single rows, and no shape as a whole.
    """
    if any(batch.name in REAL for batch in batches):
        return True
    shapes = all(len(_not_finite(batch)) < len(batch.names) for batch in every if not batch.single)
    counts = [sum(len(batch.names) for batch in group if batch.single) for group in (batches, every)]
    return shapes and bool(batches) and 2 * counts[0] > counts[1]


def _refuse_not_finite(subject: RecordingSubject, batches: tuple[Batch, ...]) -> None:
    for batch in batches:
        for name, array in batch.outputs.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise RecordError(
                    f"'{subject.spec.name}' itself returns NaN or Inf in '{name}' on the {batch.name} inputs. Correct "
                    "the model, declare a narrower range, or give real inputs with --data"
                )


def _refuse_wrong_axes(subject: RecordingSubject, batch: Batch) -> None:
    """Refuse an output with another number of axes than its role: every verdict would be "rejected"."""
    for output in subject.spec.outputs:
        axes, array = AXES_OF_ROLES.get(output.role), batch.outputs.get(output.name)
        if axes is not None and array is not None and array.ndim != axes:
            shape = ", ".join(["batch", *map(str, array.shape[1:])])
            raise ModelError(
                f"the output '{output.name}' has the shape [{shape}], and the role '{output.role}' takes {axes} axes. "
                "Give it another role, or return it with these axes"
            )


def _furthest(array: Array, other: Array) -> float:
    off = np.abs(array.astype(np.float64) - other.astype(np.float64))
    # Rows of patches that only one side chose are NaN.
    return float(np.max(off[~np.isnan(off)], initial=0.0))


def _latency(subject: RecordingSubject, device: str) -> dict[str, dict[str, dict[str, object]]]:
    latencies: dict[str, dict[str, dict[str, object]]] = {}
    several = device == "cuda" and "batch" in subject.spec.axes
    for size in LATENCY_BATCHES if several else LATENCY_BATCHES[:1]:
        inputs = subject.spec.random(7, {"batch": size})
        if device == "cuda":
            latencies[f"batch {size}"] = timings(subject.copy_spec(), inputs)
        else:
            timed = timing.measure({"eager": subject.open_runtime()}, inputs, warm_up=1, runs=CPU_RUNS, seconds=0)
            latencies[f"batch {size}"] = {name: timing.as_record() for name, timing in timed.items()}
    return latencies


def in_other_width(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has floats or complex numbers that are not of single precision."""
    import torch

    single = (torch.float32, torch.complex64)
    return (tensor.is_floating_point() or tensor.is_complex()) and tensor.dtype not in single


def task_digest(evaluation: EvaluationSet | None) -> str:
    """Return a hash of an evaluation set's metric and truth; empty without them."""
    if evaluation is None or evaluation.metric is None or evaluation.truth is None:
        return "none"
    truth = np.ascontiguousarray(evaluation.truth)
    return digest_text(f"{evaluation.metric_name} {truth.dtype} {truth.shape} {digest_bytes(truth.tobytes())}")


def _task(evaluation: EvaluationSet | None, batch: Batch) -> dict[str, object]:
    values = metric_values(evaluation, batch.outputs) if evaluation is not None else None
    if evaluation is None or values is None:
        return {}
    return {"name": evaluation.metric_name, "mean": float(np.mean(values)), "images": [float(v) for v in values]}


def _describe(device: str) -> str:
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else f"CPU ({_processor()})"


def _processor() -> str:
    model_names = (line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name"))
    return next(model_names, platform.machine())


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
    """Return percentiles in milliseconds of one batch, by mode: eager, compiled, cuda graph."""
    import torch

    module = spec.module.to("cuda")
    arguments = tuple(t.to("cuda") for t in to_tensors(spec, inputs))
    by_mode: dict[str, dict[str, object]] = {}
    with torch.inference_mode(), _any_algorithm():
        by_mode["eager"] = _time_modes(lambda: module(*arguments))
        compiled = torch.compile(module)
        by_mode["compiled"] = _time_modes(lambda: compiled(*arguments))
        by_mode["cuda graph"] = _time_modes(capture_graph(compiled, arguments)[0])
    return by_mode


def _time_modes(once: Callable[[], object]) -> dict[str, object]:
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
    """Allow nondeterministic algorithms for timing; only recorded outputs need deterministic ones."""
    import torch

    torch.use_deterministic_algorithms(False)
    try:
        # The compiler recommends TF32, which the reference leaves off.
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        torch.use_deterministic_algorithms(True)


LATENCY_BATCHES = (1, 32)


@dataclass(frozen=True)
class RecordingSubject:
    """A model with the data that recording and checking a reference need.

    Attributes:
        spec: The model.
        weights_sha256: Hash that ties a reference to the model.
        evaluation: Its evaluation set, or None.
        first: Its rows from which changed inputs are made before all others (`rows_by_labels`).
    """

    spec: ModelSpec
    weights_sha256: str
    evaluation: EvaluationSet | None
    first: tuple[int, ...] = ()

    @functools.cached_property
    def asked(self) -> tuple[Batch, ...]:
        """The batches of inputs, without outputs."""
        return batches_for(self.spec, self.evaluation, self.first)

    @functools.cached_property
    def sha256(self) -> str:
        """Hash of all that a reference is made from: the model, its evaluation set, and the code that makes inputs."""
        real, queries = self.evaluation, word_queries(self.spec, self.evaluation)
        batches = [Batch(WORDS, queries, {}, {}, ())]
        if real is not None:
            rows = (Batch(f"{EVALUATION} {n}", row, {}, {}, ()) for n, row in enumerate(real.others))
            batches += [Batch(EVALUATION, real.inputs, {}, {}, real.names), *rows]
        parts = (self.weights_sha256, declaration(self.spec), inputs_digest(tuple(batches)), real and real.names)
        code = (package_digest(EDGEKIT), np.__version__, version("pillow"))
        return digest_text(repr((*parts, task_digest(real), *code)))

    @property
    def features(self) -> frozenset[str]:
        """Outputs that a shipped reference stores as sketches."""
        return frozenset(o.name for o in self.spec.outputs if o.role == "features")

    def copy_spec(self) -> ModelSpec:
        """Return the model with a copy of its module."""
        import torch

        # Otherwise the copy of a TorchScript weight tracks gradients to the original.
        with torch.no_grad():
            return replace(self.spec, module=copy_module(self.spec.module))

    def open_runtime(self, device: str = "cpu", double: bool = False) -> Runtime:
        """Return the model on "cpu" in fp32, where its weights already are; else a copy of it, in fp32 or in fp64."""
        tensors = (*self.spec.module.parameters(), *self.spec.module.buffers())
        here = device == "cpu" and not double
        if here and all(t.device.type == "cpu" and not in_other_width(t) for t in tensors):
            return EagerRuntime(self.spec)
        return EagerRuntime(self.copy_spec(), device, double)


def subject_of(spec: ModelSpec) -> RecordingSubject:
    """Return the recording subject of a model."""
    evaluation = _dense(evaluation_of(spec))
    return RecordingSubject(spec, weights_digest(spec), evaluation)


def _dense(evaluation: EvaluationSet | None) -> EvaluationSet | None:
    """Return the set with dense arrays in the same axis order, as a reader of a build gets them."""
    if evaluation is None:
        return None
    return replace(evaluation, inputs={name: np.copy(array, order="K") for name, array in evaluation.inputs.items()})


# Most bytes of one output over one batch; a larger one is stored as sketches (`edgekit.judge.rows`).
KEPT_BYTES = 4 << 20
# Rows stored whole in addition to the sketches: measures of a role (the largest, overlaps) need them.
WHOLE_ROWS = 4


@dataclass
class BatchRecorder:
    """Recorder of a runtime's outputs for batches.

    Attributes:
        outputs: Outputs of the model.
        runs: Runs of each batch by name, as the runtime returned them.
        axes: The batch axis of each output, if already known.
    """

    outputs: Sequence[Output]
    runs: dict[str, list[Run]] = field(default_factory=dict)
    axes: Axes | None = None

    def ask(self, runtime: Runtime, batch: Batch) -> None:
        """Run a batch."""
        self.runs[batch.name] = [(batch.rows_a_run, runtime.run(inputs)) for inputs in batch.rows()]

    @property
    def row_axes(self) -> Axes:
        """Batch axis of each output, declared or seen in all runs."""
        if self.axes is None:
            self.axes = row_axes(self.outputs, [run for runs in self.runs.values() for run in runs])
        return self.axes

    def of(self, batch: Batch) -> dict[str, Array]:
        """Return the outputs for a batch, rows first.

        Raises:
            RecordError: If an output's shape differs between inputs.
        """
        try:
            return rows_of(self.runs[batch.name], self.row_axes)
        except ValueError as error:
            raise RecordError(
                f"the shape of {self._output_of_length(batch)} differs between the {batch.name} inputs, so it cannot "
                f"be compared: {FIXED_LENGTH}"
            ) from error

    def _output_of_length(self, batch: Batch) -> str:
        """Return the output whose shape differs between runs of the same number of rows."""
        runs = self.runs[batch.name]
        for name in runs[0][1]:
            if len({(rows, answer[name].shape) for rows, answer in runs}) > len({rows for rows, _ in runs}):
                return f"the output '{name}'"
        return "an output"


def run_batches(
    runtime: Runtime,
    outputs: Sequence[Output],
    batches: Iterable[Batch],
    axes: Axes | None = None,
    recorder: BatchRecorder | None = None,
) -> tuple[tuple[Batch, ...], Axes]:
    """Return batches with a runtime's outputs, and the batch axis of each output; a recorder may have run some."""
    recorder, batches = recorder or BatchRecorder(outputs, axes=axes), tuple(batches)
    for batch in batches:
        if batch.name not in recorder.runs:
            recorder.ask(runtime, batch)
    whole = tuple(replace(batch, outputs=recorder.of(batch), answered_by=runtime.device) for batch in batches)
    return whole, recorder.row_axes


def answerable(batches: Sequence[Batch]) -> tuple[tuple[Batch, ...], dict[str, list[str]]]:
    """Return batches without rows for which the model itself returns NaN or Inf, and the names of these rows.

    Only stress and random inputs, which the model may not be made for (an attention mask of zeros), are left out:
    single rows, or the whole batch of a shape. Real inputs stay, and recording them fails.
    """
    lost: dict[str, list[str]] = {}
    # Otherwise the sizes between are filled with random values too.
    resized = any(batch.name.partition("-")[0] == RESIZED for batch in batches)
    made_for = (*REAL, RESIZED, *((BETWEEN,) if resized else ()))
    for batch in batches:
        bad = [] if batch.name.partition("-")[0] in made_for else sorted(_not_finite(batch))
        if bad:
            lost[batch.name] = [batch.names[row] for row in (bad if batch.single else range(len(batch.names)))]
    return without(batches, lost), lost


def without(batches: Sequence[Batch], lost: Mapping[str, Collection[str]]) -> tuple[Batch, ...]:
    """Return batches without some rows by name; an empty batch is left out."""
    remaining = []
    for batch in batches:
        rows = [row for row, name in enumerate(batch.names) if name not in lost.get(batch.name, ())]
        if rows:
            remaining.append(batch if len(rows) == len(batch.names) else batch.select_rows(rows, batch.name))
    return tuple(remaining)


def _not_finite(batch: Batch) -> set[int]:
    """Return the rows of a batch with an output that is not finite; all rows if that output is one thing."""
    bad_rows: set[int] = set()
    for array in batch.outputs.values():
        bad = ~np.isfinite(array).reshape(len(array), -1).all(1) if array.dtype.kind == "f" else np.zeros(0, bool)
        rows = np.flatnonzero(bad) if len(array) == len(batch.names) else range(len(batch.names) if bad.any() else 0)
        bad_rows |= {int(row) for row in rows}
    return bad_rows


def retain(outputs: Sequence[Output], answers: Mapping[str, Array], sketched: Collection[str] = ()) -> dict[str, Array]:
    """Return the stored part of a batch's outputs: all, or the first rows with sketches and some places of every row.

    Args:
        outputs: Outputs of the model.
        answers: Arrays by output name, rows first.
        sketched: Outputs stored as sketches whatever their size.
    """
    arrays: dict[str, Array] = {}
    for name, array in answers.items():
        large = array.nbytes > KEPT_BYTES or name in sketched
        long = array.dtype.kind == "f" and array.ndim > 1 and array.shape[-1] > 1 + PROJECTIONS
        if large and long and len(array) > WHOLE_ROWS:
            arrays |= {name: array[:WHOLE_ROWS], name + SUFFIX: sketch(array)}
            output = next((o for o in outputs if o.name == name and o.role in PLACED), None)
            arrays |= {name + PLACES: sample_places(output, array)} if output is not None else {}
        else:
            arrays[name] = array
    return arrays


def align_ranking(
    outputs: Sequence[Output], arrays: Mapping[str, Array], other: Mapping[str, Array]
) -> dict[str, Array]:
    """Return other outputs with the rows of features and detections in the order of the first ones.

    Rows of patches or boxes that only one side chose are NaN: they have no counterpart.
    """
    arrays_in_order = dict(other)
    for output in outputs:
        if output.role == "features" and output.of in arrays:
            rows = other[output.name]
            candidate_indices = other[output.of]
            reference_indices = arrays[output.of]
            places, is_shared = match_indices(reference_indices, candidate_indices)
            arrays_in_order[output.name] = np.where(
                is_shared.reshape(*is_shared.shape, *[1] * (rows.ndim - 2)), reorder_rows(rows, places), np.nan
            )
        if output.role == "detections":
            arrays_in_order[output.name] = pair_detections(arrays[output.name], other[output.name])
    return arrays_in_order
