from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgekit.errors import ModelError, RecordError
from edgekit.judge.rows import sketch
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit.reference.adopt import obtain
from edgekit.reference.batches import EVALUATION
from edgekit.reference.info import INFO, INPUTS, OUTPUTS, read_info
from edgekit.reference.record import WHOLE_ROWS, record_reference
from edgekit.reference.store import read_reference, recorded_outputs
from edgekit.storage.verified_io import seal_record
from edgekit.testing import small_model


class Noisy(torch.nn.Module):
    """Adds what only double precision keeps; answers NaN where it is told to."""

    def __init__(self, bad: bool = False) -> None:
        super().__init__()
        self.bad = bad
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x * self.weight + 1e8) - 1e8
        return (torch.where(y == y.max(), torch.nan, y) if self.bad else y), torch.ones(len(x), dtype=torch.int64)


def spec(bad: bool = False) -> ModelSpec:
    return ModelSpec(
        name="noisy",
        module=Noisy(bad).eval(),
        inputs=(Input("x", ("batch", 3)),),
        outputs=(Output("y"), Output("n", dtype="int64")),
        axes={"batch": Axis(1, 1, 8)},
    )


def test_a_role_that_takes_another_number_of_axes_is_refused_before_an_export(tmp_path: Path) -> None:
    narrow = replace(small_model(), module=First().eval(), outputs=(Output("score", role="scores"),), evaluation=None)
    with pytest.raises(ModelError, match=r"'score' has the shape \[batch\], and the role 'scores' takes 2 axes"):
        record_reference(narrow, tmp_path / "reference")


class First(torch.nn.Module):
    def forward(self, x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, 0]


def info(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / INFO).read_text())
    return found


def test_a_recording_tells_what_made_it_and_how_it_goes_on(tmp_path: Path) -> None:
    told: list[float] = []
    record_reference(small_model(), tmp_path / "reference", progress=lambda done, text: told.append(done))
    assert told == sorted(told)
    assert len(told) == 3
    said = info(tmp_path / "reference")
    assert said["device_kind"] == "cpu"
    assert said["device"].startswith("CPU (")
    assert said["flags"] == {"tf32": False, "deterministic": True, "dtype": "float32", "double": True}
    assert said["metric"]["name"] == "found@8"
    assert len(said["metric"]["images"]) == 6
    assert set(said["latency"]) == {"batch 1"}  # 32 rows would take a user's time, and judge nothing


def test_a_reference_that_ships_keeps_features_of_the_first_rows_and_sketches_of_all(tmp_path: Path) -> None:
    record_reference(small_model(), tmp_path / "whole")
    record_reference(small_model(), tmp_path / "shipped", with_inputs=False)
    whole = read_reference(tmp_path / "whole").batches[0].outputs
    assert {len(array) for array in whole.values()} == {6}
    (batch, shipped), *_ = recorded_outputs(read_info(tmp_path / "shipped"))
    assert batch.name == EVALUATION
    assert {name: len(array) for name, array in shipped.items()} == {
        "relevance": 6,
        "budgets": 6,
        "indices": 6,
        "tokens": WHOLE_ROWS,
        "tokens.sketch": 6,
    }
    assert np.array_equal(shipped["tokens.sketch"], sketch(whole["tokens"]))


def test_the_batch_axis_of_every_output_is_recorded_wherever_it_stands(tmp_path: Path) -> None:
    class Turned(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.stack([x, 2 * x]), x.flatten()[:3], x @ x.T, x.sum(1), x.T

    outputs = (*(Output(name) for name in ("second", "one", "pairs", "first")), Output("last", axes=("d", "batch")))
    turned = replace(spec(), module=Turned().eval(), outputs=outputs)
    record_reference(turned, tmp_path / "reference")
    found = read_reference(tmp_path / "reference")
    assert found.info.row_axes == {"second": 1, "one": None, "pairs": None, "first": 0, "last": 1}
    eight = next(b for b in found.batches if b.sizes == {"batch": 8})
    shapes = {name: array.shape for name, array in eight.outputs.items()}
    assert shapes == {"second": (8, 2, 3), "one": (1, 3), "pairs": (1, 8, 8), "first": (8,), "last": (8, 3)}
    assert np.array_equal(eight.outputs["second"][:, 1], 2 * eight.inputs["x"])


def test_an_output_of_another_shape_for_each_input_is_one_sentence(tmp_path: Path) -> None:
    class Ragged(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[x > 0.5]

    with pytest.raises(RecordError, match=r"the shape of the output 'y' differs .* torch\.topk"):
        record_reference(replace(spec(), module=Ragged().eval(), outputs=(Output("y"),)), tmp_path / "reference")


def test_a_module_that_fails_on_what_it_is_asked_is_one_sentence(tmp_path: Path) -> None:
    class Picky(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not x.any():
                raise RuntimeError("nothing to do")
            return x

    with pytest.raises(RecordError, match=r"itself fails on .*: RuntimeError: nothing to do"):
        record_reference(replace(spec(), module=Picky().eval(), outputs=(Output("y"),)), tmp_path / "reference")


def test_double_precision_is_measured_only_where_the_module_runs_in_double(tmp_path: Path) -> None:
    class Single(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.float32) * 2

    record_reference(replace(spec(), module=Single().eval(), outputs=(Output("y"),)), tmp_path / "reference")
    assert info(tmp_path / "reference")["flags"]["double"] is False
    assert info(tmp_path / "reference")["noise"] == {"y": {}}


def test_the_noise_is_the_distance_to_double_precision(tmp_path: Path) -> None:
    record_reference(spec(), tmp_path / "reference")
    noise = info(tmp_path / "reference")["noise"]
    assert set(noise) == {"y"}
    drawn = next(b for b in read_reference(tmp_path / "reference").batches).inputs["x"]
    off = np.abs((drawn.astype(np.float64) + 1e8 - 1e8) - ((drawn + np.float32(1e8)) - np.float32(1e8)))
    assert noise["y"]["cpu32 cpu64"] == pytest.approx(off.max(), rel=1e-6)
    assert noise["y"]["cpu32 cpu64"] > 0.1


def test_the_noise_of_each_quantity_is_recorded_apart(tmp_path: Path) -> None:
    """Of a noisy, an exact and a constant channel; a reference of an earlier version has none."""

    class Channels(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            many = torch.stack([(x[:, 0] + 1e4) - 1e4, x[:, 1], torch.relu(x[:, 2] - 9)], -1)
            return many, many[..., :2].repeat(1, 50)

    record_reference(replace(spec(), module=Channels().eval(), outputs=(Output("y"), Output("z"))), tmp_path / "new")
    said, found = info(tmp_path / "new"), read_reference(tmp_path / "new")
    assert said["channel_noise"] == {"y": [said["noise"]["y"]["cpu32 cpu64"], 0.0, None]}
    assert np.array_equal(found.channel_noise["y"], [found.noise["y"], 0.0, np.nan], equal_nan=True)
    del said["channel_noise"], said["content_sha256"]
    (tmp_path / "new" / INFO).write_text(seal_record(said))
    assert read_reference(tmp_path / "new").channel_noise == {}


def test_the_model_itself_is_not_moved_or_changed(tmp_path: Path) -> None:
    given = spec()
    record_reference(given, tmp_path / "reference")
    assert next(given.module.parameters()).dtype == torch.float32


def test_two_recordings_give_the_same_bytes_but_for_the_latency(tmp_path: Path) -> None:
    for name in ("one", "other"):
        record_reference(spec(), tmp_path / name)
    assert (tmp_path / "one" / OUTPUTS).read_bytes() == (tmp_path / "other" / OUTPUTS).read_bytes()
    assert not (tmp_path / "one" / INPUTS).exists()  # no evaluation set: all inputs follow from seeds
    one, other = info(tmp_path / "one"), info(tmp_path / "other")
    assert {name for name in one if one[name] != other[name]} <= {"latency", "content_sha256"}


def test_a_recording_is_not_that_of_a_model_whose_output_was_renamed(tmp_path: Path) -> None:
    first = obtain(spec(), tmp_path)
    assert obtain(spec(), tmp_path).info.sha256 == first.info.sha256
    again = obtain(replace(spec(), outputs=(Output("z"), Output("n", dtype="int64"))), tmp_path)
    assert set(again.batches[0].outputs) == {"z", "n"}


def test_a_model_that_answers_nan_is_refused_by_output_and_inputs(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"'noisy' itself returns NaN or Inf in 'y' on the \S+ inputs"):
        record_reference(spec(bad=True), tmp_path / "reference")
    assert not list(tmp_path.iterdir())


@pytest.mark.gpu
def test_a_gpus_recording_holds_three_ways_of_running_and_the_cpus_distance(tmp_path: Path) -> None:
    record_reference(small_model(), tmp_path / "reference", device="cuda")
    said = info(tmp_path / "reference")
    assert said["device"] == torch.cuda.get_device_name()
    assert "CUDA" in said["driver"]
    assert set(said["latency"]["batch 1"]) == {"eager", "compiled", "cuda graph"}
    assert set(said["noise"]["relevance"]) == {"cuda cpu32", "cuda cpu64", "cpu32 cpu64"}
    assert max(said["noise"]["relevance"].values()) < 1e-4
