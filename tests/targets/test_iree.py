from __future__ import annotations

from edgekit.testing import TargetContract


class TestIree(TargetContract):
    name = "iree"
