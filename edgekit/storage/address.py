"""URLs in the place of folders: builds in stores have them, outputs may not."""

from __future__ import annotations

import re
from pathlib import Path

from edgekit.errors import UsageError

_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.DOTALL)


def url_of(place: str | Path) -> str:
    """The URL that a text or a path is; empty for a path. `Path("s3://a/b")` is `s3:/a/b`, which counts too."""
    match = _URL.fullmatch(str(place))
    return f"{match[1]}://{'/' if match[1] in ('file', 'memory') else ''}{match[2]}" if match else ""


def require_folder(place: str | Path, doing: str) -> None:
    """See that an output is a folder of this host.

    Raises:
        UsageError: If it is a URL.
    """
    if url := url_of(place):
        raise UsageError(
            f"'{url}' is no folder: {doing} locally; send them there afterwards with "
            f"`edgekit push BUILD {url.rstrip('/')}/NAME`"
        )
