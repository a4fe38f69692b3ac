"""Fresh inputs: an artifact and the model itself are asked what no reference holds, for as long as the user wants.

A verdict stands on recorded inputs. A fault of a narrow band of a colour, of one answer in thousands, or of a runtime
that has been open for minutes may lie outside of them. Here one opened runtime answers seeded inputs of random sizes
until the time is up; the model in PyTorch answers the same on this host, and the limits are those of every verdict.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit import registry
from edgekit.artifact.fact import Code, fact
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.run_record import MODEL, REFERENCE
from edgekit.artifact.store import read_artifact, result_of
from edgekit.evaluate.engine import first_line
from edgekit.evaluate.rows import Axes, rows_of
from edgekit.hosts import process
from edgekit.hosts.process import Progress
from edgekit.judge import metrics
from edgekit.judge.metrics import Comparison
from edgekit.judge.rows import row_axes
from edgekit.judge.verdict import judge
from edgekit.model.evaluation_set import evaluation_of
from edgekit.model.folder import load_model
from edgekit.model.input_rows import BATCH
from edgekit.model.spec import ModelSpec
from edgekit.pipeline import worker
from edgekit.pipeline.context import RunContext
from edgekit.pipeline.evaluate_step import conclude, settled
from edgekit.pipeline.judge_step import Units, compared, units_of
from edgekit.pipeline.outcome import Soaked
from edgekit.reference.answers import answerable, answered
from edgekit.reference.batches import RESIZED, Batch, BatchSource
from edgekit.reference.store import read_reference
from edgekit.runtime.eager import EagerRuntime
from edgekit.storage.files import scratch
from edgekit.target import Place, Runtime

RUNS = 64
"""Runs where only a seed is given."""
ALONE = 0.5
"""Share of the runs that are of one row, as most users' are."""
FIRST_LOOK, LOOKS = 16, 1.5
"""Runs after which the limits are looked at first, and by how much more each time: a wrong artifact ends the soak."""


@dataclass(frozen=True)
class Soak:
    """How much to ask: runs for so many seconds, or RUNS of them where that is 0; the same seed asks the same."""

    seconds: float
    seed: int


class SoakRequest(worker.RunRequest):
    """What a worker needs beside the request of a run, with the model; `out` stays empty."""

    model: Path
    seconds: float
    seed: int


def soaked(context: RunContext, made: Manifest, place: Place, soak: Soak) -> Soaked:
    """Ask an artifact fresh inputs in one of its target's places; what is found wrong is written into its result.

    Raises:
        EdgekitError: If the runtime cannot be opened, or dies.
    """

    def progress(done: float, text: str) -> None:
        context.listener.progress(made.target, done, text)

    with scratch() as out:
        request = SoakRequest(
            target=made.target,
            folder=context.folder(made.target),
            place=place.name,
            reference=context.folder(REFERENCE),
            out=out,
            model=context.folder(MODEL),
            seconds=soak.seconds,
            seed=soak.seed,
        )
        limits = replace(context.limits, seconds=context.limits.seconds + soak.seconds)
        arguments = {"request": request.model_dump(mode="json")}
        found = Soaked.model_validate(process.call(soak_artifact, arguments, progress, limits, worker.RUN_MODULES))
    if found.status == "rejected":
        _write(context, made, found)
    return found


def _write(context: RunContext, made: Manifest, soaked: Soaked) -> None:
    """Put a rejection into the artifact's result, so that nothing ships it."""
    known = result_of(context.folder(made.target), made)
    findings = settled(context, made.target, made, known) if known is not None else []
    wrong = {"status": soaked.status, "reasons": soaked.reasons, "proof": ()}
    conclude(
        context,
        made.target,
        made,
        [
            replace(one, verdict=one.verdict.model_copy(update=wrong)) if one.verdict.place == soaked.place else one
            for one in findings
        ],
    )


def soak_artifact(request: Mapping[str, Any], progress: Progress) -> dict[str, object]:
    """Ask an artifact and the model itself the same fresh inputs, as `SoakRequest` says; returns a `Soaked`."""
    asked = SoakRequest.model_validate(request)
    recorded, made = read_reference(asked.reference), read_artifact(asked.folder)
    target = registry.find(asked.target)
    place = target.place(asked.place)
    spec = load_model(asked.model)
    tolerance = place.tolerance_of(made)
    units = units_of(spec, recorded, tolerance)
    noise, axes = recorded.noise, recorded.info.row_axes
    found: dict[str, list[Comparison]] = {}
    real = any(batch.name.startswith(f"{RESIZED}-") for batch in recorded.batches)
    rows, look, began = 0, FIRST_LOOK, time.monotonic()
    with closing(target.load(asked.folder, place)) as runtime, closing(EagerRuntime(spec)) as module:
        for number, batch in enumerate(_fresh_batches(spec, made, asked.seed), 1):
            batches, _ = answerable(answered(module, spec.outputs, (batch,), axes)[0])
            for whole in batches:  # none where the model itself answers with NaN
                found[whole.name] = _compared(spec, runtime, whole, axes, units, real)
                rows += len(whole.names)
            spent = time.monotonic() - began
            done = spent / asked.seconds if asked.seconds else number / RUNS
            progress(min(done, 1.0), f"{rows} fresh inputs so far, seed {asked.seed}")
            if done >= 1 or (len(found) >= look and judge(tolerance, noise, more=found).status == "rejected"):
                break
            look = int(look * LOOKS) if len(found) >= look else look
    verdict = judge(tolerance, noise, more=found)
    return Soaked(
        place=asked.place,
        seed=asked.seed,
        runs=len(found),
        rows=rows,
        seconds=round(time.monotonic() - began, 1),
        status=verdict.status,
        reasons=verdict.reasons,
    ).model_dump(mode="json")


def _compared(
    spec: ModelSpec, runtime: Runtime, batch: Batch, axes: Axes | None, units: Units, real: bool
) -> list[Comparison]:
    try:
        runs = [(batch.rows_a_run, runtime.run(inputs)) for inputs in batch.rows()]
        answers = rows_of(runs, axes or row_axes(spec.outputs, runs))
    except Exception as error:  # whatever a runtime raises is its answer
        return [metrics.failed(batch.names, fact(Code.NO_ANSWER, error_text=first_line(error)))]
    return [replace(one, real=real) for one in compared(spec.outputs, batch, answers, units, None)]


def _fresh_batches(spec: ModelSpec, made: Manifest, seed: int) -> Iterator[Batch]:
    """Endlessly many: half of them of one row, each open axis at a size by chance."""
    source = BatchSource(spec, evaluation_of(spec))
    for number in itertools.count():
        draw = np.random.Generator(np.random.PCG64((seed, number)))
        if made.sizes:
            sizes = dict(made.sizes[draw.integers(len(made.sizes))])
        else:
            sizes = {name: int(draw.choice(list(every))) for name, every in made.open_sizes.items() if name != BATCH}
        batches = made.open_sizes.get(BATCH, range(1, 2))
        sizes |= {BATCH: 1 if draw.random() < ALONE else int(draw.choice(list(batches)))} if BATCH in spec.axes else {}
        fixed = {name: axis.default for name, axis in spec.axes.items() if name not in sizes}
        sizes = {name: (sizes | fixed)[name] for name in spec.axes}
        told = ", ".join(f"{axis} {size}" for axis, size in sizes.items())
        yield source.fresh(f"fresh {number}: {told}", sizes, draw)
