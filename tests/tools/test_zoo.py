"""Four of the zoo's models, each to one target: verified, and right on inputs that edgekit has not asked."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit import registry
from edgekit.model.spec import Array
from tools.exam.sitting import ROOT, SETTINGS, called_here, environment
from tools.zoo import comparison
from tools.zoo.__main__ import merged
from tools.zoo.cell import FALSE, REFUSED, TRACEBACK, VERIFIED, Cell
from tools.zoo.keeper import exported
from tools.zoo.table import read, total, written

SAMPLE = (("gru", "onnx"), ("lstm", "onnx-int8-dynamic"), ("encoder", "torchscript"), ("generator", "coreml"))
"""Those that take seconds; `python -m tools.zoo` asks the others."""


@pytest.mark.parametrize(("model", "target"), SAMPLE)
def test_a_public_architecture_is_verified_and_right(
    model: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if target == "coreml":
        pytest.importorskip("coremltools", reason="no coremltools: pip install 'edgekit[coreml]'")
    monkeypatch.syspath_prepend(str(ROOT))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with called_here(), environment(SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = exported(model, tmp_path, target)
    torch.set_num_threads(threads)
    assert (found.word, found.sentence) == (VERIFIED, "")
    assert found.ratio is not None
    assert found.ratio < 1


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


def test_the_table_names_every_cell_that_is_not_verified() -> None:
    cells = [Cell("vit", "onnx", VERIFIED, ratio=0.5), Cell("vit", "coreml", REFUSED, "it has no operator 'a|b'")]
    assert total(cells) == "2 cells: 1 verified, 1 refused, 0 traceback, 0 false verdict; 50.0% verified"
    text = written(cells)
    assert "| vit | yes | refused |" in text
    assert "| vit | `coreml` | refused | it has no operator 'a\\|b' |" in text


def test_a_page_is_read_again_and_what_is_asked_now_stands_in_it() -> None:
    before = [
        Cell("vit", "onnx", VERIFIED, ratio=1.0),
        Cell("vit", "coreml", REFUSED, "it has no operator 'a|b<c>'"),
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
    (heads,) = re.findall(r"^\| \| (`.+`) \|$", text, re.MULTILINE)
    assert set(re.findall(r"`([\w-]+)`", line)) == there - set(re.findall(r"`([\w-]+)`", heads))
