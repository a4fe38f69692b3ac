"""The GitHub Action: its steps run as a runner runs them, with the inputs and files that it gives them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import onnx.numpy_helper
import pytest
import yaml

from edgekit.artifact.result import RESULT, result_text
from tests.core.report.conftest import enter
from tests.manifests import read_result

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}


def test_inputs_reach_the_shell_as_variables_only() -> None:
    for step in STEPS.values():
        assert "${{" not in step["run"]  # an expression in a script would run what a pull request wrote
        asked = re.findall(r"inputs\.([\w-]+)", str(step))
        assert set(asked) <= set(ACTION["inputs"])


class Runner:
    """A folder with what a runner gives each step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.values = {f"inputs.{name}": given["default"] for name, given in ACTION["inputs"].items()}
        (folder / "temp").mkdir()

    def run(self, name: str) -> int:
        step = STEPS[name]
        env = {key: self._resolved(value) for key, value in step["env"].items()}
        bin_folder = self.folder / "bin"
        bin_folder.mkdir(exist_ok=True)
        command = bin_folder / "edgekit"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m edgekit "$@"\n')
        command.chmod(0o755)
        files = {n: str(self.folder / n.lower()) for n in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        path = f"{bin_folder}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        given = os.environ | env | files | {"RUNNER_TEMP": str(self.folder / "temp"), "PATH": path}
        given["GITHUB_ACTION_PATH"] = str(ROOT)
        given["PYTHONPATH"] = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        with (self.folder / "stdout").open("w") as stdout:
            return subprocess.run(shell, cwd=self.folder, env=given, stdout=stdout).returncode

    def _resolved(self, value: str) -> str:
        return re.sub(r"\$\{\{ (\S+) \}\}", lambda found: self.values[found[1]], value)

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.mark.skipif(not shutil.which("bash"), reason="runs the steps of the action: install bash")
def test_it_exports_shows_the_table_and_compares(small_build: Path, tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    shutil.copytree(small_build, tmp_path / "build" / "small", ignore=shutil.ignore_patterns("onnx-fp16"))
    runner.values["inputs.model"] = "edgekit.testing:small_model"
    runner.values["inputs.args"] = "--author 'A. Uthor' --budget size=50MB"
    assert runner.run("Export and prove") == 0
    assert runner.read("github_output") == "build=build/small\n"
    assert "| ✅ verified | onnx |" in runner.read("github_step_summary")
    assert '"A. Uthor"' in runner.read("build/small/model/config.json")
    assert "<testsuites" in runner.read("build/small/report.junit.xml")

    runner.values |= {"inputs.baseline": "baseline", "steps.export.outputs.build": "build/small"}
    shutil.copytree(tmp_path / "build/small", tmp_path / "baseline")
    assert runner.run("Compare with the baseline") == 0
    assert "Nothing became better or worse." in runner.read("github_step_summary")

    found = read_result(tmp_path / "build/small/onnx")
    spoilt = found.places[0].model_copy(update={"status": "rejected"})
    text = result_text(found.model_copy(update={"places": (spoilt,)}))
    enter(tmp_path / "build/small/onnx", {RESULT: text.encode()})
    assert runner.run("Compare with the baseline") == 3
    assert "| ❌ | onnx · cpu | verdict | verified | rejected |" in runner.read("github_step_summary")


@pytest.mark.parametrize("model", ["no-such-model", "--sign=key.pem"])
def test_a_model_that_does_not_exist_or_is_an_option_fails_the_step(model: str, tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    runner.values["inputs.model"] = model
    assert runner.run("Export and prove") == 2


@pytest.mark.nightly
def test_it_judges_a_file_of_another_tool_and_annotates(small_build: Path, tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    graph = onnx.load(small_build / "onnx" / "model.onnx")
    onnx.save(graph, tmp_path / "net.onnx")
    runner.values |= {"inputs.file": "net.onnx", "inputs.model": "edgekit.testing:small_model"}
    assert runner.run("Export and prove") == 0
    assert "| ✅ verified | checked-file |" in runner.read("github_step_summary")
    bias = next(i for i in graph.graph.initializer if i.data_type == onnx.TensorProto.FLOAT and len(i.dims) == 1)
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + 1.0, bias.name))
    onnx.save(graph, tmp_path / "net.onnx")
    assert runner.run("Export and prove") == 3
    assert "::error title=checked-file rejected::cpu: " in runner.read("stdout")


def test_an_unknown_fail_on_fails_the_step(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    runner.values |= {"inputs.fail-on": "never"}
    assert runner.run("Export and prove") == 2
    assert "fail-on is 'never'" in runner.read("stdout")
