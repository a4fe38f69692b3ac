"""A matrix on a Ray cluster of two nodes on this machine, one of which is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from edgekit.errors import install_command
from edgekit_matrix.report import Matrix, read_matrix
from tests.command import exit_code

ROOT = Path(__file__).parents[3]
RAY = pytest.mark.skipif(util.find_spec("ray") is None, reason="no ray: pip install -e '.[ray]'")
SLOW = pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes 6 minutes: set EDGEKIT_SLOW=1")
TOY = """targets = ["onnx", "torchscript"]
[models]
linear = "tests.plugins.matrix.models:linear"
wide = "tests.plugins.matrix.models:wide"
"""
BIG = """targets = ["onnx", "onnx-fp16", "onnx-int8-dynamic", "torchscript", "torch-mobile"]
[models]
lstm = "tools.zoo.plain:lstm"
gru = "tools.zoo.plain:gru"
tcn = "tools.zoo.plain:tcn"
encoder = "tools.zoo.plain:encoder"
generator = "tools.zoo.plain:generator"
small = "edgekit.testing:small_model"
"""


class Two:
    """A cluster of two nodes with a processor each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        quiet = {"include_dashboard": False, "object_store_memory": 200 << 20, "num_cpus": 1}
        self._cluster = Cluster(initialize_head=True, head_node_args=quiet)
        self.address: str = self._cluster.address
        self._second = self._cluster.add_node(num_cpus=1, object_store_memory=200 << 20)

    def kill_one(self) -> None:
        self._cluster.remove_node(self._second, allow_graceful=False)

    def close(self) -> None:
        self._cluster.shutdown()


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Two]:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # a token would be written into the user's home
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), *filter(None, sys.path))))
    monkeypatch.chdir(tmp_path)
    cluster = Two()
    yield cluster
    cluster.close()


def test_without_ray_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.syspath_prepend(str(ROOT))
    (tmp_path / "toy.toml").write_text(TOY)
    assert exit_code("matrix", tmp_path / "toy.toml", "--ray", "local", "-o", tmp_path / "out") == 2
    assert capfd.readouterr().err == f"edgekit: a Ray cluster needs ray. Run: {install_command('ray')}\n"
    assert not (tmp_path / "out").exists()


@RAY
@pytest.mark.parametrize(
    ("address", "sentence"),
    [("127.0.0.1:1", "Connection refused). Start one with `ray start`"), ("here", "Use HOST:PORT, auto or")],
)
def test_an_address_without_a_cluster_is_one_sentence(
    address: str, sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    (tmp_path / "toy.toml").write_text(TOY)
    assert exit_code("matrix", tmp_path / "toy.toml", "--ray", address, "-o", tmp_path / "out") == 2
    said = capfd.readouterr().err
    assert said.startswith(f"edgekit: no Ray cluster at '{address}'")
    assert sentence in said
    assert not (tmp_path / "out").exists()


@RAY
def test_a_lost_node_loses_no_cell(two: Two) -> None:
    on_ray, _ = _killed_halfway(two, TOY, 1)
    assert [cell.status for cell in on_ray.cells] == ["verified"] * 4


@RAY
@SLOW
@pytest.mark.timeout(3600)
def test_six_models_by_five_targets_are_those_of_one_machine(two: Two, capfd: pytest.CaptureFixture[str]) -> None:
    on_ray, took = _killed_halfway(two, BIG, 15, 2)  # one model has no layer for dynamic INT8: that cell is refused
    began = time.monotonic()
    assert _run(subprocess.Popen([*_command("models.toml"), "-o", "alone", "--jobs", "2"])) == 2
    alone, seconds = read_matrix(Path("alone")), time.monotonic() - began
    again = [cell.name for cell in on_ray.cells if cell.run.attempts > 1]
    with capfd.disabled():
        print(f"\n{on_ray.summary}; on Ray in {took:.0f} s, asked again: {again}; alone in {seconds:.0f} s")
    assert len(alone.cells) == len(on_ray.cells) == 30
    assert again
    facts = [{c.name: (c.status, c.size, c.sha256, c.sentence) for c in matrix.cells} for matrix in (on_ray, alone)]
    assert facts[0] == facts[1]
    assert exit_code("diff", "alone", "on-ray") == 0
    assert "30 cells have the same bytes" in capfd.readouterr().out
    files = [{path: path.read_bytes() for path in _artifacts(Path(root))} for root in ("on-ray", "alone")]
    assert len(files[0]) > 29
    assert [*files[0].values()] == [*files[1].values()]


def _artifacts(root: Path) -> list[Path]:
    """The files that the manifests of a matrix name."""
    found = []
    for head in sorted(root.glob("cells/*/*/*/*/manifest.json")):
        found += [head.parent / file["path"] for file in json.loads(head.read_text())["files"]]
    return found


def _killed_halfway(two: Two, text: str, cells: int, code: int = 0) -> tuple[Matrix, float]:
    """A matrix that is run on both nodes; one is killed after so many cells. It and how long it took, in seconds."""
    Path("models.toml").write_text(text)
    began = time.monotonic()
    run = subprocess.Popen([*_command("models.toml"), "-o", "on-ray", "--ray", two.address])
    while len(list(Path("on-ray").glob("cells/*/*/cell.json"))) < cells and run.poll() is None:
        time.sleep(0.1)
    kept = {path: path.read_bytes() for path in Path("on-ray").glob("cells/*/*/cell.json")}
    two.kill_one()
    assert _run(run) == code
    assert {path: path.read_bytes() for path in kept} == kept
    return read_matrix(Path("on-ray")), time.monotonic() - began


def _command(file: str) -> list[str]:
    return [sys.executable, "-m", "edgekit", "matrix", file]


def _run(process: subprocess.Popen[Any]) -> int:
    return process.wait(3000)
