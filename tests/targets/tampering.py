"""Artifacts of the small model, changed and signed again: the numbers must tell, not the hashes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from edgekit.artifact.store import commit, read_artifact
from edgekit.model.spec import Array
from edgekit.pipeline import run
from edgekit.pipeline.outcome import TargetOutcome
from edgekit.testing import QuietListener, small_model
from tests.builds import without_report

CHANGE = 2.0  # added to one weight of 128; they spread by 0.15


def judged(
    build: Path, target: str, change: Callable[[Path], None], root: Path, trust_build: bool = False
) -> TargetOutcome:
    """Copy a build, change the target's artifact, sign it again, and judge it."""
    for part in ("model", "reference", target):
        shutil.copytree(build / part, root / part)
    manifest = read_artifact(root / target)
    for path in (root / target / "result.json", *(root / target).glob("scores-*")):
        path.unlink()
    change(root / target)
    commit(root / target, manifest)
    with without_report():
        return run.verify(root, QuietListener(), trust_build=trust_build)[target]


def one_weight(file: Path, dtype: str = "float32", name: str = "hidden.bias") -> None:
    """Change one weight of the small model where it lies in a file: a bias, which no format transposes."""
    weights = weights_of(name).astype(dtype)
    data = bytearray(file.read_bytes())
    start = data.find(weights.tobytes())
    assert start >= 0, "the file does not hold the weights as they are"
    changed = weights[:1] + np.asarray(CHANGE, dtype)
    data[start : start + changed.nbytes] = changed.tobytes()
    file.write_bytes(bytes(data))


def cut(file: Path) -> None:
    """The second half of a file is lost."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def weights_of(name: str) -> Array:
    """The values of one parameter of the small model, in a row."""
    values: Array = small_model().module.get_parameter(name).detach().numpy().ravel()
    return values
