"""Fresh inputs: seeded inputs outside the reference, run by an artifact and by the model for a given time.

A verdict rests on recorded inputs. They may miss a fault in a narrow band of a colour, in one output of thousands, or
in a runtime that has been open for minutes. Here one open runtime runs seeded inputs of random sizes until the time is
up. The model in PyTorch runs the same inputs on this host, with the limits of every verdict.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from edgekit import registry
from edgekit.artifact.fact import Code, fact
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.result import EvaluationResult
from edgekit.artifact.run_record import MODEL, REFERENCE
from edgekit.artifact.store import read_artifact
from edgekit.evaluate.engine import first_line
from edgekit.evaluate.rows import Axes, rows_of
from edgekit.hosts import process
from edgekit.hosts.process import Progress
from edgekit.judge import metrics
from edgekit.judge.limits import kind_at_sizes, size_of
from edgekit.judge.metrics import Comparison
from edgekit.judge.rows import row_axes
from edgekit.judge.verdict import judge
from edgekit.model.evaluation_set import BATCH, evaluation_of
from edgekit.model.folder import load_model
from edgekit.model.spec import ModelSpec
from edgekit.pipeline import worker
from edgekit.pipeline.context import FreshInputs, RunContext
from edgekit.pipeline.judge_step import Units, compare_batch, units_of, with_thresholds
from edgekit.reference.batches import RESIZED, Batch, BatchSource
from edgekit.reference.record import answerable, run_batches
from edgekit.reference.store import read_reference
from edgekit.runtime.eager import EagerRuntime
from edgekit.target import Place, Runtime

# Share of the runs with a batch of one row, the usual case in use.
ALONE = 0.5
# Runs before the first check of the limits, and the growth factor after it: a rejected artifact ends the run early.
FIRST_LOOK, LOOKS = 16, 1.5


class FreshRequest(BaseModel):
    """Request to a worker: names and folders of an artifact, its place, reference and model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str
    folder: Path
    place: str
    reference: Path
    model: Path
    seconds: float
    seed: int


def judge_fresh_inputs(
    context: RunContext, manifest: Manifest, place: Place, verdict: EvaluationResult, fresh: FreshInputs
) -> EvaluationResult:
    """Run fresh inputs through a verified artifact in one of its target's places; return the verdict with these too.

    Raises:
        EdgekitError: If the runtime cannot be opened, or crashes.
    """

    def progress(share: float, text: str) -> None:
        context.listener.progress(manifest.target, share, text)

    request = FreshRequest(
        target=manifest.target,
        folder=context.folder(manifest.target),
        place=place.name,
        reference=context.folder(REFERENCE),
        model=context.folder(MODEL),
        seconds=fresh.seconds,
        seed=fresh.seed,
    )
    # The user's time must not count towards the worker's time limit.
    limits = replace(context.limits, seconds=context.limits.seconds + fresh.seconds)
    arguments = {"request": request.model_dump(mode="json")}
    evaluation_result = EvaluationResult.model_validate(
        process.call(ask_fresh_inputs, arguments, progress, limits, worker.RUN_MODULES)
    )
    changes: dict[str, object] = {"notes": (*verdict.notes, *evaluation_result.notes)}
    if evaluation_result.status == "rejected":
        changes |= {"status": evaluation_result.status, "reasons": evaluation_result.reasons, "proof": ()}
    return verdict.model_copy(update=changes)


def ask_fresh_inputs(request: Mapping[str, Any], progress: Progress) -> dict[str, object]:
    """Run the same fresh inputs through an artifact and the model, as a `FreshRequest` says; return the result."""
    fresh_request = FreshRequest.model_validate(request)
    reference, manifest = read_reference(fresh_request.reference), read_artifact(fresh_request.folder)
    target = registry.find(fresh_request.target)
    place = target.place(fresh_request.place)
    spec = with_thresholds(load_model(fresh_request.model), reference)
    tolerance = place.tolerance_of(manifest)
    units = units_of(spec, reference, tolerance)
    noise, axes = reference.noise, reference.info.row_axes
    comparisons: dict[str, list[Comparison]] = {}
    real = any(batch.name.startswith(f"{RESIZED}-") for batch in reference.batches)
    rows, look, began = 0, FIRST_LOOK, time.monotonic()
    with closing(target.load(fresh_request.folder, place)) as runtime, closing(EagerRuntime(spec)) as module:
        for batch in fresh_batches(spec, manifest, fresh_request.seed):
            batches, _ = answerable(run_batches(module, spec.outputs, (batch,), axes)[0])
            # Empty if the model itself returns NaN.
            for whole in batches:
                comparisons[whole.name] = _compare(spec, runtime, whole, axes, units, real)
                rows += len(whole.names)
            share = (time.monotonic() - began) / fresh_request.seconds
            progress(min(share, 1.0), f"{rows} fresh inputs so far, seed {fresh_request.seed}")
            due = len(comparisons) >= look
            if share >= 1 or (due and judge(tolerance, noise, more=comparisons).status == "rejected"):
                break
            look = int(look * LOOKS) if due else look
    seconds = round(time.monotonic() - began, 1)
    note = fact(Code.FRESH_INPUTS, rows=rows, runs=len(comparisons), seconds=seconds, seed=fresh_request.seed)
    verdict = judge(tolerance, noise, more=comparisons)
    return verdict.model_copy(update={"notes": (note,)}).model_dump(mode="json")


def fresh_batches(spec: ModelSpec, manifest: Manifest, seed: int) -> Iterator[Batch]:
    """Yield batches without end: half of them of one row, each dynamic axis at a random size."""
    source = BatchSource(spec, evaluation_of(spec))
    for number in itertools.count():
        # Each batch has its own generator, so that a seed and a number identify it.
        draw = np.random.Generator(np.random.PCG64((seed, number)))
        if manifest.sizes:
            sizes = dict(manifest.sizes[draw.integers(len(manifest.sizes))])
        else:
            sizes = {
                name: int(draw.choice(list(every))) for name, every in manifest.open_sizes.items() if name != BATCH
            }
        batches = manifest.open_sizes.get(BATCH, range(1, 2))
        sizes |= {BATCH: 1 if draw.random() < ALONE else int(draw.choice(list(batches)))} if BATCH in spec.axes else {}
        fixed = {name: axis.default for name, axis in spec.axes.items() if name not in sizes}
        sizes = {name: (sizes | fixed)[name] for name in spec.axes}
        sizes_text = ", ".join(f"{axis} {size}" for axis, size in sizes.items())
        yield source.fresh(f"fresh {number}: {sizes_text}", sizes, draw)


def _compare(
    spec: ModelSpec, runtime: Runtime, batch: Batch, axes: Axes | None, units: Units, real: bool
) -> list[Comparison]:
    try:
        runs = [(batch.rows_a_run, runtime.run(inputs)) for inputs in batch.rows()]
        answers = rows_of(runs, axes or row_axes(spec.outputs, runs))
    except Exception as error:  # a runtime may raise anything; it counts as its output
        return [metrics.failed_comparison(batch.names, fact(Code.NO_ANSWER, error_text=first_line(error)))]
    kind = kind_at_sizes(spec, batch.sizes) if real else None
    size = size_of(spec, batch.sizes) if real else ""
    found = compare_batch(spec.outputs, batch, answers, units, None)
    return [replace(comparison, kind=kind, size=size) for comparison in found]
