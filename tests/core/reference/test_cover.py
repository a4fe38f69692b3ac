"""Changed inputs are made from real rows whose answers hold every label, as far as their number allows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.judge.limits import INT8
from edgekit.judge.metrics import FEW_IN_CHANNELS, compare
from edgekit.judge.verdict import judge
from edgekit.model.spec import Axis, EvaluationSet, Input, ModelSpec, Output, Role
from edgekit.reference.adopt import obtain
from edgekit.reference.batches import CHANGED
from edgekit.reference.cover import ORDERED, rows_by_labels
from edgekit.reference.store import read_reference

ROWS, RARE = 80, 57


class Present(torch.nn.Module):
    """Three labels of a signal: the mean of each third is positive."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(1000 * x.reshape(len(x), 3, -1).mean(2))


def signals() -> EvaluationSet:
    draw = np.random.default_rng(0)
    thirds = np.stack([draw.choice([-1.0, 1.0], ROWS), -np.ones(ROWS), draw.choice([-1.0, 1.0], ROWS)], 1)
    thirds[RARE, 1] = 1.0
    x = (thirds.repeat(24, 1) * draw.uniform(0.2, 0.9, (ROWS, 72))).astype(np.float32)
    return EvaluationSet({"x": x}, tuple(f"clip {n}" for n in range(ROWS)))


def spec_of(evaluation: Callable[[], EvaluationSet]) -> ModelSpec:
    inputs, axes = (Input("x", ("batch", 72), low=-1, high=1),), {"batch": Axis(1, 1, 2)}
    return ModelSpec("net", Present(), inputs, (Output("y"),), axes, evaluation=evaluation)


def test_a_rare_label_is_asked_in_quiet_signals_and_the_reference_can_be_read_again(tmp_path: Path) -> None:
    spec = spec_of(signals)
    reference = obtain(spec, tmp_path / "reference")
    changed = next(batch for batch in reference.batches if batch.name == CHANGED)
    sources = list(dict.fromkeys(name.partition(",")[0] for name in changed.names))
    assert len(sources) == FEW_IN_CHANNELS
    assert f"clip {RARE}" in sources
    quiet = [row for row, name in enumerate(changed.names) if "quiet" in name]
    assert np.asarray(changed.inputs["x"])[quiet].max(0).reshape(3, -1).max(1).min() > 0
    # Neither the folder alone nor the next run makes other inputs.
    alone = next(batch for batch in read_reference(tmp_path / "reference").batches if batch.name == CHANGED)
    assert np.array_equal(alone.inputs["x"], changed.inputs["x"])
    before = (tmp_path / "reference" / "reference.json").read_bytes()
    assert obtain(spec, tmp_path / "reference").info.first == reference.info.first
    assert (tmp_path / "reference" / "reference.json").read_bytes() == before


def test_a_reference_of_more_rows_than_the_set_has_now_is_recorded_again(tmp_path: Path) -> None:
    def few() -> EvaluationSet:
        real = signals()
        return EvaluationSet({"x": real.inputs["x"][:10]}, real.names[:10])

    obtain(spec_of(signals), tmp_path / "reference")
    reference = obtain(spec_of(few), tmp_path / "reference")
    assert len(reference.batches[0].names) == 10
    assert max(reference.info.first) < 10


def test_each_block_has_other_classes_until_all_had_their_turn() -> None:
    logits = np.eye(10)[np.arange(200) // 20]
    order = rows_by_labels((Output("y", role="logits"),), {"y": logits}, 4)
    assert len(order) == ORDERED == len(set(order))
    classes = [row // 20 for row in order]
    assert all(len(set(classes[k : k + 4])) == 4 for k in range(0, ORDERED, 4))
    assert len(set(classes[:12])) == 10


@pytest.mark.parametrize(
    ("role", "values"),
    [
        ("tensor", np.random.default_rng(0).normal(0, 1, (20, 4))),
        ("embedding", np.random.default_rng(0).uniform(0, 1, (20, 4))),
        ("logits", np.eye(4)[np.zeros(20, int)]),
    ],
)
def test_outputs_without_labels_leave_the_order(role: Role, values: np.ndarray) -> None:
    assert rows_by_labels((Output("y", role=role),), {"y": values}, 4) == ()


def test_a_label_that_goes_in_faint_signals_alone_is_rejected() -> None:
    draw = np.random.default_rng(0)
    present = (draw.random((160, 6)) < [0.45, 0.4, 0.35, 0.3, 0.35, 0.12]).astype(np.float32)
    y = np.where(present, 0.95, 0.05).astype(np.float32)
    output = Output("y")
    rows = list(rows_by_labels((output,), {"y": y}, 4)[:FEW_IN_CHANNELS])
    lost = y[rows].copy()
    lost[:, 5] = np.minimum(lost[:, 5], 0.27)
    scales = {"y": y.std(0).astype(np.float64)}
    real = compare((output,), {"y": y}, {"y": y}, [f"clip {n}" for n in range(160)], scales=scales)
    names = [f"clip {n}, faint" for n in rows]
    faint = compare((output,), {"y": y[rows]}, {"y": lost}, names, scales=scales)
    verdict = judge(INT8, {}, evaluation=[real], more={CHANGED: [faint]})
    assert {(reason.metric, reason.row) for reason in verdict.reasons} >= {("channel error", "faint, channel 5")}
