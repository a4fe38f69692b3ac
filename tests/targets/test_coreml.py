from __future__ import annotations

from edgekit.testing import TargetContract


class TestCoreml(TargetContract):
    name = "coreml"
    statuses = {"coreml": "not verified here"}  # noqa: RUF012
