"""The command for trained networks on one tiny network, and what its table says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.model.spec import Array
from tools.exam.sitting import ROOT
from tools.zoo.trained import __main__ as command
from tools.zoo.trained import measure, table
from tools.zoo.trained.measure import DYNAMIC, PLAIN, STATIC, Line

ENTRY = {"model": "tests.models:onnx_file", "score": "tests.tools.test_trained:scored", "metric": "m", "data": "d"}
NETWORKS = "\n".join(("[tiny]", *(f'{key} = "{value}"' for key, value in ENTRY.items()), ""))


def scored(outputs: Mapping[str, Array], truth: Array | None) -> float:
    """Return a number that depends on every row."""
    return float(np.tanh(np.abs(outputs["y"]).mean()))


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Line]:
    """A tiny network by the plain tools, without an export of edgekit's."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(measure, "ROUNDS", 3)
        patched.setattr(measure, "TURN", 0.002)
        found = measure.measure(ENTRY, tmp_path_factory.mktemp("tiny"), ())
    return {line.tool: line for line in found}


def test_plain_tools_are_scored_timed_and_weighed(lines: dict[str, Line]) -> None:
    assert lines[PLAIN].speed == 1.0
    for tool in (PLAIN, DYNAMIC, STATIC):
        line = lines[tool]
        assert line.status == "made", line.reason
        assert line.figure == pytest.approx(lines[PLAIN].figure, abs=0.05)
        assert line.speed is not None
        assert line.speed > 0
    assert lines[STATIC].figure != lines[PLAIN].figure
    assert lines[STATIC].size < lines[PLAIN].size


@pytest.mark.nightly
def test_the_command_measures_once_and_checks(tmp_path: Path) -> None:
    networks, page = tmp_path / "trained.toml", tmp_path / "trained.md"
    networks.write_text(NETWORKS)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        places = ("--cache", str(tmp_path / "cache"), "--networks", str(networks), "--out", str(page))
        arguments = (sys.executable, "-m", "tools.zoo.trained", *places, *arguments)
        return subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, check=False)

    first = run("--only", "tiny")
    assert first.returncode == 0, first.stderr
    found = {line.tool: line for line in measure.read_lines(tmp_path / "cache" / "tiny") or ()}
    assert {found[name].status for name in ("onnx", "onnx-int8-static")} == {"verified"}
    assert page.read_text().count("| tiny |") == len(found) + 2
    again = run("--only", "tiny", "--check")
    assert (again.returncode, "tiny ..." in again.stderr) == (0, False)
    figure = found["onnx"].figure
    assert figure is not None
    networks.write_text(f"{NETWORKS}expected = {{ onnx = {figure + 0.1} }}\n")
    fallen = run("--check")
    assert fallen.returncode == 1
    assert f"{figure:.4f}" in fallen.stderr
    assert "Traceback" not in fallen.stderr
    unknown = run("--only", "gpt")
    assert unknown.returncode == 2
    assert "tiny" in unknown.stderr


def test_a_line_is_read_as_it_was_written(tmp_path: Path, lines: dict[str, Line]) -> None:
    measure.write_lines(tmp_path, list(lines.values()))
    assert measure.read_lines(tmp_path) == list(lines.values())
    assert measure.read_lines(tmp_path / "nowhere") is None


def test_a_result_is_kept_until_the_network_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def fail(arguments: list[str], **settings: object) -> subprocess.CompletedProcess[str]:
        started.append(arguments)
        return subprocess.CompletedProcess(arguments, 0)

    monkeypatch.setattr(command, "package_digest", lambda *packages: "code")
    monkeypatch.setattr(subprocess, "run", fail)
    for entry in (ENTRY, ENTRY | {"metric": "another name", "expected": {"onnx": 0.5}}, ENTRY | {"transformer": True}):
        command.fill("tiny", entry, tmp_path, tmp_path / "trained.toml")
    assert len(started) == 2
    command.fill("tiny", ENTRY | {"transformer": True}, tmp_path, tmp_path / "trained.toml", again=True)
    assert len(started) == 3
    measure.write_lines(tmp_path / "tiny", [row(PLAIN, 0.9, 1.0)])
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **settings: subprocess.CompletedProcess((), 1))
    (tmp_path / "tiny" / "log.txt").write_text("it died")
    command.fill("tiny", ENTRY, tmp_path, tmp_path / "trained.toml")
    assert measure.read_lines(tmp_path / "tiny") is None
    command.fill("tiny", ENTRY | {"transformer": True}, tmp_path, tmp_path / "trained.toml")
    assert not (tmp_path / "tiny" / "key.json").exists()


def row(tool: str, figure: float, speed: float, status: str = "made") -> Line:
    return Line(tool, status, "", figure, 10, speed, 1.0)


PLAIN_ROWS = (row(PLAIN, 0.9, 1.0), row(DYNAMIC, 0.88, 3.0), row(STATIC, 0.895, 2.0))


@pytest.mark.parametrize(
    ("own", "holds"),
    [
        (row("onnx-int8-static", 0.9, 2.0, "verified"), True),
        (row("onnx-int8-static", 0.9, 2.0, "rejected"), False),
        (row("onnx-int8-static", 0.88, 3.0, "verified"), False),
        (row("onnx-int8-static", 0.9, 1.8, "verified"), False),
        (row("onnx-fp16", 0.9, 2.5, "verified"), False),
    ],
)
def test_an_artifact_is_held_against_the_quickest_plain_one_that_is_good(own: Line, holds: bool) -> None:
    assert table.held((*PLAIN_ROWS, own))[0] is holds
    assert table.held((*(replace(line, figure=0.5) for line in PLAIN_ROWS[1:]), PLAIN_ROWS[0], own))[0] is None


def test_what_fell_is_named_with_both_figures() -> None:
    results = {"net": (*PLAIN_ROWS, row("onnx", 0.89, 1.0, "verified"), row("onnx-fp16", 0.9, 1.0, "rejected"))}

    def fallen(**entry: object) -> list[str]:
        return table.fallen({"net": entry}, results)

    assert fallen() == []
    assert fallen(reference=0.91, expected={"onnx": 0.9}) == []
    (problem,) = fallen(expected={"onnx": 0.91})
    assert "0.8900" in problem
    assert "0.9100" in problem
    assert len(fallen(reference=0.95, tolerance=0.001, expected={"onnx": 0.8911})) == 2
    assert len(fallen(expected={"onnx-fp16": 0.9, "openvino-int8": 0.9})) == 2
    assert len(table.fallen({"other": {"expected": {"onnx": 0.9}}}, results)) == 1


def test_the_page_has_a_row_for_every_file_and_the_reason_of_a_miss() -> None:
    networks = {name: {"metric": "top-1", "data": "digits", "misses": "no kernel"} for name in ("net", "absent")}
    lines = (*PLAIN_ROWS, replace(row("onnx-int8-static", 0.9, 1.0, "rejected"), reason="a | b"))
    text = table.page(networks, {"net": lines}, "a processor")
    assert text.count("\n| net |") == len(lines) + 2
    assert "no kernel" in text
    assert "a processor" in text
    assert "Not measured here: absent" in text
    assert "0.8950 | 10 | 2.00" in text


def test_the_catalogue_names_what_the_command_reads() -> None:
    networks = measure.catalogue()
    keys = {
        "model",
        "packages",
        "score",
        "metric",
        "data",
        "reference",
        "tolerance",
        "expected",
        "transformer",
        "misses",
        "without",
    }
    assert all(entry.keys() <= keys for entry in networks.values())
    assert all({"model", "metric", "data"} <= entry.keys() for entry in networks.values())
    assert len(networks) >= 12
