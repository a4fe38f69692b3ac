"""No input makes a reader fail in another way than by a sentence: a minute of fuzzing each, in the nightly mode."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

from edgekit.storage.files import dump_json
from tests.hostile.corpus import write_corpus

KINDS = {"manifest": "manifest", "result": "result", "imported": "result", "checkpoint": "checkpoint", "onnx": "onnx"}
"""What is fuzzed, and the kind of hostile files that it starts from."""
SECONDS = 60


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes minutes: set EDGEKIT_SLOW=1")
@pytest.mark.skipif(util.find_spec("atheris") is None, reason="no atheris: pip install atheris")
@pytest.mark.parametrize("kind", [*KINDS, "reference"])
def test_whatever_is_read_is_taken_or_refused(kind: str, tmp_path: Path) -> None:
    seeds = tmp_path / "seeds"
    seeds.mkdir()
    for number, (of, path) in enumerate(write_corpus(tmp_path / "corpus")):
        if of == KINDS.get(kind) and path.stat().st_size < 1 << 16:
            (seeds / str(number)).write_bytes(path.read_bytes())
    told = {"device": "a", "noise": {"a": {"b": 1.0}}, "latency": {"batch1": {"e": 1}}}
    (seeds / "reference").write_text(dump_json(told))
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.fuzz", kind, seeds, f"-max_total_time={SECONDS}", "-rss_limit_mb=4096"],
        capture_output=True,
        text=True,
        errors="replace",
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "Done" in done.stderr
