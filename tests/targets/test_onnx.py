import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import edgekit
from edgekit.artifact.store import read_artifact
from edgekit.errors import UsageError
from edgekit.testing import SMALL, TargetContract, small_model


class TestOnnx(TargetContract):
    name = "onnx"


def test_fixed_shapes_in_an_old_opset_are_judged_as_they_are(tmp_path: Path) -> None:
    options = {"onnx": {"shapes": "static", "opset": 17}}
    build = edgekit.export(SMALL, targets=["onnx"], options=options, output=tmp_path, progress="none")
    made = read_artifact(build["onnx"].path)
    assert build["onnx"].status == "verified", build["onnx"].sentences
    assert made.static
    graph = onnx.load(build["onnx"].path / "model.onnx")
    assert [(o.domain, o.version) for o in graph.opset_import] == [("", 17)]
    assert graph.ir_version == 8
    assert not {"Shape", "Gelu"} & {node.op_type for node in graph.graph.node}
    sizes = [d.dim_value for value in graph.graph.input for d in value.type.tensor_type.shape.dim]
    assert sizes == [1, 3, 96, 96, 1, 16]
    with edgekit.load(build["onnx"].path) as loaded, pytest.raises(UsageError, match="must be 1"):
        loaded.run(small_model().random(0, {"batch": 2}))


OLD_ANSWER = """
import sys
import numpy, onnxruntime
given = numpy.load(sys.argv[2])
answers = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"]).run(None, dict(given))
numpy.savez(sys.argv[3], *answers)
"""


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="fetches an old ONNX Runtime: set EDGEKIT_SLOW=1")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="ONNX Runtime 1.15 is for Python 3.11: install that")
def test_opset_17_runs_in_an_old_runtime(tmp_path: Path) -> None:
    """The oldest ONNX Runtime that pip installs for this Python, at two batches and sizes."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "old"], check=True)
    python = tmp_path / "old/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "onnxruntime==1.15.0", "numpy<2"], check=True)
    build = edgekit.export(SMALL, targets=["onnx"], options={"onnx": {"opset": 17}}, output=tmp_path, progress="none")
    for number, sizes in enumerate(({}, {"batch": 3, "height": 160, "width": 112})):
        given, answered = tmp_path / f"given{number}.npz", tmp_path / f"answered{number}.npz"
        inputs = small_model().random(number, sizes)
        np.savez(given, **inputs)  # type: ignore[arg-type]  # numpy's own options could have these names
        subprocess.run([python, "-c", OLD_ANSWER, build["onnx"].path / "model.onnx", given, answered], check=True)
        with edgekit.load(build["onnx"].path) as loaded:
            right = loaded.run(inputs)
        old = dict(zip(right, np.load(answered).values(), strict=True))
        for name in ("relevance", "budgets"):
            np.testing.assert_allclose(old[name], right[name], atol=1e-5)
        then, now = (np.take_along_axis(right["relevance"], one["indices"], axis=1) for one in (old, right))
        np.testing.assert_allclose(then, now, atol=1e-5)  # equal scores may come in another order
