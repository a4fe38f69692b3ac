from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgekit_targets.onnx.passes.groups import QuantConfig
from edgekit_targets.onnx.quantization import search
from edgekit_targets.onnx.quantization.evaluator import Quality
from edgekit_targets.onnx.quantization.search import Trial, TrialLog

PARTS = ("attention", "patches", "scores")


def row(config: QuantConfig, snr: float = 30.0, size: int = 100, work: float = 0.0, passed: bool = True) -> Trial:
    reasons = () if passed else ("spearman is 0.5, must be at least 0.99",)
    return Trial(config, Quality(passed, snr, {"spearman": 0.995}, reasons), size, work)


def test_what_was_added_is_found_by_the_next_search_of_the_same_context(tmp_path: Path) -> None:
    first = TrialLog(tmp_path, "context")
    rows = [row(QuantConfig()), row(QuantConfig(method="entropy", floats=("patches",)), passed=False)]
    for one in rows:
        assert first.add(one) is one
    again = TrialLog(tmp_path, "context")
    assert list(again.rows.values()) == rows
    assert TrialLog(tmp_path, "another").rows == {}


def test_a_line_that_was_cut_off_is_lost_alone(tmp_path: Path) -> None:
    tried = TrialLog(tmp_path, "context")
    tried.add(row(QuantConfig()))
    tried.add(row(QuantConfig(method="entropy")))
    log = tmp_path / search.LOG
    log.write_text(log.read_text()[:-40])
    again = TrialLog(tmp_path, "context")
    assert [one.recipe.method for one in again.rows.values()] == ["minmax"]
    again.add(row(QuantConfig(method="percentile")))
    assert [one.recipe.method for one in TrialLog(tmp_path, "context").rows.values()] == ["minmax", "percentile"]


@pytest.mark.parametrize("bit", [7, 900, 1501, 2222])
def test_a_line_in_which_a_bit_flipped_is_passed_over(bit: int, tmp_path: Path) -> None:
    TrialLog(tmp_path, "context").add(row(QuantConfig()))
    data = bytearray((tmp_path / search.LOG).read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    (tmp_path / search.LOG).write_bytes(data)
    assert TrialLog(tmp_path, "context").rows == {}


@pytest.mark.parametrize("line", ["not json", "[]", "{}", '{"context": "context", "recipe": {"colour": "red"}}'])
def test_a_line_that_makes_no_sense_is_passed_over(line: str, tmp_path: Path) -> None:
    TrialLog(tmp_path, "context").add(row(QuantConfig()))
    with (tmp_path / search.LOG).open("a") as log:
        log.write(line + "\n")
    assert len(TrialLog(tmp_path, "context").rows) == 1


def test_the_table_holds_what_reports_show(tmp_path: Path) -> None:
    chosen = row(QuantConfig(floats=("patches",)), work=0.125)
    sensitive = row(QuantConfig(floats=("attention", "scores")), snr=20.0, work=0.8, passed=False)
    rows = {one.recipe.key: one for one in (chosen, sensitive)}
    search.write_table(tmp_path, rows, chosen, {chosen.recipe.key: 1.5}, PARTS, [chosen.recipe.key])
    first, second = json.loads((tmp_path / search.TABLE).read_text())
    assert first == {
        "name": "minmax, uint8, 1 group in float",
        "chosen": True,
        "passed": True,
        "pareto": True,
        "size": 100,
        "measures": {"spearman": 0.995, "snr": 30.0},
        "float_groups": "patches",
        "float_work": "12.5%",
        "rank": 0,
        "p50_ms": 1.5,
    }
    assert (second["name"], second["float_groups"]) == ("minmax, only patches", "all others")
    assert (second["chosen"], second["passed"], second["pareto"]) == (False, False, False)
    assert "p50_ms" not in second


def test_a_pass_for_one_group_is_called_by_that_group() -> None:
    names = {
        (): "minmax, uint8",
        ("patches",): "minmax, uint8, 1 group in float",
        ("attention", "patches"): "minmax, only scores",
        PARTS: "minmax, uint8, 3 groups in float",
    }
    assert {floats: search.display_name(QuantConfig(floats=floats), PARTS) for floats in names} == names
    assert search.display_name(QuantConfig(floats=PARTS[1:2]), PARTS[1:]) == names[PARTS[1:2]]
