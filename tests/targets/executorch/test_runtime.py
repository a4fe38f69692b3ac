from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.artifact.manifest import Manifest
from edgekit.artifact.store import commit
from edgekit.errors import ArtifactError
from edgekit.storage.files import staging
from edgekit_targets.executorch.runtime import WAY_OUT, ExecutorchRuntime, _reason
from tests.manifests import EXPORT


@pytest.mark.parametrize("content", [b"", b"ET12", b"\0\0\0\0PK12" + b"\0" * 64, b"no program"])
def test_refuses_what_has_no_identifier_of_a_program(content: bytes, tmp_path: Path) -> None:
    """Before the runtime sees a byte: it may end the process."""
    manifest = Manifest(name="toy", target="executorch", precision="fp32", entry="model.pte", export=EXPORT, files=())
    with staging(tmp_path / "made") as staged:
        (staged / "model.pte").write_bytes(content)
        commit(staged, manifest)
    with pytest.raises(ArtifactError, match="is not an ExecuTorch program"):
        ExecutorchRuntime(tmp_path / "made", "model.pte")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "[tensor_impl.cpp:135] Attempted to resize a static tensor. Expected (2, 2), but received (1, 2).\n"
            "[op_full.cpp:30] Check failed (a == b): Failed to resize output tensor.\n"
            "[method.cpp:1480] KernelCall failed at instruction 0:1 in operator aten::full.out: 0x12\n",
            " in the operator 'aten::full': Attempted to resize a static tensor. Expected (2, 2), but received (1, 2)",
        ),
        (
            "[XNNExecutor.cpp:169] Internal Error: Propagating input shapes failed with code: invalid\n"
            "[method.cpp:1525] CALL_DELEGATE execute failed at instruction 0: 0x1\n",
            " in XNNPACK: Internal Error: Propagating input shapes failed with code: invalid",
        ),
        ("[op_x.cpp:3] Check failed (f(a, b)): the sizes differ.\n", ": the sizes differ"),
        ("a line of nobody\n", ": method->execute() failed with error 0x12"),
        ("", ": method->execute() failed with error 0x12"),
    ],
)
def test_the_runtimes_own_lines_say_what_its_error_leaves_out(said: str, told: str) -> None:
    error = RuntimeError("method->execute() failed with error 0x12\nmore")
    assert _reason(said, error) == f"{told}. {WAY_OUT}"
