"""Inputs that take not every value: sorted offsets, lengths, positions. Every batch holds what is said of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgekit
from edgekit.errors import EdgekitError, ModelError, UsageError
from edgekit.model.evaluation_set import evaluation_of
from edgekit.model.folder import load_model, save_model
from edgekit.model.overrides import from_record, words_of
from edgekit.model.spec import Array, Axis, EvaluationSet, ModelSpec
from edgekit.pipeline.given_model import resolve_model, with_data
from edgekit.pipeline.request import EvaluationData, ModelFacts
from edgekit.reference.batches import BatchSource, batches_for
from tests.manifests import spoilt

AXES = {"x": "0=batch:1..6,1=time:4..20@9", "starts": "0=batch", "lengths": "0=batch"}
SAID = {"starts": "sorted,below=time", "lengths": "at-most=time"}


class Windows(torch.nn.Module):
    """The means of the first values, and the values at sorted places; other inputs are an error."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = torch.nn.Linear(6, 4)

    def forward(self, x: torch.Tensor, starts: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.head(x)
        inside = (torch.arange(x.shape[1])[None] < lengths[:, None])[..., None]
        steps = torch.diff(starts, dim=1).to(y.dtype)
        return (y * inside).sum(1) / lengths[:, None], y.gather(1, starts[..., None].expand(-1, -1, 4)), steps.sqrt()


def example(rows: int = 2) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(rows)
    starts = torch.randint(0, 9, (rows, 3), generator=draw).sort(1).values
    lengths = torch.randint(1, 10, (rows,), generator=draw)
    return {"x": torch.randn(rows, 9, 6, generator=draw), "starts": starts, "lengths": lengths}


def windows(inputs: Mapping[str, str] | None = None) -> ModelSpec:
    return resolve_model(Windows().eval(), example(), ModelFacts(axes=AXES, inputs=SAID if inputs is None else inputs))


def real(rows: int = 24) -> EvaluationSet:
    arrays = {name: tensor.numpy() for name, tensor in example(rows).items()}
    return EvaluationSet(arrays, tuple(map(str, range(rows))))


def holds(run: Mapping[str, Array]) -> bool:
    time = run["x"].shape[1]
    starts, lengths = run["starts"], run["lengths"]
    return bool((np.diff(starts) >= 0).all() and starts.max() < time and lengths.min() >= 1 and lengths.max() <= time)


@pytest.mark.parametrize("evaluated", [False, True])
def test_every_batch_holds_what_is_said(evaluated: bool) -> None:
    spec, evaluation = windows(), real() if evaluated else None
    batches = batches_for(spec, evaluation)
    assert {"stress", "shifted", "changed", "ids"} <= {batch.name for batch in batches}
    assert {"grid", "between"} <= {batch.name.partition("-")[0] for batch in batches}
    runs = [run for batch in batches for run in batch.rows()]
    source, draw = BatchSource(spec, evaluation), np.random.default_rng(0)
    runs += [run for size in (4, 20) for run in source.fresh("fresh", {"batch": 3, "time": size}, draw).rows()]
    assert all(holds(run) for run in runs)
    assert max(run["lengths"].max() for run in runs) > 9
    assert len({run["starts"].tobytes() for run in runs}) > 20


def test_a_mask_may_fall_from_ones_to_zeros() -> None:
    class Masked(torch.nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return (x * mask).sum(1) / mask.sum(1)

    net = (torch.randn(2, 9), torch.ones(2, 9, dtype=torch.int64))
    inputs = {"mask": {"range": (0, 1), "sorted": "descending"}}
    spec = resolve_model(Masked().eval(), net, ModelFacts(axes={"x": "0=batch:1..6"}, inputs=inputs))
    for batch in batches_for(spec, None):
        for run in batch.rows():
            assert (run["mask"][:, 0] == 1).all()
            assert (np.diff(run["mask"]) <= 0).all()


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("a:sorted", {"sorted": "ascending"}),
        ("a:sorted,range=0..9", {"sorted": "ascending", "low": 0.0, "high": 9.0}),
        ("a:range=0..9,sorted=descending", {"sorted": "descending", "low": 0.0, "high": 9.0}),
        ("a:at-most=past+tokens", {"at_most": "past+tokens"}),
        ("a:below=12", {"below": "12"}),
    ],
)
def test_the_notation_of_the_command_line(text: str, facts: Mapping[str, Any]) -> None:
    words = words_of(None, [text], None)
    assert words.inputs == {"a": facts}
    assert from_record(words.as_record()) == words


def test_the_notation_of_python() -> None:
    assert words_of(None, {"a": {"sorted": True, "below": "time"}}, None).inputs["a"] == {
        "sorted": "ascending",
        "below": "time",
    }


@pytest.mark.parametrize("wrong", ["sorted=up", "at-most=a b", "at_most"])
def test_another_notation_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError):
        words_of(None, [f"a:{wrong}"], None)


def test_a_bound_by_no_axis_is_refused() -> None:
    with pytest.raises(ModelError, match="'tiem'"):
        windows({"lengths": "at-most=tiem"})


def test_a_bound_by_a_fixed_axis_is_a_number() -> None:
    facts = ModelFacts(axes={"x": "0=batch:1..6,1=time:9..9"}, inputs={"lengths": "at-most=time"})
    spec = resolve_model(Windows().eval(), example(), facts)
    assert {i.name: (i.at_most, i.high) for i in spec.inputs}["lengths"] == ("9", 9.0)


def test_a_folder_keeps_what_is_said(tmp_path: Path) -> None:
    spec = windows()
    save_model(spec, tmp_path / "model")
    assert load_model(tmp_path / "model").inputs == spec.inputs


def test_rows_that_break_what_is_said_are_refused() -> None:
    rows = real()
    rows.inputs["lengths"][3] = 12
    with pytest.raises(ModelError, match=r"row '3'.*'lengths'"):
        evaluation_of(with_data(windows(), EvaluationData(evaluation=rows)))


def test_without_a_word_the_rows_say_it() -> None:
    spec = with_data(windows({}), EvaluationData(evaluation=real(60)))
    said = {i.name: (i.sorted, i.below, i.at_most) for i in spec.inputs}
    assert said == {"x": ("", "", ""), "starts": ("ascending", "time", ""), "lengths": ("", "", "time")}
    assert all(holds(run) for batch in batches_for(spec, real(60)) for run in batch.rows())


def test_a_model_that_takes_all_integers_stays_as_it_is() -> None:
    class Table(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(9, 4)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.table(ids)
            return result

    spec = resolve_model(Table().eval(), torch.tensor([[1, 2, 3]]), ModelFacts())
    rows = np.sort(np.random.default_rng(0).integers(0, 9, (24, 3)))
    evaluation = EvaluationSet({spec.inputs[0].name: rows}, tuple(map(str, range(24))))
    assert not any(i.is_constrained for i in with_data(spec, EvaluationData(evaluation=evaluation)).inputs)


def test_nothing_said_is_a_sentence_that_says_how(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"axes": AXES, "targets": ["onnx"], "output": tmp_path, "progress": "none"}
    with pytest.raises(EdgekitError, match="below=AXIS"):
        edgekit.export(Windows().eval(), example=example(), **arguments)


def test_a_wrong_artifact_is_rejected_on_what_remains(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {
        "axes": AXES,
        "inputs": SAID,
        "targets": ["onnx"],
        "output": tmp_path,
        "progress": "none",
    }
    build = edgekit.export(Windows().eval(), example=example(), name="windows", **arguments)
    assert build["onnx"].verdict == "verified"
    spoilt(tmp_path / "windows" / "onnx")
    assert edgekit.verify(tmp_path / "windows", trust_build=True, progress="none")["onnx"].verdict == "rejected"


def test_a_bound_holds_at_each_size() -> None:
    spec = windows()
    lengths = next(i for i in spec.inputs if i.name == "lengths")
    assert spec.axes["time"] == Axis(9, 4, 20)
    assert [lengths.largest({"time": size}) for size in (4, 9, 20)] == [4, 9, 20]
