import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from edgekit import registry
from edgekit.errors import DependencyError, UsageError, install_command
from edgekit.judge.limits import FP32
from edgekit.runtime.protocol import Runtime
from edgekit.target import Bundle, ExportResult, Job, Need, Place, Target


def export(source: Path, out: Path, job: Job) -> ExportResult:
    raise NotImplementedError


def load(artifact: Path, place: Place) -> Runtime:
    raise NotImplementedError


def target(source: str = "model", **more: object) -> Target:
    places = (Place(name="cpu", tolerance=FP32),)
    return Target(summary="a", export=export, load=load, places=places, source=source, **more)  # type: ignore[arg-type]


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A third party's package on the path: a good target, a broken one, and its own metadata."""
    (tmp_path / "edgekit_acme.py").write_text(
        "from edgekit.target import FP32, Place, Target\n"
        "TARGET = Target(summary='acme', export=lambda s, o, j: None, load=lambda a, p: None,"
        " places=(Place(name='npu', tolerance=FP32),))\n"
    )
    (tmp_path / "edgekit_broken.py").write_text("raise RuntimeError('no licence')\n")
    info = tmp_path / "edgekit_acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: edgekit-acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[edgekit.targets]\nacme-npu = edgekit_acme:TARGET\nbroken = edgekit_broken:TARGET\n"
        "no-target = edgekit_acme:FP32\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield info
    for name in ("edgekit_acme", "edgekit_broken"):
        sys.modules.pop(name, None)


def test_built_in_targets_are_the_files_of_the_folder() -> None:
    names = registry.available()
    assert {"onnx", "onnx-fp16"} <= set(names)
    assert list(names) == sorted(names)
    assert not any(name.startswith("-") for name in names)


def test_a_plug_in_is_listed_and_a_broken_one_breaks_only_itself(plug_in: Path) -> None:
    assert registry.find("acme-npu").summary == "acme"
    with pytest.raises(
        UsageError, match=r"'broken' of package 'edgekit-acme' cannot be imported: RuntimeError: no lic"
    ):
        registry.find("broken")
    with pytest.raises(UsageError, match="is a Tolerance, not an edgekit"):
        registry.find("no-target")
    targets, broken = registry.loadable()
    assert "acme-npu" in targets
    assert "onnx" in targets
    assert set(broken) == {"broken", "no-target"}


def test_a_name_twice_names_both(plug_in: Path) -> None:
    entries = plug_in / "entry_points.txt"
    entries.write_text("[edgekit.targets]\nonnx = edgekit_acme:TARGET\n")
    importlib.invalidate_caches()
    targets, broken = registry.loadable()
    assert targets["onnx"].summary != "acme", "a package cannot take a built-in target's name"
    assert "'onnx': edgekit and package 'edgekit-acme'" in broken["onnx (declared twice)"]
    assert registry.find("torchscript")


def test_two_packages_with_one_name_break_only_that_name(plug_in: Path) -> None:
    entries = plug_in / "entry_points.txt"
    other = plug_in.parent / "edgekit_other-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: edgekit-other\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text(entries.read_text())
    importlib.invalidate_caches()
    targets, broken = registry.loadable()
    assert "acme-npu" not in targets
    assert "onnx" in targets
    assert broken["acme-npu"].startswith("two targets are called 'acme-npu': package 'edgekit-")


@pytest.mark.parametrize(
    ("source", "declared", "sentence"),
    [
        ("import sys; sys.exit('bye')", "edgekit_broken:TARGET", "cannot be imported: SystemExit: bye"),
        ("TARGET = 3", "edgekit_broken", "module:RECORD"),
    ],
)
def test_whatever_a_package_does_breaks_only_its_target(
    plug_in: Path, source: str, declared: str, sentence: str
) -> None:
    (plug_in.parent / "edgekit_broken.py").write_text(source)
    (plug_in / "entry_points.txt").write_text(f"[edgekit.targets]\nbroken = {declared}\n")
    importlib.invalidate_caches()
    targets, broken = registry.loadable()
    assert "onnx" in targets
    assert sentence in broken["broken"]


def test_a_misspelt_name_is_never_replaced() -> None:
    with pytest.raises(UsageError, match="mean 'onnx'"):
        registry.find("onxx")
    with pytest.raises(UsageError, match="mean 'onnx-all'"):
        registry.select_targets(["onnx-al"], {"onnx": target(groups=("onnx-all",))})


def test_groups_select_their_members_once() -> None:
    targets = {"a": target(groups=("g",)), "b": target(groups=("g",)), "c": target()}
    assert registry.select_targets(["g", "a"], targets) == ("a", "b")
    assert registry.select_targets(["all"], targets) == ("a", "b", "c")


@pytest.mark.parametrize(
    ("targets", "wanted", "order"),
    [
        (
            {"web": target("onnx", bundle=Bundle(sources=("int8",))), "int8": target("onnx"), "onnx": target()},
            ("web",),
            ("onnx", "web"),
        ),
        (
            {"web": target("onnx", bundle=Bundle(sources=("int8",))), "int8": target("onnx"), "onnx": target()},
            ("web", "int8"),
            ("onnx", "int8", "web"),
        ),
    ],
)
def test_sources_come_first(targets: Mapping[str, Target], wanted: tuple[str, ...], order: tuple[str, ...]) -> None:
    assert registry.sources_first(wanted, targets) == order


def test_impossible_sources_are_refused() -> None:
    with pytest.raises(UsageError, match="circle: a -> b -> a"):
        registry.sources_first(["a"], {"a": target("b"), "b": target("a")})
    with pytest.raises(UsageError, match="'a' has the source 'gone', which does not exist"):
        registry.sources_first(["a"], {"a": target("gone")})


def test_a_missing_library_is_named_with_its_extra() -> None:
    needy = target(needs=(Need("json", "cpu"), Need("no_such_library", "coreml")))
    with pytest.raises(DependencyError, match=re.escape(f"'x' needs no_such_library: {install_command('coreml')}")):
        registry.require("x", needy)


def test_a_plug_in_says_itself_how_its_library_is_installed() -> None:
    needy = target(needs=(Need("no_such_library", hint="pip install acme-npu"),))
    with pytest.raises(DependencyError, match=r"target 'x' needs no_such_library: pip install acme-npu$"):
        registry.require("x", needy)


def test_every_target_of_edgekit_says_what_it_is_for_and_what_proves_it() -> None:
    for name, entry in registry.available().items():
        target = registry.find(name)
        if entry.origin == "edgekit":
            assert target.about.use_case, name
            assert target.about.proved_by, name
            assert target.about.not_covered, name
