from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

import edgekit
from edgekit.artifact.store import read_artifact
from edgekit.errors import UsageError
from edgekit.testing import small_model
from tests.targets.litert.contract import LitertContract


class TestLitert(LitertContract):
    name = "litert"

    def test_says_what_it_is_and_what_made_it(self, builds: Path) -> None:
        made = read_artifact(builds / "small" / self.name)
        assert made.static
        assert {"litert-torch", "ai-edge-litert", "torch"} <= set(made.export.tools)
        with zipfile.ZipFile(builds / "small" / self.name / made.entry) as behind:
            facts = json.loads(behind.read("edgekit.json"))
        assert facts["preprocessing"] == "; ".join(i.preprocessing for i in small_model().inputs)

    def test_a_size_that_is_fixed_is_refused(self, builds: Path) -> None:
        spec = small_model()
        with (
            edgekit.load(builds / "small" / self.name) as loaded,
            pytest.raises(UsageError, match="Axis 'batch' of 'small' must be 1"),
        ):
            loaded.run(spec.random(0, {"batch": 2}))
