"""Models lie in a package so that a phone can map them: an APK is a zip."""

from __future__ import annotations

import mmap
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from edgekit.artifact.store import read_artifact
from edgekit_apps import assets as apps
from tests.plugins.apps import toy


def test_models_can_be_mapped_out_of_an_aligned_package(build: Path, tmp_path: Path) -> None:
    """An APK is a zip; what its build is told not to compress is stored, and zipalign moves it to a boundary."""
    app = toy.android_app(tmp_path / "app")
    apps.write_assets("android", build, app, trust_build=True)
    gradle = (app / "edgekit/edgekit.gradle").read_text()
    stored = tuple(f".{ending}" for ending in re.findall(r"'(\w+)'", gradle))
    package = tmp_path / "app.apk"
    with zipfile.ZipFile(package, "w") as archive:
        for path in sorted(p for p in (app / "src/main/assets").rglob("*") if p.is_file()):
            kind = zipfile.ZIP_STORED if path.name.endswith(stored) else zipfile.ZIP_DEFLATED
            archive.write(path, f"assets/{path.relative_to(app / 'src/main/assets').as_posix()}", kind)
    aligned = tmp_path / "aligned.apk"
    _zipalign("-f", "4", str(package), str(aligned))
    _zipalign("-c", "4", str(aligned))
    name = f"assets/edgekit/toy/torch-mobile/{read_artifact(build / 'torch-mobile').entry}"
    with zipfile.ZipFile(aligned) as archive, aligned.open("rb") as stream:
        entry = archive.getinfo(name)
        assert entry.compress_type == zipfile.ZIP_STORED
        stream.seek(entry.header_offset + 26)
        lengths = stream.read(4)
        offset = (
            entry.header_offset + 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
        )
        assert offset % 4 == 0
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert mapped[offset : offset + entry.file_size] == (build / "torch-mobile/model.ptl").read_bytes()


def _zipalign(*arguments: str) -> None:
    if shutil.which("zipalign") is None:
        pytest.skip("no 'zipalign' on PATH: apt-get install zipalign, or the Android SDK's build tools")
    run = subprocess.run(["zipalign", *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
