from pathlib import Path

from edgekit.testing import TargetContract
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
