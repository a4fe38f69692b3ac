"""The exam of formats made from PyTorch: a module's faults are caught in them, and sound modules pass."""

from __future__ import annotations

import pytest

from tools.exam.case import CLEAN
from tools.exam.formats import SHARE, ModuleFault, drawn, judged
from tools.exam.sitting import ROOT, Room
from tools.exam.table import CAUGHT, PASSED, outcome


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    return Room(tmp_path_factory.mktemp("formats"), targets=("onnx", "openvino"))


@pytest.mark.nightly
def test_a_broken_module_is_rejected_and_a_sound_one_verified(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openvino")
    monkeypatch.syspath_prepend(str(ROOT))
    room.built("embedding")
    paper = room.paper("embedding", "onnx")
    chosen = {fault.kind: fault for fault in drawn(paper)}
    assert set(chosen) == set(SHARE)
    faults = (ModuleFault(CLEAN, "exported again", lambda m: m), chosen["outputs"], chosen["conditions"])
    found = [
        outcome(case, said).word for fault in faults for _, case, said in judged(room, paper, fault, ["openvino"], [])
    ]
    assert found == [PASSED, CAUGHT, CAUGHT]
