"""Workers are forked from a process that has imported ExecuTorch: ten seconds, which each export would take alone."""

import pytest

from edgekit.hosts import fork_server
from edgekit.pipeline.worker import EXPORT_MODULES


@pytest.fixture(scope="package", autouse=True)
def executorch_in_the_fork_server() -> None:
    fork_server.prepare([*EXPORT_MODULES, "executorch.backends.xnnpack.partition.xnnpack_partitioner"])
