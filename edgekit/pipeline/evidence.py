"""What was asked of an artifact in one place, counted."""

from __future__ import annotations

from collections import Counter

from edgekit.artifact.evidence import Evidence
from edgekit.artifact.manifest import Manifest
from edgekit.hosts.run_record import Measured
from edgekit.model.shapes import size_text
from edgekit.pipeline.compare_step import sample_of
from edgekit.reference.batches import BETWEEN, PHOTOGRAPHS, Batch, applicable_batches
from edgekit.reference.store import Reference
from edgekit.target import Place


def evidence_of(recorded: Reference, made: Manifest, place: Place, measured: Measured) -> Evidence:
    """What was asked: what the reference holds, as far as the artifact takes it and the place is not too slow."""
    images = sample_of(made, place)
    asked = [b for b in applicable_batches(recorded.batches, made, images) if b.name not in measured.failures]
    inputs: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for batch in asked:
        inputs[_kind(batch)] += len(batch.names)
        answered[batch.answered_by or recorded.device] += len(batch.names)
    shapes = {tuple(sorted(batch.sizes.items())): _kind(batch) for batch in reversed(asked) if batch.sizes}
    return Evidence(
        inputs=dict(inputs),
        shapes=len(shapes),
        between=sum(kind == BETWEEN for kind in shapes.values()),
        repeated=measured.repeated,
        place=measured.device,
        settings=dict(place.settings),
        answered_by=dict(answered),
        not_asked=tuple(_not_asked(recorded, made, asked, images, measured)),
    )


def _kind(batch: Batch) -> str:
    return batch.name.partition("-")[0] if batch.sizes else batch.name


def _not_asked(
    recorded: Reference, made: Manifest, asked: list[Batch], images: int | None, measured: Measured
) -> list[str]:
    whole = applicable_batches(recorded.batches, made)
    left = sum(len(b.names) for b in whole) - sum(len(b.names) for b in asked)
    found = [f"{left} of {sum(len(b.names) for b in whole)} rows"] if images is not None else []
    fixed = [name for name, axis in made.axes.items() if not axis.dynamic]
    found += [f"other sizes of {', '.join(fixed)}, which are fixed"] if fixed else []
    several = ", ".join(map(size_text, made.sizes)) if len(made.sizes) > 1 else ""
    found += [f"sizes other than {several}, which it refuses"] if several else []
    lost = [b.name for b in recorded.batches if not b.sizes and b.name not in {taken.name for taken in whole}]
    found += [f"{', '.join(lost)} inputs, which have another size"] if lost else []
    pictured = any(b.name == PHOTOGRAPHS for b in recorded.batches)
    found += [] if pictured else ["photographs: it takes no pictures"]
    unanswered = sum(len(rows) for rows in recorded.info.raw.get("unanswered", {}).values())
    found += [f"{unanswered} inputs that the model itself answers with NaN or Inf"] if unanswered else []
    found += [] if measured.timed_answers else ["answers of timed runs"]
    return found
