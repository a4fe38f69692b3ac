import os
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit import registry
from edgekit.artifact.store import read_artifact
from edgekit.errors import UsageError
from edgekit.model.shapes import fixed_sizes
from edgekit.testing import small_model
from edgekit.testing.models import SMALL
from edgekit_targets.coreai import int8 as coreai_int8
from tests.targets import tampering
from tests.targets.damage_contract import CoreaiContract

PROGRAM = CoreaiContract.weights


@pytest.mark.nightly
class TestCoreaiInt8(CoreaiContract):
    name = "coreai-int8"

    def test_weights_have_eight_bits(self, builds: Path) -> None:
        weights = tampering.weights_of("hidden.weight").reshape(128, 32)
        held = np.round(weights / (np.abs(weights).max(axis=1, keepdims=True) / np.float32(127))).astype(np.int8)
        data = (builds / "small" / self.name / PROGRAM).read_bytes()
        assert weights.tobytes() not in data
        assert data.find(held.tobytes()) >= 0


@pytest.mark.nightly
def test_a_palette_at_one_size_is_proved_and_a_change_of_its_table_is_rejected(build: Path, tmp_path: Path) -> None:
    if missing := registry.missing(registry.find("coreai-int8")):
        pytest.skip(f"needs {missing[0].module}: {missing[0].install}")
    options = {"coreai-int8": {"weights": "palette8", "shapes": "static"}}
    found = edgekit.export(SMALL, targets=["coreai-int8"], output=build.parent, options=options, progress="none")
    made = read_artifact(found["coreai-int8"].path)
    assert [verdict.status for verdict in made.verdicts] == ["verified", "not verified here"]
    assert [name for name, axis in made.axes.items() if axis.dynamic] == []
    assert "indices of 8 bits" in made.notes[0]
    values = coreai_int8.table(tampering.weights_of("hidden.weight").reshape(128, 32)[:32], 256)

    def spoil(folder: Path) -> None:
        path = folder / PROGRAM
        data = path.read_bytes()
        assert data.count(values.tobytes()) == 1
        path.write_bytes(data.replace(values.tobytes(), (values * np.float32(1.5)).tobytes()))

    row = tampering.judged(build, "coreai-int8", spoil, tmp_path / "spoilt" / "small")
    assert row.status == "rejected"
    assert row.sentences[0].startswith("coreai-linux: ")


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="exports one more model: set EDGEKIT_SLOW=1")
def test_enumerated_sizes_are_proved(tmp_path: Path) -> None:
    if missing := registry.missing(registry.find("coreai-int8")):
        pytest.skip(f"needs {missing[0].module}: {missing[0].install}")
    options = {"coreai-int8": {"shapes": "enumerated"}}
    build = edgekit.export(SMALL, targets=["coreai-int8"], output=tmp_path, options=options, progress="none")
    made = read_artifact(build["coreai-int8"].path)
    assert [verdict.status for verdict in made.verdicts] == ["verified", "not verified here"]
    assert made.sizes == fixed_sizes(small_model().axes)
    assert {shape["height"] for shape in made.verdicts[0].proof} == {size["height"] for size in made.sizes}


def test_a_palette_of_unknown_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="palette5"):
        edgekit.export(
            SMALL, targets=["coreai-int8"], output=tmp_path, options={"coreai-int8": {"weights": "palette5"}}
        )
    assert list(tmp_path.iterdir()) == []
