"""A program on disk: what becomes of it where the disk has no room."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FULL = """
import resource, sys
from pathlib import Path
import torch
from edgekit.model.program import Capture, save_program
from edgekit.model.spec import Input, ModelSpec, Output

net = torch.nn.Linear(300, 300).eval()
program = Capture(ModelSpec("net", net, (Input("x", (1, 300)),), (Output("y"),))).program()
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    save_program(program, Path(sys.argv[1]), "")
except OSError as error:
    print(error.strerror)
"""


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path / "program")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "File too large\n"), done.stderr[-500:]
    assert not list(tmp_path.iterdir())
