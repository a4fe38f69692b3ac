"""The import of torchax under a PyTorch that it does not know."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

GONE = ("dimname", "names")
"""Parts of the names of operators that PyTorch 2.13 removed, and that the tables of torchax 0.0.13 still hold."""


class _Placeholder:
    """Stands in a table for an operator that no program has."""


@contextmanager
def known_overloads() -> Iterator[None]:
    """Let removed overloads of operators be named, while torchax is imported."""
    from torch._ops import OpOverloadPacket

    own = OpOverloadPacket.__getattr__

    def look_up(packet: OpOverloadPacket, name: str) -> Any:
        try:
            return own(packet, name)
        except AttributeError:
            if any(part in name.lower() for part in GONE):
                return _Placeholder()
            raise

    OpOverloadPacket.__getattr__ = look_up  # type: ignore[method-assign]  # put back below
    try:
        yield
    finally:
        OpOverloadPacket.__getattr__ = own  # type: ignore[method-assign]
