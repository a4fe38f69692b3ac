"""An audience that keeps what it is told."""

from __future__ import annotations

from edgekit.pipeline.run import Row


class Silent:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.rows: list[Row] = []

    def progress(self, name: str, done: float, text: str) -> None:
        assert 0.0 <= done <= 1.0
        self.texts.append(text)

    def done(self, name: str) -> None:
        pass

    def finished(self, row: Row) -> None:
        self.rows.append(row)
