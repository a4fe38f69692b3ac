"""A listener for tests: it remembers how each target ended and prints nothing."""

from __future__ import annotations

from edgekit.pipeline.run import Row


class Silence:
    """An audience that remembers how each target ended and says nothing."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def progress(self, name: str, done: float, text: str) -> None:
        """Not told."""

    def done(self, name: str) -> None:
        """Not told."""

    def finished(self, row: Row) -> None:
        """Remembered."""
        self.rows.append(row)
