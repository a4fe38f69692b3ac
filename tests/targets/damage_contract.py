"""What artifacts are held to beside the contract: a wrong weight is rejected, and a file that was cut is a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgekit.testing import TargetContract
from tests.targets import tampering


class DamageContract(TargetContract):
    """The suite of a target whose weights lie in a file as they are.

    Attributes:
        weights: The file.
        place: The place that rejects the artifact.
        named: What its sentence names.
        cut: File -> what is said where its second half is lost.
    """

    weights = ""
    place = ""
    named = ""
    cut: Mapping[str, str] = {}

    def test_one_changed_weight_is_rejected(self, builds: Path, tmp_path: Path) -> None:
        def change(folder: Path) -> None:
            tampering.one_weight(folder / self.weights)

        row = tampering.judged(builds / "small", self.name, change, tmp_path / "small")
        assert row.status == "rejected"
        assert f"{self.place}: " in row.sentences[0]
        assert self.named in " ".join(row.sentences)

    def test_half_a_file_is_a_sentence(self, builds: Path, tmp_path: Path) -> None:
        for number, (file, said) in enumerate(self.cut.items()):

            def change(folder: Path, file: str = file) -> None:
                tampering.cut(folder / file)

            row = tampering.judged(builds / "small", self.name, change, tmp_path / str(number))
            assert row.status == "rejected"
            assert said in row.sentences[0]


class OpenvinoContract(DamageContract):
    """The suite of a target whose artifact is model.xml and model.bin."""

    weights = "model.bin"
    place = "openvino-cpu"
    cut = dict.fromkeys(("model.xml", "model.bin"), "OpenVINO refuses 'model.xml': ")


class CoreaiContract(DamageContract):
    """The suite of a target whose artifact is model.aimodel: half a program ends the worker."""

    statuses = {"coreai": "not verified here"}  # noqa: RUF012 - the contract's own way
    weights = "model.aimodel/main.mlirb"
    place = "coreai-linux"
    cut = {weights: "coreai-linux: the worker process died"}  # noqa: RUF012 - likewise
