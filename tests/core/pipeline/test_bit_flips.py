"""One flipped bit in any file of a build: `verify` says so, and no runtime gets to see the file.

EDGEKIT_SLOW=1 flips 10,000 bits.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from edgekit import report
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.result import Result
from edgekit.artifact.store import result_of
from edgekit.errors import EdgekitError
from edgekit.pipeline import run
from edgekit.pipeline.context import RunContext
from edgekit.testing import QuietListener
from tests.core.pipeline.small_build import TARGETS, Kept, built

FLIPS = 10_000 if os.environ.get("EDGEKIT_SLOW") else 60  # about two a file
REWRITTEN = ("report.", "run.json", "cache/")
"""What verify writes anew, and what only spares work: no verdict rests on them."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return built(tmp_path_factory.mktemp("flips"))


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The artifacts that reached a runtime; each gets the result that it has."""
    names: list[str] = []

    def evaluate(context: RunContext, name: str, made: Manifest) -> Result:
        names.append(name)
        found = result_of(context.folder(name), made)
        assert found is not None
        return found

    monkeypatch.setattr(run, "evaluate", evaluate)
    monkeypatch.setattr(report, "write_report", lambda root: None)
    return names


def files(root: Path) -> list[Path]:
    named = {path: path.relative_to(root).as_posix() for path in sorted(root.rglob("*")) if path.is_file()}
    return [path for path, name in named.items() if not name.startswith(REWRITTEN)]


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as stream:
        stream.seek(bit // 8)
        byte = stream.read(1)[0]
        stream.seek(bit // 8)
        stream.write(bytes([byte ^ 1 << bit % 8]))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_every_flipped_bit_is_found_before_a_runtime_sees_it(kept: Kept, reached: list[str]) -> None:
    draw = np.random.default_rng(15)
    there = files(kept.root)
    names = {path.relative_to(kept.root).as_posix() for path in there}
    assert names >= {f"{t}/{n}" for t in TARGETS for n in ("manifest.json", "result.json", "scores-cpu.safetensors")}
    assert names >= {"reference/reference.json", "model/config.json", "program/program.json", "program/program.pt2"}
    unseen, most = [], 0
    for number in range(FLIPS):
        path = there[number % len(there)]
        bit = int(draw.integers(8 * path.stat().st_size))
        flip(path, bit)
        reached.clear()
        if not found(kept, path, reached):
            unseen.append((path.relative_to(kept.root).as_posix(), bit))
        flip(path, bit)
        most += 1
    assert unseen == []
    assert most == FLIPS
    assert [outcome.status for outcome in run.verify(kept.root, QuietListener()).outcomes] == ["verified"] * 2


def found(kept: Kept, path: Path, reached: list[str]) -> bool:
    """Whether verify refuses the file, in one sentence, and nothing of it reached a runtime."""
    target = path.relative_to(kept.root).parts[0]
    try:
        outcome = run.verify(kept.root, QuietListener())[target]
    except EdgekitError as error:
        return target not in TARGETS and "\n" not in str(error) and not reached
    said = outcome.status == "failed" and outcome.error and "\n" not in outcome.error
    return bool(said and "xport again" in outcome.error and target not in reached)
