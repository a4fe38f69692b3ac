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
@pytest.mark.parametrize("changed", [False, True], ids=["as it is", "one weight changed"])
def test_fp16_is_judged_by_its_own_limits(changed: bool, half: Path, tmp_path: Path) -> None:
    def change(folder: Path) -> None:
        if changed:
            tampering.one_weight(folder / "model.aimodel/main.mlirb", "float16")

    row = tampering.judged(half, "coreai", change, tmp_path / "small")
    linux, device = read_artifact(tmp_path / "small" / "coreai").verdicts
    assert (linux.status, device.status) == ("rejected" if changed else "verified", "not verified here")
    assert read_artifact(tmp_path / "small" / "coreai").precision == "fp16"
    assert not changed or "'relevance'" in row.sentences[0]


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model's build with Core AI in fp16."""
    if missing := registry.missing(registry.find("coreai")):
        pytest.skip(f"needs {missing[0].module}: {missing[0].install}")
    folder = tmp_path_factory.mktemp("half")
    edgekit.export(SMALL, targets=["coreai"], output=folder, options={"coreai": {"precision": "fp16"}}, progress="none")
    return folder / "small"
