"""An ONNX file that answers NaN, on all inputs or on some, and an artifact that does: neither is ever verified."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from tests.command import exit_code
from tests.manifests import resealed

FINE = "y = Tanh(x)"
GRAPHS = {
    "all inputs": "zero = Sub(x, x) y = Div(zero, zero)",
    "most inputs": "much = Constant<value = float {0.99}>() rest = Sub(x, much) root = Sqrt(rest) y = Add(root, x)",
    "inputs that vary": """axis = Constant<value = int64[1] {1}>() mean = ReduceMean(x, axis) off = Sub(x, mean)
        far = Abs(off) below = Neg(far) root = Sqrt(below) y = Add(root, x)""",
    "a batch of one": """rows = Shape<start = 0, end = 1>(x) two = Constant<value = int64 {2}>() rest = Sub(rows, two)
        number = Cast<to = 1>(rest) root = Sqrt(number) y = Add(root, x)""",
    "larger batches": """rows = Shape<start = 0, end = 1>(x) one = Constant<value = int64 {1}>() rest = Sub(one, rows)
        number = Cast<to = 1>(rest) root = Sqrt(number) y = Add(root, x)""",
    "high inputs": """limit = Constant<value = float {2.0}>() rest = Sub(limit, x) root = Sqrt(rest)
        y = Add(root, x)""",
}


def write(path: Path, body: str) -> Path:
    """Write a graph of one output that is always finite, and `y`."""
    text = f"""<ir_version: 9, opset_import: ["" : 18]>
        net (float[batch, 4] x) => (float[batch, 4] fine, float[batch, 4] y) {{ fine = Tanh(x) {body} }}"""
    model = parser.parse_model(text)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("where", [name for name in GRAPHS if name != "high inputs"])
def test_a_model_that_answers_nan_where_it_is_asked_is_not_exported(
    where: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = write(tmp_path / "net.onnx", GRAPHS[where])
    assert exit_code("export", model, "-t", "onnx", "-o", tmp_path / "build") == 2
    assert "'net' itself returns NaN or Inf in 'y'" in capfd.readouterr().err
    assert not list(tmp_path.glob("build/*/onnx"))


def test_a_model_that_answers_nan_on_a_real_input_is_not_exported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = write(tmp_path / "net.onnx", GRAPHS["high inputs"])
    (tmp_path / "data").mkdir()
    for number, value in enumerate((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 3.0)):
        np.savez(tmp_path / "data" / f"{number}.npz", x=np.full((1, 4), value, np.float32))
    assert exit_code("export", model, "--data", tmp_path / "data", "-t", "onnx", "-o", tmp_path / "build") == 2
    assert "'net' itself returns NaN or Inf in 'y' on the evaluation inputs" in capfd.readouterr().err


def test_an_artifact_that_answers_nan_where_the_model_does_not_is_rejected(tmp_path: Path) -> None:
    model = write(tmp_path / "net.onnx", FINE)
    assert exit_code("export", model, "-t", "onnx", "-o", tmp_path / "build") == 0
    artifact = tmp_path / "build" / "net" / "onnx"
    for where in ("most inputs", "larger batches"):
        write(artifact / "model.onnx", GRAPHS[where])
        verdicts = resealed(artifact).verdicts
        assert exit_code("verify", artifact.parent) == 3
        resealed(artifact, verdicts=verdicts)
