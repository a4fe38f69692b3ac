"""IREE modules: names and processor are checked before code runs, and a graph that IREE lacks is a sentence."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper
from torch import nn

import edgekit
from edgekit import Axis, Input, ModelSpec, Output
from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, NotVerifiedHere, UsageError
from edgekit.testing import TargetContract, small_model
from edgekit_targets.iree import export as iree
from edgekit_targets.iree import session as iree_session
from edgekit_targets.iree.export import IreeRuntime
from tests.builds import unjudged
from tests.targets import tampering
from tests.targets.onnx.passes.graphs import model

pytest.importorskip("iree.compiler", reason="no IREE: pip install -e '.[iree]'")
pytest.importorskip("iree.runtime", reason="no IREE: pip install -e '.[iree]'")
pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the default code is for x86-64: install on such a host"
)


class TestIree(TargetContract):
    name = "iree"

    def test_says_what_it_is_and_what_made_it(self, builds: Path) -> None:
        made = read_artifact(builds / "small" / self.name)
        assert made.static
        assert {"iree-base-compiler", "iree-base-runtime"} <= set(made.export.tools)
        assert "machine code for x86_64, for processors with all of x86-64-v3" in made.notes

    def test_is_not_opened_without_the_users_word(self, builds: Path) -> None:
        with pytest.raises(UsageError, match="trust_build=True"):
            edgekit.load(builds / "small" / self.name)

    def test_one_changed_weight_is_rejected(self, builds: Path, tmp_path: Path) -> None:
        row = self._judged(builds, tmp_path, lambda folder: tampering.one_weight(folder / iree.ENTRY))
        assert row.status == "rejected"
        assert "iree-cpu: " in row.sentences[0]
        assert "'relevance'" in row.sentences[0]

    def test_half_a_file_is_a_sentence(self, builds: Path, tmp_path: Path) -> None:
        row = self._judged(builds, tmp_path, lambda folder: tampering.cut(folder / iree.ENTRY))
        assert row.status == "rejected"
        assert "IREE refuses 'model.vmfb': " in row.sentences[0]

    def test_another_models_file_is_refused(self, builds: Path, tmp_path: Path) -> None:
        def change(folder: Path) -> None:
            graph = model([helper.make_node("Neg", ["x"], ["y"])], {"x": [2]}, {"y": [2]}, {})
            iree.compile_graph(graph, folder / iree.ENTRY, "x86_64")

        row = self._judged(builds, tmp_path, change)
        assert "'model.vmfb' has the inputs ['x'], not ['images', 'queries']" in row.sentences[0]

    def test_answers_at_its_size_in_the_declared_dtypes_and_refuses_another(self, builds: Path) -> None:
        spec = small_model()
        with (
            edgekit.load(builds / "small" / self.name, trust_build=True) as loaded,
            edgekit.load(builds / "small" / "onnx") as source,
        ):
            first = loaded.run(spec.random(1))
            kept = {name: value.copy() for name, value in first.items()}
            loaded.run(spec.random(2))
            expected = source.run(spec.random(1))
            for name, value in expected.items():
                assert np.array_equal(first[name], kept[name])  # an answer outlives the next run
                assert (first[name].dtype, first[name].shape) == (value.dtype, value.shape)
                assert np.allclose(first[name], value, atol=1e-5)
            with pytest.raises(UsageError, match="Axis 'batch' of 'small' must be 1"):
                loaded.run(spec.random(0, {"batch": 2}))

    def test_holds_no_path(self, builds: Path) -> None:
        content = (builds / "small" / self.name / iree.ENTRY).read_bytes()
        assert not any(word in content for word in (b"/tmp", str(Path.home()).encode(), b".mlir", b"site-packages"))

    def test_a_processor_without_its_instructions_is_told(self, builds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(iree_session, "cpu_flags", lambda: ["bmi2", "f16c", "fma", "movbe"])
        with pytest.raises(NotVerifiedHere, match="code for x86-64-v3, and this processor lacks avx2"):
            IreeRuntime(builds / "small" / self.name, iree.ENTRY)

    @staticmethod
    def _judged(builds: Path, tmp_path: Path, change: Callable[[Path], None]) -> Any:
        return tampering.judged(builds / "small", "iree", change, tmp_path / "small", trust_build=True)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_opens_with_one_thread_and_with_several(threads: str, tmp_path: Path) -> None:
    graph = model([helper.make_node("Neg", ["x"], ["y"])], {"x": [2]}, {"y": [2]}, {})
    assert iree.compile_graph(graph, tmp_path / iree.ENTRY, "x86_64") == []
    opened = iree_session.IreeSession(tmp_path / iree.ENTRY, {"threads": threads})
    assert opened.device.endswith(f", CPU, {threads} threads")
    assert np.array_equal(opened.run({"x": np.array([1, 2], np.float32)})["y"], [-1, -2])
    opened.close()


class Sum(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1)


@pytest.mark.nightly
@pytest.mark.parametrize(("device", "machine"), [("arm64", "arm_64"), ("riscv64", "riscv_64")])
def test_code_for_another_processor_is_not_verified_here(device: str, machine: str, tmp_path: Path) -> None:
    spec = ModelSpec("sum", Sum().eval(), (Input("x", ("batch", 5)),), (Output("y"),), {"batch": Axis(1, 1, 4)})
    build = unjudged(spec, tmp_path, ("onnx", "iree"), {"iree": {"device": device}})
    assert any(note.startswith(f"machine code for {device}") for note in read_artifact(build / "iree").notes)
    with pytest.raises(NotVerifiedHere, match=f"it is machine code for {machine}, and this host has x86_64"):
        IreeRuntime(build / "iree", iree.ENTRY)


def test_a_file_of_iree_alone_is_refused(tmp_path: Path) -> None:
    """One that says nothing of names: of iree-compile without edgekit."""
    from iree.compiler.tools import binaries

    (tmp_path / "model.mlir").write_text(
        "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    )
    compiled = subprocess.run(
        [
            binaries.find_tool("iree-compile"),
            "model.mlir",
            "-o",
            iree.ENTRY,
            *iree.OPTIONS,
            *iree.PROCESSORS["x86_64"][1],
        ],
        cwd=tmp_path,
        check=False,
    )
    assert compiled.returncode == 0
    with pytest.raises(ArtifactError, match=r"'model\.vmfb' does not name its inputs and outputs"):
        iree_session.IreeSession(tmp_path / iree.ENTRY)


def test_an_operator_that_it_lacks_is_named(tmp_path: Path) -> None:
    size = {"s": np.array([1, 1, 4, 4])}
    graph = model([helper.make_node("AffineGrid", ["x", "s"], ["y"])], {"x": [1, 2, 3]}, {"y": [1, 4, 4, 2]}, size)
    said = iree.compile_graph(graph, tmp_path / iree.ENTRY, "x86_64")
    assert not (tmp_path / iree.ENTRY).exists()
    assert iree.reason(said) == "it cannot lower the operator AffineGrid"


def test_a_compiler_that_falls_over_is_a_sentence(tmp_path: Path) -> None:
    graph = model([helper.make_node("Unique", ["x"], ["y"])], {"x": [4]}, {"y": ["n"]}, {})
    said = iree.compile_graph(graph, tmp_path / iree.ENTRY, "x86_64")
    assert not (tmp_path / iree.ENTRY).exists()
    assert iree.reason(said) == "its compiler crashed"
