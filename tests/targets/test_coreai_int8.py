from pathlib import Path

import numpy as np

from edgekit.testing import TargetContract
from tests.targets import tampering

PROGRAM = "model.aimodel/main.mlirb"


class TestCoreaiInt8(TargetContract):
    name = "coreai-int8"
    statuses = {"coreai": "not verified here"}  # noqa: RUF012 - the contract's own way

    def test_weights_have_eight_bits(self, builds: Path) -> None:
        weights = tampering.weights_of("hidden.weight").reshape(128, 32)
        held = np.round(weights / (np.abs(weights).max(axis=1, keepdims=True) / np.float32(127))).astype(np.int8)
        data = (builds / "small" / self.name / PROGRAM).read_bytes()
        assert weights.tobytes() not in data
        assert data.find(held.tobytes()) >= 0

    def test_one_changed_weight_is_rejected(self, builds: Path, tmp_path: Path) -> None:
        row = tampering.judged(
            builds / "small", self.name, lambda folder: tampering.one_weight(folder / PROGRAM), tmp_path / "small"
        )
        assert row.status == "rejected"
        assert "coreai-linux: " in row.sentences[0]

    def test_half_a_file_ends_the_worker_and_is_a_sentence(self, builds: Path, tmp_path: Path) -> None:
        row = tampering.judged(
            builds / "small", self.name, lambda folder: tampering.cut(folder / PROGRAM), tmp_path / "small"
        )
        assert row.status == "rejected"
        assert row.sentences[0].startswith("coreai-linux: the worker process died")
