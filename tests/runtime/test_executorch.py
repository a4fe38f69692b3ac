from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.artifact.manifest import Manifest, Source
from edgekit.artifact.store import commit
from edgekit.errors import ArtifactError
from edgekit.runtime.executorch import ExecutorchRuntime
from edgekit.storage.files import staging


@pytest.mark.parametrize("content", [b"", b"ET12", b"\0\0\0\0PK12" + b"\0" * 64, b"no program"])
def test_refuses_what_has_no_identifier_of_a_program(content: bytes, tmp_path: Path) -> None:
    """Before the runtime sees a byte: it may end the process."""
    manifest = Manifest(
        name="toy",
        target="executorch",
        precision="fp32",
        entry="model.pte",
        key="",
        source=Source(name="program", sha256=""),
        model_sha256="",
        files=(),
    )
    with staging(tmp_path / "made") as staged:
        (staged / "model.pte").write_bytes(content)
        commit(staged, manifest)
    with pytest.raises(ArtifactError, match="is not an ExecuTorch program"):
        ExecutorchRuntime(tmp_path / "made", "model.pte")
