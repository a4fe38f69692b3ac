"""What every artifact of OpenVINO is held to beside the contract: a wrong weight, and files that were cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.testing import TargetContract
from tests.targets import tampering


class OpenvinoContract(TargetContract):
    """The suite of a target whose artifact is model.xml and model.bin."""

    named = ""
    """What the sentence of a rejected artifact names."""

    def test_one_changed_weight_is_rejected(self, builds: Path, tmp_path: Path) -> None:
        row = tampering.judged(
            builds / "small", self.name, lambda folder: tampering.one_weight(folder / "model.bin"), tmp_path / "small"
        )
        assert row.status == "rejected"
        assert "openvino-cpu: " in row.sentences[0]
        assert self.named in row.sentences[0]

    @pytest.mark.parametrize("file", ["model.xml", "model.bin"])
    def test_half_a_file_is_a_sentence(self, file: str, builds: Path, tmp_path: Path) -> None:
        row = tampering.judged(
            builds / "small", self.name, lambda folder: tampering.cut(folder / file), tmp_path / "small"
        )
        assert row.status == "rejected"
        assert "OpenVINO refuses 'model.xml': " in row.sentences[0]
