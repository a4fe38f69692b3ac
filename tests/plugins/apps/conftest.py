"""A toy build, and a copy of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.plugins.apps import toy


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.build(tmp_path_factory.mktemp("build") / "toy")


@pytest.fixture
def own(build: Path, tmp_path: Path) -> Path:
    """A copy of the build that a test may change."""
    return Path(shutil.copytree(build, tmp_path / "build" / "toy"))
