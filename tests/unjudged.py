"""Builds whose artifacts are made as a run makes them, and not judged: for tests of what reads an artifact."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgekit import registry
from edgekit.artifact.run_record import MODEL, PROGRAM, REFERENCE
from edgekit.model.folder import save_model
from edgekit.model.program import Capture, save_program
from edgekit.model.records import WEIGHTS, model_digest
from edgekit.model.spec import ModelSpec
from edgekit.pipeline import plan
from edgekit.pipeline.context import RunContext
from edgekit.pipeline.export_step import make
from edgekit.reference.adopt import obtain
from edgekit.testing.listener import QuietListener


def build(
    spec: ModelSpec, folder: Path, targets: tuple[str, ...], options: Mapping[str, Mapping[str, object]] | None = None
) -> Path:
    """A build of a model in this folder, under the model's name."""
    root = folder / spec.name
    there, _ = registry.loadable()
    order, chosen, _ = plan.planned(there, targets, options or {})
    captured = Capture(spec)
    save_model(spec, root / MODEL, captured)
    save_program(captured.program(), root / PROGRAM, model_digest(root / MODEL), root / MODEL / WEIGHTS)
    recorded = obtain(spec, root / REFERENCE, lambda _done, _text: None)
    context = RunContext(spec, root, there, recorded, QuietListener(), fresh=False)
    for name in order:
        make(context, name, chosen[name])
    return root
