"""One of the zoo's models, in the nightly mode four, each to a target: right on inputs that edgekit has not asked."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgekit import registry
from edgekit.model.spec import Array, Input, ModelSpec
from edgekit_matrix.crew import Local
from edgekit_matrix.report import CellRecord, CellRun, read_cell
from edgekit_matrix.run import Settings
from tools.exam.pictures import evaluation
from tools.exam.sitting import ROOT, environment
from tools.zoo import comparison, look
from tools.zoo.__main__ import VARIABLES, cells, fill, merged
from tools.zoo.cell import ELSEWHERE, FALSE, LATE, REFUSED, TRACEBACK, VERIFIED, Cell, cell_of, status_of
from tools.zoo.table import read, total, written

MORE = (("lstm", "onnx-int8-dynamic"), ("encoder", "torchscript"), ("generator", "coreml"))
SAMPLE = (("gru", "onnx"), *(MORE if os.environ.get("EDGEKIT_SLOW") else ()))
"""Those that take seconds; `python -m tools.zoo` asks the others."""


@pytest.mark.nightly
def test_public_architectures_are_verified_and_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("coremltools", reason="no coremltools: pip install -e '.[coreml]'")
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.chdir(ROOT)
    with environment(VARIABLES):
        fill(cells(SAMPLE), tmp_path, partial(Local, 2), Settings(seconds=400))
    for model, target in SAMPLE:
        record = read_cell(tmp_path / "cells" / model / target)
        assert record is not None
        found = cell_of(record, tmp_path)
        assert (found.word, found.sentence) == (VERIFIED, "")
        assert found.ratio is not None
        assert found.ratio < 1


def test_what_the_table_says_of_a_cell() -> None:
    record = CellRecord(model="vit", target="coreml", column="coreml", folder="cells/vit/coreml", status="failed")

    def said(code: int | None, **fields: object) -> str:
        return status_of(record.model_copy(update={"run": CellRun(code=code), **fields}))

    assert said(code=0, status=ELSEWHERE, places={"interpreter": VERIFIED, "mac": ELSEWHERE}) == VERIFIED
    assert said(code=0, status=ELSEWHERE, places={"mac": ELSEWHERE}) == ELSEWHERE
    assert (said(code=2), said(code=None), said(code=3, status="rejected")) == (REFUSED, LATE, "rejected")
    refused = record.model_copy(
        update={"run": CellRun(code=2), "sentence": f"{ROOT}/tools/zoo/plain.py:1, {torch.__file__}:2"}
    )
    assert cell_of(refused, ROOT).sentence == "tools/zoo/plain.py:1, torch/__init__.py:2"
    assert {said(code=1), said(code=-11), said(code=2, sentence="the worker met a bug:")} == {TRACEBACK}


def test_a_wrong_answer_is_a_false_verdict() -> None:
    draw = np.random.default_rng(0)
    right: Array = draw.normal(size=(12, 1, 8))
    assert comparison.error(right, right) == 0
    assert comparison.error(right, right * 1.01) == pytest.approx(0.01, rel=0.1)
    assert comparison.error(right, right[::-1]) > 1
    one = right.copy()
    one[3] = 0
    assert comparison.error(right, one) > comparison.ALLOWED["fp16"]
    assert comparison.error(right, right[..., :4]) == comparison.error(right, np.full_like(right, np.nan)) == np.inf
    assert comparison.error(np.array([[1, 2]]), np.array([[1, 3]])) == np.inf
    verified = Cell("vit", "onnx", VERIFIED, ratio=0.5)
    assert verified.word == VERIFIED
    assert {replace(verified, ratio=ratio).word for ratio in (None, 1.1, np.inf, np.nan)} == {FALSE}


def test_detections_are_compared_as_boxes() -> None:
    draw = np.random.default_rng(0)
    right = np.zeros((12, 1, 8, 6))
    corner = draw.uniform(0, 100, (12, 1, 6, 2))
    right[:, :, :6] = np.concatenate([corner, corner + 10, np.full((12, 1, 6, 1), 0.9), np.ones((12, 1, 6, 1))], -1)
    measure = comparison.detections_error
    assert measure(right, right) == measure(right, right[:, :, ::-1]) == 0  # in any order
    moved, renamed, missing = right.copy(), right.copy(), right.copy()
    moved[:, :, :6, :4] += 1
    renamed[:, :, :6, 5] = 2
    missing[:, :, 2] = 0
    assert 0.2 < measure(right, moved) < 0.4
    assert measure(right, renamed) == 1
    assert measure(right, missing) == measure(missing, right) > comparison.ALLOWED["fp16"]
    right[:, :, 2, 4] = 0.05  # hardly one
    assert measure(right, missing) < comparison.ALLOWED["fp16"]


def test_a_run_of_a_model_with_a_state_and_a_number() -> None:
    samples = {"x": np.arange(200)[:, None], "state": np.arange(400).reshape(400, 1), "rate": np.arange(200)}
    inputs = (Input("x", ("batch",)), Input("state", (2, "batch")), Input("rate", ()))
    spec = ModelSpec("recurrent", nn.Identity(), inputs, (), calibration=evaluation(samples))
    last = look.fresh(spec)[-1]
    assert [last[name].tolist() for name in ("x", "state", "rate")] == [[[199]], [[398], [399]], 199]
    assert last["rate"].shape == ()


def test_the_table_names_every_cell_that_is_not_verified() -> None:
    cells = [
        Cell("vit", "onnx", VERIFIED, ratio=0.5),
        Cell("vit", "coreml", REFUSED, "it does not have the operator 'a|b'"),
    ]
    assert total(cells) == "2 cells: 1 verified, 1 refused, 0 traceback, 0 false verdict; 50.0% verified"
    text = written(cells)
    assert "| vit | yes | refused |" in text
    assert "| vit | `coreml` | refused | it does not have the operator 'a\\|b' |" in text


def test_a_page_is_read_again_and_what_is_asked_now_stands_in_it() -> None:
    before = [
        Cell("vit", "onnx", VERIFIED, ratio=1.0),
        Cell("vit", "coreml", REFUSED, "it does not have the operator 'a|b<c>'"),
        Cell("clip_text", "onnx", VERIFIED),
    ]
    again = read(written(before))
    assert again == before
    assert [one.word for one in again] == [VERIFIED, REFUSED, FALSE]
    now = Cell("vit", "coreml", VERIFIED, ratio=0.5)
    assert merged([now], again) == [before[0], now, before[2]]


def test_the_committed_table_has_no_traceback_and_no_false_verdict() -> None:
    text = (ROOT / "docs" / "zoo.md").read_text()
    assert f"0 {TRACEBACK}, 0 {FALSE}" in text


def test_the_committed_table_names_the_targets_that_its_share_leaves_out() -> None:
    text = (ROOT / "docs" / "zoo.md").read_text()
    there = {name for name, entry in registry.available().items() if entry.origin == "edgekit"}
    (line,) = (line for line in text.splitlines() if line.startswith("The share is of "))
    heads = re.findall(r"^\| \| (`.+`) \|$", text, re.MULTILINE)
    assert set(re.findall(r"`([\w-]+)`", line)) == there - set(re.findall(r"`([\w-]+)`", " ".join(heads)))
