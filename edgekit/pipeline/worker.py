"""What a worker process does: one export, or one run of an artifact over everything the reference was asked.

Both run in a process of their own (`isolate.py`), since converters and runtimes crash on what they should refuse. Files
and answers come back as paths; committing and judging is done by whoever asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from edgekit import registry
from edgekit.artifact.store import read_artifact
from edgekit.judge import latency
from edgekit.model.source import load_model
from edgekit.model.spec import Array
from edgekit.reference.batches import EVALUATION, Batch, applicable_batches
from edgekit.reference.store import Reference, read_reference
from edgekit.runtime.eager import EagerRuntime
from edgekit.runtime.protocol import Runtime, SelfTimed
from edgekit.target import Job

ANSWERS = "answers.safetensors"
SECONDS_VARIABLE = "EDGEKIT_TIMED_SECONDS"  # shorter where latency is not the point, as in tests


def export(
    target: str,
    source: str,
    out: str,
    model_folder: str,
    reference_folder: str,
    artifacts: Mapping[str, str],
    options: Mapping[str, str],
    cache: str,
    progress: Callable[[float, str], None],
) -> dict[str, object]:
    """Export one target into an empty folder; returns its `Exported` as a dictionary."""
    job = Job(
        model=Path(model_folder),
        reference=Path(reference_folder),
        artifacts={name: Path(folder) for name, folder in artifacts.items()},
        options=options,
        cache=Path(cache),
        progress=progress,
    )
    exported = registry.find(target).export(Path(source), Path(out), job)
    return {**asdict(replace(exported, variants=())), "variants": [v.model_dump() for v in exported.variants]}


def measure(
    target: str,
    folder: str,
    place: str,
    reference_folder: str,
    out: str,
    baseline: tuple[str, str] | None,
    model_folder: str,
    timed: bool,
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
        timed: Whether to measure latency.
        images: How many evaluation images to run; None for all (see `askable`).
        progress: Told what is going on.

    Returns:
        device: what ran it; failures: sentence by batch that could not be answered; timings and ratios.
    """
    recorded = read_reference(Path(reference_folder))
    runtime = registry.find(target).load(Path(folder), place)
    try:
        answers: dict[str, Array] = {}
        failures: dict[str, str] = {}
        batches = applicable_batches(recorded.batches, read_artifact(Path(folder), check=False).axes, images)
        for number, batch in enumerate(batches):
            progress(0.8 * number / len(batches), f"running {batch.name} in {runtime.device}")
            try:
                answers |= {f"{batch.name}/{name}": array for name, array in _answer(runtime, batch).items()}
            except Exception as error:
                failures[batch.name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        _save(answers, Path(out) / ANSWERS)
        found: dict[str, object] = {"device": runtime.device, "failures": failures}
        if timed and not failures and isinstance(runtime, SelfTimed):
            progress(0.8, "measuring latency")
            found |= _ask_time(runtime, recorded, runtime.device)
        elif timed and not failures:
            progress(0.8, "measuring latency")
            found |= _time(runtime, recorded, baseline, Path(model_folder))
        return found
    finally:
        runtime.close()


def _answer(runtime: Runtime, batch: Batch) -> dict[str, Array]:
    rows = [runtime.run(row) for row in batch.rows()]
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def _save(answers: Mapping[str, Array], path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(array) for name, array in answers.items()}, path)


def _ask_time(runtime: SelfTimed, recorded: Reference, device: str) -> dict[str, object]:
    clocked = runtime.clock(_one_image(recorded), _seconds())
    timed = {"candidate": latency.Latency(device, clocked.milliseconds).as_record()} if clocked.milliseconds else {}
    return {"timings": timed, "notes": list(clocked.notes)}


def _one_image(recorded: Reference) -> dict[str, Array]:
    return next(next((b for b in recorded.batches if b.name == EVALUATION), recorded.batches[0]).rows())


def _seconds() -> float:
    return float(os.environ.get(SECONDS_VARIABLE, latency.SECONDS))


def _time(
    runtime: Runtime, recorded: Reference, baseline: tuple[str, str] | None, model_folder: Path
) -> dict[str, object]:
    runtimes: dict[str, Runtime] = {"candidate": runtime}
    if baseline is not None:
        name, folder = baseline
        runtimes[name] = registry.find(name).load(Path(folder), "cpu")
    runtimes["pytorch"] = EagerRuntime(load_model(model_folder))
    timed = latency.measure(runtimes, _one_image(recorded), seconds=_seconds())
    for name, other in runtimes.items():
        if name != "candidate":
            other.close()
    return {
        "timings": {name: one.as_record() for name, one in timed.items()},
        "ratios": [latency.ratio(timed, name).as_record() for name in timed if name != "candidate"],
    }
