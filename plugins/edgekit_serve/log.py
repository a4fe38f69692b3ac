"""What happens, one JSON object a line on standard error."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime


def log(event: str, **fields: object) -> None:
    """Write one line; fields that are None are left out."""
    record = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event}
    record |= {name: value for name, value in fields.items() if value is not None}  # type: ignore[misc]  # any JSON
    sys.stderr.write(json.dumps(record) + "\n")
    sys.stderr.flush()
