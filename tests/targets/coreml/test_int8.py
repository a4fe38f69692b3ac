from __future__ import annotations

import pytest

from edgekit.testing import TargetContract


@pytest.mark.nightly
class TestCoremlInt8(TargetContract):
    name = "coreml-int8"
    statuses = {"coreml": "not verified here"}  # noqa: RUF012 - the contract's own way
