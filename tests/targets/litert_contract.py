"""What every artifact of LiteRT is held to beside the contract: a wrong weight, and files that were damaged."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit import registry
from edgekit.testing import TargetContract
from tests.targets import tampering


def cut(file: Path) -> None:
    """All but the first 200 bytes are lost: a header that points behind the end of the file."""
    file.write_bytes(file.read_bytes()[:200])


def torn(file: Path) -> None:
    """The tables that say where everything is are overwritten."""
    whole = file.read_bytes()
    file.write_bytes(whole[:8] + bytes(byte ^ 0x5A for byte in whole[8:400]) + whole[400:])


def text(file: Path) -> None:
    """Another file."""
    file.write_bytes(b"no model at all")


class LitertContract(TargetContract):
    """The suite of a target whose artifact is model.tflite."""

    @pytest.fixture(scope="class")
    @classmethod
    def builds(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        if missing := registry.missing(registry.find(cls.name)):
            pytest.skip(f"needs {missing[0].module}: {missing[0].install}")
        if not os.environ.get("EDGEKIT_SLOW"):
            pytest.skip("takes a minute: set EDGEKIT_SLOW=1")
        folder = tmp_path_factory.mktemp(cls.name)
        cls._export(folder)
        return folder

    def test_one_changed_weight_is_rejected(self, builds: Path, tmp_path: Path) -> None:
        def change(folder: Path) -> None:
            tampering.one_weight(folder / "model.tflite", name="patches.bias")  # others are folded into layers

        row = tampering.judged(builds / "small", self.name, change, tmp_path / "small")
        assert row.status == "rejected"
        assert row.sentences[0].startswith("litert-cpu: found@8 drop is")

    @pytest.mark.parametrize("damage", [cut, torn, text])
    def test_a_damaged_file_is_a_sentence(self, damage: Callable[[Path], None], builds: Path, tmp_path: Path) -> None:
        row = tampering.judged(
            builds / "small", self.name, lambda folder: damage(folder / "model.tflite"), tmp_path / "small"
        )
        assert row.status == "rejected"
        assert "LiteRT" in row.sentences[0]
