from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.artifact.manifest import AxisInfo, Manifest, TensorInfo
from edgekit.artifact.store import commit
from edgekit.errors import ArtifactError, UsageError
from edgekit.storage.files import staging
from edgekit_targets.torchscript.export import TorchScriptRuntime
from tests.manifests import EXPORT, resealed

BATCH = AxisInfo(default=1, minimum=1, maximum=8, multiple_of=1, dynamic=True)
WIDTH = AxisInfo(default=4, minimum=2, maximum=8, multiple_of=2, dynamic=False)


class TwoAnswers(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.add_(1)
        return x + y, torch.argsort(x, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An artifact with both files, of a module that changes its input in place."""
    import warnings

    with warnings.catch_warnings(action="ignore"):
        module = torch.jit.script(TwoAnswers().eval())
        lite = module._save_to_buffer_for_lite_interpreter()  # type: ignore[no-untyped-call]
        full = io.BytesIO()
        torch.jit.save(module, full)
    with staging(tmp_path / "made") as staged:
        (staged / "model.ptl").write_bytes(lite)
        (staged / "model.pt").write_bytes(full.getvalue())
        commit(
            staged,
            Manifest(
                name="toy",
                target="torch-mobile",
                precision="fp32",
                entry="model.ptl",
                export=EXPORT,
                inputs=(
                    TensorInfo(name="x", dtype="float32", shape=("batch", "width")),
                    TensorInfo(name="y", dtype="float32", shape=("batch", "width")),
                ),
                outputs=(TensorInfo(name="sum", dtype="float32"), TensorInfo(name="order", dtype="int64")),
                axes={"batch": BATCH, "width": WIDTH},
                files=(),
            ),
        )
    return tmp_path / "made"


@pytest.mark.parametrize(("entry", "lite"), [("model.ptl", True), ("model.pt", False)])
def test_answers_by_name_and_leaves_inputs_alone(folder: Path, entry: str, lite: bool) -> None:
    runtime = TorchScriptRuntime(folder, entry, lite)
    x = np.array([[3, 1, 2, 0], [0, 1, 2, 3]], np.float32)
    y = np.full((2, 4), 10, np.float32)
    answer = runtime.run({"y": y, "x": np.asfortranarray(x)})
    np.testing.assert_array_equal(answer["sum"], x + 11)
    np.testing.assert_array_equal(answer["order"], [[3, 1, 2, 0], [0, 1, 2, 3]])
    np.testing.assert_array_equal(x, [[3, 1, 2, 0], [0, 1, 2, 3]])
    assert ("lite interpreter" in runtime.device) == lite
    assert "threads" in runtime.device
    runtime.close()


def test_refuses_what_the_artifact_does_not_take(folder: Path) -> None:
    runtime = TorchScriptRuntime(folder, "model.ptl", lite=True)
    good = np.zeros((2, 4), np.float32)
    with pytest.raises(UsageError, match="needs the input 'y'"):
        runtime.run({"x": good})
    with pytest.raises(UsageError, match=r"takes 'y' as \[any, 4\], not \[2, 6\]"):
        runtime.run({"x": good, "y": np.zeros((2, 6), np.float32)})
    with pytest.raises(UsageError, match=r"not \[4\]"):
        runtime.run({"x": good, "y": np.zeros(4, np.float32)})


@pytest.mark.parametrize(("entry", "lite"), [("model.ptl", True), ("model.pt", False)])
def test_refuses_a_file_without_a_program(folder: Path, entry: str, lite: bool) -> None:
    with zipfile.ZipFile(folder / entry, "w") as archive:
        archive.writestr("model/nothing", b"here")
    resealed(folder)
    with pytest.raises(ArtifactError, match=f"PyTorch refuses '.*{entry}'"):
        TorchScriptRuntime(folder, entry, lite)
