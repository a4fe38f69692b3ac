"""A graph that crashes, hangs or fills a runtime is refused in a sentence, through the command that a user types."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from edgekit.errors import ModelError
from edgekit.model.sources.onnx import check_work, spec_of_onnx
from tests.core.hostile.graphs import graphs, write_graphs
from tests.processes import soon
from tests.targets.onnx.passes.graphs import model

SLOW = bool(os.environ.get("EDGEKIT_SLOW"))
SECONDS = 120  # a command that takes longer hangs
EVERY = 1 if SLOW else 12
COMMAND = [sys.executable, "-m", "edgekit", "export", "-t", "onnx"]


@pytest.mark.nightly
def test_each_is_refused_in_a_sentence(tmp_path: Path) -> None:
    paths = write_graphs(tmp_path / "graphs")
    assert len(paths) >= 60
    wrong = []
    for path in paths[::EVERY]:
        done = subprocess.run(
            [*COMMAND, str(path), "-o", str(tmp_path / "build" / path.stem)],
            env=os.environ | {"EDGEKIT_WORKER_GIB": "2"},
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        said = done.stderr.splitlines()[-1] if done.stderr else ""
        sentence = said.startswith("edgekit: ") and 30 < len(said) < 400 and "Traceback" not in done.stderr
        if done.returncode != 2 or not sentence:
            wrong.append((path.stem, done.returncode, said[:300]))
    assert not wrong, "\n".join(map(str, wrong))


def test_a_loop_that_its_own_condition_ends_is_taken() -> None:
    loop = dict(graphs())["loop"]
    body = loop.graph.node[0].attribute[0].g
    body.node[-1].op_type = "Not"
    check_work(loop)
    body.node[-1].op_type = "Identity"
    with pytest.raises(ModelError, match="more than 100000000 nodes"):
        check_work(loop)


def test_functions_are_counted_once_each_and_a_loop_as_often_as_it_says() -> None:
    functions = dict(graphs())["functions"]
    del functions.functions[:5]
    functions.graph.node[0].op_type = "f5"
    with pytest.raises(ModelError):
        check_work(functions)
    functions.graph.node[0].op_type = "f15"
    check_work(functions)  # 2 ** 15 calls


@pytest.mark.nightly
def test_a_process_of_onnx_runtime_ends_with_its_model_and_with_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(model([onnx.helper.make_node("Relu", ["x"], ["y"])], {"x": (1, 2)}, {"y": (1, 2)}, {}), path)
    code = (
        "import sys, torch\nfrom pathlib import Path\nfrom edgekit.model.sources.onnx import spec_of_onnx\n"
        f"spec = spec_of_onnx(Path({str(path)!r}))\nprint(spec.module(torch.ones(1, 2))[0].tolist(), flush=True)\n"
        "if sys.argv[1] == 'kill': import time; time.sleep(60)"
    )
    for end in ("leave", "kill"):
        with subprocess.Popen([sys.executable, "-c", code, end], stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            assert parent.stdout.readline() == "[[1.0, 1.0]]\n"
            if end == "kill":
                parent.kill()
        assert soon(lambda: not any(str(path) in line for line in _command_lines().values()))


def test_a_second_answer_comes_from_the_same_process(tmp_path: Path) -> None:
    import torch

    path = tmp_path / "net.onnx"
    onnx.save(model([onnx.helper.make_node("Relu", ["x"], ["y"])], {"x": (1, 2)}, {"y": (1, 2)}, {}), path)
    spec = spec_of_onnx(path)
    seen = set()
    for value in range(5):
        assert spec.module(torch.full((1, 2), float(value)))[0].tolist() == [[value, value]]
        seen |= {number for number, line in _command_lines().items() if str(path) in line}
    assert len(seen) == 1


def _command_lines() -> dict[str, str]:
    """Of every process that runs, by its number."""
    lines = {}
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines[process.parent.name] = process.read_text()
        except OSError:  # it has ended
            continue
    return lines
