"""A listener that keeps what it is told."""

from __future__ import annotations

from edgekit.testing import QuietListener


class Silent(QuietListener):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def progress(self, name: str, done: float, text: str) -> None:
        assert 0.0 <= done <= 1.0
        self.texts.append(text)
