from __future__ import annotations

from edgekit.testing import TargetContract


class TestCoremlInt8(TargetContract):
    name = "coreml-int8"
    statuses = {"coreml": "not verified here"}  # noqa: RUF012 - the contract's own way
