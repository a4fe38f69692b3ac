"""`edgekit lint` of Android packages, with small ELF files and packages of real bytes."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from edgekit.errors import ModelError, UsageError
from edgekit_check import command
from edgekit_check.page_size import check_page_size

ARM64, X86_64, ARM32 = 183, 62, 40


def elf(machine: int = ARM64, *alignments: int, at: int = 64) -> bytes:
    """Return a library whose program headers, a PT_NOTE and then PT_LOADs, begin at `at`."""
    kinds = [(4, 4), *((1, alignment) for alignment in alignments or (16384,))]
    if machine == ARM32:
        head = b"\x7fELF\x01\x01\x01" + bytes(9)
        head += struct.pack("<HHIIIIIHHHHHH", 3, machine, 1, 0, at, 0, 0, 52, 32, len(kinds), 0, 0, 0)
        headers = [struct.pack("<IIIIIIII", kind, 0, 0, 0, 0, 0, 5, alignment) for kind, alignment in kinds]
    else:
        head = b"\x7fELF\x02\x01\x01" + bytes(9)
        head += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, at, 0, 0, 64, 56, len(kinds), 0, 0, 0)
        headers = [struct.pack("<IIQQQQQQ", kind, 5, 0, 0, 0, 0, 0, alignment) for kind, alignment in kinds]
    return head.ljust(at, b"\0") + b"".join(headers)


def package(path: Path, libraries: Mapping[str, bytes]) -> Path:
    """Write libraries into a package; `__` in a name is a slash."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("AndroidManifest.xml", "x")
        for name, data in libraries.items():
            file.writestr(name.replace("__", "/") + ".so", data)
    return path


def stored(path: Path, data: bytes, offset: int, name: str = "lib/arm64-v8a/libnet.so") -> Path:
    """Write an APK whose uncompressed library begins at `offset`, padded in its extra field as zipalign does."""
    entry = zipfile.ZipInfo(name)
    extra = offset - 30 - len(name)
    entry.extra = struct.pack("<HH", 0xD935, extra - 4) + bytes(extra - 4)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(entry, data)
    assert path.read_bytes()[offset:].startswith(data)
    return path


def run(*arguments: str) -> Result:
    application = typer.Typer()
    application.command()(command.lint)
    return CliRunner().invoke(application, list(arguments))


def test_an_app_whose_libraries_fit_exits_0_and_names_the_exempt(tmp_path: Path) -> None:
    app = package(
        tmp_path / "app.apk",
        {
            "lib__arm64-v8a__libnet": elf(ARM64, 16384, 65536),
            "lib__x86_64__libnet": elf(X86_64),
            "lib__armeabi-v7a__libnet": elf(ARM32, 4096),
            "lib__arm64-v8a__libtext": b"no library",
        },
    )
    result = run(str(app))
    assert result.exit_code == 0, result.output
    assert "2 libraries fit, 0 misaligned, 2 exempt" in result.stdout
    assert "lib/armeabi-v7a/libnet.so: exempt: armeabi-v7a" in result.stdout
    assert "lib/arm64-v8a/libtext.so: exempt: not an ELF file" in result.stdout


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("libonnxruntime4j_jni", "onnxruntime-android 1.22.0"),
        ("libonnxruntime_extensions4j_jni", "onnxruntime-extensions-android"),
        ("libexecutorch_jni", "executorch-android 1.0.0"),
        ("libtensorflowlite_jni", "litert 1.4.0"),
        ("libpytorch_jni_lite", "executorch-android 1.0.0"),
        ("libown", "max-page-size=16384"),
    ],
)
@pytest.mark.parametrize(("suffix", "folder"), [(".apk", "lib"), (".aab", "base/lib"), (".aar", "jni")])
def test_a_misaligned_library_exits_3_and_names_the_way_out(
    tmp_path: Path, name: str, way: str, suffix: str, folder: str
) -> None:
    path = f"{folder}/x86_64/{name}"
    # One segment is enough.
    file = package(tmp_path / f"app{suffix}", {path: elf(X86_64, 16384, 4096)})
    result = run(str(file))
    [line, _] = result.stdout.splitlines()
    assert result.exit_code == 3
    assert line.startswith(f"{path}.so: ")
    assert "4096" in line
    assert way in line


def test_json_has_every_fact(tmp_path: Path) -> None:
    file = package(
        tmp_path / "net.aar",
        {"jni__arm64-v8a__libnet": elf(ARM64, 4096), "prefab__modules__net__libs__android.arm64-v8a__libnet": b""},
    )
    result = run(str(file), "--json")
    record = json.loads(result.stdout)
    [library] = record["libraries"]
    assert (result.exit_code, record["page_size"]) == (3, 16384)
    assert (library["abi"], library["alignment"], library["exempt"]) == ("arm64-v8a", 4096, False)
    assert len(library["problems"]) == 1
    assert all(source["url"].startswith("https://") and source["date"] for source in record["source"])


def test_an_uncompressed_library_lies_at_a_multiple_of_the_page_in_an_apk_alone(tmp_path: Path) -> None:
    [library] = check_page_size(stored(tmp_path / "good.apk", elf(), 16384))
    assert (library.offset, library.problems) == (16384, ())
    # zipalign's default of 4 KB.
    [library] = check_page_size(stored(tmp_path / "bad.apk", elf(), 4096))
    assert library.offset == 4096
    assert "zipalign -P 16" in library.problems[0]
    [library] = check_page_size(stored(tmp_path / "bad.aab", elf(), 4096, "base/lib/arm64-v8a/libnet.so"))
    assert (library.offset, library.problems) == (None, ())
    [library] = check_page_size(stored(tmp_path / "old.apk", elf(ARM32, 4096), 4096, "lib/armeabi-v7a/libnet.so"))
    assert library.problems == ()


def test_a_library_by_itself_and_headers_at_its_end(tmp_path: Path) -> None:
    file = tmp_path / "libnet.so"
    file.write_bytes(elf(ARM64, 4096, at=5000))
    [library] = check_page_size(file)
    assert (library.path, library.abi, library.alignment) == ("libnet.so", "arm64-v8a", 4096)


def test_a_real_library_agrees_with_readelf(tmp_path: Path) -> None:
    readelf, libraries = shutil.which("readelf"), sorted(Path("/usr/lib").rglob("libz.so.1"))
    if readelf is None or not libraries:
        pytest.skip("needs readelf and a libz.so.1 in /usr/lib")
    shutil.copy(libraries[0], tmp_path / "libz.so")
    text = subprocess.run(
        [readelf, "-lW", tmp_path / "libz.so"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    alignments = [int(line.split()[-1], 16) for line in text.splitlines() if line.split()[:1] == ["LOAD"]]
    [library] = check_page_size(tmp_path / "libz.so")
    assert library.alignment == min(alignments)


@pytest.mark.parametrize(
    "data",
    [
        b"\x7fELF",
        b"\x7fELF\x09\x01" + bytes(58),
        elf()[:100],
        elf()[:54] + struct.pack("<H", 0) + elf()[56:],
        elf()[:32] + b"\xff" * 8 + elf()[40:],
        elf()[:56] + bytes(2) + elf()[58:],
    ],
    ids=["head", "class", "cut", "size", "far", "empty"],
)
def test_damaged_libraries_are_refused_in_a_sentence(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "libnet.so").write_bytes(data)
    file = package(tmp_path / "app.apk", {"lib__arm64-v8a__libnet": data})
    for path in (tmp_path / "libnet.so", file):
        with pytest.raises(ModelError, match=r"libnet\.so"):
            check_page_size(path)


def test_bad_input_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file"):
        check_page_size(tmp_path / "app.apk")
    (tmp_path / "app.apk").write_bytes(b"no zip")
    with pytest.raises(ModelError, match=r"app\.apk"):
        check_page_size(tmp_path / "app.apk")
    (tmp_path / "libnet.so").write_bytes(b"text")
    with pytest.raises(ModelError, match="ELF"):
        check_page_size(tmp_path / "libnet.so")
    data = bytearray(package(tmp_path / "cut.apk", {"lib__arm64-v8a__libnet": elf()}).read_bytes())
    place = data.index(b"libnet.so") + 9
    data[place : place + 8] = b"\xff" * 8
    (tmp_path / "cut.apk").write_bytes(data)
    with pytest.raises(ModelError, match=r"cut\.apk"):
        check_page_size(tmp_path / "cut.apk")
    (tmp_path / "app.apk").unlink()
    empty = package(tmp_path / "empty.apk", {})
    result = run(str(empty))
    assert (result.exit_code, "0 libraries fit" in result.stdout) == (0, True)


def test_for_belongs_to_models_alone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--for"):
        command.lint(package(tmp_path / "app.apk", {}), ["onnxruntime-1.20"])
    with pytest.raises(UsageError, match="--for"):
        command.lint(tmp_path / "net.onnx")
