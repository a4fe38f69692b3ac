"""AOTInductor packages: machine code that runs elsewhere, names no path, and is refused where it cannot run."""

from __future__ import annotations

import os
import platform
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
from edgekit.cli import target_commands
from edgekit.errors import DependencyError, ExportError, NotVerifiedHere, UsageError
from edgekit.model.sources import resolve_model
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit.report.recommendation import next_commands
from edgekit.report.rows import read_study
from edgekit.target import FP32, INT8, Place
from edgekit.testing import TargetContract
from edgekit_targets.inductor import aoti
from edgekit_targets.inductor.aoti import require_exact_sums
from edgekit_targets.inductor.half import operator_name, to_int8
from tests import own_operators
from tests.targets import phone_models, tampering

HERE = aoti.unavailable_reason()
compiles = pytest.mark.skipif(bool(HERE), reason=HERE)
LIBRARY, METADATA = "model.wrapper.so", "_metadata.json"


@pytest.mark.nightly
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
        said = "--trust-build"
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


class Layers(torch.nn.Module):
    """Linear layers over rows, over pictures of rows, tied, without a bias; and such as stay: small, read otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.plain = torch.nn.Linear(48, 64), torch.nn.Linear(64, 64, bias=False)
        self.small, self.read = torch.nn.Linear(64, 8), torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.plain(self.plain(self.first(x).relu()))
        return self.small(x), self.read(x.flatten(0, 1)) + self.read.weight[0]


def test_linear_layers_multiply_integers() -> None:
    torch.manual_seed(0)
    net = Layers().eval()
    open_axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    exported = torch.export.export(net, (torch.randn(2, 5, 48),), dynamic_shapes=(open_axes,))
    assert to_int8(exported) == 3
    names = [operator_name(node) for node in exported.graph.nodes]
    assert (names.count("_int_mm"), names.count("linear")) == (3, 2)
    dtypes = {name: tensor.dtype for name, tensor in exported.state_dict.items() if name.endswith("weight")}
    assert [name for name, dtype in dtypes.items() if dtype == torch.int8] == ["first.weight", "plain.weight"]
    if not exact_sums():
        pytest.skip("needs a processor with VNNI: on others PyTorch's sums saturate")
    for shape in ((2, 5, 48), (1, 1, 48), (3, 7, 48)):
        x = torch.randn(shape)
        for answer, expected in zip(exported.module()(x), net(x), strict=True):
            noise = (answer - expected).square().mean() / expected.square().mean()
            assert noise < 1e-3
    zeros, nothing = torch.zeros(1, 1, 48), torch.full((1, 1, 48), torch.nan)
    torch.testing.assert_close(exported.module()(zeros)[0], net(zeros)[0], atol=0.05, rtol=0.05)
    assert exported.module()(nothing)[0].isnan().all()


def test_layers_on_a_grid_keep_their_weights() -> None:
    """Weights that are multiples of a row's largest over 127 are the same after rounding."""
    torch.manual_seed(0)
    net = torch.nn.Linear(64, 32).eval()
    with torch.no_grad():
        step = net.weight.abs().amax(1, keepdim=True) / 127
        net.weight.copy_(torch.round(net.weight / step) * step)
    exported = torch.export.export(net, (torch.randn(4, 64),))
    assert to_int8(exported) == 1
    scaled = exported.state_dict["weight"].float() * exported.state_dict["weight_scale"][:, None]
    torch.testing.assert_close(scaled, net.weight.detach(), atol=0, rtol=1e-6)


def exact_sums() -> bool:
    """Whether PyTorch adds products of integers exactly on this processor."""
    try:
        require_exact_sums()
    except NotVerifiedHere:
        return False
    return True


@pytest.mark.nightly
@compiles
def test_an_int8_package_answers_and_is_refused_where_sums_saturate(tmp_path: Path) -> None:
    torch.manual_seed(0)
    spec = ModelSpec(
        name="layers",
        module=Layers().eval(),
        inputs=(Input("x", ("batch", "rows", 48)),),
        outputs=(Output("small"), Output("read")),
        axes={"batch": Axis(1, 1, 8), "rows": Axis(4, 2, 9)},
    )
    artifact = phone_models.made(aoti.TARGET, "aoti", spec, tmp_path, precision="int8")
    manifest = read_artifact(artifact)
    assert manifest.precision == "int8"
    assert "3 linear layers in INT8" in manifest.notes[0]
    module = "edgekit_targets.inductor.aoti"
    code = f"import sys; from pathlib import Path; from {module} import *; AotiRuntime(Path(sys.argv[1]), 'x')"
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    if platform.machine() == "x86_64":
        command = [sys.executable, "-c", code, str(artifact)]
        run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert "NotVerifiedHere: it multiplies in INT8, and PyTorch's sums saturate on this processor" in run.stderr
    if not exact_sums():
        pytest.skip("needs a processor with VNNI: on others PyTorch's sums saturate")
    runtime = aoti.load(artifact, Place(name="cpu", tolerance=INT8))
    for shape in ((1, 4, 48), (3, 7, 48)):
        x = torch.randn(shape)
        for name, expected in zip(("small", "read"), spec.module(x), strict=True):
            noise = np.square(runtime.run({"x": x.numpy()})[name] - expected.detach().numpy()).mean()
            assert noise < 1e-3 * expected.square().mean()


@compiles
def test_int8_without_layers_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"'pooled' has no linear layer with 1024 weights or more\. Leave aoti"):
        phone_models.made(aoti.TARGET, "aoti", phone_models.pooled(), tmp_path, precision="int8")


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    said = "needs a C.. compiler, and 'no-such-compiler' is not installed. Run apt-get install g.."
    with pytest.raises(DependencyError, match=said):
        phone_models.made(aoti.TARGET, "aoti", phone_models.pooled(), tmp_path)
    assert "no-such-compiler" in target_commands.examine()["targets"]["aoti"]


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
    with pytest.raises(ExportError, match=r"replicate pad .* at .*test_aoti.py:\d+.*torch.cat of the edge slices"):
        phone_models.made(aoti.TARGET, "aoti", spec, tmp_path)


@compiles
def test_an_operator_of_the_models_own_is_named(tmp_path: Path) -> None:
    spec = resolve_model(f"{own_operators.__name__}:translated")
    with pytest.raises(ExportError, match=f"uses the operator '{own_operators.NAME}'"):
        phone_models.made(aoti.TARGET, "aoti", spec, tmp_path)
