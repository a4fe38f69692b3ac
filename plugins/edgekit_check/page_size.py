"""`edgekit lint` of an Android package: whether its native libraries load on a device with pages of 16 KB.

Android's rule has two halves, both for the 64-bit ABIs only (https://developer.android.com/guide/practices/page-sizes):
each PT_LOAD segment of a library is aligned to 16 KB, and a library that an APK stores uncompressed begins at a
multiple of 16 KB in it. An AAB has no such offsets: bundletool writes the APKs.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from edgekit.errors import ModelError, UsageError, reason
from edgekit.storage.host_errors import as_sentences

PACKAGES = (".apk", ".aab", ".aar", ".so")
PAGE = 16384
TABLE = Path(__file__).parent / "runtimes" / "android-16kb.json"
# e_machine of ELF.
ABIS = {3: "x86", 40: "armeabi-v7a", 62: "x86_64", 183: "arm64-v8a"}
PAGED_ABIS = ("arm64-v8a", "x86_64")
PT_LOAD = 1
# What Android loads; the libraries of an AAR's `prefab` folder are there to link against.
SHIPPED = re.compile(r"(?:^|/)(?:lib|jni)/[^/]+/[^/]+\.so")


@dataclass(frozen=True)
class Library:
    """A native library of a package.

    Attributes:
        path: Path in the package, or of the file.
        abi: As Android calls it; empty if the file is not ELF or of no ABI of Android.
        alignment: Smallest alignment of its PT_LOAD segments, in bytes; 0 if the file is not ELF.
        offset: Offset of its bytes in an APK; None if they are compressed or the package is not an APK.
        problems: Sentences with the way out; empty if it loads, or need not.
    """

    path: str
    abi: str
    alignment: int
    offset: int | None
    problems: tuple[str, ...]

    @property
    def is_exempt(self) -> bool:
        """Whether the rule does not cover it."""
        return self.abi not in PAGED_ABIS


@as_sentences()
def check_page_size(path: Path) -> tuple[Library, ...]:
    """Return the native libraries of an .apk, .aab, .aar or .so file.

    Raises:
        UsageError: If the file is missing.
        ModelError: If the package, or a library that begins as ELF does, is damaged.
    """
    if not path.is_file():
        raise UsageError(f"there is no file '{path}'. Name an {', '.join(PACKAGES[:-1])} or {PACKAGES[-1]} file")
    if path.suffix.lower() == ".so":
        with path.open("rb") as stream:
            library = _read_library(stream, path.name, None)
        if not library.alignment:
            raise ModelError(f"'{path}' is not an ELF file. Name a library that was built for Android")
        return (library,)
    is_apk = path.suffix.lower() == ".apk"
    try:
        with zipfile.ZipFile(path) as package, path.open("rb") as raw:
            entries = sorted((e for e in package.infolist() if SHIPPED.search(e.filename)), key=lambda e: e.filename)
            return tuple(_read_entry(package, entry, raw if is_apk else None) for entry in entries)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error) as error:
        raise ModelError(f"'{path}' is not a package that can be read ({reason(error)}). Build it again") from error


def _read_entry(package: zipfile.ZipFile, entry: zipfile.ZipInfo, raw: IO[bytes] | None) -> Library:
    offset = None
    if raw is not None and entry.compress_type == zipfile.ZIP_STORED:
        # The extra field of the local header, which zipalign pads, is not that of the central directory.
        raw.seek(entry.header_offset + 26)
        name, extra = struct.unpack("<HH", raw.read(4))
        offset = entry.header_offset + 30 + name + extra
    with package.open(entry) as stream:
        return _read_library(stream, entry.filename, offset)


def _read_library(stream: IO[bytes], path: str, offset: int | None) -> Library:
    """Read an ELF header and its program headers (System V ABI, chapters 4 and 5)."""
    head = stream.read(64)
    if head[:4] != b"\x7fELF":
        return Library(path, "", 0, offset, ())
    try:
        is_64, order = {1: False, 2: True}[head[4]], {1: "<", 2: ">"}[head[5]]
        [machine] = struct.unpack_from(f"{order}H", head, 18)
        [table] = struct.unpack_from(f"{order}{'Q' if is_64 else 'I'}", head, 32 if is_64 else 28)
        size, count = struct.unpack_from(f"{order}HH", head, 54 if is_64 else 42)
        if size != (56 if is_64 else 32):
            raise ValueError(size)
        # patchelf moves the program headers to the end of the file.
        stream.seek(table)
        headers = stream.read(size * count)
        alignments: list[int] = []
        for start in range(0, size * count, size):
            [kind] = struct.unpack_from(f"{order}I", headers, start)
            if kind == PT_LOAD:
                place = start + (48 if is_64 else 28)
                alignments += struct.unpack_from(f"{order}{'Q' if is_64 else 'I'}", headers, place)
    except (KeyError, IndexError, struct.error, ValueError, OverflowError) as error:
        raise ModelError(f"'{path}' is a damaged ELF file. Build it again") from error
    if not alignments:
        raise ModelError(f"'{path}' is an ELF file without a PT_LOAD segment. Name a library, not an object file")
    abi, alignment = ABIS.get(machine, ""), min(alignments)
    problems = _problems(path, alignment, offset) if abi in PAGED_ABIS else ()
    return Library(path, abi, alignment, offset, tuple(problems))


def _problems(path: str, alignment: int, offset: int | None) -> Iterator[str]:
    if alignment < PAGE:
        name = path.rpartition("/")[2]
        ways = load_table()["libraries"]
        # The longest name first: one library's name may begin as another's.
        prefix = next((p for p in sorted(ways, key=len, reverse=True) if name.startswith(p)), "")
        way = ways.get(prefix, "build it with NDK r28 or newer, or with -Wl,-z,max-page-size=16384")
        yield f"its segments are aligned to {alignment} bytes, not {PAGE}: {way}"
    if offset is not None and offset % PAGE:
        way = "build the APK with Android Gradle Plugin 8.5.1 or newer, or run zipalign -P 16"
        yield f"it is stored at byte {offset} of the APK, which is no multiple of {PAGE}: {way}"


def load_table() -> dict[str, Any]:
    """Return the table: `libraries` has the way out by the beginning of a file's name, `source` the sources."""
    table: dict[str, Any] = json.loads(TABLE.read_text("utf-8"))
    return table


def lines(libraries: Sequence[Library]) -> Iterable[str]:
    """Yield the lines that the command prints."""
    for library in libraries:
        yield from (f"{library.path}: {problem}" for problem in library.problems)
        if library.is_exempt:
            kind = "not an ELF file" if not library.alignment else library.abi or "of no ABI of Android"
            yield f"{library.path}: exempt: {kind}"
    aligned = sum(not library.problems and not library.is_exempt for library in libraries)
    misaligned, exempt = sum(bool(lib.problems) for lib in libraries), sum(lib.is_exempt for lib in libraries)
    yield f"pages of 16 KB, not run on a device: {aligned} libraries fit, {misaligned} misaligned, {exempt} exempt"
