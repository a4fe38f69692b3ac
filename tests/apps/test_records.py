from __future__ import annotations

import hashlib
from pathlib import Path

from edgekit.apps.records import content_digest, content_size


def test_bytes_and_a_file_that_holds_them_are_the_same_content(tmp_path: Path) -> None:
    data = b"weights\0" * 1000
    (tmp_path / "file").write_bytes(data)
    assert content_digest(data) == content_digest(tmp_path / "file") == hashlib.sha256(data).hexdigest()
    assert content_size(data) == content_size(tmp_path / "file") == 8000
    assert content_digest(b"") != content_digest(b"\0")
    assert content_size(b"") == 0
