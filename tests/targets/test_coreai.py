import os
from pathlib import Path

import pytest

import edgekit
from edgekit import registry
from edgekit.artifact.store import read_artifact
from edgekit.testing import TargetContract
from edgekit.testing.models import SMALL
from tests.targets import tampering


class TestCoreai(TargetContract):
    name = "coreai"
    statuses = {"coreai": "not verified here"}  # noqa: RUF012 - the contract's own way

    def test_one_changed_weight_is_rejected(self, builds: Path, tmp_path: Path) -> None:
        program = "model.aimodel/main.mlirb"
        row = tampering.judged(
            builds / "small", self.name, lambda folder: tampering.one_weight(folder / program), tmp_path / "small"
        )
        assert row.status == "rejected"
        assert "coreai-linux: " in row.sentences[0]
        assert "'relevance'" in row.sentences[0]

    def test_half_a_file_ends_the_worker_and_is_a_sentence(self, builds: Path, tmp_path: Path) -> None:
        program = "model.aimodel/main.mlirb"
        row = tampering.judged(
            builds / "small", self.name, lambda folder: tampering.cut(folder / program), tmp_path / "small"
        )
        assert row.status == "rejected"
        assert row.sentences[0].startswith("coreai-linux: the worker process died")


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes a minute: set EDGEKIT_SLOW=1")
def test_fp16_is_judged_by_its_own_limits(tmp_path: Path) -> None:
    """Everything in fp16, the last product too, costs the small model 0.0146 in a score: beyond fp16's 0.01."""
    if missing := registry.missing(registry.find("coreai")):
        pytest.skip(f"needs {missing[0].module}: {missing[0].install}")
    options = {"coreai": {"precision": "fp16"}}
    build = edgekit.export(SMALL, targets=["coreai"], output=tmp_path, options=options, progress="none")
    made = read_artifact(build["coreai"].path)
    assert made.precision == "fp16"
    assert [verdict.status for verdict in made.verdicts] == ["rejected", "not verified here"]
    assert "'relevance'" in made.verdicts[0].reason
    assert "must be at most 0.01 " in made.verdicts[0].reason
