"""What a worker process does: one export, or one run of an artifact over everything the reference was asked.

Both run in a process of their own (`process.py`), since converters and runtimes crash on what they should refuse. Files
and answers come back as paths; committing and judging is done by whoever asked.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from edgekit import registry
from edgekit.artifact.result import CANDIDATE, Ratio, StartUp, Timing
from edgekit.artifact.store import read_artifact
from edgekit.judge import latency
from edgekit.judge.latency import Latency
from edgekit.judge.rows import Axes, rows_of
from edgekit.model.folder import load_model
from edgekit.model.spec import Array, ModelSpec
from edgekit.pipeline import process
from edgekit.pipeline.repeats import Repeats
from edgekit.pipeline.start_up import start_up
from edgekit.reference.batches import EVALUATION, FEW, STRESS, Batch, applicable_batches
from edgekit.reference.store import read_reference
from edgekit.runtime.eager import EagerRuntime
from edgekit.runtime.protocol import Answers, Runtime, SelfTimed, SideBySide
from edgekit.target import Job

ANSWERS = "answers.safetensors"
RUN_MODULES = (__name__, "torch")
EXPORT_MODULES = (
    *RUN_MODULES,
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch._functorch.partitioners",
    "torch.export.pt2_archive",
    "torch.onnx._internal.exporter._core",
    "onnxscript.function_libs.torch_lib.ops",
)
"""What most runs and most exports import, takes seconds, and starts no thread (ONNX Runtime starts one)."""
REPEATED, REPEATED_SLOW, REPEATED_SPARSELY = 32, 4, 1
"""Rows of each batch that are asked twice: everywhere, where a place is slow, and where a run takes seconds."""
SPARSE = (EVALUATION, STRESS)
"""The only batches of which rows are asked twice where a run takes seconds."""
PYTORCH = "pytorch"  # name of the eager baseline, which is shown and judges nothing
SECONDS_VARIABLE = "EDGEKIT_TIMED_SECONDS"  # shorter where latency is not the point, as in tests
SHORT = 0.5  # seconds: where less is timed, start-up is not measured either


class Measured(BaseModel):
    """What a run of an artifact found beside its answers.

    Attributes:
        device: What ran it, in words.
        failures: What the runtime said of each batch that it could not answer.
        timings: Latencies by the runtime's name.
        ratios: Speed against each baseline.
        notes: What a runtime that timed itself says.
        repeated: Rows that were asked twice.
        timed_answers: Runs of the timing whose answers were looked at.
        start_up: What a fresh process needs; None where that means nothing.
        again: Rows whose second answer was not the first one, bit for bit: by "<batch> again", their numbers in the
            batch. Their second answers are judged as the first were.
    """

    model_config = ConfigDict(frozen=True)

    device: str = ""
    failures: dict[str, str] = {}
    timings: dict[str, Timing] = {}
    ratios: tuple[Ratio, ...] = ()
    notes: tuple[str, ...] = ()
    repeated: int = 0
    timed_answers: int = 0
    start_up: StartUp | None = None
    again: dict[str, tuple[int, ...]] = {}


def export_target(
    target: str,
    source: str,
    out: str,
    model_folder: str,
    reference_folder: str,
    artifacts: Mapping[str, str],
    options: Mapping[str, str],
    entry: str,
    dynamic: Sequence[str],
    cache: str,
    progress: Callable[[float, str], None],
) -> dict[str, object]:
    """Export one target into an empty folder; returns its `Exported` as a dictionary."""
    made = registry.find(target)
    job = Job(
        model=Path(model_folder),
        reference=Path(reference_folder),
        artifacts={name: Path(folder) for name, folder in artifacts.items()},
        entry=Path(entry),
        dynamic=tuple(dynamic),
        options=registry.parsed_options(target, made, options),
        cache=Path(cache),
        progress=progress,
    )
    exported = made.export(Path(source), Path(out), job)
    return {**asdict(replace(exported, variants=())), "variants": [v.model_dump() for v in exported.variants]}


def run_artifact(
    target: str,
    folder: str,
    place: str,
    reference_folder: str,
    out: str,
    baseline: tuple[str, str] | None,
    model_folder: str,
    trust_build: bool,
    images: int | None,
    progress: Callable[[float, str], None],
) -> dict[str, object]:
    """Answer every batch that an artifact can take, and time it against its baselines.

    Args:
        target: Name of the target.
        folder: Its artifact.
        place: Where to run it, one of the target's places.
        reference_folder: What to ask.
        out: Folder for `answers.safetensors`: arrays by `<batch>/<output>`.
        baseline: Name and folder of the target it was made from, where that can be timed too.
        model_folder: The model, for the PyTorch baseline.
        trust_build: Whether code that the build names or brings may run.
        images: How many evaluation images to run; None for all (see `applicable_batches`).
        progress: Told what is going on.

    Returns:
        `Measured` as a dictionary.
    """
    recorded = read_reference(Path(reference_folder))
    made = registry.find(target)
    where, manifest = made.place(place), read_artifact(Path(folder))
    runtime = made.load(Path(folder), where)
    try:
        answers: dict[str, Array] = {}
        failures: dict[str, str] = {}
        axes = recorded.info.row_axes
        batches = applicable_batches(recorded.batches, manifest, images)
        several = (
            runtime.answers(inputs for batch in batches for inputs in batch.rows())
            if isinstance(runtime, SideBySide)
            else None
        )
        for number, batch in enumerate(batches):
            progress(0.8 * number / len(batches), f"running {batch.name} in {runtime.device}")
            try:
                answers |= {
                    f"{batch.name}/{name}": rows for name, rows in _answer(runtime, several, batch, axes).items()
                }
            except Exception as error:
                failures[batch.name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        few = images is not None and images < FEW
        second = Repeats(axes, answers, [batch for batch in batches if not few or batch.name in SPARSE])
        if not failures:
            progress(0.75, "asking again, in another order")
            slow = REPEATED_SPARSELY if few else REPEATED_SLOW
            second.ask(runtime, REPEATED if where.timed and images is None else slow)
        found = Measured(device=runtime.device, failures={**failures, **second.failures})
        if where.timed and not found.failures:
            progress(0.8, "measuring latency")
            eager = functools.partial(load_model, Path(model_folder), trust_build)
            found = _timed(runtime, batches, baseline, place, eager, second)
            if not isinstance(runtime, SelfTimed) and timed_seconds() >= SHORT:
                progress(0.95, "starting it in a fresh process")
                found = found.model_copy(update={"start_up": _start_up(target, folder, place, batches, Path(out))})
        _save({**answers, **second.answers}, Path(out) / ANSWERS)
        counts = {"repeated": second.repeated, "timed_answers": second.timed, "again": second.rows}
        return found.model_copy(update=counts).model_dump(mode="json")
    finally:
        runtime.close()


def _answer(runtime: Runtime, several: Answers | None, batch: Batch, axes: Axes) -> dict[str, Array]:
    """The answers to a batch: the next ones of those that come side by side, or one after the other."""
    if several is None:
        return rows_of([(batch.rows_a_run, runtime.run(inputs)) for inputs in batch.rows()], axes)
    found = [next(several) for _ in batch.rows()]
    if failed := next((answer for answer in found if isinstance(answer, Exception)), None):
        raise failed
    return rows_of([(batch.rows_a_run, answer) for answer in found if not isinstance(answer, Exception)], axes)


def _save(answers: Mapping[str, Array], path: Path) -> None:
    from safetensors.numpy import save

    path.write_bytes(save({name: np.asarray(array, order="C") for name, array in answers.items()}))


def _one_image(batches: Sequence[Batch]) -> dict[str, Array]:
    return next(next((b for b in batches if b.name == EVALUATION), batches[0]).rows())


def _start_up(target: str, folder: str, place: str, batches: Sequence[Batch], out: Path) -> StartUp:
    row = out / "row.safetensors"
    _save(_one_image(batches), row)
    arguments = {"target": target, "folder": folder, "place": place, "row": str(row)}
    return StartUp.model_validate(process.call(start_up, arguments))


def timed_seconds() -> float:
    """How long each runtime is timed, at least."""
    return float(os.environ.get(SECONDS_VARIABLE, latency.SECONDS))


def _timed(
    runtime: Runtime,
    batches: Sequence[Batch],
    baseline: tuple[str, str] | None,
    place: str,
    model: Callable[[], ModelSpec],
    second: Repeats,
) -> Measured:
    """Time a runtime against its baselines, or let it time itself where a clock here would time the way there too."""
    if isinstance(runtime, SelfTimed):
        own = runtime.clock(_one_image(batches), timed_seconds())
        timed = (
            {CANDIDATE: Timing.model_validate(Latency(runtime.device, own.milliseconds).as_record())}
            if own.milliseconds
            else {}
        )
        return Measured(device=runtime.device, timings=timed, notes=own.notes)
    runtimes: dict[str, Runtime] = {CANDIDATE: runtime}
    if baseline is not None:
        name, folder = baseline
        source = registry.find(name)
        read_artifact(Path(folder))
        runtimes[name] = source.load(Path(folder), source.place(place))
    runtimes[PYTORCH] = EagerRuntime(model())
    load = _load()
    times = latency.measure(runtimes, _one_image(batches), seconds=timed_seconds(), answered=second.timed_answer)
    for name, other in runtimes.items():
        if name != CANDIDATE:
            other.close()
    return Measured(
        device=runtime.device,
        timings={name: _timing(one, load) for name, one in times.items()},
        ratios=tuple(latency.ratio(times, name) for name in times if name != CANDIDATE),
    )


def _timing(taken: Latency, load: float | None = None) -> Timing:
    return Timing.model_validate({**taken.as_record(), "warm_ups": latency.WARM_UP, "load": load})


def _load() -> float | None:
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
