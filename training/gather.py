"""Gathering: the photographs that training uses, out of Debian packages.

`python -m training.gather --out build/photographs` downloads the packages with `apt-get download` (as long as
`--packages` names no folder that has them), unpacks them into a temporary folder and writes a bank: square JPEG files
and `bank.json`, which names the source of each. The rule that tells photographs from drawings is below; nothing is
chosen by hand but what is left out. The bank is for training only: it is no part of the package.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from edgekit.errors import UsageError
from edgekit_arrcoc.datasets import read_picture
from training.photographs import BANK_EDGE

if TYPE_CHECKING:
    from PIL.Image import Image

PACKAGES = {
    "opencv-doc": "usr/share/doc/opencv-doc",
    "stellarium-data": "usr/share/stellarium/landscapes",
    "mate-backgrounds": "usr/share/backgrounds",
    "gnome-backgrounds": "usr/share/backgrounds",
    "plasma-workspace-wallpapers": "usr/share/wallpapers",
    "supertuxkart-data": "usr/share/games/supertuxkart/data",
}
"""Debian package -> the folder in it that is searched."""

LEFT_OUT = ("lena", "resgmg", "resmog", "julia_facedetect", "ambush_5", "face_swapped", "messi", "students", "lbp_yale")
"""Parts of names: pictures whose own licence is in doubt."""

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
LEAST = 224
"""Smallest edge in pixels."""

FLAT = 0.35
"""Largest share of neighbouring pixels that are equal: drawings and screenshots have more."""

PLAIN = 8.0
"""Least deviation of the brightness of a 16 x 16 thumbnail."""

ALIKE = 5.0
"""Least mean difference of two thumbnails: below it the second picture is left out."""

WIDE = 1.6
"""From this ratio of the edges on two squares are cut out of a picture, one at each end."""

MOST = 300
"""Squares of one package, the first by path."""

QUALITY = 85


@dataclass
class Gathered:
    """Squares and where they are from, as they are found."""

    names: list[str] = field(default_factory=list)
    squares: list[Image] = field(default_factory=list)
    thumbnails: list[np.ndarray] = field(default_factory=list)


def gather(packages: Path | None, out: Path) -> int:
    """Write a bank of the photographs in the packages; returns how many there are.

    Args:
        packages: A folder with the .deb files; None downloads them.
        out: Folder for the bank.

    Raises:
        UsageError: A package cannot be had.
    """
    found = Gathered()
    with tempfile.TemporaryDirectory(prefix="edgekit-") as place:
        for name, inside in PACKAGES.items():
            archive = _archive(name, packages, Path(place))
            unpacked = Path(place) / name
            subprocess.run(["dpkg-deb", "-x", str(archive), str(unpacked)], check=True)
            before = len(found.squares)
            for path in _pictures(unpacked / inside):
                _look(path, f"{name}/{path.relative_to(unpacked)}", found)
                if len(found.squares) >= before + MOST:
                    break
            del found.names[before + MOST :], found.squares[before + MOST :]
    out.mkdir(parents=True, exist_ok=True)
    record = []
    for number, (source, square) in enumerate(zip(found.names, found.squares, strict=True)):
        file = f"{number:04d}.jpg"
        square.save(out / file, quality=QUALITY)
        record.append({"file": file, "source": source})
    (out / "bank.json").write_text(json.dumps({"photographs": record}, indent=1) + "\n", encoding="utf-8")
    return len(record)


def load(folder: Path) -> Tensor:
    """A gathered bank: [n, 3, 448, 448] uint8.

    Raises:
        UsageError: There is none.
    """
    try:
        record = json.loads((folder / "bank.json").read_text(encoding="utf-8"))["photographs"]
        stacked = np.stack([read_picture(folder / one["file"]) for one in record]).transpose(0, 3, 1, 2)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"there is no bank of photographs in '{folder}' ({error}): python -m training.gather --out {folder}"
        ) from error
    return torch.from_numpy(np.ascontiguousarray(stacked))


def _archive(name: str, packages: Path | None, place: Path) -> Path:
    folder = packages or place
    if packages is None:
        done = subprocess.run(["apt-get", "download", name], cwd=place, capture_output=True, text=True)
        if done.returncode:
            raise UsageError(f"apt-get could not download '{name}': {done.stderr.strip()}")
    found = sorted(folder.glob(f"{name}_*.deb"))
    if not found:
        raise UsageError(f"there is no package '{name}' in '{folder}': apt-get download {name}")
    return found[-1]


def _pictures(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in SUFFIXES and path.is_file() and not any(part in path.name for part in LEFT_OUT):
            yield path


def _look(path: Path, source: str, found: Gathered) -> None:
    """Keep a picture if it looks like a photograph that was not there before."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    try:
        with Image.open(path) as opened:
            if min(opened.size) < LEAST or _sees_through(opened):
                return
            image = opened.convert("RGB")
    except OSError:
        return
    pixels = np.asarray(image)[:2000, :2000].astype(np.int64)
    equal = float((np.abs(np.diff(pixels, axis=1)).sum(2) == 0).mean())
    small = np.asarray(image.convert("L").resize((16, 16), Image.Resampling.BOX)).astype(np.int64)
    red, green, blue = pixels.reshape(-1, 3).mean(0)
    normals = blue > 200 and abs(red - 128) < 40 and abs(green - 128) < 40  # maps of surface normals
    if equal > FLAT or small.std() < PLAIN or normals:
        return
    if any(float(np.abs(small - other).mean()) < ALIKE for other in found.thumbnails):
        return
    found.thumbnails.append(small)
    for square in _squares(image):
        found.names.append(source)
        found.squares.append(square)


def _sees_through(image: Image) -> bool:
    return "A" in image.getbands() and float((np.asarray(image.getchannel("A")) < 250).mean()) > 0.3


def _squares(image: Image) -> list[Image]:
    from PIL import Image

    short, long = sorted(image.size)
    places = (0, long - short) if long >= WIDE * short else ((long - short) // 2,)
    lying = image.width >= image.height
    corners = [(at, 0) if lying else (0, at) for at in places]
    return [
        image.resize((BANK_EDGE, BANK_EDGE), Image.Resampling.LANCZOS, (x, y, x + short, y + short)) for x, y in corners
    ]


def main() -> None:
    """Read the options and gather."""
    parser = argparse.ArgumentParser(description="Gather the photographs that training uses.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the bank")
    parser.add_argument("--packages", type=Path, help="folder with the .deb files; default: apt-get download")
    given = parser.parse_args()
    try:
        sys.stdout.write(f"{gather(given.packages, given.out)} photographs in {given.out}\n")
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from error


if __name__ == "__main__":
    main()
