"""A recurrent state in and out, and answers in a dataclass, in the formats that carry them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import edgekit
from edgekit import registry

SLOW = pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes 20 seconds: set EDGEKIT_SLOW=1")


@pytest.mark.parametrize("factory", ["recurrent", pytest.param("record", marks=SLOW)])
def test_states_and_named_answers_are_carried(factory: str, tmp_path: Path) -> None:
    if missing := registry.missing(registry.find("executorch")):
        pytest.skip(f"needs {missing[0].module}: {missing[0].install}")
    wanted = ["torchscript", "executorch"]
    build = edgekit.export(f"tests.modules:{factory}", targets=wanted, output=tmp_path, progress="none")
    assert {o.target: o.status for o in build.outcomes} == dict.fromkeys(wanted, "verified"), [
        o.sentences for o in build.outcomes
    ]
