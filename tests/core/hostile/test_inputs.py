"""Inputs that would cost memory without end, or are refused by name: one line, exit code 2, and nothing is written."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser
from PIL import Image

from tests.command import exit_code

TEXT = """<ir_version: 9, opset_import: ["" : 18]>
    net (float[batch, 3, 8, 8] {0}) => (float[batch, 3, 8, 8] y) {{ y = Tanh({0}) }}"""


def write_model(folder: Path, name: str = "x") -> Path:
    model = parser.parse_model(TEXT.format(name))
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


def header(shape: tuple[int, ...]) -> bytes:
    """An array's file that claims a shape and holds one value."""
    file = BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return file.getvalue() + bytes(4)


def huge_shape(folder: Path) -> None:
    with zipfile.ZipFile(folder / "0.npz", "w") as archive:
        archive.writestr("x.npy", header((1 << 40, 3, 8, 8)))


def huge_content(folder: Path) -> None:
    """Two archives that claim to unpack to 4 GiB each; the total counts before one is unpacked."""
    for number in range(2):
        with zipfile.ZipFile(folder / f"{number}.npz", "w") as archive:
            archive.writestr("x.npy", header((1, 3, 8, 8)))
            archive.filelist[0].file_size = (1 << 32) - 2


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "0.npz")


def huge_labels(folder: Path) -> None:
    for number in range(8):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / f"{number}.png")
    with (folder / "labels.csv").open("wb") as file:
        file.truncate(100 << 20)


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (huge_shape, "0.npz' cannot be read"),
        (huge_content, "unpacks to more than 4 GiB, with '1.npz'"),
        (pipe, "0.npz' cannot be read (it is not a regular file)"),
        (huge_labels, "labels.csv' cannot be read (it has 104857600 bytes, and at most 16777216 are read)"),
    ],
)
def test_data_that_would_fill_the_memory_are_refused(
    write: Callable[[Path], None], sentence: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write(data)
    words = ("--inputs", "x:kind=image") if write is huge_labels else ()
    said = refusal(capfd, "export", write_model(tmp_path), "--data", data, *words, "-o", tmp_path / "build")
    assert sentence in said
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize(
    ("axis", "sentence"),
    [("batch:1..8/0", "in steps of 0"), ("batch:1..99999999999", "goes to 99999999999 in steps of 1")],
)
def test_axes_without_steps_or_end_are_refused(
    axis: str, sentence: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = write_model(tmp_path)
    assert sentence in refusal(capfd, "export", model, "--axes", f"x:0={axis}", "-o", tmp_path / "build")
    assert not (tmp_path / "build").exists()


def test_a_long_name_is_refused_before_the_export(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said = refusal(capfd, "export", write_model(tmp_path, "x" * 201), "-o", tmp_path / "build")
    assert "has 201 letters. The limit is 200" in said
    assert not (tmp_path / "build").exists()


def refusal(capfd: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run a command that is refused; return its only line."""
    capfd.readouterr()
    assert exit_code(*arguments, "-t", "onnx") == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("edgekit: ")]
    return line
