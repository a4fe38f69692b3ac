"""Profiles: graph breaks with their lines, recompilations with their guards, break-even, and what is refused."""

from __future__ import annotations

import json
import math
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import torch

import edgekit
import edgekit_inspect
from edgekit.artifact.profile import BatchProfile, ModeProfile, Peaks, Profile, read_profile
from edgekit.artifact.store import contents
from edgekit.cli.main import app
from edgekit.errors import UsageError
from edgekit.model.folder import load_model
from edgekit.model.spec import Array, ModelSpec
from edgekit_inspect import compilation
from edgekit_inspect.profiling import COMPILED, EAGER, Request, advice, break_even, furthest, part_of, profile
from tests import modules
from tests.manifests import resealed


class Branching(torch.nn.Module):
    """A module with a graph break."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(4, 2)
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        if x.sum() > 0:
            x = x + 1
        answer: torch.Tensor = self.head(x)
        return answer


ROOT = Path(__file__).parents[3]
LINE = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "if x.sum()" in text)


def branching() -> ModelSpec:
    """With weights that take the same branch at every size: another branch would be compiled anew."""
    net = Branching()
    last = net.blocks[-1]
    assert isinstance(last, torch.nn.Linear)
    torch.nn.init.constant_(last.bias, 10.0)
    return modules.of_rows("branching", net, 4)


def test_a_graph_break_is_named_with_its_file_line_and_reason() -> None:
    (found,), unexplained = compilation.graph_breaks(branching())
    assert (Path(found.file), found.line, found.text) == (Path(__file__), LINE, "if x.sum() > 0:")
    assert found.reason == "a branch of Python depends on a tensor's value"
    assert unexplained == ""


def test_a_recompilation_is_named_with_its_guard() -> None:
    found = compilation.recompilations(branching(), [{"batch": 1}, {"batch": 2}, {"batch": 3}])
    assert [anew.sizes for anew in found] == [{"batch": 2}]
    assert "tensor 'x' size mismatch at index 0. expected 1, actual 2" in found[0].guard


def test_equal_sizes_do_not_recompile() -> None:
    assert compilation.recompilations(branching(), [{"batch": 2}] * 3) == ()


def test_blocks_of_a_list_are_one_line() -> None:
    module = Branching().eval()
    times = {one.name: one.calls for one in compilation.module_times(module, [torch.randn(1, 4)])}
    assert times == {"(outermost)": 1, "head": 1, "blocks.*": 3}


@pytest.mark.parametrize(
    ("first", "run", "expected"),
    [(1000.0, 5.0, 200), (9.0, 5.0, 0), (1000.0, 10.0, None), (9.0, 11.0, None), (1000.0, 9.999, 990_001)],
)
def test_break_even_is_where_the_total_times_cross(first: float, run: float, expected: int | None) -> None:
    eager_first, eager_run = 10.0, 10.0
    after = break_even(first, run, eager_first, eager_run)
    assert after == pytest.approx(expected, rel=1e-5) if expected is not None else after is None
    if after:
        assert first + (after - 1) * run <= eager_first + (after - 1) * eager_run + 1e-6
        assert first + (after - 3) * run > eager_first + (after - 3) * eager_run


def test_differences_are_those_of_floating_outputs() -> None:
    right: dict[str, Array] = {"y": np.zeros((2, 2), np.float32), "n": np.zeros(2, np.int64)}
    other: dict[str, Array] = {"y": np.full((2, 2), 0.5, np.float32), "n": np.ones(2, np.int64)}
    assert furthest(other, right, ["y", "n"]) == 0.5
    assert furthest(other, right, ["n"]) is None


def test_advice_stays_with_eager_within_the_spread_of_its_runs() -> None:
    eager = ModeProfile(EAGER, first_ms=10, p50=10, p10=9, p90=11)
    close = ModeProfile(COMPILED, first_ms=9000, p50=9.8, p10=9, p90=11, break_even=50_000)
    clear = ModeProfile(COMPILED, first_ms=9010, p50=4, p10=3.9, p90=4.2, break_even=1501)
    assert advice(_profile(eager, close), 0).startswith("Stay with eager")
    slow = ModeProfile(COMPILED, first_ms=9010, p50=8, p10=8, p90=9, mean=10.5, break_even=None)
    assert advice(_profile(eager, slow), 0).startswith("Stay with eager")
    assert advice(_profile(eager, clear), 5) == (
        "Take 'compiled': 2.50 times as fast as eager; it pays off after 1,501 runs, which is 5.0 min at 5 a second."
    )


def _profile(*modes: ModeProfile) -> Profile:
    batch = BatchProfile(1, 1, 1, modes)
    return Profile("m", "cpu", Peaks(1.0, 1.0), (batch,), (), "", (), (), (), (), (), (), "", {})


def test_a_module_is_profiled_alone() -> None:
    part = part_of(branching(), "head")
    assert part.name == "branching.head"
    assert [i.shape for i in part.inputs] == [(1, 4)]
    with pytest.raises(UsageError, match=r"no module 'tail'. It has: head, blocks"):
        part_of(branching(), "tail")


def test_what_cannot_be_profiled_is_a_sentence() -> None:
    with pytest.raises(UsageError, match=r"no mode 'fast'\. Possible: eager; compiled; compiled, max-autotune"):
        profile(branching(), Request(modes=("fast",)))
    with pytest.raises(UsageError, match="no device 'tpu'"):
        profile(branching(), Request(device="tpu"))
    with pytest.raises(UsageError, match="batch 0 is not possible for 'branching'"):
        profile(branching(), Request(batches=(0,)))
    with pytest.raises(UsageError, match="seconds nan: give a number"):
        profile(branching(), Request(seconds=math.nan))
    with pytest.raises(UsageError, match="no batch size"):
        profile(branching(), Request(batches=()))
    with pytest.raises(UsageError, match="has no axis 'batch'"):
        profile(part_of(branching(), "head"), Request(batches=(2,)))


def test_without_a_compiler_eager_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> object:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", failing)
    spec = part_of(branching(), "head")
    monkeypatch.setattr(compilation, "recompilations", lambda *_: ())
    (batch,) = profile(spec, Request(modes=(COMPILED,), seconds=0.01)).batches
    assert [(row.mode, row.error) for row in batch.modes] == [(EAGER, ""), (COMPILED, "no compiler")]


@pytest.mark.nightly
class TestBuild:
    """A build's profile: PyTorch's modes beside its artifacts."""

    @pytest.fixture(scope="class")
    @classmethod
    def build(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Of a model with few sizes, each of which is compiled."""
        home = tmp_path_factory.mktemp("profile")
        with pytest.MonkeyPatch.context() as patched:
            patched.syspath_prepend(str(ROOT))
            edgekit.export(
                "tests.plugins.matrix.models:wide", targets=("onnx", "torchscript"), output=home, progress="none"
            )
        folder = home / "wide"
        edgekit_inspect.profile(
            folder,
            batches=[2],
            modes=["compiled", "onnx", "torchscript"],
            seconds=0.1,
            trust_build=True,
            progress="none",
        )
        return folder

    def test_times_every_mode_that_was_asked_for(self, build: Path) -> None:
        record = json.loads((build / "cache" / "profile.json").read_text())
        (batch,) = record["batches"]
        assert batch["batch"] == 2
        assert {row["mode"] for row in batch["modes"]} == {"eager", "compiled", "onnx", "torchscript"}
        for row in batch["modes"]:
            assert row["error"] == ""
            assert 0 < row["p10"] <= row["p50"] <= row["p90"]
            assert math.isfinite(row["first_ms"])
            assert row["max_abs"] is None or row["max_abs"] < 1e-4
        assert batch["modes"][0]["mode"] == "eager"
        assert record["kernels"]

    def test_a_modules_profile_is_not_the_builds(self, build: Path) -> None:
        before = (build / "cache" / "profile.json").read_bytes()
        named = next(name for name, _ in load_model(build / "model").module.named_children())
        edgekit_inspect.profile(
            build, module=named, modes=["compiled"], seconds=0.01, trust_build=True, progress="none"
        )
        assert (build / "cache" / "profile.json").read_bytes() == before

    def test_is_drawn_and_shown_in_the_report(self, build: Path) -> None:
        drawn = ElementTree.fromstring((build / "cache" / "profile.svg").read_text())  # noqa: S314 - our own
        texts = [element.text for element in drawn.iter() if element.tag.endswith("text")]
        assert {"eager", "compiled", "onnx", "torchscript"} <= {*texts}
        page = (build / "report.html").read_text()
        assert "Modes of PyTorch, and what compiling costs" in page

    def test_a_damaged_profile_is_left_out(self, build: Path, tmp_path: Path) -> None:
        copy = Path(shutil.copytree(build, tmp_path / "wide"))
        assert read_profile(copy, contents(copy)) is not None
        whole = json.loads((build / "cache" / "profile.json").read_text())
        for text in ("", "[]", '{"device": 3}', json.dumps({**whole, "recompilations": [{}]})):
            (copy / "cache" / "profile.json").write_text(text)
            assert read_profile(copy, contents(copy)) is None

    def test_a_profile_of_other_artifacts_is_left_out(self, build: Path, tmp_path: Path) -> None:
        copy = Path(shutil.copytree(build, tmp_path / "wide"))
        assert read_profile(copy, contents(copy)) is not None
        resealed(copy / "torchscript", notes=("another one",))
        assert read_profile(copy, contents(copy)) is not None  # its files are the same
        (copy / "torchscript" / "model.pt").write_bytes(b"another program")
        resealed(copy / "torchscript")
        assert read_profile(copy, contents(copy)) is None

    def test_the_command_prints_one_object(self, build: Path, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["profile", str(build), "--mode", "torchscript", "--seconds", "0.05", "--trust-build", "--json"]
        app(arguments, standalone_mode=False)
        found = json.loads(capsys.readouterr().out)
        assert [row["mode"] for row in found["batches"][0]["modes"]] == ["eager", "torchscript"]
        assert found["schema_version"] == 1
