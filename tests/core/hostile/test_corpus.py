"""Every hostile file is refused in a sentence, quickly, in little memory, and touches nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgekit.errors import EdgekitError
from tests.core.hostile.corpus import READERS, write_corpus

SLOW = bool(os.environ.get("EDGEKIT_SLOW"))
SECONDS, BYTES = 20.0, 300 << 20
READ = """
import json, resource, sys, time
from pathlib import Path
from tests.core.hostile import corpus
from edgekit.errors import EdgekitError
import torch, onnx, PIL.Image, safetensors.torch
kilobytes = lambda: int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1])
for line in sys.stdin:
    kind, path = json.loads(line)
    Path("/proc/self/clear_refs").write_text("5")
    before, began = kilobytes(), time.process_time()
    try:
        corpus.READERS[kind](Path(path))
        said = "ACCEPTED"
    except EdgekitError as error:
        said = str(error)
    except BaseException as error:
        said = f"ESCAPED {error!r}"
    print(json.dumps([said, time.process_time() - began, (kilobytes() - before) << 10]), flush=True)
"""


def _read(files: list[tuple[str, Path]], folder: Path, before: tuple[str, ...] = ()) -> list[tuple[str, float, int]]:
    asked = "".join(json.dumps([kind, str(path)]) + "\n" for kind, path in files)
    done = subprocess.run(
        [*before, sys.executable, "-P", "-c", READ],
        input=asked,
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc: install Linux")
def test_each_is_refused_in_a_sentence_within_its_limits(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    files = write_corpus(tmp_path / "corpus")
    assert len(files) >= 300
    files = files if SLOW else files[::3]
    answers = _read(files, work)
    assert len(answers) == len(files)
    wrong = []
    for (kind, path), (said, seconds, size) in zip(files, answers, strict=True):
        sentence = "\n" not in said and 20 < len(said) < 1000 and not said.startswith(("ACCEPTED", "ESCAPED"))
        if not sentence or seconds > SECONDS or size > BYTES:
            wrong.append((kind, path.relative_to(tmp_path), said[:300], round(seconds, 2), size >> 20))
    assert not wrong, "\n".join(map(str, wrong))
    assert list(work.iterdir()) == []


@pytest.mark.skipif(not SLOW, reason="takes a minute: set EDGEKIT_SLOW=1")
@pytest.mark.skipif(not shutil.which("strace"), reason="no 'strace' on PATH: apt-get install strace")
def test_nothing_else_is_read_or_written(tmp_path: Path) -> None:
    work, log = tmp_path / "work", tmp_path / "log"
    work.mkdir()
    files = write_corpus(tmp_path / "corpus")[::5]
    for kind in READERS:
        assert any(k == kind for k, _ in files)
    before = _opened(_traced([], work, log))
    after = _opened(_traced(files, work, log))
    corpus = str(tmp_path / "corpus")
    libraries = tuple(str(Path(p).resolve()) for p in (*sys.path, sys.prefix, sys.base_prefix) if p)
    others = {(path, mode) for path, mode in after - before if not path.startswith((corpus, "/proc/self/"))}
    written = {path for path, mode in after - before if mode == "write" and not path.startswith("/proc/self/")}
    assert written == set()
    assert {path for path, _ in others if not path.startswith((*libraries, "/usr", "/lib", "/sys", "/proc/"))} == set()
    assert not {path for path, _ in others} & {"/etc/passwd", "/dev/zero", "/proc/self/mem"}
    assert not any("execve(" in line for line in log.read_text().splitlines()[1:])


def _traced(files: list[tuple[str, Path]], work: Path, log: Path) -> str:
    _read(
        files,
        work,
        ("strace", "-f", "-qq", "-e", "trace=open,openat,creat,unlink,rename,mkdir,execve,connect", "-o", str(log)),
    )
    return log.read_text()


def _opened(trace: str) -> set[tuple[str, str]]:
    found = set()
    for line in trace.splitlines():
        if "connect(" in line:
            found.add((line.partition("connect(")[2], "write"))
        if "ENOENT" in line or '"' not in line or "execve(" in line:
            continue
        path = line.split('"')[1]
        writes = any(word in line for word in ("O_WRONLY", "O_RDWR", "O_CREAT", "creat(", "unlink", "rename", "mkdir"))
        if path.startswith("/") and path != "/dev/null":
            found.add((path, "write" if writes else "read"))
    return found


def test_a_good_file_of_each_kind_is_taken(tmp_path: Path) -> None:
    """Else a reader that refuses everything would pass."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper
    from PIL import Image
    from safetensors.numpy import save_file

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    typed = helper.make_tensor("typed", TensorProto.FLOAT16, [3], [1.0, 2.0, 3.0])
    texts = helper.make_tensor("texts", TensorProto.STRING, [2], [b"a", b""])  # type: ignore[list-item]  # onnx takes bytes
    for array in (np.ones((3, 4), np.float32), np.zeros((0, 4), np.int64), np.ones(5, bool), np.array(2.0)):
        held = [onnx.numpy_helper.from_array(array, "held"), typed, texts]
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y], held)
        onnx.save(helper.make_model(graph), tmp_path / "good.onnx")
        READERS["onnx"](tmp_path / "good.onnx")
    Image.new("RGB", (32, 32)).save(tmp_path / "good.png")
    READERS["image"](tmp_path / "good.png")
    np.save(tmp_path / "rows.npy", np.zeros((8, 4), np.float32))
    READERS["rows"](tmp_path / "rows.npy")
    save_file({"w": np.ones(4, np.float32)}, tmp_path / "good.safetensors")
    READERS["checkpoint"](tmp_path / "good.safetensors")


def test_the_bomb_is_small(tmp_path: Path) -> None:
    """79 kB of PNG that would take 75 MB for its pixels and four times as much for the floats."""
    bombs = [p for kind, p in write_corpus(tmp_path) if kind == "image" and p.stat().st_size > 50_000]
    assert bombs
    began = time.process_time()
    with pytest.raises(EdgekitError, match=r"it has 5000 x 5000 pixels, and at most 24000000"):
        READERS["image"](bombs[0])
    assert time.process_time() - began < SECONDS
