from __future__ import annotations

import hashlib
from pathlib import Path

from edgekit.apps.records import digest, size


def test_bytes_and_a_file_that_holds_them_are_the_same_content(tmp_path: Path) -> None:
    data = b"weights\0" * 1000
    (tmp_path / "file").write_bytes(data)
    assert digest(data) == digest(tmp_path / "file") == hashlib.sha256(data).hexdigest()
    assert size(data) == size(tmp_path / "file") == 8000
    assert digest(b"") != digest(b"\0")
    assert size(b"") == 0
