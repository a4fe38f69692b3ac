"""A recurrent state in and out, and answers in a dataclass, in the formats that carry them."""

from __future__ import annotations

from pathlib import Path

import pytest

import edgekit
from edgekit import registry


@pytest.mark.parametrize("factory", ["recurrent", "record"])
def test_states_and_named_answers_are_carried(factory: str, tmp_path: Path) -> None:
    if missing := registry.missing(registry.find("executorch")):
        pytest.skip(f"needs {missing[0].module}: {missing[0].install}")
    wanted = ["torchscript", "executorch"]
    build = edgekit.export(f"tests.modules:{factory}", targets=wanted, output=tmp_path, progress="none")
    assert {o.target: o.status for o in build.outcomes} == dict.fromkeys(wanted, "verified"), [
        o.sentences for o in build.outcomes
    ]
