"""The C++ programs answer an artifact's golden vectors, and say so where an artifact is wrong."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from edgekit.testing.contract import small_build
from tests.targets import tampering

CPP = Path(__file__).parents[2] / "examples" / "cpp"
LACKING = [tool for tool in ("cmake", "make", "g++") if shutil.which(tool) is None]
pytestmark = pytest.mark.skipif(bool(LACKING), reason=f"apt-get install {' '.join(LACKING)}")


def golden_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cpp_golden", CPP / "golden.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_onnx_runtime_answers_and_refuses_a_changed_weight(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    build = small_build(tmp_path_factory.getbasetemp(), ("onnx",))
    golden_script().write(build, tmp_path / "golden", ["onnx"])
    programs = tmp_path / "programs"
    settings = [f"-DPYTHON={sys.executable}", "-DPROGRAMS=onnxruntime"]
    subprocess.run(["cmake", "-S", CPP, "-B", programs, *settings], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", programs], check=True, capture_output=True)

    def run(artifact: Path) -> tuple[int, str]:
        command = [programs / "onnxruntime", artifact, tmp_path / "golden"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, said = run(build / "onnx")
    assert (code, said.splitlines()[-1]) == (0, "3 rows of onnx: passed")
    shutil.copytree(build / "onnx", tmp_path / "onnx")
    tampering.one_weight(tmp_path / "onnx" / "model.onnx")
    code, said = run(tmp_path / "onnx")
    assert code == 1
    assert "FAILED   relevance" in said
    tampering.cut(tmp_path / "onnx" / "model.onnx")
    code, said = run(tmp_path / "onnx")
    assert (code, said[:14]) == (2, "ONNX Runtime: ")


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes minutes: set EDGEKIT_SLOW=1")
def test_the_lines_of_the_readme_pass(tmp_path: Path) -> None:
    shutil.copytree(CPP, tmp_path / "cpp", ignore=shutil.ignore_patterns("build"))
    command = ["make", "-C", str(tmp_path / "cpp"), "test", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for target in ("onnx", "openvino", "torchscript", "aoti"):
        assert f"3 rows of {target}: passed" in done.stdout
