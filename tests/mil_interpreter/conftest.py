"""What the tests of the interpreter share."""

from __future__ import annotations

import pytest

from tests.mil_interpreter.programs import Saved


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(tmp_path_factory.mktemp("programs"))
