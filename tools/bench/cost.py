"""What an export costs beside plain tools: processor time and peak memory of all processes, in turn.

    python -m tools.bench.cost line-0 encoder-25 encoder-108 cnn-25

A model is KIND-MILLIONS, of `tools.bench.cost_models`. edgekit: `export model:make -t onnx` into a new folder. Plain:
`torch.onnx.export` with a dynamic batch, and one input in ONNX Runtime beside the module. Memory is the largest
proportional set size of the tree, sampled. Set OMP_WAIT_POLICY=PASSIVE on a shared host: idle threads then take no
processor time.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from edgekit.cli.console import print_table

PR_SET_CHILD_SUBREAPER = 36
SAMPLED = 0.1
"""Seconds between two samples of memory."""
MODEL = """
from tools.bench import cost_models

def make():
    return cost_models.{kind}({millions})
"""
PLAIN = """
import numpy as np
import onnxruntime
import torch
from tools.bench import cost_models
from model import make

module, x = make(), cost_models.example("{kind}", {millions})
batch = ({{0: torch.export.Dim.AUTO}},)
torch.onnx.export(module, (torch.cat([x, x]),), "plain.onnx", dynamo=True, verbose=False, dynamic_shapes=batch)
session = onnxruntime.InferenceSession("plain.onnx")
answer = session.run(None, {{session.get_inputs()[0].name: x.numpy()}})[0]
with torch.no_grad():
    np.testing.assert_allclose(answer, module(x).numpy(), rtol=1e-3, atol=1e-4)
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="KIND-MILLIONS")
    parser.add_argument("--target", action="append", default=[], help="targets; onnx by default")
    parser.add_argument("--rounds", type=int, default=1)
    chosen = parser.parse_args()
    # Linux's prctl(2): processes below this one that lose their parent become its children.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    heads = ("model", "MB of weights", "command", "processor s", "times", "peak GB", "times weights", "times plain")
    rows = []
    for name in chosen.models:
        for _ in range(chosen.rounds):
            rows += measure(name, chosen.target or ["onnx"])
    print_table(heads, rows)


def measure(name: str, targets: list[str]) -> list[tuple[str, ...]]:
    """Return the rows of one model: plain tools, edgekit, edgekit again without a change, and `verify`."""
    kind, _, millions = name.partition("-")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "model.py").write_text(MODEL.format(kind=kind, millions=millions))
        (place / "plain.py").write_text(PLAIN.format(kind=kind, millions=millions))
        named = [word for target in targets for word in ("-t", target)]
        facts = [*_facts(kind, int(millions)), "--name", kind, "-o", str(place / "build")]
        edgekit = [sys.executable, "-m", "edgekit"]
        commands = {
            "plain": [sys.executable, "plain.py"],
            "export": [*edgekit, "export", "model:make", *facts, *named],
            "unchanged": [*edgekit, "export", "model:make", *facts, *named],
            "verify": [*edgekit, "verify", "--trust-build", str(place / "build" / kind)],
        }
        spent = {command: run(words, place) for command, words in commands.items()}
        weights = (place / "build" / kind / "model" / "model.safetensors").stat().st_size
    plain = spent["plain"]
    return [
        (
            *(name, f"{weights / 1e6:.1f}", command, f"{seconds:.1f}", f"{seconds / plain[0]:.2f}"),
            *(f"{peak / 1e9:.2f}", f"{peak / weights:.1f}", f"{peak / plain[1]:.2f}"),
        )
        for command, (seconds, peak) in spent.items()
    ]


def run(command: list[str], folder: Path) -> tuple[float, int]:
    """Return the processor seconds of a command and of all that it started, and their peak memory in bytes.

    Raises:
        SystemExit: If it fails.
    """
    here = os.pathsep.join([str(folder), str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": here}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
        peak = 0
        while process.poll() is None:
            peak = max(peak, sum(map(_proportional, _tree(process.pid))))
            time.sleep(SAMPLED)
    if process.returncode not in (0, 3):
        raise SystemExit((folder / "output").read_text())
    # A process whose parent ended before it comes here, so that its time counts.
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, 0):
            pass
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, peak


def _facts(kind: str, millions: int) -> list[str]:
    from tools.bench import cost_models

    x = cost_models.example(kind, millions)
    shape = ",".join(map(str, x.shape))
    name = "ids" if kind == "encoder" else "input"
    dtype = f",dtype=int64,range=0..{cost_models.VOCABULARY - 1}" if kind == "encoder" else ""
    return ["--inputs", f"{name}:shape={shape}{dtype}", "--axes", f"{name}:0=batch:1..8"]


def _tree(process: int) -> list[int]:
    """Return a process and all processes below it."""
    processes = [process]
    try:
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text().split():
                processes += _tree(int(child))
    except OSError:
        # It has ended.
        pass
    return processes


def _proportional(process: int) -> int:
    """Return the proportional set size of a process in bytes: pages that several use are divided among them."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


if __name__ == "__main__":
    main()
