"""The example plugin on Python's path, as an installation leaves it: its command, its source and its place work.

Beside it lies a package whose records cannot be imported: it breaks only itself.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples" / "plugin"
GROUPS = {"edgekit.commands": "command", "edgekit.sources": "source", "edgekit.places": "place"}


def declare(folder: Path, name: str, groups: Mapping[str, Mapping[str, str]]) -> None:
    """Write what an installer writes of a distribution with these entry points."""
    info = folder / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    lines = [f"[{group}]\n" + "".join(f"{n} = {p}\n" for n, p in points.items()) for group, points in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    shutil.copytree(PLUGIN / "src", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    declare(folder, project["name"], project["entry-points"])
    return folder


def run(folder: Path, site: Path, *words: str, module: str = "edgekit") -> str:
    """Return what a command prints, run in a folder with a site folder on the path."""
    path = os.pathsep.join([str(site), *(str(Path(one).resolve()) for one in sys.path if one)])
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def build(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    random = np.random.default_rng(3)
    np.savez(folder / "net.npz", weight=random.normal(size=(4, 8)), bias=random.normal(size=4))
    exported = json.loads(run(folder, site, "export", "numpy:net.npz", "-t", "onnx", "--json"))
    assert {artifact["target"]: artifact["status"] for artifact in exported["artifacts"]} == {"onnx": "verified"}
    return folder / "build" / "net"


def test_its_place_judges_an_export_of_its_source(build: Path, site: Path) -> None:
    printed = run(build.parent, site, "verify", str(build), "--place", "onnx-reference", "--json")
    (artifact,) = json.loads(printed)["artifacts"]
    assert artifact["status"] == "verified"
    result = json.loads((build / "imported" / "onnx-reference-onnx" / "result.json").read_text())
    (place,) = result["places"]
    assert place["place"] == "onnx-reference"
    assert "reference evaluator" in place["device"]


def test_its_command_runs(build: Path, site: Path) -> None:
    counts = json.loads(run(build.parent, site, "operators", str(build / "onnx"), "--json"))["operators"]
    assert counts == {"Gemm": 1} or counts.keys() == {"MatMul", "Add"}


def test_its_command_is_listed_in_its_panel(site: Path, tmp_path: Path) -> None:
    text = run(tmp_path, site, "--help")
    understand = text.partition("Understand")[2].partition("─ Ship")[0]
    assert "operators" in understand
    assert "edgekit operators build/small/onnx" in run(tmp_path, site, "operators", "--help")


@pytest.mark.nightly
def test_its_own_tests_pass(site: Path, tmp_path: Path) -> None:
    run(tmp_path, site, "-q", "-p", "no:cacheprovider", str(PLUGIN / "tests"), module="pytest")


def test_a_broken_record_breaks_only_itself_and_doctor_names_it(site: Path, tmp_path: Path) -> None:
    (tmp_path / "edgekit_broken.py").write_text("raise RuntimeError('no licence')\n")
    (tmp_path / "edgekit_odd.py").write_text(
        "from edgekit.doors import Command\n"
        "COMMAND = Command(name='odd', panel='No such panel', summary='', function='edgekit_odd:odd')\n"
    )
    groups = {group: {f"broken-{noun}": "edgekit_broken:RECORD"} for group, noun in GROUPS.items()}
    groups["edgekit.targets"] = {"broken-target": "edgekit_broken:RECORD"}
    groups["edgekit.commands"]["odd"] = "edgekit_odd:COMMAND"
    declare(tmp_path, "edgekit-broken", groups)
    both = tmp_path / "both"
    both.mkdir()
    path = Path(os.pathsep.join((str(site), str(tmp_path))))
    listed = run(both, path, "--help")
    assert "operators" in listed
    assert "broken" not in listed
    plugins = json.loads(run(both, path, "doctor", "--json"))["plugins"]
    assert set(plugins) == {
        "command broken-command",
        "command odd",
        "place broken-place",
        "source broken-source",
        "target broken-target",
    }
    assert all("edgekit-broken" in sentence for sentence in plugins.values())
    assert all("no licence" in sentence for name, sentence in plugins.items() if "broken" in name)
    assert "No such panel" in plugins["command odd"]


def test_doctor_says_nothing_of_plugins_that_work(site: Path, tmp_path: Path) -> None:
    facts = json.loads(run(tmp_path, site, "doctor", "--json"))
    assert "plugins" not in facts
    assert facts["places"]["onnx-reference"] == "ready"
