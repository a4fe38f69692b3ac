"""AOTInductor packages: machine code that runs elsewhere, names no path, and is refused where it cannot run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import edgekit
from edgekit.artifact.store import commit, read_artifact
from edgekit.cli import doctor
from edgekit.errors import DependencyError, ExportError, NotVerifiedHere, UsageError
from edgekit.model.sources import resolve_model
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit.report.next_step import next_commands
from edgekit.report.rows import read_study
from edgekit.target import FP32, Place
from edgekit.testing import TargetContract
from edgekit_targets import aoti
from tests import own_operators
from tests.targets import phone_models, tampering

HERE = aoti.unavailable_reason()
compiles = pytest.mark.skipif(bool(HERE), reason=HERE)
LIBRARY, METADATA = "model.wrapper.so", "_metadata.json"


@compiles
class TestAoti(TargetContract):
    name = "aoti"

    @pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="compiles for 20 seconds: set EDGEKIT_SLOW=1")
    def test_is_byte_identical(self, builds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().test_is_byte_identical(builds, tmp_path, monkeypatch)

    def test_one_changed_weight_is_rejected(self, builds: Path, tmp_path: Path) -> None:
        def change(library: bytes) -> bytes:
            weights = tampering.weights_of("hidden.bias")
            assert library.count(weights.tobytes()) == 1
            changed = weights.copy()
            changed[0] += np.float32(tampering.CHANGE)
            return library.replace(weights.tobytes(), changed.tobytes())

        row = self._judged(builds, tmp_path, lambda folder: rewrite(folder / aoti.ENTRY, LIBRARY, change))
        assert row == ("rejected", "cpu: ")

    def test_half_a_file_is_a_sentence(self, builds: Path, tmp_path: Path) -> None:
        row = self._judged(builds, tmp_path, lambda folder: tampering.cut(folder / aoti.ENTRY), "not an AOTInductor")
        assert row == ("rejected", "not an AOTInductor")

    def test_is_not_opened_without_the_users_word(self, builds: Path, tmp_path: Path) -> None:
        said = "runs code of whoever made the build: run with --trust-build"
        assert self._judged(builds, tmp_path, lambda _: None, said, trust=False) == ("failed", said)
        artifact = builds / "small" / self.name
        with pytest.raises(UsageError, match="trust_build=True"):
            edgekit.load(artifact)
        assert edgekit.load(artifact, trust_build=True).manifest.target == self.name

    def test_the_next_command_says_that_its_code_is_trusted(self, builds: Path) -> None:
        study = read_study(builds / "small")
        rows = replace(study, artifacts=tuple(each for each in study.artifacts if each.target == self.name))
        assert next_commands(builds, rows, ()) == (
            f"edgekit verify {builds} --trust-build  # on the host that will run it",
        )

    def test_holds_no_path_and_no_512_bit_code(self, builds: Path, tmp_path: Path) -> None:
        package = builds / "small" / self.name / aoti.ENTRY
        data = package.read_bytes()
        for path in (sys.prefix, tempfile.gettempdir(), str(Path(torch.__file__).parent), "site-packages"):
            assert path.encode() not in data
        with zipfile.ZipFile(package) as archive:
            assert not [name for name in archive.namelist() if name.endswith(".cpp")]
            (library,) = [name for name in archive.namelist() if name.endswith(LIBRARY)]
            archive.extract(library, tmp_path)
        assert (tmp_path / library).stat().st_size > 300_000
        if shutil.which("objdump"):
            code = subprocess.run(["objdump", "-d", tmp_path / library], capture_output=True, text=True, check=True)
            assert "%zmm" not in code.stdout

    def test_says_which_processors_it_is_for(self, builds: Path) -> None:
        notes = " ".join(read_artifact(builds / "small" / self.name).notes)
        assert "for processors with all of " in notes
        assert aoti.compiler_version() in notes

    def test_another_processors_package_is_not_verified_here(self, builds: Path, tmp_path: Path) -> None:
        copy = tmp_path / self.name
        shutil.copytree(builds / "small" / self.name, copy)
        manifest = read_artifact(copy)
        rewrite(copy / aoti.ENTRY, METADATA, lambda text: text.replace(b'MACHINE": "', b'MACHINE": "z80 or '))
        commit(copy, manifest)
        with pytest.raises(NotVerifiedHere, match="machine code for z80 or"):
            aoti.load(copy, Place(name="cpu", tolerance=FP32))

    def _judged(
        self, builds: Path, root: Path, change: Callable[[Path], None], said: str = "cpu: ", trust: bool = True
    ) -> tuple[str, str]:
        """How the changed artifact ends, and `said` where its sentence says it, else the sentence."""
        row = tampering.judged(builds / "small", self.name, change, root / "small", trust_build=trust)
        sentence = (*row.sentences, row.error)[0]
        return row.status, said if said in sentence else sentence


def rewrite(package: Path, record: str, change: Callable[[bytes], bytes]) -> None:
    """Change one record of a package, its checksum with it."""
    with zipfile.ZipFile(package) as old:
        records = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(package, "w") as new:
        for name, data in records.items():
            new.writestr(name, change(data) if name.endswith(record) else data)


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    said = "needs a C.. compiler, and there is no 'no-such-compiler': apt-get install g.."
    with pytest.raises(DependencyError, match=said):
        phone_models.made(aoti.TARGET, "aoti", phone_models.pooled(), tmp_path)
    assert "no-such-compiler" in doctor.examine()["targets"]["aoti"]


class PaddedColumns(torch.nn.Module):
    """A replicate pad of a tensor that was permuted and reshaped."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        columns = x.transpose(1, 2).reshape(x.shape[0], 1, -1)
        return torch.nn.functional.pad(columns, (1, 1), mode="replicate")


@compiles
def test_the_pad_that_inductor_cannot_compile_is_named_with_its_line(tmp_path: Path) -> None:
    spec = ModelSpec(
        name="padded",
        module=PaddedColumns().eval(),
        inputs=(Input("x", ("batch", "rows", 4)),),
        outputs=(Output("y"),),
        axes={"batch": Axis(1, 1, 8), "rows": Axis(4, 2, 9)},
    )
    with pytest.raises(ExportError, match=r"replicate pad .* at .*test_aoti.py:\d+ .*torch.cat of the edge slices"):
        phone_models.made(aoti.TARGET, "aoti", spec, tmp_path)


@compiles
def test_an_operator_of_the_models_own_is_named(tmp_path: Path) -> None:
    spec = resolve_model(f"{own_operators.__name__}:translated")
    with pytest.raises(ExportError, match=f"uses the operator '{own_operators.NAME}'"):
        phone_models.made(aoti.TARGET, "aoti", spec, tmp_path)
