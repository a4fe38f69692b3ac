"""What all tests share: latency and compression are brief, since no test judges them; what needs a browser says so."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.chromium import no_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.object_store import S3

os.environ.setdefault("EDGEKIT_TIMED_SECONDS", "0.01")
os.environ.setdefault("EDGEKIT_BROTLI_QUALITY", "5")  # half a second instead of a minute for the browser's runtime
# Tests run in as many processes as there are cores; threads that then wait for each other spin: one image took 0.5 s
# with two, 0.03 s with one.
os.environ.setdefault("EDGEKIT_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Tests roll no dice: examples are the same in every run, and random ones belong to the nightly mode.
settings.register_profile("same examples", derandomize=True)
settings.load_profile("default" if os.environ.get("EDGEKIT_SLOW") else "same examples")

HERE = Path(__file__).parent
NIGHTLY = "belongs to the nightly mode: run `make nightly`"
DAILY_IDENTITY = ("TestTorchscript", "TestOpenvino")
NO_CUDA = "needs a CUDA device: run it on a host with an NVIDIA GPU and a CUDA build of torch"
BROWSER = (HERE / "web", HERE / "targets" / "web" / "test_export.py")
LONG = (HERE / "web", HERE / "targets", HERE / "tools", HERE / "plugins" / "inspect", HERE / "docs")
"""Files of minutes come first: at the end one process would wait for the other."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; skip what drives Chromium where there is none or no page can be built, and what needs a GPU."""
    items.sort(key=lambda item: not any(path in item.path.parents for path in LONG))
    found = [item for item in items if any(item.path == path or path in item.path.parents for path in BROWSER)]
    if found and (missing := _missing()):
        for item in found:
            item.add_marker(pytest.mark.skip(reason=missing))
    for item in items if not os.environ.get("EDGEKIT_SLOW") else ():
        if _is_nightly(item):
            item.add_marker(pytest.mark.skip(reason=NIGHTLY))
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if gpu and not _has_cuda():
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason=NO_CUDA))


def _is_nightly(item: pytest.Item) -> bool:
    """Return whether a test belongs to `make nightly` alone: by its mark, but for variants that `but` names."""
    if HERE / "training" in item.path.parents:
        return True
    # The contract suite ships with edgekit and cannot carry our marks: one target of each kind stays.
    if "test_is_byte_identical" in item.name and item.parent is not None and item.parent.name not in DAILY_IDENTITY:
        return True
    mark = item.get_closest_marker("nightly")
    return mark is not None and not any(text in item.name.partition("[")[2] for text in mark.kwargs.get("but", ()))


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """Headless Chromium with WebGPU in software: one for all tests of a process, since Playwright starts only once."""
    from edgekit.errors import NotVerifiedHere
    from edgekit_targets.web import browser as chromium

    try:
        playwright, started = chromium.launch(chromium.SOFTWARE_GPU)
    except NotVerifiedHere as missing:
        pytest.skip(str(missing))
    yield started
    started.close()
    playwright.stop()


@pytest.fixture(scope="session")
def s3_server() -> Iterator["S3"]:
    """An S3 server on this host, started once in a process."""
    from tests import object_store

    with object_store.started() as server:
        yield server


@pytest.fixture
def s3(s3_server: "S3", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["S3"]:
    """The server with an empty bucket, `bucket`; this process may use it, and has an empty cache."""
    from tests import object_store

    for name, value in (s3_server.environment | {"EDGEKIT_BUILDS": str(tmp_path / "cache")}).items():
        monkeypatch.setenv(name, value)
    object_store.empty_bucket(s3_server, "bucket")
    yield s3_server
    s3_server.quiet()


@pytest.fixture(scope="session")
def small_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model's build with onnx and onnx-fp16, made once in a process: to read, and to copy."""
    from edgekit.testing import contract

    return contract.small_build(tmp_path_factory.getbasetemp(), ("onnx", "onnx-fp16"))


@pytest.fixture
def no_report() -> Iterator[None]:
    """For tests of verdicts: what they run writes no report."""
    from tests.builds import without_report

    with without_report():
        yield


@pytest.fixture
def build(small_build: Path, tmp_path: Path) -> Path:
    """A copy of the small model's build, `small` in the test's own folder."""
    return Path(shutil.copytree(small_build, tmp_path / "small"))


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _missing() -> str:
    """What the browser tests lack, in a sentence; empty where nothing."""
    from edgekit_targets.web import site

    return no_chromium() or site.unavailable_reason()
