"""No input makes a reader fail in another way than by a sentence: a minute of fuzzing each, in the nightly mode."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from edgekit.storage.files import dump_json
from tests.core.hostile.corpus import write_corpus

KINDS = {"manifest": "manifest", "result": "result", "imported": "result", "checkpoint": "checkpoint", "onnx": "onnx"}
"""What is fuzzed, and the kind of hostile files that it starts from."""
PACKAGED = {
    "coreml-manifest": "Manifest.json",
    "coreml-model": "Data/com.apple.CoreML/model.mlmodel",
    "coreml-weights": "Data/com.apple.CoreML/weights/weight.bin",
}
"""Which file of a Core ML package is fuzzed."""
SECONDS = 60
ROOT = Path(__file__).parents[3]


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
    _fuzz(kind, seeds, tmp_path)


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes minutes: set EDGEKIT_SLOW=1")
@pytest.mark.skipif(util.find_spec("atheris") is None, reason="no atheris: pip install atheris")
@pytest.mark.skipif(util.find_spec("coremltools") is None, reason="no coremltools: pip install -e '.[coreml]'")
@pytest.mark.parametrize("kind", PACKAGED)
def test_whatever_is_in_a_core_ml_package_is_taken_or_refused(kind: str, tmp_path: Path) -> None:
    seeds = tmp_path / "seeds"
    seeds.mkdir()
    whole = _package(tmp_path)
    shutil.copyfile(whole / PACKAGED[kind], seeds / "whole")
    _fuzz(kind, seeds, tmp_path, EDGEKIT_FUZZ_FOLDER=str(whole))


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes minutes: set EDGEKIT_SLOW=1")
@pytest.mark.skipif(not (ROOT / "web/node_modules").is_dir(), reason="no npm packages: npm ci --ignore-scripts in web/")
def test_whatever_the_browser_reads_is_taken_or_refused() -> None:
    """`tests/web/test_typescript.py` runs half a second of it."""
    asked = ["npx", "vitest", "run", "tests/manifest_mutations.test.ts"]
    env = os.environ | {"EDGEKIT_FUZZ_SECONDS": str(SECONDS), "EDGEKIT_FUZZ_SEED": str(os.getpid())}
    done = subprocess.run(asked, cwd=ROOT / "web", env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def _package(folder: Path) -> Path:
    """A Core ML package of two operators and a weight."""
    import numpy as np

    from tests.mil_interpreter.programs import Saved  # imports coremltools without its warnings

    def layer(given: Mapping[str, Any]) -> Any:
        from coremltools.converters.mil.mil import Builder

        weight = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)
        return Builder.softmax(x=Builder.linear(x=given["x"], weight=weight))

    return Saved(folder).save({"x": np.ones((2, 4), np.float32)}, layer)


def _fuzz(kind: str, seeds: Path, folder: Path, **more: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.core.hostile.fuzz",
            kind,
            seeds,
            f"-max_total_time={SECONDS}",
            "-rss_limit_mb=4096",
        ],
        capture_output=True,
        text=True,
        errors="replace",
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)} | more,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "Done" in done.stderr
