"""What is read of a build is checked before any byte of it is used."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from edgekit.storage import verified_io

RECORD = {"b": [1, 2.5e-07], "a": "ü", "files": {"w": "0" * 64}}


def test_any_flipped_bit_of_a_record_is_refused(tmp_path: Path) -> None:
    """Also one that leaves the same meaning: a capital E in a number, another digit that is rounded away."""
    whole = verified_io.seal_record(RECORD).encode()
    (tmp_path / "r.json").write_bytes(whole)
    assert {k: v for k, v in verified_io.read_record(tmp_path, "r.json").items() if k != verified_io.SEAL} == RECORD
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        (tmp_path / "r.json").write_bytes(changed)
        with pytest.raises(verified_io.RefusedError):
            verified_io.read_record(tmp_path, "r.json")


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "",
        "{" * 50_000,
        "[" * 100_000,
        json.dumps({**RECORD, verified_io.SEAL: verified_io.seal_of(RECORD)}),  # the same record, not as it is written
        verified_io.seal_record(RECORD) + " ",
        verified_io.seal_record(RECORD).replace("{", '{\n  "a": "x",', 1),  # a name twice
        '{"content_sha256": "\\ud800"}',
    ],
)
def test_what_is_not_as_it_was_written_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(verified_io.RefusedError) as refused:
        verified_io.read_record(tmp_path, "r.json")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../r", "a/../r", "a\\b", "r\0", "", ".", "./r", "a//b", "C:r", "a\x1b"]
)
def test_a_name_is_a_plain_relative_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(verified_io.RefusedError, match="is not a plain relative path"):
        verified_io.read_bytes(tmp_path, name)


def test_a_file_that_grows_without_end_is_read_up_to_the_limit(tmp_path: Path) -> None:
    with (tmp_path / "r").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(verified_io.RefusedError, match="is larger than 100 bytes"):
        verified_io.read_bytes(tmp_path, "r", largest=100)
    with pytest.raises(verified_io.RefusedError, match="its size differs from the record"):
        verified_io.check_file(tmp_path, "r", 5, "0" * 64)


def test_any_flipped_bit_of_a_file_is_refused(tmp_path: Path) -> None:
    whole = b"weights"
    digest = hashlib.sha256(whole).hexdigest()
    (tmp_path / "w").write_bytes(whole)
    assert verified_io.check_file(tmp_path, "w", len(whole), digest) == tmp_path / "w"
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        (tmp_path / "w").write_bytes(changed)
        for size in (len(whole), None):
            with pytest.raises(verified_io.RefusedError, match="its content"):
                verified_io.check_file(tmp_path, "w", size, digest)
