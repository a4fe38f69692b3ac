"""Builds made with less than a run makes: artifacts that nobody judges, verdicts that no report shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgekit import registry, report
from edgekit.artifact.run_record import MODEL, PROGRAM, REFERENCE
from edgekit.model.folder import save_model
from edgekit.model.program import Capture, save_program
from edgekit.model.records import WEIGHTS, model_digest
from edgekit.model.spec import ModelSpec
from edgekit.pipeline import plan
from edgekit.pipeline.context import RunContext
from edgekit.pipeline.export_step import make
from edgekit.reference.adopt import obtain
from edgekit.testing.contract import QuietListener


def unjudged(
    spec: ModelSpec, folder: Path, targets: tuple[str, ...], options: Mapping[str, Mapping[str, object]] | None = None
) -> Path:
    """A build of a model in this folder, under the model's name: for tests of what reads its artifacts."""
    root = folder / spec.name
    there, _ = registry.loadable()
    order, chosen, _ = plan.plan_run(there, targets, options or {})
    captured = Capture(spec)
    save_model(spec, root / MODEL, captured)
    save_program(captured.program(), root / PROGRAM, model_digest(root / MODEL), root / MODEL / WEIGHTS)
    recorded = obtain(spec, root / REFERENCE, lambda _done, _text: None)
    context = RunContext(spec, root, there, recorded, QuietListener(), fresh=False)
    for name in order:
        make(context, name, chosen[name])
    return root


@contextmanager
def without_report() -> Iterator[None]:
    """Runs write no report, which takes as long as judging a small artifact: for tests of verdicts."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(report, "write_report", lambda root: None)
        yield
