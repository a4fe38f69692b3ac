"""Jobs of a worker process: one export, or one run of an artifact over the reference's inputs.

Both run in a separate process (`edgekit.hosts.process`), since converters and runtimes crash on input that they should
refuse. Files and outputs come back as paths; the caller commits and judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from edgekit import doors, registry
from edgekit.artifact.fact import IN_BATCHES
from edgekit.artifact.store import read_artifact
from edgekit.evaluate import timing
from edgekit.evaluate.engine import InputBatch, Timing, evaluate, start_up
from edgekit.hosts import process
from edgekit.hosts.catalogue import further_place, is_indexed
from edgekit.model.folder import load_model
from edgekit.model.sources.onnx import file_of
from edgekit.model.spec import Array
from edgekit.reference.batches import applicable_batches, repeats
from edgekit.reference.in_batches import evaluation_in_batches
from edgekit.reference.store import read_reference
from edgekit.runtime.eager import EagerRuntime
from edgekit.runtime.input_shapes import require_order
from edgekit.runtime.ort import check_file, require_onnxruntime
from edgekit.runtime.protocol import Runtime, SelfTimedRuntime
from edgekit.storage import limits
from edgekit.target import Job

ANSWERS = "answers.npz"
RUN_MODULES = (__name__, "torch")
# Slow imports of a capture, an export and most runs that start no thread before the fork (ONNX Runtime starts one).
CAPTURE_MODULES = (
    *RUN_MODULES,
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch._functorch.partitioners",
    "torch.export.pt2_archive",
)
EXPORT_MODULES = (
    *CAPTURE_MODULES,
    "torch.onnx._internal.exporter._core",
    "onnxscript.function_libs.torch_lib.ops",
)
# Names of the model's own baseline, which is shown but has no influence on the verdict.
PYTORCH, FILE = "pytorch", "the ONNX file"
# Seconds. If less is timed, the start in a target's own place is not measured either.
SHORT = 0.5


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ExportJob(_Request):
    """Request for an export: names and paths.

    Attributes:
        target: Its name.
        source: The folder of its source.
        out: An empty folder.
        model: The model folder.
        reference: The reference folder.
        artifacts: Folders of its optional sources, by target.
        options: Options by name, as text.
        entry: Entry file of the source.
        dynamic: The axes that the source kept dynamic.
        cache: The target's cache folder.
        selected: True if the user selected the target.
    """

    target: str
    source: Path
    out: Path
    model: Path
    reference: Path
    artifacts: dict[str, Path]
    options: dict[str, str]
    entry: Path
    dynamic: tuple[str, ...]
    cache: Path
    selected: bool


class RunJob(_Request):
    """Request for a run: names and paths.

    Attributes:
        target: Its name.
        folder: Its artifact.
        place: One of the target's own places, or the name of a further one.
        runtime: Runtime that opens the artifact in a further place; empty in the target's own.
        reference: The reference with the inputs.
        out: Folder for the answers, `answers.npz`: arrays by `<batch>/<output>`.
        baseline: Name and folder of its source target, if that can be timed too.
        model: The model, for the PyTorch baseline; None if that is not timed.
        images: Number of evaluation inputs to run; None for all (see `applicable_batches`).
    """

    target: str
    folder: Path
    place: str
    runtime: str = ""
    reference: Path
    out: Path
    baseline: tuple[str, Path] | None = None
    model: Path | None = None
    images: int | None = None


def export_target(request: Mapping[str, Any], progress: process.Progress) -> dict[str, object]:
    """Export one target, as `ExportJob` says; return its `ExportResult` as a dictionary."""
    export_job = ExportJob.model_validate(request)
    target = registry.find(export_job.target)
    job = Job(
        model=export_job.model,
        reference=export_job.reference,
        artifacts=export_job.artifacts,
        entry=export_job.entry,
        dynamic=export_job.dynamic,
        options=registry.parse_options(export_job.target, target, export_job.options),
        cache=export_job.cache,
        selected=export_job.selected,
        progress=progress,
    )
    exported = target.export(export_job.source, export_job.out, job)
    return {**asdict(replace(exported, variants=())), "variants": [v.model_dump() for v in exported.variants]}


def run_artifact(request: Mapping[str, Any], progress: process.Progress) -> dict[str, object]:
    """Run every batch that an artifact takes, and time it against its baselines, as `RunJob` says.

    Returns:
        `edgekit.hosts.run_record.Measurement` as a dictionary; the outputs are written.
    """
    run_job = RunJob.model_validate(request)
    reference = read_reference(run_job.reference)
    manifest, further = read_artifact(run_job.folder), further_place(run_job.place) if run_job.runtime else None
    timed = further.has_timings if further is not None else registry.find(run_job.target).place(run_job.place).timed
    manifest_there = further.manifest_at(manifest) if further is not None else manifest
    batches = applicable_batches(reference.batches, manifest_there, run_job.images)
    questions = [InputBatch(b.name, b.rows, b.rows_a_run, repeats(b, timed, run_job.images)) for b in batches]
    row_axes = reference.info.row_axes
    if (whole := evaluation_in_batches(batches, manifest_there, row_axes, run_job.images)) is not None:
        questions.append(InputBatch(IN_BATCHES, whole.runs, whole.size, 0))
    how = Timing(timed_seconds(), lambda: _baselines(run_job)) if timed and timed_seconds() > 0 else None
    with closing(_open(run_job)) as runtime:
        require_order(manifest, runtime)
        answers, record = evaluate(runtime, questions, row_axes, how, progress)
        own_clock = isinstance(runtime, SelfTimedRuntime)
    np.savez(run_job.out / ANSWERS, **answers)  # type: ignore[arg-type]  # numpy's stubs take no names from a dictionary
    fresh = timed and (further is not None or (not own_clock and timed_seconds() >= SHORT))
    if fresh and not record["failures"]:
        progress(0.95, "starting it in a fresh process")
        row = next(batches[0].rows())
        # The fresh process needs one row only: loading the reference would count as start-up.
        np.savez(run_job.out / "row.npz", **row)  # type: ignore[arg-type]  # likewise
        record["start_up"] = process.call(start_artifact, {"request": run_job.model_dump(mode="json")})
    return record


def start_artifact(request: Mapping[str, Any], progress: process.Progress) -> dict[str, float | int | None]:
    """Open an artifact in this fresh process, and run the row that `out` holds.

    Returns:
        `edgekit.artifact.result.StartUp` as a dictionary.
    """
    run_job = RunJob.model_validate(request)
    with np.load(run_job.out / "row.npz", allow_pickle=False) as stored:
        row: dict[str, Array] = {name: stored[name] for name in stored.files}
    return start_up(lambda: _open(run_job), row)


def timed_seconds() -> float:
    """Return the least number of seconds for which each runtime is timed."""
    return limits.timed_seconds(timing.SECONDS)


def _open(run_job: RunJob) -> Runtime:
    if not run_job.runtime:
        target = registry.find(run_job.target)
        return target.load(run_job.folder, target.place(run_job.place))
    runtime, manifest = doors.places.find(run_job.runtime), read_artifact(run_job.folder)
    entry = run_job.folder / manifest.entry
    opener = doors.resolve(runtime.opener)

    def open_file(file: Path) -> Runtime:
        return opener(file, runtime.settings)  # type: ignore[no-any-return]  # as the record promises

    if runtime.library == "onnxruntime":
        require_onnxruntime()
    if is_indexed(manifest, runtime):
        return doors.resolve(runtime.folder_opener)(entry, open_file)  # type: ignore[no-any-return]  # likewise
    if entry.suffix == ".onnx":
        # A runtime may crash on a malformed file.
        check_file(entry)
    return open_file(entry)


def _baselines(run_job: RunJob) -> dict[str, Runtime]:
    """Return the runtimes that are timed with an artifact: its source artifact, and the model in PyTorch."""
    runtimes: dict[str, Runtime] = {}
    if run_job.baseline is not None:
        name, folder = run_job.baseline
        source = registry.find(name)
        read_artifact(folder)
        runtimes[name] = source.load(folder, source.place(run_job.place))
    if run_job.model is not None:
        spec = load_model(run_job.model)
        runtimes[PYTORCH if file_of(spec.module) is None else FILE] = EagerRuntime(spec)
    return runtimes
